// embedCode is the HTML that shows a watch page inside another page: the same as in the manual, and as
// the server describes it to other sites (oembed.go).
export const embedCode = (watchPage: string, title: string): string =>
  `<iframe src="${watchPage}" title="${escaped(title)}" width="640" height="360" frameborder="0" allow="autoplay; picture-in-picture" allowfullscreen></iframe>`

const escaped = (text: string) =>
  text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
