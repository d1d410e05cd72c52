package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"weir/internal/weir"
)

// table says how a resource is stored: columns to find and order rows by, a document that is what
// the API shows, a hidden part that it does not show, and a sealed part. All are always written
// from the same value, so they can't differ.
type table[T any] struct {
	name    string
	columns func(q *queries, v *T) []column // the first is the id
	// secrets returns a pointer to a copy of the sealed part of v; nil = nothing is sealed. restore
	// writes it back to v.
	secrets func(v *T) any
	restore func(v *T, secrets any)
	// conceal removes the sealed part from the document; nil = the JSON of T does not have it.
	conceal func(document *T)
	// hidden and unhide are like secrets and restore, for what is stored in the clear but not
	// shown.
	hidden  func(v *T) any
	unhide  func(v *T, hidden any)
	fields  map[string]field // by which lists can be filtered and ordered
	search  bool             // lists can be searched: rows have a name, a playback id and a creator id
	order   string           // default order of lists, as in the API
	deleted bool             // rows are marked as deleted, not removed
	project bool             // rows belong to a project, not only to a user
	cached  bool             // rows are in Store.shown
}

// column is a column and its value.
type column struct {
	name  string
	value any
}

// write returns all columns of a row.
func (t *table[T]) write(q *queries, v *T) ([]column, error) {
	columns := t.columns(q, v)
	document := *v
	if t.conceal != nil {
		t.conceal(&document)
	}
	doc, err := json.Marshal(&document)
	if err != nil {
		return nil, err
	}
	columns = append(columns, column{"doc", string(doc)})
	if t.hidden != nil {
		hidden, err := json.Marshal(t.hidden(v))
		if err != nil {
			return nil, err
		}
		columns = append(columns, column{"hidden", string(hidden)})
	}
	if t.secrets != nil {
		plain, err := json.Marshal(t.secrets(v))
		if err != nil {
			return nil, err
		}
		columns = append(columns, column{"sealed", q.seal.sealed(t.place(columns[0].value.(string)), plain)})
	}
	return columns, nil
}

// place names a row: its sealed part can be opened only there.
func (t *table[T]) place(id string) string { return t.name + "/" + id }

// selected returns the columns that scan reads.
func (t *table[T]) selected() string {
	names := "id, doc"
	if t.hidden != nil {
		names += ", hidden"
	}
	if t.secrets != nil {
		names += ", sealed"
	}
	return names
}

// scan reads a row and the keys that it is ordered by.
func (t *table[T]) scan(q *queries, r rows, keys []any) (v T, err error) {
	var id string
	var doc, hiddenText, sealed []byte
	dest := []any{&id, &doc}
	if t.hidden != nil {
		dest = append(dest, &hiddenText)
	}
	if t.secrets != nil {
		dest = append(dest, &sealed)
	}
	if err := scanKeys(r, keys, dest...); err != nil {
		return v, err
	}
	broken := func(err error) error { return fmt.Errorf("%s: %w", t.place(id), err) }
	if err := json.Unmarshal(doc, &v); err != nil {
		return v, broken(err)
	}
	if t.hidden != nil {
		hidden := t.hidden(&v)
		if err := json.Unmarshal(hiddenText, hidden); err != nil {
			return v, broken(err)
		}
		t.unhide(&v, hidden)
	}
	if len(sealed) > 0 { // a table may have got the column later
		plain, err := q.seal.open(t.place(id), sealed)
		if err != nil {
			return v, err
		}
		secrets := t.secrets(&v)
		if err := json.Unmarshal(plain, secrets); err != nil {
			return v, broken(err)
		}
		t.restore(&v, secrets)
	}
	return v, nil
}

// scanKeys reads the columns of a row, and after them its keys.
func scanKeys(r rows, keys []any, dest ...any) error {
	for i := range keys {
		dest = append(dest, &keys[i])
	}
	return r.Scan(dest...)
}

// Shown is a row as its owner sees it: the document and the sealed part as one JSON text, which is
// never decoded into a value.
type Shown struct {
	UserID, ProjectID string
	Deleted           bool
	JSON              []byte
}

// Owner says to whom the row belongs.
func (s Shown) Owner() weir.Owner {
	return weir.Owner{UserID: s.UserID, ProjectID: s.ProjectID, Deleted: s.Deleted}
}

// shownColumns are the columns that scanShown reads.
const shownColumns = "id, doc, sealed, user_id, project_id, deleted"

// scanShown reads a row and the keys that it is ordered by.
func (t *table[T]) scanShown(q *queries, r rows, keys []any) (s Shown, err error) {
	var id string
	var doc, sealed []byte
	if err := scanKeys(r, keys, &id, &doc, &sealed, &s.UserID, &s.ProjectID, &s.Deleted); err != nil {
		return s, err
	}
	plain, err := q.seal.open(t.place(id), sealed)
	if err != nil {
		return s, err
	}
	s.JSON = joinObjects(doc, plain)
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
	return first(t.where(ctx, q, "id = $1", id))
}

// lock is get, and keeps others from changing the row until the transaction ends.
func (t *table[T]) lock(ctx context.Context, tx *Tx, id string) (T, error) {
	return first(t.where(ctx, &tx.queries, "id = $1"+tx.store.engine.forUpdate(), id))
}

// byID returns rows by their ids, also ones that are marked as deleted.
func (t *table[T]) byID(ctx context.Context, q *queries, ids []string) (map[string]T, error) {
	found := map[string]T{}
	if len(ids) == 0 {
		return found, nil
	}
	b := &builder{}
	all, err := t.where(ctx, q, "id IN ("+b.list(ids)+")", b.args...)
	for _, v := range all {
		found[t.columns(q, &v)[0].value.(string)] = v
	}
	return found, err
}

// where returns the rows that meet a condition.
func (t *table[T]) where(ctx context.Context, q *queries, condition string, args ...any) ([]T, error) {
	scan := func(r rows) (T, error) { return t.scan(q, r, nil) }
	return many(ctx, q.conn, scan, "SELECT "+t.selected()+" FROM "+t.name+" WHERE "+condition, args...)
}

// insert writes a new row.
func (t *table[T]) insert(ctx context.Context, tx *Tx, v *T) error {
	columns, err := t.write(&tx.queries, v)
	if err != nil {
		return err
	}
	var names, holes []string
	var args []any
	for i, c := range columns {
		names, holes, args = append(names, c.name), append(holes, "$"+strconv.Itoa(i+1)), append(args, c.value)
	}
	_, err = tx.conn.exec(ctx, "INSERT INTO "+t.name+" ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(holes, ", ")+")", args...)
	if errors.Is(err, errDuplicate) {
		return weir.Wrap(weir.Conflict, err, "%s already exists", t.name)
	}
	return err
}

// touch records that a row changes, so that the commit removes it from the cache.
func (t *table[T]) touch(tx *Tx, id string) {
	if t.cached {
		tx.touched = append(tx.touched, t.place(id))
	}
}

// update reads a row, changes it and writes it back. Others can't change it in between.
func (t *table[T]) update(ctx context.Context, tx *Tx, id string, change func(*T) error) (T, error) {
	v, err := t.lock(ctx, tx, id)
	if err != nil {
		return v, err
	}
	if err := change(&v); err != nil {
		return v, err
	}
	return v, t.save(ctx, tx, id, &v)
}

// save overwrites a row.
func (t *table[T]) save(ctx context.Context, tx *Tx, id string, v *T) error {
	t.touch(tx, id)
	columns, err := t.write(&tx.queries, v)
	if err != nil {
		return err
	}
	sets, args := make([]string, len(columns)), make([]any, len(columns), len(columns)+1)
	for i, c := range columns {
		sets[i], args[i] = c.name+" = $"+strconv.Itoa(i+1), c.value
	}
	_, err = tx.conn.exec(ctx, "UPDATE "+t.name+" SET "+strings.Join(sets, ", ")+" WHERE id = $"+strconv.Itoa(len(args)+1), append(args, id)...)
	return err
}

// remove deletes a row.
func (t *table[T]) remove(ctx context.Context, tx *Tx, id string) error {
	t.touch(tx, id)
	n, err := tx.conn.exec(ctx, "DELETE FROM "+t.name+" WHERE id = $1", id)
	if err == nil && n == 0 {
		return weir.ErrNotFound()
	}
	return err
}
