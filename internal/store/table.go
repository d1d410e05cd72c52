package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"weir/internal/weir"
)

// table says how a resource is kept: columns to find and order rows by, a
// document, and a sealed part. The columns are always written from the document,
// so the two can't drift apart.
type table[T any] struct {
	name    string
	columns []column[T] // the first is the id
	// secrets returns a pointer to what is sealed; nil = nothing is. It is filled
	// from v before sealing and written back to v by restore after opening.
	secrets func(v *T) any
	restore func(v *T, secrets any)
	// hidden is like secrets, for what is stored in the clear but never shown.
	hidden  func(v *T) any
	unhide  func(v *T, hidden any)
	fields  map[string]field // what lists may be filtered and ordered by
	order   string           // of lists, when the caller names none; as in the API
	deleted bool             // rows are marked as deleted, not removed
	project bool             // rows belong to a project, not only to a user
}

// column is a column beside the document.
type column[T any] struct {
	name  string
	value func(q *queries, v *T) any
}

// stored is the document with what is never shown.
type stored[T any] struct {
	Shown  *T              `json:"v"`
	Hidden json.RawMessage `json:"h,omitempty"`
}

// write returns the values of a row: the columns, the document, the sealed part.
func (t *table[T]) write(q *queries, v *T) ([]any, error) {
	args := make([]any, 0, len(t.columns)+2)
	for _, c := range t.columns {
		args = append(args, c.value(q, v))
	}
	doc := stored[T]{Shown: v}
	var err error
	if t.hidden != nil {
		if doc.Hidden, err = json.Marshal(t.hidden(v)); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	args = append(args, string(text))
	if t.secrets != nil {
		plain, err := json.Marshal(t.secrets(v))
		if err != nil {
			return nil, err
		}
		args = append(args, q.seal.sealed(t.place(args[0]), plain))
	}
	return args, nil
}

func (t *table[T]) place(id any) string { return fmt.Sprintf("%s/%v", t.name, id) }

// selected is what a SELECT must name for scan.
func (t *table[T]) selected() string {
	if t.secrets != nil {
		return "id, doc, sealed"
	}
	return "id, doc"
}

// scan reads a row.
func (t *table[T]) scan(q *queries) func(rows) (T, error) {
	return func(r rows) (v T, err error) {
		var id string
		var doc, box []byte
		dest := []any{&id, &doc}
		if t.secrets != nil {
			dest = append(dest, &box)
		}
		if err := r.Scan(dest...); err != nil {
			return v, err
		}
		return v, t.read(q, &v, id, doc, box)
	}
}

func (t *table[T]) read(q *queries, v *T, id string, doc, box []byte) error {
	s := stored[T]{Shown: v}
	if err := json.Unmarshal(doc, &s); err != nil {
		return fmt.Errorf("%s: %w", t.place(id), err)
	}
	if t.hidden != nil && s.Hidden != nil {
		hidden := t.hidden(v)
		if err := json.Unmarshal(s.Hidden, hidden); err != nil {
			return fmt.Errorf("%s: %w", t.place(id), err)
		}
		t.unhide(v, hidden)
	}
	if t.secrets == nil {
		return nil
	}
	plain, err := q.seal.open(t.place(id), box)
	if err != nil {
		return err
	}
	secrets := t.secrets(v)
	if err := json.Unmarshal(plain, secrets); err != nil {
		return fmt.Errorf("%s: %w", t.place(id), err)
	}
	t.restore(v, secrets)
	return nil
}

// get returns the row with the id, also one that is marked as deleted.
func (t *table[T]) get(ctx context.Context, q *queries, id string) (T, error) {
	return one(ctx, q.conn, t.scan(q), "SELECT "+t.selected()+" FROM "+t.name+" WHERE id = $1", id)
}

// where returns the rows that fulfil a condition.
func (t *table[T]) where(ctx context.Context, q *queries, condition string, args ...any) ([]T, error) {
	return many(ctx, q.conn, t.scan(q), "SELECT "+t.selected()+" FROM "+t.name+" WHERE "+condition, args...)
}

// names returns the names of all columns that write fills.
func (t *table[T]) names() []string {
	names := make([]string, 0, len(t.columns)+2)
	for _, c := range t.columns {
		names = append(names, c.name)
	}
	names = append(names, "doc")
	if t.secrets != nil {
		names = append(names, "sealed")
	}
	return names
}

// insert writes a new row.
func (t *table[T]) insert(ctx context.Context, tx *Tx, v *T) error {
	args, err := t.write(&tx.queries, v)
	if err != nil {
		return err
	}
	names := t.names()
	holes := make([]string, len(names))
	for i := range names {
		holes[i] = fmt.Sprintf("$%d", i+1)
	}
	_, err = tx.conn.exec(ctx, "INSERT INTO "+t.name+" ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(holes, ", ")+")", args...)
	if errors.Is(err, errDuplicate) {
		return weir.Wrap(weir.Conflict, err, "%s exists already", t.name)
	}
	return err
}

// update reads a row, changes it and writes it back. Nobody else can change it
// in between.
func (t *table[T]) update(ctx context.Context, tx *Tx, id string, change func(*T) error) (T, error) {
	v, err := one(ctx, tx.conn, t.scan(&tx.queries),
		"SELECT "+t.selected()+" FROM "+t.name+" WHERE id = $1"+tx.store.engine.forUpdate(), id)
	if err != nil {
		return v, err
	}
	if err := change(&v); err != nil {
		return v, err
	}
	return v, t.save(ctx, tx, id, &v)
}

// save writes a row over what is there.
func (t *table[T]) save(ctx context.Context, tx *Tx, id string, v *T) error {
	args, err := t.write(&tx.queries, v)
	if err != nil {
		return err
	}
	sets := make([]string, 0, len(args))
	for i, name := range t.names() {
		sets = append(sets, fmt.Sprintf("%s = $%d", name, i+1))
	}
	_, err = tx.conn.exec(ctx, "UPDATE "+t.name+" SET "+strings.Join(sets, ", ")+fmt.Sprintf(" WHERE id = $%d", len(args)+1), append(args, id)...)
	return err
}

// remove deletes a row for good.
func (t *table[T]) remove(ctx context.Context, tx *Tx, id string) error {
	n, err := tx.conn.exec(ctx, "DELETE FROM "+t.name+" WHERE id = $1", id)
	if err == nil && n == 0 {
		return weir.ErrNotFound()
	}
	return err
}
