package api

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"weir/internal/endpoint"
	"weir/internal/weir"
)

// who says who may use a route.
type who int

const (
	everybody who = iota // no credential needed, but an invalid one is refused
	callers              // an API key or a person who logged in
	people               // only a person who logged in
	admins               // only an admin who logged in
)

// authenticate sets the caller of the request. An invalid credential is an error on every route, a
// missing one only where it is needed.
func (s *server) authenticate(r *request, route *route) error {
	header := strings.TrimSpace(r.Header.Get("Authorization"))
	if header == "" {
		if route != nil && route.who != everybody {
			return weir.Errorf(weir.Unauthenticated, "request is not authenticated")
		}
		return nil
	}
	caller, err := s.credential(r, header)
	if err != nil {
		return err
	}
	if caller.Suspended {
		return weir.Errorf(weir.Denied, "user is suspended")
	}
	r.caller = &caller
	return nil
}

func (s *server) credential(r *request, header string) (weir.Caller, error) {
	scheme, rest, spaced := strings.Cut(header, " ")
	rest = strings.TrimSpace(rest)
	switch strings.ToLower(scheme) {
	case "bearer":
		return s.byKey(r, rest)
	case "basic":
		user, key, ok := basic(rest)
		if !ok && rest != "" {
			return weir.Caller{}, errInvalidKey()
		}
		caller, err := s.byKey(r, key)
		if err == nil && caller.UserID != user {
			return weir.Caller{}, errInvalidKey()
		}
		return caller, err
	case "jwt":
		userID, err := s.Accounts.Verify(r.Context(), rest, time.Now())
		if err != nil {
			return weir.Caller{}, err
		}
		project := strings.ReplaceAll(strings.ToValidUTF8(r.URL.Query().Get("projectId"), ""), "\x00", "")
		caller, err := s.Store.CallerByUser(r.Context(), userID, project)
		if err == nil {
			s.Store.SawUser(userID, time.Now())
		}
		return caller, err
	}
	if !spaced { // the key alone
		return s.byKey(r, header)
	}
	return weir.Caller{}, weir.Errorf(weir.Unauthenticated, "unsupported authorization header scheme: %s", schemeName(scheme))
}

// errInvalidKey is the response to every invalid key. It never repeats the key.
func errInvalidKey() error { return weir.Errorf(weir.Unauthenticated, "API key not valid") }

// schemeName returns a scheme for an error, or stars if it may be a key in the wrong place.
func schemeName(scheme string) string {
	if len(scheme) > 12 || strings.ContainsFunc(scheme, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }) {
		return "***"
	}
	return scheme
}

func basic(encoded string) (user, key string, ok bool) {
	plain, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(plain), ":")
}

func (s *server) byKey(r *request, key string) (weir.Caller, error) {
	if key == "" {
		return weir.Caller{}, weir.Errorf(weir.Unauthenticated, "no authorization token provided")
	}
	caller, known := s.Store.RememberedKey(weir.Secret(key))
	if !known {
		var err error
		if caller, err = s.unknownKey(r, weir.Secret(key)); err != nil {
			return caller, err
		}
	}
	if r.URL.RawQuery != "" && r.URL.Query().Has("projectId") {
		return caller, weir.Errorf(weir.Refused, "projectId as query param not supported")
	}
	s.Store.SawKey(caller.TokenID, time.Now())
	return caller, nil
}

// unknownKey looks up a key that was not used lately. An address that sent too many wrong keys must
// wait. Clients with a valid key at the same address are not affected, because their keys are
// cached.
func (s *server) unknownKey(r *request, key weir.Secret) (weir.Caller, error) {
	address := weir.Network(s.clientAddr(r.Request)).String()
	if err := s.limits.checkWrongKeys(address); err != nil {
		return weir.Caller{}, err
	}
	caller, err := s.Store.CallerByKey(r.Context(), key)
	if weir.IsNotFound(err) {
		s.limits.countWrongKey(address)
		return caller, errInvalidKey()
	}
	return caller, err
}

// authorize checks that the caller may use the route. The handler checks who owns a resource.
func (s *server) authorize(r *request, route *route) error {
	c := r.caller
	if c == nil {
		return nil
	}
	switch {
	case route.who == people && !c.Person():
		return weir.Errorf(weir.Denied, "access forbidden for API keys")
	case route.who == admins && !c.Admin:
		return weir.Errorf(weir.Denied, "user does not have admin priviledges")
	}
	return c.Access.Check(r.Method, strings.TrimPrefix(r.URL.Path, "/api"), route.path)
}

// openToAll reports whether any web page may use a path: players, view counters, uploads.
func openToAll(path string) bool {
	return slices.ContainsFunc([]string{
		"/api/playback/", "/api/data/views/query/total/", "/api/asset/upload/direct", "/api/asset/upload/tus",
	}, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// preflight answers a CORS preflight request. It has no credential, so the response allows every
// origin; the request itself is checked.
func (s *server) preflight(w http.ResponseWriter, r *request) error {
	if origin := r.Header.Get("Origin"); origin != "" {
		corsHeaders(w, origin)
		endpoint.CORS{Methods: "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"}.Preflight(w.Header(), r.Request)
	}
	if strings.HasPrefix(r.URL.Path+"/", tusPath) {
		s.tusFeatures(w.Header())
	}
	return noContent(w, nil)
}

// checkOrigin refuses pages that the credential does not allow, and lets others read the response.
func (s *server) checkOrigin(w http.ResponseWriter, r *request) error {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	c := r.caller
	switch {
	case openToAll(r.URL.Path):
	case c != nil && !c.Person() && !c.Access.AllowsOrigin(origin):
		corsHeaders(w, origin) // or the page can't read the error
		return weir.Errorf(weir.Denied, "credential disallows CORS access from origin %s", weir.Shorten(origin, 200))
	case (c == nil || c.Person()) && origin != s.base(r.Request):
		return nil // without headers the browser hides the response from the page
	}
	corsHeaders(w, origin)
	return nil
}

// allowOrigin lets a page read why its credential was refused, on paths that any page may use.
func allowOrigin(w http.ResponseWriter, r *request) {
	if origin := r.Header.Get("Origin"); origin != "" && openToAll(r.URL.Path) {
		corsHeaders(w, origin)
	}
}

func corsHeaders(w http.ResponseWriter, origin string) {
	endpoint.CORS{
		Origin: origin, Credentials: true, Expose: "Link, X-Total-Count, X-Request-Id, Retry-After, Location",
	}.Allow(w.Header())
}

// requestID returns the id of a trusted proxy, or a new one.
func (s *server) requestID(r *http.Request) string {
	id := ""
	if len(s.TrustedProxies) > 0 && endpoint.FromTrusted(r, s.TrustedProxies) {
		id = r.Header.Get("X-Request-Id")
	}
	ok := func(c rune) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_'
	}
	if len(id) >= 8 && len(id) <= 64 && !slices.ContainsFunc([]rune(id), func(c rune) bool { return !ok(c) }) {
		return id
	}
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
