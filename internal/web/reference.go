package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"weir/internal/contract"
)

// referencePath is the address of the reference. It has a page for each tag of the contract, below
// this one.
const referencePath = "docs/api"

// call is an operation, as its template shows it.
type call struct {
	ID, Path     string // Path is its address
	Method, URL  string
	Summary, Who string
	Name         string // in words
	Description  template.HTML
	Deprecated   bool
	Parameters   []field
	Body         *body
	Responses    []shownResponse // what succeeds
	Failures     []shownResponse
	Examples     []example
}

type body struct {
	Type        string
	Required    bool
	Description template.HTML
	Fields      []field
}

type shownResponse struct {
	Status, Type string
	Description  template.HTML
	Fields       []field
	Headers      []field
}

// readReference renders the contract.
func readReference(openapiYAML []byte, templates *template.Template) (*book, error) {
	document, err := contract.ToJSON(openapiYAML)
	if err != nil {
		return nil, err
	}
	doc, err := readOpenAPI(document)
	if err != nil {
		return nil, err
	}
	operations, err := doc.operations()
	if err != nil {
		return nil, err
	}
	r := &book{pages: map[string]*page{}}
	first := &page{path: referencePath, title: "API reference"}
	overview := struct {
		Description template.HTML
		Schemes     []field
		Tags        []tagView
	}{Description: inline(doc.Info.Description)}
	for name, scheme := range doc.Components.SecuritySchemes.all {
		overview.Schemes = append(overview.Schemes, field{Name: name, Description: inline(scheme.Description)})
	}
	links := []link{{Path: referencePath, Title: "Overview"}}
	for _, tag := range doc.Tags {
		p := &page{path: referencePath + "/" + kebab(tag.Name), title: titleOf(tag.Name), description: tag.Description}
		for _, o := range operations {
			if o.Tags[0] != tag.Name {
				continue
			}
			c, err := doc.call(o, p.path)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", o.method, o.path, err)
			}
			p.calls = append(p.calls, c)
			p.sections = append(p.sections, section{c.Path, p.title, c.Name + " · " + c.Method + " " + c.URL, c.words(o)})
		}
		view := tagView{link{Path: p.path, Title: p.title}, inline(tag.Description), p.calls}
		if p.body, err = execute(templates, "tag", view); err != nil {
			return nil, err
		}
		overview.Tags = append(overview.Tags, view)
		links = append(links, view.link)
		r.pages[p.path] = p
	}
	if first.body, err = execute(templates, "overview", overview); err != nil {
		return nil, err
	}
	first.description = "Every call of the HTTP API, with examples in curl, JavaScript, Go and Python."
	first.sections = []section{{path: first.path, page: first.title, text: doc.Info.Description}}
	first.contents = []heading{{"basics", "Basics", 2}, {"credentials", "Credentials", 2}, {"calls", "All calls", 2}}
	r.pages[first.path] = first
	r.groups = []group{{"API reference", links}}
	return r, nil
}

type tagView struct {
	link
	Description template.HTML
	Calls       []call
}

func execute(t *template.Template, name string, data any) (template.HTML, error) {
	var out bytes.Buffer
	err := t.ExecuteTemplate(&out, name, data)
	return template.HTML(out.String()), err
}

// kebab writes accessControl as access-control.
func kebab(name string) string { return strings.ReplaceAll(strings.ToLower(spaced(name)), " ", "-") }

// spaced writes accessControl as access Control, and listIPFSUploads as list IPFS Uploads.
func spaced(name string) string {
	var out strings.Builder
	capital := func(i int) bool { return i >= 0 && i < len(name) && name[i] >= 'A' && name[i] <= 'Z' }
	for i := range len(name) {
		if i > 0 && capital(i) && (!capital(i-1) || i+1 < len(name) && !capital(i+1)) {
			out.WriteByte(' ')
		}
		out.WriteByte(name[i])
	}
	return out.String()
}

// sentence writes the words of a name as the start of a sentence; those in capitals stay.
func sentence(name string) string {
	words := strings.Fields(spaced(name))
	for i, word := range words {
		if word != strings.ToUpper(word) || len(word) == 1 {
			words[i] = strings.ToLower(word)
		}
	}
	all := strings.Join(words, " ")
	return strings.ToUpper(all[:1]) + all[1:]
}

// titleOf writes the name of a tag as a title.
func titleOf(tag string) string {
	if tag == "ipfs" {
		return "IPFS"
	}
	return strings.Replace(sentence(tag), "Api ", "API ", 1)
}

// words is the text of a call that the search finds.
func (c call) words(o *operation) string {
	all := []string{o.Summary, o.Description}
	for _, p := range c.Parameters {
		all = append(all, p.Name)
	}
	if c.Body != nil {
		for _, f := range c.Body.Fields {
			all = append(all, f.Name)
		}
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(strings.Join(all, " "), "`", "")), " ")
}

// call returns an operation as it is shown on a page.
func (d *openAPI) call(o *operation, page string) (call, error) {
	c := call{
		ID: o.OperationID, Path: page + "#" + o.OperationID, Method: o.method, URL: o.path, Summary: o.Summary, Who: o.who(),
		Name:        sentence(o.OperationID),
		Description: inline(o.Description), Deprecated: o.Deprecated,
	}
	for _, p := range o.Parameters {
		f := d.field(p.Name, p.Schema, nil)
		f.In, f.Required, f.Deprecated = p.In, p.Required, p.Deprecated
		if p.Description != "" {
			f.Description = inline(p.Description)
		}
		c.Parameters = append(c.Parameters, f)
	}
	if o.RequestBody != nil {
		for kind, content := range o.RequestBody.Content.all {
			c.Body = &body{Type: kind, Required: o.RequestBody.Required}
			if s, _ := d.follow(content.Schema); s != nil {
				c.Body.Description = inline(s.Description)
				c.Body.Fields = d.members(content.Schema, nil)
			}
		}
	}
	for status, r := range o.Responses.all {
		a := shownResponse{Status: status, Description: inline(r.Description)}
		if code, err := strconv.Atoi(status); err != nil || code >= 400 {
			if err != nil {
				a.Status = "other"
			}
			c.Failures = append(c.Failures, a)
			continue
		}
		for kind, content := range r.Content.all {
			shown := content.Schema
			if content.Event != nil {
				shown = content.Event
			}
			a.Type = kind
			if kind == jsonType || content.Event != nil {
				f := d.field("", shown, nil)
				a.Type, a.Fields = f.Type, f.Fields
			}
		}
		for name, h := range r.Headers.all {
			a.Headers = append(a.Headers, field{Name: name, Description: inline(h.Description)})
		}
		c.Responses = append(c.Responses, a)
	}
	request, err := d.exampleRequest(o)
	if err != nil {
		return c, err
	}
	c.Examples = request.examples()
	return c, nil
}

const jsonType = "application/json"

// who says in words who may use an operation.
func (o *operation) who() string {
	keys, login, none := false, false, len(*o.Security) == 0
	admin := false
	for _, scheme := range *o.Security {
		none = none || len(scheme) == 0
		for name, roles := range scheme {
			keys = keys || name != "login"
			login = login || name == "login"
			admin = admin || slices.Contains(roles, "admin")
		}
	}
	switch {
	case none && keys:
		return "API key or log-in; without either where the description says so"
	case none:
		return "Anybody, without a credential"
	case admin:
		return "Administrators who logged in"
	case !keys:
		return "Log-in only, no API key"
	}
	return "API key or log-in"
}

// field is a parameter, or a member of a body or a response.
type field struct {
	Name, Type, In                            string
	Required, Deprecated, ReadOnly, WriteOnly bool
	Description                               template.HTML
	Notes                                     []string // bounds and the default
	Values                                    []string // what is allowed, if that is a list
	Fields                                    []field
}

// Inside says what is in a field.
func (f field) Inside() string {
	what := "member"
	if f.Fields[0].In == "form" {
		what = "form"
	}
	if len(f.Fields) == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", len(f.Fields), what)
}

// field returns a member of a schema. within are the names of the components that it is in, against
// those that contain themselves.
func (d *openAPI) field(name string, s *schema, within []string) field {
	f := field{Name: name, Type: "any"}
	if s == nil {
		return f
	}
	outer := s
	s, component := d.follow(s)
	if component != "" {
		if slices.Contains(within, component) {
			f.Type = component
			return f
		}
		within = append(slices.Clone(within), component)
	}
	f.Type = d.typeOf(s)
	f.ReadOnly, f.WriteOnly, f.Deprecated = s.ReadOnly, s.WriteOnly, s.Deprecated || outer.Deprecated
	f.Description = inline(s.Description)
	if outer.Description != "" {
		f.Description = inline(outer.Description)
	}
	f.Notes = s.notes()
	shown := s
	if item, _ := d.follow(s.Items); item != nil {
		shown = item
		f.Notes = append(f.Notes, item.notes()...)
	}
	for _, value := range shown.Enum {
		f.Values = append(f.Values, strings.Trim(string(value), `"`))
	}
	f.Fields = d.members(s, within)
	return f
}

// members returns the members of an object, of the items of a list, or of the forms of a value that
// has several.
func (d *openAPI) members(s *schema, within []string) (fields []field) {
	s, component := d.follow(s)
	if component != "" {
		within = append(slices.Clone(within), component)
	}
	if s == nil || len(within) > 8 {
		return nil
	}
	for _, part := range s.AllOf {
		fields = append(fields, d.members(part, within)...)
	}
	for name, member := range s.Properties.all {
		f := d.field(name, member, within)
		f.Required = slices.Contains(s.Required, name)
		fields = append(fields, f)
	}
	if s.Items != nil {
		fields = append(fields, d.members(s.Items, within)...)
	}
	for _, form := range s.OneOf {
		f := d.field("", form, within)
		if target, name := d.follow(form); target != nil {
			f.Name = target.Title
			if f.Name == "" {
				f.Name = spaced(name)
			}
		}
		f.In = "form"
		fields = append(fields, f)
	}
	if s.Additional.schema != nil {
		fields = append(fields, d.field("…", s.Additional.schema, within))
	}
	return fields
}

// typeOf writes the type of a value: string, list of objects, number or null.
func (d *openAPI) typeOf(s *schema) string {
	var all []string
	for _, name := range s.Type {
		if name == "array" {
			name = "list"
			if item, _ := d.follow(s.Items); item != nil {
				name = "list of " + plural(d.typeOf(item))
			}
		}
		all = append(all, name)
	}
	switch {
	case len(all) > 0:
		return strings.Join(all, " or ")
	case len(s.OneOf) > 0:
		return "one of these forms"
	case len(s.AllOf) > 0 || len(s.Properties.names) > 0:
		return "object"
	}
	return "any"
}

func plural(name string) string {
	if strings.Contains(name, " ") || name == "any" {
		return name
	}
	return name + "s"
}

// notes says the bounds of a value, its form and its default.
func (s *schema) notes() (all []string) {
	addNote := func(format string, value json.Number) {
		if value != "" {
			all = append(all, fmt.Sprintf(format, value))
		}
	}
	if s.Format != "" && s.Expects == "" {
		all = append(all, s.Format)
	}
	switch {
	case s.Minimum == "0" && s.Maximum == "": // every count and duration
	case s.Minimum != "" && s.Maximum != "":
		all = append(all, fmt.Sprintf("%s to %s", s.Minimum, s.Maximum))
	default:
		addNote("at least %s", s.Minimum)
		addNote("at most %s", s.Maximum)
	}
	if s.MinLength == "1" {
		all = append(all, "not empty")
	} else {
		addNote("at least %s characters", s.MinLength)
	}
	addNote("at most %s characters", s.MaxLength)
	addNote("at least %s items", s.MinItems)
	addNote("at most %s items", s.MaxItems)
	if s.Expects != "" {
		all = append(all, s.Expects)
	}
	if len(s.Default) > 0 {
		all = append(all, "default "+strings.Trim(string(s.Default), `"`))
	}
	return all
}
