// Where in the console the reader is, and how pages lead elsewhere.
import { useLocation } from 'preact-iso'

// base is the path of the console; '/' unless a proxy serves weir below a prefix.
export const base = new URL('.', document.baseURI).pathname

// useGo returns a function that shows another page, by its path relative to the console.
export function useGo(): (path: string, replace?: boolean) => void {
  const { route } = useLocation()
  return (path, replace) => route(base + path, replace)
}

// useFilters returns the query string and a function that changes some of its values; '' removes
// one. So a link to the page leads to the same filters.
export function useFilters(): [Record<string, string>, (patch: Record<string, string>) => void] {
  const { path, query, route } = useLocation()
  const change = (patch: Record<string, string>) => {
    const search = new URLSearchParams({ ...query, ...patch })
    for (const [name, value] of [...search]) if (value === '') search.delete(name)
    route(path + (search.size > 0 ? '?' + search : ''), true)
  }
  return [query, change]
}

// useQuery does the same for one value.
export function useQuery(name: string, fallback = ''): [string, (value: string) => void] {
  const [query, change] = useFilters()
  return [query[name] ?? fallback, (value) => change({ [name]: value === fallback ? '' : value })]
}
