package api

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"weir/internal/store"
	"weir/internal/weir"
)

// query reads the parameters that all lists share. It selects the caller's own rows; for admins,
// `allUsers` selects those of all users, and `all` also deleted ones.
func query(r *request) (store.Query, error) {
	v := r.URL.Query()
	limit, err := limitOf(v)
	if err != nil {
		return store.Query{}, err
	}
	filters, err := parseFilters(joined(v, "filters"))
	if err != nil {
		return store.Query{}, err
	}
	q := store.Query{
		UserID: r.caller.UserID, ProjectID: r.caller.ProjectID, Filters: filters,
		Order: joined(v, "order"), Cursor: v.Get("cursor"), Limit: limit, Search: v.Get("search"), Count: v.Get("count") != "",
	}
	if r.caller.Admin {
		q.Deleted = isSet(v, "all")
		if isSet(v, "allUsers") {
			q.UserID, q.ProjectID = "", ""
		}
	}
	return q, nil
}

// limitOf reads the length of a page. What is less than 1 or more than store.MaxLimit is not an
// error; what is no number is.
func limitOf(v url.Values) (int, error) {
	text := strings.TrimSpace(v.Get("limit"))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(n) {
		return 0, weir.Errorf(weir.Invalid, "limit: must be a whole number")
	}
	return int(max(0, min(n, store.MaxLimit))), nil
}

// queryOfUser is query for lists with a parameter `userId`. denied is the error for callers that
// name another user and are not admins.
func queryOfUser(r *request, denied string) (store.Query, error) {
	q, err := query(r)
	if user := r.URL.Query().Get("userId"); user != "" && err == nil {
		if user != r.caller.UserID && !r.caller.Admin {
			return q, weir.Errorf(weir.Denied, "%s", denied)
		}
		if user != r.caller.UserID {
			q.UserID, q.ProjectID = user, ""
		}
	}
	return q, err
}

// isSet reads a parameter that is on when it is present and not `false` or `0`.
func isSet(v url.Values, name string) bool {
	value := v.Get(name)
	return value != "" && value != "false" && value != "0"
}

// joined returns a parameter; repeated ones are joined with commas.
func joined(v url.Values, name string) string { return strings.Join(v[name], ",") }

// parseFilters reads `[{"id":"field","value":…}]`, URL-encoded once or twice.
func parseFilters(text string) ([]store.Filter, error) {
	if text == "" {
		return nil, nil
	}
	if strings.HasPrefix(text, "%") {
		if plain, err := url.QueryUnescape(text); err == nil {
			text = plain
		}
	}
	bad := func(format string, args ...any) error {
		return weir.Errorf(weir.Refused, "error parsing filters: "+format, args...)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, bad("SyntaxError: %v", err)
	}
	list, ok := value.([]any)
	if !ok {
		return nil, bad("Error: must be an array")
	}
	filters := make([]store.Filter, len(list))
	for i, item := range list {
		object, _ := item.(map[string]any)
		id, _ := object["id"].(string)
		value, ok := object["value"]
		if !ok || value == nil {
			return nil, bad("Error: missing filter value for id %q", id)
		}
		filters[i] = store.Filter{ID: id, Value: value}
	}
	return filters, nil
}

// writePage answers with a page of a list; show turns an item into what is shown.
func writePage[T, A any](s *server, w http.ResponseWriter, r *request, q store.Query, page store.Page[T], show func(T) A) error {
	if q.Count {
		w.Header().Set("X-Total-Count", strconv.Itoa(page.Total))
	}
	if page.Next != "" {
		v := r.URL.Query()
		v.Set("cursor", page.Next)
		w.Header().Set("Link", "<"+s.base(r.Request)+r.URL.Path+"?"+v.Encode()+`>; rel="next"`)
	}
	items := make([]A, len(page.Items))
	for i, item := range page.Items {
		items[i] = show(item)
	}
	if texts, ok := any(items).([]json.RawMessage); ok {
		return writeText(w, http.StatusOK, joinArray(texts))
	}
	return writeJSON(w, http.StatusOK, items)
}

// joinArray joins JSON texts into an array.
func joinArray(items []json.RawMessage) []byte {
	size := 2
	for _, item := range items {
		size += len(item) + 1
	}
	text := append(make([]byte, 0, size), '[')
	for i, item := range items {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, item...)
	}
	return append(text, ']')
}

// withUser is an item of an admin's list of the resources of all users.
type withUser[A any] struct {
	shown   A
	user    *weir.User
	deleted bool
}

// MarshalJSON adds `user` and `deleted` to the members of what is shown.
func (e withUser[A]) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(e.shown)
	if err != nil {
		return nil, err
	}
	more := map[string]any{}
	if e.user != nil {
		more["user"] = e.user
	}
	if e.deleted {
		more["deleted"] = true
	}
	if len(more) == 0 {
		return text, nil
	}
	extra, err := json.Marshal(more)
	if err != nil {
		return nil, err
	}
	return append(append(text[:len(text)-1], ','), extra[1:]...), nil
}

// writeOwned is writePage for resources of users: an admin's list of those of all users shows the
// user of each, and which are deleted.
func writeOwned[T owned, A any](s *server, w http.ResponseWriter, r *request, q store.Query, page store.Page[T], show func(T) A) error {
	if !r.caller.Admin || !q.Deleted && q.UserID != "" {
		return writePage(s, w, r, q, page, show)
	}
	var ids []string
	for _, item := range page.Items {
		ids = append(ids, item.Owner().UserID)
	}
	users, err := s.Store.UsersByID(r.Context(), ids)
	if err != nil {
		return err
	}
	return writePage(s, w, r, q, page, func(item T) withUser[A] {
		e := withUser[A]{shown: show(item), deleted: item.Owner().Deleted}
		if u, ok := users[item.Owner().UserID]; ok && q.UserID == "" {
			e.user = &u
		}
		return e
	})
}
