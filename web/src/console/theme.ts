// Dark or light: as the system says, unless the person chose.
export type Theme = 'system' | 'light' | 'dark'

const key = 'weir.theme'

export const theme = (): Theme => (localStorage.getItem(key) as Theme | null) ?? 'system'

export function setTheme(chosen: Theme) {
  localStorage.setItem(key, chosen)
  applyTheme()
}

export function applyTheme() {
  const chosen = theme()
  if (chosen === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = chosen
}
