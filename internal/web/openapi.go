package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// openAPI is what the reference reads of openapi.yaml.
type openAPI struct {
	Info struct {
		Description string `json:"description"`
	} `json:"info"`
	Tags []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	} `json:"tags"`
	Security   []map[string][]string             `json:"security"`
	Paths      ordered[ordered[json.RawMessage]] `json:"paths"`
	Components struct {
		SecuritySchemes ordered[struct {
			Description string `json:"description"`
		}] `json:"securitySchemes"`
		Parameters map[string]*parameter `json:"parameters"`
		Responses  map[string]*response  `json:"responses"`
		Schemas    map[string]*schema    `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	OperationID string                 `json:"operationId"`
	Summary     string                 `json:"summary"`
	Description string                 `json:"description"`
	Deprecated  bool                   `json:"deprecated"`
	Tags        []string               `json:"tags"`
	Security    *[]map[string][]string `json:"security"`
	Parameters  []*parameter           `json:"parameters"`
	RequestBody *struct {
		Required bool           `json:"required"`
		Content  ordered[media] `json:"content"`
	} `json:"requestBody"`
	Responses ordered[*response] `json:"responses"`

	method, path string
}

type parameter struct {
	Ref         string          `json:"$ref"`
	Name        string          `json:"name"`
	In          string          `json:"in"`
	Description string          `json:"description"`
	Required    bool            `json:"required"`
	Deprecated  bool            `json:"deprecated"`
	Schema      *schema         `json:"schema"`
	Example     json.RawMessage `json:"example"`
}

type media struct {
	Schema  *schema         `json:"schema"`
	Example json.RawMessage `json:"example"`
	Event   *schema         `json:"x-event-data"` // of each Server-Sent Event
}

type response struct {
	Ref         string         `json:"$ref"`
	Description string         `json:"description"`
	Content     ordered[media] `json:"content"`
	Headers     ordered[struct {
		Description string `json:"description"`
	}] `json:"headers"`
}

type schema struct {
	Ref         string            `json:"$ref"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Type        names             `json:"type"`
	Format      string            `json:"format"`
	Enum        []json.RawMessage `json:"enum"`
	Default     json.RawMessage   `json:"default"`
	Examples    []json.RawMessage `json:"examples"`
	Minimum     json.Number       `json:"minimum"`
	Maximum     json.Number       `json:"maximum"`
	MinLength   json.Number       `json:"minLength"`
	MaxLength   json.Number       `json:"maxLength"`
	MinItems    json.Number       `json:"minItems"`
	MaxItems    json.Number       `json:"maxItems"`
	Properties  ordered[*schema]  `json:"properties"`
	Required    []string          `json:"required"`
	Additional  additional        `json:"additionalProperties"`
	Items       *schema           `json:"items"`
	OneOf       []*schema         `json:"oneOf"`
	AllOf       []*schema         `json:"allOf"`
	ReadOnly    bool              `json:"readOnly"`
	WriteOnly   bool              `json:"writeOnly"`
	Deprecated  bool              `json:"deprecated"`
	Expects     string            `json:"x-expects"`
}

// names is a name or a list of names.
type names []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *names) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*[]string)(n))
	}
	var name string
	err := json.Unmarshal(data, &name)
	*n = names{name}
	return err
}

// additional is the schema of members without a name; nil = there are none, or anything may be there.
type additional struct{ schema *schema }

// UnmarshalJSON implements json.Unmarshaler.
func (a *additional) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(data, []byte("{")) {
		return nil
	}
	return json.Unmarshal(data, &a.schema)
}

// ordered is a JSON object whose members keep their order.
type ordered[T any] struct {
	names  []string
	values map[string]T
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *ordered[T]) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &o.values); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil { // the bracket
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		o.names = append(o.names, name.(string))
	}
	return nil
}

// all yields the members in their order.
func (o ordered[T]) all(yield func(string, T) bool) {
	for _, name := range o.names {
		if !yield(name, o.values[name]) {
			return
		}
	}
}

// readOpenAPI decodes the document, which is JSON.
func readOpenAPI(document []byte) (*openAPI, error) {
	doc := &openAPI{}
	err := json.Unmarshal(document, doc)
	return doc, err
}

// operations returns all operations in the order of the document, with their references followed.
func (d *openAPI) operations() (all []*operation, err error) {
	for path, item := range d.Paths.all {
		var shared []*parameter
		if raw, ok := item.values["parameters"]; ok {
			if err := json.Unmarshal(raw, &shared); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		for method, raw := range item.all {
			if method == "parameters" {
				continue
			}
			o := &operation{method: strings.ToUpper(method), path: path}
			if err := json.Unmarshal(raw, o); err != nil {
				return nil, fmt.Errorf("%s %s: %w", o.method, path, err)
			}
			o.Parameters = slices.Concat(shared, o.Parameters)
			for i, p := range o.Parameters {
				if p.Ref != "" {
					o.Parameters[i] = d.Components.Parameters[refName(p.Ref)]
				}
			}
			for status, r := range o.Responses.all {
				if r.Ref != "" {
					o.Responses.values[status] = d.Components.Responses[refName(r.Ref)]
				}
			}
			if o.Security == nil {
				o.Security = &d.Security
			}
			all = append(all, o)
		}
	}
	return all, nil
}

// refName returns the last part of a reference, the name of a component.
func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// follow returns the schema that a reference leads to, and the name of the component.
func (d *openAPI) follow(s *schema) (*schema, string) {
	name := ""
	for s != nil && s.Ref != "" {
		name = refName(s.Ref)
		s = d.Components.Schemas[name]
	}
	return s, name
}
