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
// document that is just what the API shows, a hidden part that it does not show,
// and a sealed part. All are always written from the same value, so they can't
// drift apart.
type table[T any] struct {
	name    string
	columns []column[T] // the first is the id
	// secrets returns a pointer to what is sealed; nil = nothing is. It is filled
	// from v before sealing and written back to v by restore after opening.
	secrets func(v *T) any
	restore func(v *T, secrets any)
	// conceal takes what is sealed out of the document, which is made from a copy of
	// v; nil = the JSON of v does not have it.
	conceal func(document *T)
	// hidden is like secrets, for what is stored in the clear but never shown.
	hidden  func(v *T) any
	unhide  func(v *T, hidden any)
	fields  map[string]field // what lists may be filtered and ordered by
	order   string           // of lists, when the caller names none; as in the API
	deleted bool             // rows are marked as deleted, not removed
	project bool             // rows belong to a project, not only to a user
	cached  bool             // rows are remembered as they are shown
}

// column is a column beside the document.
type column[T any] struct {
	name  string
	value func(q *queries, v *T) any
}

// write returns the values of a row: the columns, the document, what is hidden,
// what is sealed.
func (t *table[T]) write(q *queries, v *T) ([]any, error) {
	args := make([]any, 0, len(t.columns)+3)
	for _, c := range t.columns {
		args = append(args, c.value(q, v))
	}
	shown := *v
	if t.conceal != nil {
		t.conceal(&shown)
	}
	doc, err := json.Marshal(&shown)
	if err != nil {
		return nil, err
	}
	args = append(args, string(doc))
	if t.hidden != nil {
		hidden, err := json.Marshal(t.hidden(v))
		if err != nil {
			return nil, err
		}
		args = append(args, string(hidden))
	}
	if t.secrets != nil {
		plain, err := json.Marshal(t.secrets(v))
		if err != nil {
			return nil, err
		}
		args = append(args, q.seal.sealed(t.place(v, q), plain))
	}
	return args, nil
}

// place is what a sealed part is bound to.
func (t *table[T]) place(v *T, q *queries) string {
	return t.placeOf(t.columns[0].value(q, v).(string))
}

func (t *table[T]) placeOf(id string) string { return t.name + "/" + id }

// selected is what a SELECT must name for scan.
func (t *table[T]) selected() string { return strings.Join(t.parts(), ", ") }

// parts are the columns that a row is read from.
func (t *table[T]) parts() []string {
	names := []string{"id", "doc"}
	if t.hidden != nil {
		names = append(names, "hidden")
	}
	if t.secrets != nil {
		names = append(names, "sealed")
	}
	return names
}

// row is what parts are read into.
type row struct {
	id                  string
	doc, hidden, sealed []byte
}

func (t *table[T]) dest(r *row) []any {
	dest := []any{&r.id, &r.doc}
	if t.hidden != nil {
		dest = append(dest, &r.hidden)
	}
	if t.secrets != nil {
		dest = append(dest, &r.sealed)
	}
	return dest
}

// scan reads a row.
func (t *table[T]) scan(q *queries) func(rows) (T, error) {
	return func(r rows) (v T, err error) {
		var parts row
		if err := r.Scan(t.dest(&parts)...); err != nil {
			return v, err
		}
		return v, t.read(q, &v, parts)
	}
}

func (t *table[T]) read(q *queries, v *T, r row) error {
	broken := func(err error) error { return fmt.Errorf("%s: %w", t.placeOf(r.id), err) }
	if err := json.Unmarshal(r.doc, v); err != nil {
		return broken(err)
	}
	if t.hidden != nil {
		hidden := t.hidden(v)
		if err := json.Unmarshal(r.hidden, hidden); err != nil {
			return broken(err)
		}
		t.unhide(v, hidden)
	}
	if t.secrets != nil {
		plain, err := q.seal.open(t.placeOf(r.id), r.sealed)
		if err != nil {
			return err
		}
		secrets := t.secrets(v)
		if err := json.Unmarshal(plain, secrets); err != nil {
			return broken(err)
		}
		t.restore(v, secrets)
	}
	return nil
}

// Shown is a row as its owner sees it, without having been turned into a value
// and back: the document, and behind it what was sealed.
type Shown struct {
	UserID, ProjectID string
	Deleted           bool
	JSON              []byte
}

// shownColumns is what a SELECT must name for scanShown.
const shownColumns = "id, doc, sealed, user_id, project_id, deleted"

// scanShown reads a row and the keys that it is ordered by.
func (t *table[T]) scanShown(q *queries, r rows, keys []any) (s Shown, err error) {
	var parts row
	dest := append(make([]any, 0, 6+len(keys)), &parts.id, &parts.doc, &parts.sealed, &s.UserID, &s.ProjectID, &s.Deleted)
	for i := range keys {
		dest = append(dest, &keys[i])
	}
	if err := r.Scan(dest...); err != nil {
		return s, err
	}
	plain, err := q.seal.open(t.placeOf(parts.id), parts.sealed)
	if err != nil {
		return s, err
	}
	s.JSON = joinObjects(parts.doc, plain)
	return s, nil
}

// joinObjects returns the members of two JSON objects in one.
func joinObjects(a, b []byte) []byte {
	if len(b) <= 2 {
		return a
	}
	joined := append(make([]byte, 0, len(a)+len(b)), a[:len(a)-1]...)
	if len(a) > 2 {
		joined = append(joined, ',')
	}
	return append(joined, b[1:]...)
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
	names := make([]string, 0, len(t.columns)+3)
	for _, c := range t.columns {
		names = append(names, c.name)
	}
	return append(names, t.parts()[1:]...)
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

// touch notes that a row changes, for whoever remembers it.
func (t *table[T]) touch(tx *Tx, id string) {
	if t.cached {
		tx.touched = append(tx.touched, t.placeOf(id))
	}
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
	t.touch(tx, id)
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
	t.touch(tx, id)
	n, err := tx.conn.exec(ctx, "DELETE FROM "+t.name+" WHERE id = $1", id)
	if err == nil && n == 0 {
		return weir.ErrNotFound()
	}
	return err
}
