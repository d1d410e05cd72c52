// Where in the console the reader is, and how pages lead elsewhere.
import { useLocation } from 'preact-iso'
import { base } from './routes'

// useGo returns a function that shows another page, by its path relative to the console.
export function useGo(): (path: string, replace?: boolean) => void {
  const { route } = useLocation()
  return (path, replace) => route(base + path, replace)
}

// useQuery reads a value of the query string, and returns a function that changes it. So a link to
// the page leads to the same filter or tab.
export function useQuery(name: string, fallback = ''): [string, (value: string) => void] {
  const { path, query, route } = useLocation()
  const set = (value: string) => {
    const changed = new URLSearchParams(query)
    if (value === fallback) changed.delete(name)
    else changed.set(name, value)
    route(path + (changed.size > 0 ? '?' + changed : ''), true)
  }
  return [query[name] ?? fallback, set]
}
