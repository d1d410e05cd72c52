// Who is logged in, and in which project.
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { Schemas } from '../lib/api'

export type Me = Schemas['User']

export const MeContext = createContext<Me | undefined>(undefined)

// useMe returns the user; pages are shown only once it is known.
export const useMe = (): Me => useContext(MeContext)!
