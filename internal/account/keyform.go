package account

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"weir/internal/weir"
)

// keyForm is the form that names and restricts an API key.
type keyForm struct {
	Name    string
	Project string
	Where   string // fromServers or fromPages
	Origins string // one a line
	What    string // doAll, doPage or doRules
	Rules   string // one a line: methods, then paths
}

const (
	fromServers = "servers"
	fromPages   = "pages"
	doAll       = "all"
	doPage      = "page"
	doRules     = "rules"
)

// methods are the methods that a rule may allow.
var methods = []string{"get", "post", "put", "patch", "delete", "head", "options", "*"}

const maxKeyName = 100

// readKeyForm reads what a browser sent.
func readKeyForm(v url.Values) keyForm {
	return keyForm{
		Name: strings.TrimSpace(v.Get("name")), Project: v.Get("project"), Where: v.Get("where"), Origins: clean(v.Get("origins")),
		What: v.Get("what"), Rules: clean(v.Get("rules")),
	}
}

// clean replaces the line ends that browsers send.
func clean(text string) string { return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")) }

// keyFormOf returns the form that describes a key.
func keyFormOf(t weir.Token) keyForm {
	f := keyForm{Name: t.Name, Project: t.ProjectID, Where: fromServers, What: doAll}
	a := t.Access
	if a == nil {
		return f
	}
	if a.CORS != nil && len(a.CORS.AllowedOrigins) > 0 {
		f.Where, f.Origins = fromPages, strings.Join(a.CORS.AllowedOrigins, "\n")
		if !a.CORS.FullAccess {
			f.What = doPage
		}
	}
	if a.Rules != nil {
		f.What = doRules
		lines := make([]string, len(*a.Rules))
		for i, rule := range *a.Rules {
			lines[i] = ruleLine(rule)
		}
		f.Rules = strings.Join(lines, "\n")
	}
	return f
}

func ruleLine(rule weir.AccessRule) string {
	allowed := "*"
	if len(rule.Methods) > 0 {
		allowed = strings.ToLower(strings.Join(rule.Methods, ","))
	}
	return allowed + " " + strings.Join(rule.Resources, " ")
}

// restricts returns the part of the form that restricts the key.
func (f keyForm) restricts() keyForm {
	f.Name, f.Project = "", ""
	return f
}

// checkName refuses a name that is empty, too long or can't be shown.
func (f keyForm) checkName() error {
	switch {
	case f.Name == "":
		return weir.Errorf(weir.Invalid, "Give the key a name that says what it is for.")
	case utf8.RuneCountInString(f.Name) > maxKeyName:
		return weir.Errorf(weir.Invalid, "The name is too long; use at most %d characters.", maxKeyName)
	case strings.ContainsFunc(f.Name, unicode.IsControl):
		return weir.Errorf(weir.Invalid, "The name has characters in it that cannot be shown.")
	}
	return nil
}

// access returns the restrictions of the form.
func (f keyForm) access() (*weir.Access, error) {
	var a weir.Access
	switch f.Where {
	case fromServers:
	case fromPages:
		origins, err := parseOrigins(f.Origins)
		if err != nil {
			return nil, err
		}
		a.CORS = &weir.CORSAccess{AllowedOrigins: origins, FullAccess: f.What == doAll}
	default:
		return nil, weir.Errorf(weir.Invalid, "Choose where the key may be used.")
	}
	switch f.What {
	case doAll:
	case doPage:
		if f.Where != fromPages {
			return nil, weir.Errorf(weir.Invalid, "“What a web page needs” is for keys that web pages use. Name the pages, or choose what else the key may do.")
		}
	case doRules:
		rules, err := parseRules(f.Rules)
		if err != nil {
			return nil, err
		}
		a.Rules = &rules
	default:
		return nil, weir.Errorf(weir.Invalid, "Choose what the key may do.")
	}
	if a.CORS == nil && a.Rules == nil {
		return nil, nil
	}
	return &a, a.Validate()
}

// parseOrigins reads the addresses of web pages, as browsers send them.
func parseOrigins(text string) ([]string, error) {
	var origins []string
	for word := range strings.FieldsSeq(text) {
		origin := strings.ToLower(strings.TrimSuffix(word, "/"))
		if u, err := url.Parse(origin); origin != "*" &&
			(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || origin != u.Scheme+"://"+u.Host) {
			return nil, weir.Errorf(weir.Invalid, "%q is not the origin of a web page; write it like https://app.example.com", weir.Shorten(word, 60))
		}
		if !slices.Contains(origins, origin) {
			origins = append(origins, origin)
		}
	}
	if len(origins) == 0 {
		return nil, weir.Errorf(weir.Invalid, "Name the web pages that may use the key, one a line, like https://app.example.com")
	}
	return origins, nil
}

// parseRules reads lines of methods and paths: `get,patch stream/:id`. A path alone allows all
// methods.
func parseRules(text string) ([]weir.AccessRule, error) {
	rules := []weir.AccessRule{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		rule := weir.AccessRule{Resources: words}
		if len(words) > 1 {
			allowed := strings.Split(strings.ToLower(words[0]), ",")
			for _, method := range allowed {
				if !slices.Contains(methods, method) {
					return nil, weir.Errorf(weir.Invalid, "Line %d: %q is not a method. Write methods, a blank and a path, like get,post stream/:id", n, weir.Shorten(method, 60))
				}
			}
			rule.Resources = words[1:]
			if !slices.Contains(allowed, "*") {
				rule.Methods = allowed
			}
		}
		for i, resource := range rule.Resources {
			rule.Resources[i] = strings.TrimLeft(resource, "/")
		}
		rules = append(rules, rule)
	}
	if len(rules) == 0 {
		return nil, weir.Errorf(weir.Invalid, "Write at least one rule, like get stream/:id")
	}
	return rules, nil
}

// summary describes the restrictions of a key in a few words.
func summary(a *weir.Access) string {
	if a == nil {
		return "Full access, from servers"
	}
	where := "from servers"
	if a.CORS != nil && len(a.CORS.AllowedOrigins) > 0 {
		where = "also from " + a.CORS.AllowedOrigins[0]
		if more := len(a.CORS.AllowedOrigins) - 1; more > 0 {
			where += fmt.Sprintf(" and %d more", more)
		}
		if slices.Contains(a.CORS.AllowedOrigins, "*") {
			where = "also from any web page"
		}
	}
	what := "Full access"
	switch {
	case a.Rules != nil && len(*a.Rules) == 0:
		what = "No access"
	case a.Rules != nil && len(*a.Rules) == 1:
		what = "1 rule"
	case a.Rules != nil:
		what = fmt.Sprintf("%d rules", len(*a.Rules))
	case a.CORS != nil && len(a.CORS.AllowedOrigins) > 0 && !a.CORS.FullAccess:
		what = "What a web page needs"
	}
	return what + ", " + where
}

// curlLine returns a command that uses the key.
func curlLine(base string, key weir.Secret, a *weir.Access) string {
	head := "curl -H 'Authorization: Bearer " + key.Reveal() + "' "
	switch {
	case a.Check("GET", "/stream", "/stream") == nil:
		return head + base + "/api/stream"
	case a.Check("POST", "/stream", "/stream") == nil:
		return head + `-H 'Content-Type: application/json' -d '{"name":"first stream"}' ` + base + "/api/stream"
	}
	return head + base + "/api/user/me"
}
