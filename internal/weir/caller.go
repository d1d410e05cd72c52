package weir

import (
	"slices"
	"strings"
	"unicode"
)

// Caller is who sends a request, according to the credential.
type Caller struct {
	UserID           string
	ProjectID        string // the project this request works in
	DefaultProjectID string
	Email            string
	Admin            bool    // never for an API key: only a person who logged in has admin rights
	TokenID          string  // "" for a person who logged in
	TokenName        string  // name of the API key; "" for a person who logged in
	Access           *Access // restrictions of the API key; nil = none
	Suspended        bool
}

// Person reports whether the caller is a person who logged in, and not a program with an API key.
func (c *Caller) Person() bool { return c.TokenID == "" }

// Owns reports whether the caller may see a resource of the user and the project. An empty
// project means that the resource belongs to no project.
func (c *Caller) Owns(userID, projectID string) bool {
	return c.Admin || c.UserID == userID && (projectID == "" || projectID == c.ProjectID)
}

// Owner says to whom a resource belongs.
type Owner struct {
	UserID    string
	ProjectID string // "" = the resource belongs to no project
	Deleted   bool   // the resource is marked as deleted
}

// MayName reports whether a resource of o may name one of another owner: only within one project,
// whoever asks. had says that it names it already: references that cross projects are from a time
// when weir did not look at the project, and may stay.
func (o Owner) MayName(other Owner, had bool) bool {
	return !other.Deleted && o.UserID == other.UserID && (other.ProjectID == "" || o.ProjectID == other.ProjectID || had)
}

func (a Asset) Owner() Owner       { return Owner{a.UserID, a.ProjectID, a.Deleted} }
func (u IPFSUpload) Owner() Owner  { return Owner{u.UserID, u.ProjectID, u.Deleted} }
func (o ObjectStore) Owner() Owner { return Owner{o.UserID, o.ProjectID, o.Deleted} }
func (p Project) Owner() Owner     { return Owner{p.UserID, "", p.Deleted} }
func (s Session) Owner() Owner     { return Owner{s.UserID, s.ProjectID, s.Deleted} }
func (k SigningKey) Owner() Owner  { return Owner{k.UserID, k.ProjectID, k.Deleted} }
func (s Stream) Owner() Owner      { return Owner{s.UserID, s.ProjectID, s.Deleted} }
func (t Target) Owner() Owner      { return Owner{t.UserID, t.ProjectID, false} }
func (t Task) Owner() Owner        { return Owner{t.UserID, t.ProjectID, false} }
func (t Token) Owner() Owner       { return Owner{t.UserID, "", false} }
func (w Webhook) Owner() Owner     { return Owner{w.UserID, w.ProjectID, w.Deleted} }
func (l WebhookLog) Owner() Owner  { return Owner{l.UserID, l.ProjectID, false} }

// Access restricts what an API key may be used for.
type Access struct {
	CORS  *CORSAccess   `json:"cors,omitempty"`
	Rules *[]AccessRule `json:"rules,omitempty"`
}

// CORSAccess says which web pages may use a key.
type CORSAccess struct {
	FullAccess     bool     `json:"fullAccess"`
	AllowedOrigins []string `json:"allowedOrigins"`
}

// AccessRule allows a key some methods on some paths.
type AccessRule struct {
	Resources []string `json:"resources"`
	Methods   []string `json:"methods,omitempty"`
}

// AllowsOrigin reports whether a page of the given origin may use the key.
func (a *Access) AllowsOrigin(origin string) bool {
	return a != nil && a.CORS != nil &&
		(slices.Contains(a.CORS.AllowedOrigins, "*") || slices.Contains(a.CORS.AllowedOrigins, origin))
}

// Check returns nil when the key may be used with the method on the path, which
// is relative to /api. routePattern is the route's own pattern, also relative.
func (a *Access) Check(method, path, routePattern string) error {
	switch {
	case a == nil:
		return nil
	case a.Rules != nil:
		for _, rule := range *a.Rules {
			if rule.allows(method, path) {
				return nil
			}
		}
		return Errorf(Denied, "credential has insufficent privileges")
	case a.CORS != nil && len(a.CORS.AllowedOrigins) > 0 && !a.CORS.FullAccess:
		if !slices.Contains(corsRoutes, method+" "+routePattern) {
			return Errorf(Denied, "access forbidden for CORS-enabled API key with restricted access")
		}
	}
	return nil
}

func (r AccessRule) allows(method, path string) bool {
	if len(r.Methods) > 0 && !slices.ContainsFunc(r.Methods, func(m string) bool {
		return m == "*" || strings.EqualFold(m, method)
	}) {
		return false
	}
	return slices.ContainsFunc(r.Resources, func(pattern string) bool { return matchResource(pattern, path) })
}

// matchResource matches a path against a pattern with `:param` segments and an
// optional `*` at its end.
func matchResource(pattern, path string) bool {
	pattern, path = strings.Trim(pattern, "/"), strings.Trim(path, "/")
	rest, open := strings.CutSuffix(pattern, "*")
	want, got := strings.Split(strings.TrimSuffix(rest, "/"), "/"), strings.Split(path, "/")
	if open && rest == "" {
		return true
	}
	if len(got) < len(want) || !open && len(got) != len(want) {
		return false
	}
	for i, segment := range want {
		if !strings.HasPrefix(segment, ":") && segment != got[i] {
			return false
		}
	}
	return true
}

// Validate checks the rules of an API key before it is created, and completes them.
func (a *Access) Validate() error {
	if a != nil && a.CORS != nil && a.CORS.AllowedOrigins == nil {
		a.CORS.AllowedOrigins = []string{}
	}
	if a == nil || a.Rules == nil {
		return nil
	}
	for _, rule := range *a.Rules {
		for _, resource := range rule.Resources {
			if resource == "" || strings.ContainsFunc(resource, unicode.IsSpace) {
				return Errorf(Invalid, "Bad access rules: resource %q must be one path, like stream/:id", resource)
			}
			if strings.Contains(resource, "?") {
				return Errorf(Invalid, "Bad access rules: resource %q must not contain a question mark", resource)
			}
			if i := strings.Index(resource, "*"); i >= 0 && i != len(resource)-1 {
				return Errorf(Invalid, "Bad access rules: resource %q may have a * only at its end", resource)
			}
		}
	}
	return nil
}

// corsRoutes are the routes that a key of web pages with restricted access may use.
var corsRoutes = []string{
	"GET /stream/{id}/sessions", "GET /stream/sessions/{parentId}", "GET /session/{id}", "GET /task/{id}",
	"GET /data/views/{assetId}/total", "GET /data/views/query/total/{playbackId}", "GET /data/views/query/creator",
	"GET /stream/{id}", "PATCH /stream/{id}", "GET /multistream/target/{id}", "PATCH /multistream/target/{id}",
	"GET /asset/{id}", "PATCH /asset/{id}", "POST /stream", "POST /multistream/target", "POST /asset/upload/url",
	"POST /asset/request-upload", "POST /asset/{id}/export",
}
