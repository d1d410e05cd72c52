package weir

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Nullable is a member of a body for which null and absence mean different things. Set is true if
// the member is present; Value is nil if it is null.
type Nullable[T any] struct {
	Set   bool
	Value *T
}

// UnmarshalJSON reads the member.
func (n *Nullable[T]) UnmarshalJSON(data []byte) error {
	n.Set = true
	return json.Unmarshal(data, &n.Value)
}

// set sets a field to the value of a patch, unless the patch does not have it.
func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

// compact returns raw JSON without blanks, and nil for null.
func compact(raw json.RawMessage) json.RawMessage {
	var buf bytes.Buffer
	if len(raw) == 0 || json.Compact(&buf, raw) != nil || buf.String() == "null" {
		return nil
	}
	return buf.Bytes()
}

// sameJSON reports whether two values are the same as JSON, with the members of objects in any
// order.
func sameJSON(a, b any) bool {
	plain := func(v any) (out any) {
		text, err := json.Marshal(v)
		if err != nil || json.Unmarshal(text, &out) != nil {
			return v
		}
		return out
	}
	return reflect.DeepEqual(plain(a), plain(b))
}
