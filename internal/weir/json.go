package weir

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Nullable is a member of a body for which null and absence mean different
// things. Set says that it was there; Value is nil when it was null.
type Nullable[T any] struct {
	Set   bool
	Value *T
}

// UnmarshalJSON notes that the member was there.
func (n *Nullable[T]) UnmarshalJSON(data []byte) error {
	n.Set = true
	return json.Unmarshal(data, &n.Value)
}

// compact returns raw JSON without blanks, and nothing for null.
func compact(raw json.RawMessage) json.RawMessage {
	var buf bytes.Buffer
	if len(raw) == 0 || json.Compact(&buf, raw) != nil || buf.String() == "null" {
		return nil
	}
	return buf.Bytes()
}

// sameJSON reports whether two values of plain data look the same as JSON, with the
// members of objects in any order.
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
