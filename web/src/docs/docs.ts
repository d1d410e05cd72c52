// What the manual and the reference gain with a script: copy buttons, links to sections that copy
// themselves, results while typing, one language for all examples, and where one is on the page.
// Everything else is HTML that weir made (internal/web), and works without this.
import './docs.css'
import { applyTheme } from '../console/theme'

applyTheme()

// Examples name a server; the reader has this one. The base of the page is its root.
const example = 'http://localhost:8080'
const here = document.baseURI.replace(/\/$/, '')
for (const code of document.querySelectorAll('pre code')) {
  if (!code.textContent?.includes(example)) continue
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const node = walker.currentNode as Text
    node.data = node.data.replaceAll(example, here)
  }
}

async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return false // the browser allows it on HTTPS and localhost only
  }
}

if (navigator.clipboard) {
  for (const block of document.querySelectorAll<HTMLElement>('.code')) {
    const button = document.createElement('button')
    button.type = 'button'
    button.className = 'copy'
    button.textContent = 'Copy'
    button.addEventListener('click', async () => {
      const done = await copy(block.querySelector('code')?.textContent ?? '')
      button.textContent = done ? 'Copied' : 'Not allowed'
      button.classList.add('done')
      setTimeout(() => {
        button.textContent = 'Copy'
        button.classList.remove('done')
      }, 1500)
    })
    block.append(button)
  }
  for (const anchor of document.querySelectorAll<HTMLAnchorElement>('.anchor')) {
    anchor.title = 'Copy the link to this section'
    anchor.addEventListener('click', async () => {
      if (!(await copy(anchor.href))) return
      anchor.classList.add('copied')
      setTimeout(() => anchor.classList.remove('copied'), 1500)
    })
  }
}

// The language that was chosen last is that of all examples.
const languageKey = 'weir.docs.language'
function choose(language: string) {
  for (const input of document.querySelectorAll<HTMLInputElement>('.tabs > input'))
    input.checked = input.value === language
}
const chosen = localStorage.getItem(languageKey)
if (chosen && document.querySelector(`.tabs > input[value="${CSS.escape(chosen)}"]`)) choose(chosen)
document.addEventListener('change', (event) => {
  const input = event.target
  if (!(input instanceof HTMLInputElement) || !input.closest('.tabs')) return
  const before = input.getBoundingClientRect().top // examples above change their height
  choose(input.value)
  localStorage.setItem(languageKey, input.value)
  scrollBy(0, (input.labels?.[0] ?? input).getBoundingClientRect().top - before)
})

// Results while typing. The last question that was asked wins.
interface Hit {
  path: string
  page: string
  heading?: string
  excerpt: string
}
const query = document.querySelector<HTMLInputElement>('#query')
const results = document.querySelector<HTMLElement>('#results')
if (query && results) {
  let asked = 0
  let timer = 0
  const show = (hits: Hit[]) => {
    results.replaceChildren(
      ...hits.slice(0, 10).map((hit) => {
        const link = document.createElement('a')
        link.href = hit.path
        const title = document.createElement('strong')
        title.textContent = hit.heading ?? hit.page
        link.append(title)
        if (hit.heading) {
          const page = document.createElement('small')
          page.textContent = ` ${hit.page}`
          link.append(page)
        }
        const excerpt = document.createElement('p')
        excerpt.innerHTML = hit.excerpt // escaped by the server, which marks the words
        link.append(excerpt)
        return link
      }),
    )
    if (hits.length === 0) {
      const none = document.createElement('p')
      none.textContent = 'Nothing has all of these words.'
      results.append(none)
    }
    results.hidden = false
  }
  query.addEventListener('input', () => {
    clearTimeout(timer)
    const words = query.value.trim()
    const mine = ++asked
    if (!words) {
      results.hidden = true
      return
    }
    timer = window.setTimeout(async () => {
      const answer = await fetch(`docs/search?q=${encodeURIComponent(words)}`, {
        headers: { Accept: 'application/json' },
      }).catch(() => null)
      if (answer?.ok && mine === asked) show((await answer.json()) as Hit[])
    }, 120)
  })
  const move = (event: KeyboardEvent) => {
    const links = [...results.querySelectorAll('a')]
    const at = links.indexOf(document.activeElement as HTMLAnchorElement)
    if (event.key === 'Escape') {
      results.hidden = true
      query.focus()
    } else if (event.key === 'ArrowDown' && !results.hidden) {
      event.preventDefault()
      links[Math.min(at + 1, links.length - 1)]?.focus()
    } else if (event.key === 'ArrowUp' && at >= 0) {
      event.preventDefault()
      ;(links[at - 1] ?? query).focus()
    }
  }
  query.form?.addEventListener('keydown', move)
  document.addEventListener('click', (event) => {
    if (!query.form?.contains(event.target as Node)) results.hidden = true
  })
  results.addEventListener('click', () => (results.hidden = true))
  document.addEventListener('keydown', (event) => {
    const typing = event.target instanceof Element && event.target.closest('input, textarea, select')
    if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault()
      query.focus()
    }
  })
  query.placeholder = 'Search  ( / )'
}

// Which section is read now.
const links = new Map<string, HTMLAnchorElement>()
for (const link of document.querySelectorAll<HTMLAnchorElement>('.contents a, .side .calls a'))
  links.set(decodeURIComponent(link.hash.slice(1)), link)
const headings = [...document.querySelectorAll<HTMLElement>('main :is(h2, h3)[id]')].filter((heading) =>
  links.has(heading.id),
)
if (headings.length > 0) {
  let current: HTMLAnchorElement | undefined
  const follow = () => {
    const line = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) + 8
    const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 2
    const passed = headings.filter((heading) => heading.getBoundingClientRect().top <= line)
    const at = end && scrollY > 0 ? headings.at(-1) : passed.at(-1)
    const link = at && links.get(at.id)
    if (link === current) return
    current?.classList.remove('here')
    link?.classList.add('here')
    current = link
  }
  addEventListener('scroll', follow, { passive: true })
  follow()
}

// The page that is read is in view in a long sidebar.
document.querySelector('.side [aria-current]')?.scrollIntoView({ block: 'nearest' })
