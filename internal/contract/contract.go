// Package contract is openapi.yaml, compiled. It checks the bodies of requests against the
// document, describes their errors in messages, and lets tests check responses.
//
// An operation is named by its method and path, as in `PATCH /api/stream/{id}`. Start with New
// and Body.Check. The verdict on a body is that of the JSON Schema library. failure.go decides
// which of its errors is reported, because the library walks over maps and finds them in another
// order each time.
package contract

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Contract is the compiled document. Many goroutines may use it.
type Contract struct {
	source    []byte
	rendered  []byte // source as JSON
	bodies    map[string]*Body
	responses map[string]map[string]*jsonschema.Schema // by operation, then status; nil = no JSON
}

// documentURL is the name of the document within the library. Nothing is fetched.
const documentURL = "weir:///openapi.yaml"

// New compiles the document.
func New(openapiYAML []byte) (*Contract, error) {
	c, err := compile(openapiYAML)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return c, nil
}

var methods = []string{"get", "head", "put", "post", "delete", "patch"}

// ToJSON returns a document as JSON, its members in the same order, without compiling it.
func ToJSON(openapiYAML []byte) ([]byte, error) {
	_, rendered, err := read(openapiYAML)
	return rendered, err
}

func read(source []byte) (root any, rendered []byte, err error) {
	if err := yaml.UnmarshalWithOptions(source, &root, yaml.UseOrderedMap()); err != nil {
		return nil, nil, err
	}
	rendered, err = toJSON(root)
	return root, rendered, err
}

func compile(source []byte) (*Contract, error) {
	root, rendered, err := read(source)
	if err != nil {
		return nil, err
	}
	compiler, err := newCompiler(rendered)
	if err != nil {
		return nil, err
	}
	c := &Contract{source, rendered, map[string]*Body{}, map[string]map[string]*jsonschema.Schema{}}
	doc := &document{root: root}
	for path, item := range doc.members("/paths") {
		for method := range doc.members(item) {
			if !slices.Contains(methods, method) {
				continue
			}
			operation := strings.ToUpper(method) + " " + path
			if err := c.addOperation(operation, item+"/"+method, doc, compiler); err != nil {
				return nil, fmt.Errorf("%s: %w", operation, err)
			}
		}
	}
	return c, nil
}

func newCompiler(document []byte) (*jsonschema.Compiler, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.RegisterVocabulary(&jsonschema.Vocabulary{URL: "weir:formats", Compile: compileFormat})
	compiler.AssertVocabs()
	return compiler, compiler.AddResource(documentURL, value)
}

// addOperation compiles the operation at the given place of the document.
func (c *Contract) addOperation(operation, place string, doc *document, compiler *jsonschema.Compiler) error {
	schemaAt := func(place string) (*jsonschema.Schema, error) {
		if doc.at(place) == nil {
			return nil, nil
		}
		return compiler.Compile(documentURL + "#" + place)
	}
	const jsonContent = "/content/application~1json/schema"
	body := place + "/requestBody" + jsonContent
	schema, err := schemaAt(body)
	if err != nil {
		return err
	}
	if schema != nil {
		c.bodies[operation] = &Body{schema: schema, place: doc.follow(body), doc: doc}
	}
	c.responses[operation] = map[string]*jsonschema.Schema{}
	for status, response := range doc.members(place + "/responses") {
		schema, err := schemaAt(doc.follow(response) + jsonContent)
		if err != nil {
			return err
		}
		c.responses[operation][status] = schema
	}
	return nil
}

// YAML returns the document as it was written.
func (c *Contract) YAML() []byte { return c.source }

// JSON returns the document as JSON, its members in the same order.
func (c *Contract) JSON() []byte { return c.rendered }

// Operations returns every operation of the document, sorted.
func (c *Contract) Operations() []string { return slices.Sorted(maps.Keys(c.responses)) }

// Body returns the schema of the operation's body, nil when it takes none.
func (c *Contract) Body(operation string) *Body { return c.bodies[operation] }

// CheckResponse returns an error when the document has no such status for the operation, or when
// the JSON body of the response, if it has one, does not match its schema.
func (c *Contract) CheckResponse(operation string, status int, body []byte) error {
	schema, ok := c.responses[operation][strconv.Itoa(status)]
	if !ok && status >= 400 {
		schema, ok = c.responses[operation]["default"]
	}
	if !ok {
		return errors.New("openapi.yaml does not have this status")
	}
	if schema == nil || len(body) == 0 {
		return nil
	}
	value, err := parse(body)
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// format checks the format of strings. It is a vocabulary and not the library's own check of
// formats, because that one comes before length and pattern and hides their errors.
type format struct {
	name  string
	valid func(string) bool
}

// Validate implements jsonschema.SchemaExt.
func (f format) Validate(ctx *jsonschema.ValidatorContext, value any) {
	if s, ok := value.(string); ok && !f.valid(s) {
		ctx.AddError(&kind.Format{Got: value, Want: f.name})
	}
}

var uuidForm = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

func compileFormat(_ *jsonschema.CompilerContext, schema map[string]any) (jsonschema.SchemaExt, error) {
	switch name := schema["format"]; name {
	case nil:
		return nil, nil
	case "uri":
		return format{"uri", func(s string) bool {
			u, err := url.Parse(s)
			return err == nil && u.IsAbs()
		}}, nil
	case "uuid":
		return format{"uuid", uuidForm.MatchString}, nil
	default:
		return nil, fmt.Errorf("format %v is not checked by weir: use uri, uuid or a pattern", name)
	}
}
