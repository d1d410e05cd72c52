// embedCode is the HTML that shows a watch page inside another page.
export function embedCode(watchPage: string, title?: string): string {
  const named = title ? ` title="${title.replaceAll('&', '&amp;').replaceAll('"', '&quot;')}"` : ''
  return `<iframe src="${watchPage}"${named} width="640" height="360" frameborder="0" allow="autoplay; picture-in-picture" allowfullscreen></iframe>`
}
