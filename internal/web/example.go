package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strings"
)

// Examples of a call are made from the contract: parameters that are required or have an example, and
// the example of the body. e2e/reference runs all of them. Words in capitals, such as STREAM_ID, stand
// for what the reader has.

// exampleBase is the address of the server in examples. The script of the page writes the real one.
const exampleBase = "http://localhost:8080"

// fileName returns the name of the file that an example uploads.
func (r exampleRequest) fileName() string {
	if strings.HasPrefix(r.contentType(), "text/") {
		return "captions.vtt"
	}
	return "film.mp4"
}

// example is a call in a language.
type example struct {
	Language string // its name
	Key      string // such as js
	Code     template.HTML
}

// exampleRequest is a call with values for its parameters.
type exampleRequest struct {
	method, url  string
	header       [][2]string
	credential   string // scheme and variable: "Bearer KEY"; "" = none
	body         string // JSON, "" = none
	file         bool   // the body is a file
	responseType string // type of the response's content; "" = it has none
}

// exampleRequest fills in an operation.
func (d *openAPI) exampleRequest(o *operation) (r exampleRequest, err error) {
	r = exampleRequest{method: o.method, credential: o.credential()}
	path, query := o.path, url.Values{}
	for _, p := range o.Parameters {
		value := valueOf(p.Example)
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", cmp.Or(value, placeholder(o.path, p.Name)))
		case value == "" && !p.Required:
		case p.In == "query":
			query.Set(p.Name, cmp.Or(value, placeholder("", p.Name)))
		case p.In == "header":
			r.header = append(r.header, [2]string{p.Name, cmp.Or(value, placeholder("", p.Name))})
		}
	}
	r.url = exampleBase + path
	if len(query) > 0 {
		r.url += "?" + query.Encode()
	}
	if o.RequestBody != nil {
		for kind, content := range o.RequestBody.Content.all {
			if kind != jsonType {
				r.file = true
				if r.contentType() == "" {
					r.header = append(r.header, [2]string{"Content-Type", kind})
				}
				continue
			}
			if r.body = string(content.Example); r.body == "" {
				if r.body, err = d.sample(content.Schema); err != nil {
					return r, err
				}
			}
			r.header = append(r.header, [2]string{"Content-Type", kind})
		}
	}
	for status, response := range o.Responses.all {
		for kind := range response.Content.all {
			if strings.HasPrefix(status, "2") && o.method != "HEAD" {
				r.responseType = kind
			}
		}
	}
	return r, nil
}

// sample returns a value of a schema as JSON: its example, or the members that it must have.
func (d *openAPI) sample(s *schema) (string, error) {
	s, _ = d.follow(s)
	switch {
	case s == nil:
		return "{}", nil
	case len(s.Examples) > 0:
		return string(s.Examples[0]), nil
	case len(s.Enum) > 0:
		return string(s.Enum[0]), nil
	case len(s.OneOf) > 0:
		return d.sample(s.OneOf[0])
	case len(s.Type) == 0:
		return "", errors.New("its body needs an example in openapi.yaml")
	}
	switch s.Type[0] {
	case "object":
		var members []string
		for _, name := range s.Required {
			value, err := d.sample(s.Properties.values[name])
			if err != nil {
				return "", err
			}
			members = append(members, fmt.Sprintf("%q: %s", name, value))
		}
		return "{" + strings.Join(members, ", ") + "}", nil
	case "boolean":
		return "true", nil
	case "integer", "number":
		return cmp.Or(s.Minimum.String(), "1"), nil
	case "array":
		return "[]", nil
	}
	return `"text"`, nil
}

// json returns the body in lines.
func (r exampleRequest) json(prefix, by string) string {
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(r.body), prefix, by); err != nil {
		return r.body // never: it was decoded before
	}
	return out.String()
}

func (r exampleRequest) contentType() string {
	for _, h := range r.header {
		if h[0] == "Content-Type" {
			return h[1]
		}
	}
	return ""
}

// credential returns how an example of the operation says who calls.
func (o *operation) credential() string {
	for _, scheme := range *o.Security {
		if _, ok := scheme["bearerKey"]; ok {
			return "Bearer KEY"
		}
		if _, ok := scheme["login"]; ok {
			return "JWT TOKEN"
		}
	}
	return ""
}

// valueOf returns an example value as it is written in an address.
func valueOf(value json.RawMessage) string { return strings.Trim(string(value), `"`) }

// placeholder returns the word that stands for a parameter: STREAM_ID for the id in /stream/{id},
// PLAYBACK_ID for a playbackId.
func placeholder(path, name string) string {
	if name == "id" {
		before, _, _ := strings.Cut(path, "/{id}")
		name = before[strings.LastIndexByte(before, '/')+1:] + "Id"
	}
	return strings.ReplaceAll(strings.ToUpper(kebab(name)), "-", "_")
}

func (r exampleRequest) examples() []example {
	return []example{
		{"curl", "curl", codeBlock("curl", r.curl())},
		{"JavaScript", "js", codeBlock("js", r.javaScript())},
		{"Go", "go", codeBlock("go", r.golang())},
		{"Python", "python", codeBlock("python", r.python())},
	}
}

func (r exampleRequest) curl() string {
	first := "curl"
	switch {
	case r.responseType == eventType:
		first += " -N"
	case r.method == "HEAD":
		first += " -I"
	case r.file && r.method == "PUT", r.method == "GET", r.method == "POST" && r.body != "":
	default:
		first += " -X " + r.method
	}
	address := r.url
	if strings.ContainsAny(address, "?&[]") {
		address = `"` + address + `"`
	}
	lines := []string{first + " " + address}
	if scheme, variable, ok := strings.Cut(r.credential, " "); ok {
		lines = append(lines, fmt.Sprintf(`-H "Authorization: %s $%s"`, scheme, variable))
	}
	for _, h := range r.header {
		lines = append(lines, fmt.Sprintf(`-H "%s: %s"`, h[0], h[1]))
	}
	switch {
	case r.file && r.method == "PUT":
		lines = append(lines, "-T "+r.fileName())
	case r.file:
		lines = append(lines, "--data-binary @"+r.fileName())
	case r.body != "":
		lines = append(lines, "-d '"+strings.ReplaceAll(r.json("  ", "  "), "'", `'\''`)+"'")
	}
	return strings.Join(lines, " \\\n  ")
}

const eventType = "text/event-stream"

// unquoted are the members of an object that JavaScript writes without quotes.
var unquoted = regexp.MustCompile(`(?m)^(\s*)"([A-Za-z_][A-Za-z0-9_]*)":`)

func (r exampleRequest) javaScript() string {
	var out strings.Builder
	if r.file {
		out.WriteString("import { readFile } from \"node:fs/promises\";\n\n")
	}
	fmt.Fprintf(&out, "const response = await fetch(%q", r.url)
	var options []string
	if r.method != "GET" {
		options = append(options, fmt.Sprintf("method: %q,", r.method))
	}
	var headers []string
	if scheme, variable, ok := strings.Cut(r.credential, " "); ok {
		headers = append(headers, fmt.Sprintf("Authorization: `%s ${process.env.%s}`,", scheme, variable))
	}
	for _, h := range r.header {
		headers = append(headers, fmt.Sprintf("%q: %q,", h[0], h[1]))
	}
	switch len(headers) {
	case 0:
	case 1:
		options = append(options, "headers: { "+strings.TrimSuffix(headers[0], ",")+" },")
	default:
		options = append(options, "headers: {\n    "+strings.Join(headers, "\n    ")+"\n  },")
	}
	switch {
	case r.file:
		options = append(options, fmt.Sprintf("body: await readFile(%q),", r.fileName()))
	case r.body != "":
		options = append(options, "body: JSON.stringify("+unquoted.ReplaceAllString(r.json("  ", "  "), "$1$2:")+"),")
	}
	if len(options) > 0 {
		out.WriteString(", {\n  " + strings.Join(options, "\n  ") + "\n}")
	}
	out.WriteString(");\n")
	switch r.responseType {
	case "":
		out.WriteString("console.log(response.status);")
	case jsonType:
		out.WriteString("console.log(response.status, await response.json());")
	case eventType:
		out.WriteString("for await (const chunk of response.body) process.stdout.write(chunk);")
	default:
		out.WriteString("console.log(response.status, await response.text());")
	}
	return out.String()
}

func (r exampleRequest) golang() string {
	var imports, code []string
	imports = append(imports, "fmt", "log", "net/http")
	content := "nil"
	const check = "if err != nil {\n\tlog.Fatal(err)\n}"
	switch {
	case r.file:
		imports = append(imports, "os")
		content = "file"
		code = append(code, fmt.Sprintf("file, err := os.Open(%q)", r.fileName()), check)
	case r.body != "":
		imports = append(imports, "strings")
		content = "body"
		code = append(code, "body := strings.NewReader(`"+r.json("", "  ")+"`)")
	}
	code = append(code, fmt.Sprintf("request, err := http.NewRequest(%q, %q, %s)", r.method, r.url, content), check)
	if scheme, variable, ok := strings.Cut(r.credential, " "); ok {
		imports = append(imports, "os")
		code = append(code, fmt.Sprintf(`request.Header.Set("Authorization", "%s "+os.Getenv(%q))`, scheme, variable))
	}
	for _, h := range r.header {
		code = append(code, fmt.Sprintf("request.Header.Set(%q, %q)", h[0], h[1]))
	}
	if r.file {
		code = append(code, "if info, err := file.Stat(); err == nil {\n\trequest.ContentLength = info.Size()\n}")
	}
	code = append(code, "response, err := http.DefaultClient.Do(request)", check, "defer response.Body.Close()", "fmt.Println(response.Status)")
	if r.responseType != "" {
		imports = append(imports, "io", "os")
		code = append(code, "io.Copy(os.Stdout, response.Body)")
	}
	return "package main\n\nimport (\n" + importLines(imports) + ")\n\nfunc main() {\n" + goLines(code) + "}"
}

func importLines(all []string) string {
	var out strings.Builder
	for _, name := range []string{"fmt", "io", "log", "net/http", "os", "strings"} {
		for _, used := range all {
			if used == name {
				fmt.Fprintf(&out, "\t%q\n", name)
				break
			}
		}
	}
	return out.String()
}

// goLines indents statements, but not what is within a raw string.
func goLines(code []string) string {
	var out strings.Builder
	for _, statement := range code {
		raw := false
		for line := range strings.SplitSeq(statement, "\n") {
			if !raw {
				out.WriteByte('\t')
			}
			out.WriteString(line + "\n")
			raw = raw != (strings.Count(line, "`")%2 == 1)
		}
	}
	return out.String()
}

// literals are values that Python writes in another way.
var literals = regexp.MustCompile(`(?m)^(\s*(?:"[^"]*": )?)(true|false|null)(,?)$`)

func (r exampleRequest) python() string {
	var out strings.Builder
	if r.body != "" || r.responseType == jsonType {
		out.WriteString("import json\n")
	}
	if r.credential != "" {
		out.WriteString("import os\n")
	}
	out.WriteString("import urllib.request\n\nrequest = urllib.request.Request(\n")
	fmt.Fprintf(&out, "    %q,\n", r.url)
	if r.method != "GET" {
		fmt.Fprintf(&out, "    method=%q,\n", r.method)
	}
	var headers []string
	if scheme, variable, ok := strings.Cut(r.credential, " "); ok {
		headers = append(headers, fmt.Sprintf(`"Authorization": "%s " + os.environ[%q]`, scheme, variable))
	}
	for _, h := range r.header {
		headers = append(headers, fmt.Sprintf("%q: %q", h[0], h[1]))
	}
	switch len(headers) {
	case 0:
	case 1:
		out.WriteString("    headers={" + headers[0] + "},\n")
	default:
		out.WriteString("    headers={\n        " + strings.Join(headers, ",\n        ") + ",\n    },\n")
	}
	switch {
	case r.file:
		fmt.Fprintf(&out, "    data=open(%q, \"rb\").read(),\n", r.fileName())
	case r.body != "":
		value := literals.ReplaceAllStringFunc(r.json("    ", "    "), func(line string) string {
			return strings.NewReplacer(" true", " True", " false", " False", " null", " None").Replace(line)
		})
		out.WriteString("    data=json.dumps(" + value + ").encode(),\n")
	}
	out.WriteString(")\nwith urllib.request.urlopen(request) as response:\n")
	switch r.responseType {
	case "":
		out.WriteString("    print(response.status)")
	case jsonType:
		out.WriteString("    print(response.status, json.load(response))")
	case eventType:
		out.WriteString("    for line in response:\n        print(line.decode(), end=\"\")")
	default:
		out.WriteString("    print(response.status, response.read().decode())")
	}
	return out.String()
}
