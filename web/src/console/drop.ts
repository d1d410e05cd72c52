import { useEffect, useState } from 'preact/hooks'
import { toast } from '../ui/toast'

// useDrop takes files that are dropped anywhere on the page. It returns whether some are above it.
export function useDrop(take: (files: File[]) => void): boolean {
  const [above, setAbove] = useState(false)
  useEffect(() => {
    let depth = 0 // dragenter and dragleave come for every element
    const hasFiles = (e: DragEvent) => e.dataTransfer?.types.includes('Files') ?? false
    const on = {
      dragenter: (e: DragEvent) => hasFiles(e) && setAbove(++depth > 0),
      dragleave: (e: DragEvent) => hasFiles(e) && setAbove(--depth > 0),
      dragover: (e: DragEvent) => hasFiles(e) && e.preventDefault(),
      drop: (e: DragEvent) => {
        if (!hasFiles(e)) return
        e.preventDefault()
        depth = 0
        setAbove(false)
        if (e.target instanceof Element && e.target.closest('dialog')) return // its own field takes them
        const files = [...(e.dataTransfer?.files ?? [])].filter((file) => file.size > 0)
        if (files.length > 0) take(files)
        else toast('Drop files: folders and empty files can’t be uploaded.', 'bad')
      },
    }
    for (const [name, listener] of Object.entries(on)) window.addEventListener(name, listener as EventListener)
    return () => {
      for (const [name, listener] of Object.entries(on)) window.removeEventListener(name, listener as EventListener)
    }
  }, [])
  return above
}
