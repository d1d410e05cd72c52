package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// contract is openapi.yaml, compiled. It holds request bodies against their
// schemas, and lets tests do the same with answers. Operations are named by
// their method and path, as in `PATCH /api/stream/{id}`.
//
// The verdict on a body is jsonschema's. Which of its errors is told is decided
// here (see contractDocument.first), because jsonschema walks over maps and so
// finds them in another order each time.
type contract struct {
	source   []byte
	rendered []byte // source as JSON
	bodies   map[string]*bodySchema
	answers  map[string]map[string]*jsonschema.Schema // by operation, then by status; nil = no JSON body
}

// contractURL is what jsonschema knows the document as. Nothing is fetched.
const contractURL = "weir:///openapi.yaml"

// newContract compiles the document.
func newContract(openapiYAML []byte) (*contract, error) {
	var root any
	if err := yaml.UnmarshalWithOptions(openapiYAML, &root, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	c := &contract{
		source:  openapiYAML,
		bodies:  map[string]*bodySchema{},
		answers: map[string]map[string]*jsonschema.Schema{},
	}
	doc := &contractDocument{root: root}
	var err error
	if c.rendered, err = contractJSON(root); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	compiler, err := contractCompiler(c.rendered)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	for path, item := range doc.members("/paths") {
		for method := range doc.members(item) {
			if !slices.Contains(contractMethods, method) {
				continue
			}
			if err := c.compile(strings.ToUpper(method)+" "+path, item+"/"+method, doc, compiler); err != nil {
				return nil, fmt.Errorf("openapi.yaml: %s %s: %w", strings.ToUpper(method), path, err)
			}
		}
	}
	return c, nil
}

var contractMethods = []string{"get", "head", "put", "post", "delete", "patch"}

func contractCompiler(document []byte) (*jsonschema.Compiler, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.RegisterVocabulary(&jsonschema.Vocabulary{URL: "weir:formats", Compile: contractCompileFormat})
	compiler.AssertVocabs()
	return compiler, compiler.AddResource(contractURL, value)
}

// compile indexes the operation at the given place of the document.
func (c *contract) compile(pattern, operation string, doc *contractDocument, compiler *jsonschema.Compiler) error {
	const jsonContent = "/content/application~1json/schema"
	if place := operation + "/requestBody" + jsonContent; doc.at(place) != nil {
		schema, err := compiler.Compile(contractURL + "#" + place)
		if err != nil {
			return err
		}
		c.bodies[pattern] = &bodySchema{schema: schema, place: doc.follow(place), doc: doc}
	}
	c.answers[pattern] = map[string]*jsonschema.Schema{}
	for status, response := range doc.members(operation + "/responses") {
		place := doc.follow(response) + jsonContent
		c.answers[pattern][status] = nil
		if doc.at(place) == nil {
			continue
		}
		schema, err := compiler.Compile(contractURL + "#" + place)
		if err != nil {
			return err
		}
		c.answers[pattern][status] = schema
	}
	return nil
}

// yaml returns the document as it was written.
func (c *contract) yaml() []byte { return c.source }

// json returns the document as JSON, its members in the same order.
func (c *contract) json() []byte { return c.rendered }

// pathsAndMethods returns every operation of the document, sorted.
func (c *contract) pathsAndMethods() []string {
	var patterns []string
	for pattern := range c.answers {
		patterns = append(patterns, pattern)
	}
	slices.Sort(patterns)
	return patterns
}

// body returns the schema of the operation's body, nil when it takes none.
func (c *contract) body(pattern string) *bodySchema { return c.bodies[pattern] }

// response returns the schema of what the operation answers with the status. The
// schema is nil when the answer has no JSON body; ok is false when the document
// does not know the status for this operation.
func (c *contract) response(pattern string, status int) (schema *jsonschema.Schema, ok bool) {
	schema, ok = c.answers[pattern][strconv.Itoa(status)]
	if !ok && status >= 400 {
		schema, ok = c.answers[pattern]["default"]
	}
	return schema, ok
}

// bodySchema holds bodies against one schema. It may be used by many goroutines.
type bodySchema struct {
	schema *jsonschema.Schema
	place  string // of the schema in doc, behind its $ref
	doc    *contractDocument
}

// What a body may have at most, whatever its schema. jsonschema notes every error
// that it finds, so the number of values bounds what a bad body can cost.
const (
	contractMaxDepth    = 64
	contractMaxValues   = 10_000
	contractMaxDigits   = 64
	contractMaxExponent = 308 // of a float64; jsonschema writes numbers out in full
)

// bodyError says what is wrong with a body.
type bodyError struct{ messages []string }

func (e *bodyError) Error() string { return e.messages[len(e.messages)-1] }

// Messages returns what the answer tells: first the errors for programs, JSON in a
// string as the Livepeer Studio API has them, and last a sentence for people.
func (e *bodyError) Messages() []string { return e.messages }

// validate returns nil when the value, as decoded from JSON, fits the schema, and
// otherwise a *bodyError. Numbers should be json.Number.
func (b *bodySchema) validate(value any) error {
	budget := contractMaxValues
	failure := contractCheckLimits(value, nil, &budget)
	if failure == nil {
		err := b.schema.Validate(value)
		if err == nil {
			return nil
		}
		found, ok := errors.AsType[*jsonschema.ValidationError](err)
		if !ok {
			return fmt.Errorf("validate body: %w", err)
		}
		failure = b.doc.explain(b.doc.first(found))
	}
	var messages []string
	for _, told := range failure.flatten() {
		text, err := b.describe(told)
		if err != nil {
			return fmt.Errorf("describe a body's error: %w", err)
		}
		messages = append(messages, text)
	}
	return &bodyError{messages: append(messages, failure.sentence())}
}

// contractFailure is one thing that is wrong with a body.
type contractFailure struct {
	keyword  string // of JSON Schema
	instance []string
	schema   string             // place of the schema in the document; "" for the limits of every body
	params   map[string]any     // in Ajv's form
	message  string             // in Ajv's words
	advice   string             // in ours
	branches []*contractFailure // one for each form that the value could have had
}

// flatten returns what is told to programs: the failure, and before it those of
// its branches, when it has any.
func (f *contractFailure) flatten() []*contractFailure {
	var all []*contractFailure
	for _, branch := range f.branches {
		all = append(all, branch.flatten()...)
	}
	return append(all, f)
}

// describe writes a failure as Ajv does. The order of the members is part of it.
func (b *bodySchema) describe(f *contractFailure) (string, error) {
	place := f.schema // in the document; in the body's own schema it is told from there, as Ajv does
	if rest, ok := strings.CutPrefix(place, b.place); ok && (rest == "" || rest[0] == '/') {
		place = rest
	}
	var instance strings.Builder
	for _, token := range f.instance {
		instance.WriteString("/" + contractEscape(contractShorten(token)))
	}
	text, err := contractJSON(yaml.MapSlice{
		{Key: "instancePath", Value: instance.String()},
		{Key: "schemaPath", Value: "#" + place + "/" + f.keyword},
		{Key: "keyword", Value: f.keyword},
		{Key: "params", Value: f.params},
		{Key: "message", Value: f.message},
	})
	return string(text), err
}

// sentence says what to change.
func (f *contractFailure) sentence() string {
	if branch := f.nearest(); branch != nil {
		return branch.sentence()
	}
	instance := f.instance
	if name, ok := f.params["missingProperty"].(string); ok {
		instance = append(slices.Clone(instance), name)
	} else if name, ok := f.params["additionalProperty"].(string); ok {
		instance = append(slices.Clone(instance), name)
	}
	return contractPath(instance) + ": " + f.advice
}

// nearest returns the branch that the value comes nearest to, nil when there is
// no saying: what is wrong with a value as one of the forms helps more than the
// list of the forms.
func (f *contractFailure) nearest() *contractFailure {
	var nearest *contractFailure
	depth, tie := len(f.instance), true
	for _, branch := range f.branches {
		switch {
		case branch.keyword == "type" && len(branch.instance) == len(f.instance):
			continue // another form altogether
		case len(branch.instance) > depth, nearest == nil:
			nearest, depth, tie = branch, len(branch.instance), false
		case len(branch.instance) == depth:
			tie = true
		}
	}
	if tie {
		return nil
	}
	return nearest
}

var contractIdentifier = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

// contractPath names a member of the body the way people do: profiles[2].width.
func contractPath(instance []string) string {
	if len(instance) == 0 {
		return "body"
	}
	var path strings.Builder
	for i, token := range instance {
		token = contractShorten(token)
		switch _, err := strconv.ParseUint(token, 10, 64); {
		case err == nil:
			fmt.Fprintf(&path, "[%s]", token)
		case !contractIdentifier.MatchString(token):
			fmt.Fprintf(&path, "[%q]", token)
		case i == 0:
			path.WriteString(token)
		default:
			path.WriteString("." + token)
		}
	}
	return path.String()
}

// contractShorten keeps names that a caller made up from filling the answer.
func contractShorten(name string) string {
	const limit = 100
	if runes := []rune(name); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return name
}

// contractCheckLimits refuses what would cost too much to look at closely.
func contractCheckLimits(value any, instance []string, budget *int) *contractFailure {
	*budget--
	switch {
	case *budget < 0:
		return &contractFailure{
			keyword: "maxValues", params: map[string]any{"limit": contractMaxValues},
			message: fmt.Sprintf("must NOT have more than %d values", contractMaxValues),
			advice:  fmt.Sprintf("must have at most %d values in all", contractMaxValues),
		}
	case len(instance) > contractMaxDepth:
		return &contractFailure{
			keyword: "maxDepth", params: map[string]any{"limit": contractMaxDepth},
			message: fmt.Sprintf("must NOT be nested deeper than %d levels", contractMaxDepth),
			advice:  fmt.Sprintf("must have at most %d levels", contractMaxDepth),
		}
	}
	switch value := value.(type) {
	case map[string]any:
		var first *contractFailure
		for name, member := range value {
			failure := contractCheckLimits(member, append(instance, name), budget)
			if failure != nil && (first == nil || slices.Compare(failure.instance, first.instance) < 0) {
				first = failure // the map has no order, the answer must have one
			}
			if *budget < 0 {
				return failure
			}
		}
		return first
	case []any:
		for i, item := range value {
			if failure := contractCheckLimits(item, append(instance, strconv.Itoa(i)), budget); failure != nil {
				return failure
			}
		}
	case json.Number:
		if !contractSensibleNumber(value) {
			return &contractFailure{
				keyword: "format", instance: slices.Clone(instance), params: map[string]any{"format": "double"},
				message: `must match format "double"`, advice: "must be a number with fewer digits",
			}
		}
	}
	return nil
}

// contractSensibleNumber reports whether a number is short, and in the range of float64.
func contractSensibleNumber(n json.Number) bool {
	text := string(n)
	if len(text) > contractMaxDigits {
		return false
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, err := strconv.Atoi(text[i+1:])
		if err != nil || exponent > contractMaxExponent || exponent < -contractMaxExponent {
			return false
		}
	}
	f, err := n.Float64()
	return err == nil && !math.IsInf(f, 0)
}

// first picks the error that is told. For one value: its type, then the keywords
// in the order of contractKeywords. A value comes before its members, members in
// the order in which the document has them, items in their own.
func (d *contractDocument) first(err *jsonschema.ValidationError) *jsonschema.ValidationError {
	switch err.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
	default:
		return err
	}
	var best *jsonschema.ValidationError
	var bestURL string
	for _, cause := range err.Causes {
		found := d.first(cause)
		if best == nil || d.before(found, cause.SchemaURL, best, bestURL, len(err.InstanceLocation)) {
			best, bestURL = found, cause.SchemaURL
		}
	}
	return best
}

// before reports whether a comes before b, both found at or below a value that is
// depth levels deep, by the schemas with the given URLs.
func (d *contractDocument) before(a *jsonschema.ValidationError, urlA string, b *jsonschema.ValidationError, urlB string, depth int) bool {
	switch deepA, deepB := len(a.InstanceLocation) > depth, len(b.InstanceLocation) > depth; {
	case deepA != deepB:
		return deepB
	case !deepA:
		return slices.Index(contractKeywords, contractKeyword(a)) < slices.Index(contractKeywords, contractKeyword(b))
	}
	tokenA, tokenB := a.InstanceLocation[depth], b.InstanceLocation[depth]
	indexA, errA := strconv.Atoi(tokenA)
	indexB, errB := strconv.Atoi(tokenB)
	switch {
	case errA == nil && errB == nil && indexA != indexB:
		return indexA < indexB
	case (errA == nil) != (errB == nil): // names that callers made up can be numbers too
		return errA == nil
	}
	if urlA != urlB {
		if order := d.compare(contractPlace(urlA), contractPlace(urlB)); order != 0 {
			return order < 0
		}
	}
	return tokenA < tokenB
}

// contractKeyword returns the keyword that an error is about.
func contractKeyword(err *jsonschema.ValidationError) string {
	if path := err.ErrorKind.KeywordPath(); len(path) > 0 {
		return path[0]
	}
	return ""
}

// contractKeywords is the order in which the failures of one value are told.
var contractKeywords = []string{
	"type", "const", "enum", "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "minItems", "maxItems",
	"oneOf", "minProperties", "maxProperties", "required", "additionalProperties",
}

// explain tells what an error that first picked means.
func (d *contractDocument) explain(err *jsonschema.ValidationError) *contractFailure {
	failure := d.explainOne(err)
	var forms []string
	for i, cause := range err.Causes {
		failure.branches = append(failure.branches, d.explain(d.first(cause)))
		forms = append(forms, d.title(failure.schema+"/"+failure.keyword+"/"+strconv.Itoa(i)))
	}
	if len(forms) > 0 {
		failure.advice = "must be " + strings.Join(forms, " or ")
	}
	return failure
}

// explainOne says in Ajv's words and in ours what a single error means. Details
// come from the document, where they are as they were written.
func (d *contractDocument) explainOne(err *jsonschema.ValidationError) *contractFailure {
	f := &contractFailure{keyword: contractKeyword(err), instance: err.InstanceLocation, schema: contractPlace(err.SchemaURL)}
	limit := d.at(f.schema + "/" + f.keyword)
	switch k := err.ErrorKind.(type) {
	case *kind.Type:
		f.params, f.message = map[string]any{"type": limit}, "must be "+contractTypes(limit, ",", nil)
		f.advice = "must be " + contractTypes(limit, " or ", contractTypeNames)
	case *kind.Required:
		f.params = map[string]any{"missingProperty": k.Missing[0]}
		f.message, f.advice = fmt.Sprintf("must have required property '%s'", k.Missing[0]), "is required"
	case *kind.AdditionalProperties:
		f.params = map[string]any{"additionalProperty": contractShorten(slices.Min(k.Properties))}
		f.message, f.advice = "must NOT have additional properties", "is not a known property"
	case *kind.Enum:
		f.params, f.message = map[string]any{"allowedValues": limit}, "must be equal to one of the allowed values"
		f.advice = "must be one of " + contractValues(k.Want)
	case *kind.Pattern:
		f.params, f.message = map[string]any{"pattern": k.Want}, fmt.Sprintf(`must match pattern "%s"`, k.Want)
		f.advice = "must match " + k.Want
	case *kind.Format:
		f.params, f.message = map[string]any{"format": k.Want}, fmt.Sprintf(`must match format "%s"`, k.Want)
		f.advice = "must be a valid " + strings.ToUpper(k.Want)
	case *kind.Minimum:
		f.params, f.message = map[string]any{"comparison": ">=", "limit": limit}, fmt.Sprintf("must be >= %v", limit)
		f.advice = fmt.Sprintf("must be %v or more", limit)
	case *kind.Maximum:
		f.params, f.message = map[string]any{"comparison": "<=", "limit": limit}, fmt.Sprintf("must be <= %v", limit)
		f.advice = fmt.Sprintf("must be %v or less", limit)
	case *kind.OneOf:
		f.params, f.message = map[string]any{"passingSchemas": nil}, "must match exactly one schema in oneOf"
		f.advice = "must have exactly one of the allowed forms"
		if len(k.Subschemas) > 0 {
			f.params["passingSchemas"] = []any{k.Subschemas[0], k.Subschemas[1]}
		}
	default:
		f.explainSize(limit)
	}
	if expects, ok := d.at(f.schema + "/x-expects").(string); ok && (f.keyword == "pattern" || f.keyword == "format") {
		f.advice = "must be " + expects
	}
	return f
}

// explainSize covers the keywords that count characters, items and members.
func (f *contractFailure) explainSize(limit any) {
	f.params = map[string]any{"limit": limit}
	units := map[string]string{"Length": "characters", "Items": "items", "Properties": "properties"}
	for suffix, unit := range units {
		if f.keyword == "min"+suffix {
			f.message = fmt.Sprintf("must NOT have fewer than %v %s", limit, unit)
			f.advice = fmt.Sprintf("must have at least %v %s", limit, unit)
			if fmt.Sprint(limit) == "1" {
				f.advice = "must not be empty"
			}
			return
		}
		if f.keyword == "max"+suffix {
			f.message = fmt.Sprintf("must NOT have more than %v %s", limit, unit)
			f.advice = fmt.Sprintf("must have at most %v %s", limit, unit)
			return
		}
	}
	// A keyword that the document did not use when this was written: say at least
	// which.
	f.message = fmt.Sprintf("must pass %q keyword validation", f.keyword)
	f.advice = "does not fit the keyword " + f.keyword
}

var contractTypeNames = map[string]string{
	"string": "a string", "number": "a number", "integer": "an integer", "boolean": "true or false",
	"array": "an array", "object": "an object", "null": "null",
}

// contractTypes joins one type or several, as the schema has them.
func contractTypes(types any, separator string, names map[string]string) string {
	list, ok := types.([]any)
	if !ok {
		list = []any{types}
	}
	var words []string
	for _, t := range list {
		word := fmt.Sprint(t)
		words = append(words, cmp.Or(names[word], word))
	}
	return strings.Join(words, separator)
}

func contractValues(values []any) string {
	var words []string
	for _, v := range values {
		words = append(words, fmt.Sprint(v))
	}
	return strings.Join(words, ", ")
}

// contractFormat checks the format of strings. It is a vocabulary and not
// jsonschema's own check of formats, because that one comes before length and
// pattern and hides them.
type contractFormat struct {
	name  string
	valid func(string) bool
}

// Validate implements jsonschema.SchemaExt.
func (f contractFormat) Validate(ctx *jsonschema.ValidatorContext, value any) {
	if s, ok := value.(string); ok && !f.valid(s) {
		ctx.AddError(&kind.Format{Got: value, Want: f.name})
	}
}

func contractCompileFormat(_ *jsonschema.CompilerContext, schema map[string]any) (jsonschema.SchemaExt, error) {
	switch name := schema["format"]; name {
	case nil:
		return nil, nil
	case "uri":
		return contractFormat{"uri", func(s string) bool {
			u, err := url.Parse(s)
			return err == nil && u.IsAbs()
		}}, nil
	case "uuid":
		return contractFormat{"uuid", func(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }}, nil
	default:
		return nil, fmt.Errorf("format %v is not checked by weir: use uri, uuid or a pattern", name)
	}
}

// contractDocument is the document with its members in their order. Places in it
// are JSON pointers.
type contractDocument struct{ root any }

// at returns what is at a place, nil when there is nothing.
func (d *contractDocument) at(place string) any {
	value := d.root
	for token := range strings.SplitSeq(strings.TrimPrefix(place, "/"), "/") {
		_, value = contractChild(value, token)
	}
	return value
}

// follow returns the place behind a $ref, or the place itself.
func (d *contractDocument) follow(place string) string {
	for {
		ref, ok := d.at(place + "/$ref").(string)
		if !ok {
			return place
		}
		place = strings.TrimPrefix(ref, "#")
	}
}

// members yields the names and the places of what is at a place.
func (d *contractDocument) members(place string) func(yield func(name, place string) bool) {
	return func(yield func(string, string) bool) {
		object, _ := d.at(place).(yaml.MapSlice)
		for _, member := range object {
			name := member.Key.(string)
			if !yield(name, place+"/"+contractEscape(name)) {
				return
			}
		}
	}
}

// title names the form that the schema at a place stands for.
func (d *contractDocument) title(place string) string {
	title, ok := d.at(d.follow(place) + "/title").(string)
	if !ok {
		return "another form"
	}
	return title
}

// compare tells which of two places comes first in the document.
func (d *contractDocument) compare(a, b string) int {
	tokensA, tokensB := strings.Split(a, "/"), strings.Split(b, "/")
	value := d.root
	for i := 1; i < min(len(tokensA), len(tokensB)); i++ {
		indexA, child := contractChild(value, tokensA[i])
		if tokensA[i] != tokensB[i] {
			indexB, _ := contractChild(value, tokensB[i])
			return cmp.Compare(indexA, indexB)
		}
		value = child
	}
	return cmp.Compare(len(tokensA), len(tokensB))
}

// contractChild returns the member or item with the escaped name, and how many
// are before it.
func contractChild(value any, token string) (int, any) {
	switch value := value.(type) {
	case yaml.MapSlice:
		name := token
		if strings.Contains(token, "~") {
			name = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		}
		for i, member := range value {
			if member.Key == name {
				return i, member.Value
			}
		}
	case []any:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(value) {
			return i, value[i]
		}
	}
	return -1, nil
}

func contractEscape(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

// contractPlace returns the place in the document that a URL of jsonschema means.
func contractPlace(schemaURL string) string {
	_, fragment, _ := strings.Cut(schemaURL, "#")
	place, err := url.PathUnescape(fragment)
	if err != nil {
		return fragment // never: jsonschema escaped it
	}
	return place
}

// contractJSON writes YAML as JSON, members in their order.
func contractJSON(value any) ([]byte, error) {
	var buf bytes.Buffer
	err := contractWriteJSON(&buf, value)
	return buf.Bytes(), err
}

func contractWriteJSON(buf *bytes.Buffer, value any) error {
	switch value := value.(type) {
	case yaml.MapSlice:
		buf.WriteByte('{')
		for i, member := range value {
			if i > 0 {
				buf.WriteByte(',')
			}
			if err := contractWriteJSON(buf, member.Key); err != nil { // always a string: go-yaml sees to it
				return err
			}
			buf.WriteByte(':')
			if err := contractWriteJSON(buf, member.Value); err != nil {
				return err
			}
		}
		buf.WriteByte('}')
	case []any:
		buf.WriteByte('[')
		for i, item := range value {
			if i > 0 {
				buf.WriteByte(',')
			}
			if err := contractWriteJSON(buf, item); err != nil {
				return err
			}
		}
		buf.WriteByte(']')
	default:
		encoder := json.NewEncoder(buf)
		encoder.SetEscapeHTML(false) // `>` stands in messages
		if err := encoder.Encode(value); err != nil {
			return err
		}
		buf.Truncate(buf.Len() - 1) // the line feed
	}
	return nil
}
