// The query string of a page: filters and tabs that a link can name.
import { useLocation } from 'preact-iso'
import { base } from './routes'

// useQuery returns the query and a function that changes some of its values; '' removes one.
export function useQuery(): [Record<string, string>, (patch: Record<string, string>) => void] {
  const { query, path, route } = useLocation()
  const change = (patch: Record<string, string>) => {
    const search = new URLSearchParams({ ...query, ...patch })
    for (const [name, value] of [...search]) if (value === '') search.delete(name)
    route(path + (search.size > 0 ? '?' + search : ''), true)
  }
  return [query, change]
}

// useGo returns a function that shows another page of the console.
export function useGo(): (to: string) => void {
  const { route } = useLocation()
  return (to) => route(base + to)
}
