package weir

import (
	"slices"
	"strings"
	"unicode"
)

// Caller is who sends a request, as the credential says.
type Caller struct {
	UserID           string
	ProjectID        string // the project this request works in
	DefaultProjectID string
	Email            string
	Admin            bool    // only ever true for a person who logged in: a key has no admin rights
	TokenID          string  // "" for a person who logged in
	TokenName        string  // name of the API key; "" for a person who logged in
	Access           *Access // restrictions of the API key; nil = none
	Suspended        bool
}

// Person reports whether a person logged in, as opposed to a program with a key.
func (c *Caller) Person() bool { return c.TokenID == "" }

// Owns reports whether the caller may see what belongs to a user and a project.
// An empty project means that the resource is owned by the user alone.
func (c *Caller) Owns(userID, projectID string) bool {
	return c.Admin || c.UserID == userID && (projectID == "" || projectID == c.ProjectID)
}

// Access restricts what an API key may be used for.
type Access struct {
	CORS  *CORSAccess   `json:"cors,omitempty"`
	Rules *[]AccessRule `json:"rules,omitempty"`
}

// CORSAccess says from which web pages a key may be used.
type CORSAccess struct {
	FullAccess     bool     `json:"fullAccess"`
	AllowedOrigins []string `json:"allowedOrigins"`
}

// AccessRule lets a key use some methods on some paths.
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

// Validate checks the rules of an API key before it is made, and completes them.
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

// complete returns the restrictions with what was left out filled in, and nil when
// they restrict nothing.
func (a *Access) complete() *Access {
	if a == nil || a.CORS == nil && a.Rules == nil {
		return nil
	}
	c := *a
	if a.CORS != nil {
		c.CORS = &CORSAccess{FullAccess: a.CORS.FullAccess, AllowedOrigins: append([]string{}, a.CORS.AllowedOrigins...)}
	}
	return &c
}

// corsRoutes are the routes open to a key that is restricted to web pages.
var corsRoutes = []string{
	"GET /stream/{id}/sessions", "GET /stream/sessions/{parentId}", "GET /session/{id}", "GET /task/{id}",
	"GET /data/views/{assetId}/total", "GET /data/views/query/total/{playbackId}", "GET /data/views/query/creator",
	"GET /stream/{id}", "PATCH /stream/{id}", "GET /multistream/target/{id}", "PATCH /multistream/target/{id}",
	"GET /asset/{id}", "PATCH /asset/{id}", "POST /stream", "POST /multistream/target", "POST /asset/upload/url",
	"POST /asset/request-upload", "POST /asset/{id}/export",
}
