package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/internal/weir"
)

// Query selects the rows of a list. Without UserID it selects those of all users, which only admins
// may see.
type Query struct {
	UserID    string // "" = of all users
	ProjectID string // "" = of all projects; ignored where rows have no project
	Deleted   bool   // also rows that are marked as deleted, or whose account is
	Search    string // words, all of which must be in the name or begin an id; ignored where rows can't be searched
	Where     []Filter
	Filters   []Filter // as the caller sent them
	Order     string   // as the caller sent it: field-true,other-false; true = descending
	Cursor    string
	Limit     int
	Count     bool
}

// Filter selects the rows whose field has the value. A number may be compared: then the value is a
// map with any of gt, gte, lt, lte, eq.
type Filter struct {
	ID    string
	Value any // string, bool, json.Number, float64, int64 or map[string]any
}

// Page is one page of a list.
type Page[T any] struct {
	Items []T
	Next  string // the cursor of the next page; "" = this is the last
	Total int    // of all pages, if Query.Count is set
}

// field is a column by which lists can be filtered and ordered.
type field struct {
	column string
	kind   fieldKind
}

type fieldKind int

const (
	textField   fieldKind = iota // equality
	searchField                  // part of a text, in upper or lower case; the column has it in lower case
	boolField
	numberField
	secretField // equality with a sealed value, by its lookup
	emailField  // equality with the owner's e-mail address
	streamField // the column has a session of the stream
)

// MaxLimit is the maximum number of items of a page.
const MaxLimit = 1000

// Length returns how many items a page has at most.
func (q *Query) Length() int {
	if q.Limit < 1 {
		return 20
	}
	return min(q.Limit, MaxLimit)
}

// list returns a page of values.
func (t *table[T]) list(ctx context.Context, q *queries, query Query) (Page[T], error) {
	return page(ctx, t, q, query, t.selected(), func(r rows, keys []any) (T, error) { return t.scan(q, r, keys) })
}

// listShown returns a page of rows as their owner sees them.
func (t *table[T]) listShown(ctx context.Context, q *queries, query Query) (Page[Shown], error) {
	return page(ctx, t, q, query, shownColumns, func(r rows, keys []any) (Shown, error) { return t.scanShown(q, r, keys) })
}

// page returns a page of a list. A page starts after the keys of the last row of the page before
// it, not at an offset, so that new and deleted rows neither repeat nor hide others. scan reads the
// selected columns, and after them the keys that rows are ordered by.
func page[T, V any](ctx context.Context, t *table[T], q *queries, query Query, selected string, scan func(r rows, keys []any) (V, error)) (Page[V], error) {
	var p Page[V]
	b, err := t.conditions(q, query)
	if err != nil {
		return p, err
	}
	if query.Count {
		total, err := one(ctx, q.conn, scanInt, "SELECT count(*) FROM "+t.name+b.where(), b.args...)
		if err != nil {
			return p, err
		}
		p.Total = int(total)
	}
	order := parseOrder(t.fields, query.Order, t.order)
	offset, err := b.after(order, query.Cursor)
	if err != nil {
		return p, err
	}
	limit := query.Length()
	sql := "SELECT " + selected + order.columns() + " FROM " + t.name + b.where() +
		" ORDER BY " + order.clause() + " LIMIT " + strconv.Itoa(limit+1)
	if offset > 0 {
		sql += " OFFSET " + strconv.Itoa(offset)
	}
	var last []any // the keys of the last row of the page
	p.Items, err = many(ctx, q.conn, func(r rows) (V, error) {
		keys := make([]any, len(order))
		v, err := scan(r, keys)
		if limit > 0 {
			last = keys
		}
		limit--
		return v, err
	}, sql, b.args...)
	if err == nil && limit < 0 {
		p.Items = p.Items[:len(p.Items)-1]
		p.Next = order.cursor(q.seal, last)
	}
	return p, err
}

// conditions returns the conditions of a query.
func (t *table[T]) conditions(q *queries, query Query) (*builder, error) {
	b := &builder{seal: q.seal}
	switch {
	case query.UserID != "":
		b.and("user_id = %s", query.UserID)
	case !query.Deleted && t.name != accountTable:
		b.and("user_id NOT IN (SELECT id FROM account WHERE deleted)")
	}
	if t.project && query.ProjectID != "" {
		b.and("project_id = %s", query.ProjectID)
	}
	if t.deleted && !query.Deleted {
		b.and("deleted = %s", false)
	}
	if t.search {
		if err := b.search(query.Search); err != nil {
			return nil, err
		}
	}
	for _, f := range query.Where {
		if err := b.filter(t.fields, f); err != nil {
			return nil, err
		}
	}
	for _, f := range query.Filters {
		if err := b.filter(t.fields, f); err != nil {
			return nil, weir.Errorf(weir.Refused, "error parsing filters: Error: %s", err.Error())
		}
	}
	return b, nil
}

// builder collects conditions and their values.
type builder struct {
	conditions []string
	args       []any
	seal       *sealer
}

// and adds a condition.
func (b *builder) and(condition string, values ...any) {
	b.conditions = append(b.conditions, b.bind(condition, values...))
}

// bind adds values and returns the condition with their placeholders in the place of each %s.
func (b *builder) bind(condition string, values ...any) string {
	holes := make([]any, len(values))
	for i, v := range values {
		b.args = append(b.args, v)
		holes[i] = "$" + strconv.Itoa(len(b.args))
	}
	return fmt.Sprintf(condition, holes...)
}

// list binds values and returns their placeholders, for IN (…).
func (b *builder) list(values []string) string {
	holes := make([]string, len(values))
	for i, v := range values {
		holes[i] = b.bind("%s", v)
	}
	return strings.Join(holes, ", ")
}

func (b *builder) where() string {
	if len(b.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(b.conditions, " AND ")
}

// maxSearchWords is the maximum number of words in a search.
const maxSearchWords = 10

// minSearchedID is how many characters of an id find its row: ids are random, so short words such as
// the numbers of cameras are in many of them.
const minSearchedID = 6

// search selects the rows that have each word in their name, or at the start of an id, in upper or
// lower case.
func (b *builder) search(text string) error {
	words := strings.Fields(strings.ToLower(text))
	if len(words) > maxSearchWords {
		return weir.Errorf(weir.Invalid, "search: at most %d words are allowed", maxSearchWords)
	}
	for _, word := range words {
		if utf8.RuneCountInString(word) < minSearchedID {
			b.and(`(name_lower LIKE %s ESCAPE '\' OR lower(creator_id) = %s)`, contains(word), word)
			continue
		}
		begins := escaped(word) + "%"
		b.and(`(name_lower LIKE %s ESCAPE '\' OR id LIKE %s ESCAPE '\' OR playback_id LIKE %s ESCAPE '\' OR lower(creator_id) LIKE %s ESCAPE '\')`,
			contains(word), begins, begins, begins)
	}
	return nil
}

// contains returns the pattern of LIKE for a part of a text.
func contains(text string) string { return "%" + escaped(text) + "%" }

// escaped returns a text with what LIKE reads as a pattern escaped.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}

// filter adds the condition of one filter.
func (b *builder) filter(fields map[string]field, f Filter) error {
	known, ok := fields[f.ID]
	if !ok {
		return fmt.Errorf("unknown field: %q", f.ID)
	}
	switch known.kind {
	case boolField:
		v, ok := f.Value.(bool)
		if !ok {
			text, _ := json.Marshal(f.Value)
			return fmt.Errorf("expected boolean value for field %q, got: %s", f.ID, text)
		}
		b.and(known.column+" = %s", v)
	case numberField:
		return b.numbers(known.column, f)
	default:
		v, ok := f.Value.(string)
		if !ok {
			text, _ := json.Marshal(f.Value)
			return fmt.Errorf("expected string value for field %q, got: %s", f.ID, text)
		}
		if strings.ContainsRune(v, 0) {
			return fmt.Errorf("value of field %q must not contain a zero byte", f.ID)
		}
		switch known.kind {
		case searchField:
			b.and(known.column+` LIKE %s ESCAPE '\'`, contains(strings.ToLower(v)))
		case secretField:
			b.and(known.column+" = %s", b.seal.lookup(v))
		case emailField:
			b.and("user_id IN (SELECT id FROM account WHERE email = %s)", strings.ToLower(v))
		case streamField:
			b.and(known.column+" IN (SELECT id FROM session WHERE parent_id = %s)", v)
		default:
			b.and(known.column+" = %s", v)
		}
	}
	return nil
}

func (b *builder) numbers(column string, f Filter) error {
	compare, ok := f.Value.(map[string]any)
	if !ok {
		compare = map[string]any{"eq": f.Value}
	}
	operators := map[string]string{"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "eq": "="}
	for _, name := range slices.Sorted(maps.Keys(compare)) {
		operator, ok := operators[name]
		if !ok {
			return fmt.Errorf("unknown comparison: %q", name)
		}
		number, ok := toFloat(compare[name])
		if !ok {
			text, _ := json.Marshal(compare[name])
			return fmt.Errorf("expected number value for field %q, got: %s", f.ID, text)
		}
		b.and(column+" "+operator+" CAST(%s AS DOUBLE PRECISION)", number)
	}
	return nil
}

func toFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	case weir.Millis:
		return float64(v), true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	}
	return 0, false
}

// ordering is the columns that rows are ordered by; the last is always the id.
type ordering []orderColumn

type orderColumn struct {
	expr string
	desc bool
}

// parseOrder reads `field-true,other-false`. It skips unknown fields, and uses the fallback when
// nothing is left.
func parseOrder(fields map[string]field, text, fallback string) ordering {
	var o ordering
	for part := range strings.SplitSeq(text, ",") {
		name, desc, _ := strings.Cut(strings.TrimSpace(part), "-")
		f, ok := fields[name]
		if !ok || f.kind == secretField || f.kind == emailField || len(o) > 6 {
			continue
		}
		down := desc == "true"
		if f.kind == textField || f.kind == searchField {
			// Missing values come last in both directions.
			o = append(o, orderColumn{"CASE WHEN " + f.column + " = '' THEN 1 ELSE 0 END", false})
		}
		o = append(o, orderColumn{f.column, down})
	}
	if len(o) == 0 {
		if text == fallback {
			return ordering{{"id", false}}
		}
		return parseOrder(fields, fallback, fallback)
	}
	if last := o[len(o)-1]; last.expr == "id" {
		return o
	}
	return append(o, orderColumn{"id", o[len(o)-1].desc})
}

func (o ordering) columns() string {
	var s strings.Builder
	for _, c := range o {
		s.WriteString(", " + c.expr)
	}
	return s.String()
}

func (o ordering) clause() string {
	parts := make([]string, len(o))
	for i, c := range o {
		parts[i] = c.expr + " ASC"
		if c.desc {
			parts[i] = c.expr + " DESC"
		}
	}
	return strings.Join(parts, ", ")
}

// cursor has the keys of the last row of a page, and the order that they belong to.
type cursor struct {
	Order string `json:"o"`
	Keys  []any  `json:"k"`
}

func (o ordering) cursor(seal *sealer, keys []any) string {
	for i, k := range keys {
		if b, ok := k.([]byte); ok {
			keys[i] = string(b)
		}
	}
	text, _ := json.Marshal(cursor{Order: o.clause(), Keys: keys})
	return base64.RawURLEncoding.EncodeToString(text) + "." + cursorMark(seal, text)
}

// cursorMark authenticates a cursor, so that its values are sure to have the types of the columns.
func cursorMark(seal *sealer, text []byte) string { return seal.lookup("cursor/" + string(text))[:16] }

// after selects the rows after a cursor. An old cursor, skipN, gives an offset.
func (b *builder) after(o ordering, text string) (offset int, err error) {
	if text == "" {
		return 0, nil
	}
	if digits, ok := strings.CutPrefix(text, "skip"); ok {
		if n, err := strconv.Atoi(digits); err == nil && n >= 0 && n < 1<<40 {
			return n, nil
		}
	}
	bad := weir.Errorf(weir.Refused, "cursor: take it from the Link header of the page before, with the same order")
	encoded, mark, _ := strings.Cut(text, ".")
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || mark != cursorMark(b.seal, raw) {
		return 0, bad
	}
	var c cursor
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&c); err != nil || c.Order != o.clause() || len(c.Keys) != len(o) {
		return 0, bad
	}
	for i, k := range c.Keys {
		switch k := k.(type) {
		case json.Number:
			if n, err := k.Int64(); err == nil {
				c.Keys[i] = n
			} else if f, err := k.Float64(); err == nil {
				c.Keys[i] = f
			} else {
				return 0, bad
			}
		case string, bool:
		default:
			return 0, bad
		}
	}
	b.conditions = append(b.conditions, b.behind(o, c.Keys))
	return 0, nil
}

// behind returns the condition for the rows after the one with these keys. When all columns have
// the same direction it is one comparison of rows, for which both engines use an index.
func (b *builder) behind(o ordering, keys []any) string {
	same := !slices.ContainsFunc(o, func(c orderColumn) bool { return c.desc != o[0].desc })
	operator := map[bool]string{true: " < ", false: " > "}
	if same {
		exprs, holes := make([]string, len(o)), make([]string, len(o))
		for i, c := range o {
			exprs[i], holes[i] = c.expr, b.bind("%s", keys[i])
		}
		return "(" + strings.Join(exprs, ", ") + ")" + operator[o[0].desc] + "(" + strings.Join(holes, ", ") + ")"
	}
	var either []string
	for i, c := range o {
		var all []string
		for j := range i {
			all = append(all, o[j].expr+" = "+b.bind("%s", keys[j]))
		}
		all = append(all, c.expr+operator[c.desc]+b.bind("%s", keys[i]))
		either = append(either, "("+strings.Join(all, " AND ")+")")
	}
	return "(" + strings.Join(either, " OR ") + ")"
}
