package contract

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// failure is one thing that is wrong with a body.
type failure struct {
	keyword  string // of JSON Schema
	instance []string
	schema   string         // place of the schema in the document; "" for the limits of every body
	params   map[string]any // in Ajv's form
	message  string         // in Ajv's words
	advice   string         // in ours
	branches []*failure     // one for each form that the value can have
	tag      *failure       // of a branch: the member that names the form names another one
}

// flatten returns the failures that are reported to programs: those of its branches, then the
// failure.
func (f *failure) flatten() []*failure {
	var all []*failure
	for _, branch := range f.branches {
		all = append(all, branch.flatten()...)
	}
	return append(all, f)
}

// forPrograms writes a failure as Ajv does; the order of the members counts. Places in the body's
// own schema, which is at the given place of the document, are relative to it, as Ajv has them.
func (f *failure) forPrograms(own string) (string, error) {
	place := f.schema
	if rest, ok := strings.CutPrefix(place, own); ok && (rest == "" || rest[0] == '/') {
		place = rest
	}
	var instance strings.Builder
	for _, token := range f.instance {
		instance.WriteString("/" + escape(shorten(token)))
	}
	text, err := toJSON(yaml.MapSlice{
		{Key: "instancePath", Value: instance.String()},
		{Key: "schemaPath", Value: "#" + place + "/" + f.keyword},
		{Key: "keyword", Value: f.keyword},
		{Key: "params", Value: f.params},
		{Key: "message", Value: f.message},
	})
	return string(text), err
}

// sentence says what to change.
func (f *failure) sentence() string {
	if branch := f.nearest(); branch != nil {
		return branch.sentence()
	}
	instance := f.instance
	if name, ok := f.params["missingProperty"].(string); ok {
		instance = append(slices.Clone(instance), name)
	} else if name, ok := f.params["additionalProperty"].(string); ok {
		instance = append(slices.Clone(instance), name)
	}
	return memberPath(instance) + ": " + f.advice
}

// nearest returns the error of the form that the caller meant, which helps more than a list of the
// forms; nil if that is unclear.
func (f *failure) nearest() *failure {
	near := slices.DeleteFunc(slices.Clone(f.branches), func(branch *failure) bool {
		return branch.keyword == "type" && len(branch.instance) == len(f.instance)
	})
	if len(near) > 1 {
		named := slices.DeleteFunc(slices.Clone(near), func(branch *failure) bool { return branch.tag != nil })
		if len(named) == 0 {
			return unknownTag(near)
		}
		near = named
	}
	var nearest *failure
	tie := false
	for _, branch := range near {
		switch {
		case nearest == nil, len(branch.instance) > len(nearest.instance):
			nearest, tie = branch, false
		case len(branch.instance) == len(nearest.instance):
			tie = tie || branch.sentence() != nearest.sentence()
		}
	}
	if tie {
		return nil
	}
	return nearest
}

// unknownTag returns the error of a value that names an unknown form.
func unknownTag(branches []*failure) *failure {
	var allowed []any
	for _, branch := range branches {
		if !slices.Equal(branch.tag.instance, branches[0].tag.instance) {
			return nil
		}
		values, _ := branch.tag.params["allowedValues"].([]any)
		allowed = append(allowed, values...)
	}
	return &failure{instance: branches[0].tag.instance, advice: "must be one of " + joinValues(allowed)}
}

var identifier = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

// memberPath names a member of the body the way people do: profiles[2].width.
func memberPath(instance []string) string {
	if len(instance) == 0 {
		return "body"
	}
	var path strings.Builder
	for i, token := range instance {
		token = shorten(token)
		switch _, err := strconv.ParseUint(token, 10, 64); {
		case err == nil:
			fmt.Fprintf(&path, "[%s]", token)
		case !identifier.MatchString(token):
			fmt.Fprintf(&path, "[%q]", token)
		case i == 0:
			path.WriteString(token)
		default:
			path.WriteString("." + token)
		}
	}
	return path.String()
}

// shorten cuts long names of callers.
func shorten(name string) string {
	const limit = 100
	if runes := []rune(name); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return name
}

// first picks the error that is reported: of one value the first in keywordOrder, a value before
// its members, members in the order of the document, items in their own.
func (d *document) first(err *jsonschema.ValidationError) *jsonschema.ValidationError {
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

// before reports whether a comes before b. The schemas with the given URLs found both, at or below
// a value that is depth levels deep.
func (d *document) before(a *jsonschema.ValidationError, urlA string, b *jsonschema.ValidationError, urlB string, depth int) bool {
	switch deepA, deepB := len(a.InstanceLocation) > depth, len(b.InstanceLocation) > depth; {
	case deepA != deepB:
		return deepB
	case !deepA:
		return slices.Index(keywordOrder, keywordOf(a)) < slices.Index(keywordOrder, keywordOf(b))
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
		if order := d.compare(placeOf(urlA), placeOf(urlB)); order != 0 {
			return order < 0
		}
	}
	return tokenA < tokenB
}

// keywordOf returns the keyword that an error is about.
func keywordOf(err *jsonschema.ValidationError) string {
	if path := err.ErrorKind.KeywordPath(); len(path) > 0 {
		return path[0]
	}
	return ""
}

// keywordOrder is the order in which the failures of one value are reported.
var keywordOrder = []string{
	"type", "const", "enum", "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "minItems", "maxItems",
	"oneOf", "minProperties", "maxProperties", "required", "additionalProperties",
}

// explain describes an error that first picked, with one branch for each form of a oneOf.
func (d *document) explain(err *jsonschema.ValidationError) *failure {
	failure := d.explainOne(err)
	var forms []string
	for i, cause := range err.Causes {
		branch := d.explain(d.first(cause))
		branch.tag = d.tagOf(cause, len(err.InstanceLocation)+1)
		failure.branches = append(failure.branches, branch)
		forms = append(forms, d.title(failure.schema+"/"+failure.keyword+"/"+strconv.Itoa(i)))
	}
	if len(forms) > 0 {
		failure.advice = "must be " + strings.Join(forms, " or ")
	}
	return failure
}

// tagOf returns the error of a member, depth levels deep, that has none of its allowed values; nil
// when there is none. Such a member names the form of an object: {type: s3}.
func (d *document) tagOf(err *jsonschema.ValidationError, depth int) *failure {
	if _, ok := err.ErrorKind.(*kind.Enum); ok && len(err.InstanceLocation) == depth {
		return d.explainOne(err)
	}
	for _, cause := range err.Causes {
		if tag := d.tagOf(cause, depth); tag != nil {
			return tag
		}
	}
	return nil
}

// explainOne describes a single error in Ajv's words and in ours. Limits come from the document,
// as they were written there.
func (d *document) explainOne(err *jsonschema.ValidationError) *failure {
	f := &failure{keyword: keywordOf(err), instance: err.InstanceLocation, schema: placeOf(err.SchemaURL)}
	limit := d.at(f.schema + "/" + f.keyword)
	switch k := err.ErrorKind.(type) {
	case *kind.Type:
		f.params, f.message = map[string]any{"type": limit}, "must be "+joinTypes(limit, ",", nil)
		f.advice = "must be " + joinTypes(limit, " or ", typeNames)
	case *kind.Required:
		f.params = map[string]any{"missingProperty": k.Missing[0]}
		f.message, f.advice = fmt.Sprintf("must have required property '%s'", k.Missing[0]), "is required"
	case *kind.AdditionalProperties:
		f.params = map[string]any{"additionalProperty": shorten(slices.Min(k.Properties))}
		f.message, f.advice = "must NOT have additional properties", "is not a known property"
	case *kind.Enum:
		f.params, f.message = map[string]any{"allowedValues": limit}, "must be equal to one of the allowed values"
		f.advice = "must be one of " + joinValues(k.Want)
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
func (f *failure) explainSize(limit any) {
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
	// The document uses a keyword that this function does not know yet.
	f.message = fmt.Sprintf("must pass %q keyword validation", f.keyword)
	f.advice = "does not fit the keyword " + f.keyword
}

var typeNames = map[string]string{
	"string": "a string", "number": "a number", "integer": "an integer", "boolean": "true or false",
	"array": "an array", "object": "an object", "null": "null",
}

// joinTypes joins one type or several, as the schema has them.
func joinTypes(types any, separator string, names map[string]string) string {
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

func joinValues(values []any) string {
	var words []string
	for _, v := range values {
		words = append(words, fmt.Sprint(v))
	}
	return strings.Join(words, ", ")
}
