package weir

import "encoding/json"

// CreatorID names the person for whom a caller created a resource.
type CreatorID struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

// UnmarshalJSON takes the object and also a bare string.
func (c *CreatorID) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		c.Type = "unverified"
		return json.Unmarshal(data, &c.Value)
	}
	type plain CreatorID
	return json.Unmarshal(data, (*plain)(c))
}

// String returns the creator's name, or nothing.
func (c *CreatorID) String() string {
	if c == nil {
		return ""
	}
	return c.Value
}
