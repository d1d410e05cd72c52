// The frame of every page of the console: title, actions, and the calls behind it as code.
import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import type { Call } from '../lib/code'
import { AsCode } from './code'

interface PageProps {
  title: string
  back?: { href: string; label: string }
  actions?: ComponentChildren
  calls?: Call[] // what this page asked the API for
  children: ComponentChildren
}

export function Page({ title, back, actions, calls, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${title} · weir`
  }, [title])
  useEffect(() => heading.current?.focus({ preventScroll: true }), []) // screen readers read the new page
  return (
    <div class="page">
      {back && (
        <p class="back">
          <a href={back.href}>{back.label}</a>
        </p>
      )}
      <div class="head">
        <h1 ref={heading} tabIndex={-1}>
          {title}
        </h1>
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
      {calls && calls.length > 0 && <AsCode calls={calls} />}
    </div>
  )
}

export function Card({
  title,
  actions,
  children,
  class: extra = '',
}: {
  title?: string
  actions?: ComponentChildren
  children: ComponentChildren
  class?: string
}) {
  return (
    <section class={'card ' + extra}>
      {(title || actions) && (
        <div class="head">
          {title && <h2>{title}</h2>}
          {actions && <div class="actions">{actions}</div>}
        </div>
      )}
      {children}
    </section>
  )
}

// Facts is a list of names and values; values that are absent are left out.
export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of
        .filter(([, value]) => value !== undefined && value !== null && value !== false && value !== '')
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  )
}
