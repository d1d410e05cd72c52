// The table of a list. On a phone its rows become cards, with the labels of the columns beside the
// cells.
import type { ComponentChildren } from 'preact'

export interface Column<T> {
  label: string
  number?: boolean // is aligned to the right
  nowrap?: boolean
  bare?: boolean // a phone shows the cell without the label
  cell: (item: T) => ComponentChildren
}

interface TableProps<T> {
  items: T[]
  columns: Column<T>[]
  actions?: (item: T) => ComponentChildren // buttons at the end of a row
}

export function Table<T extends { id: string }>({ items, columns, actions }: TableProps<T>) {
  return (
    <div class="table">
      <table>
        <thead>
          <tr>
            {columns.map(({ label, number }) => (
              <th key={label} class={number ? 'number' : undefined}>
                {label}
              </th>
            ))}
            {actions && (
              <th>
                <span class="hidden">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <tr key={item.id}>
              {columns.map(({ label, number, nowrap, bare, cell }) => (
                <td
                  key={label}
                  data-label={bare ? undefined : label}
                  class={number ? 'number' : nowrap ? 'nowrap' : undefined}
                >
                  {cell(item)}
                </td>
              ))}
              {actions && (
                <td class="end">
                  <div class="actions to-end">{actions(item)}</div>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
