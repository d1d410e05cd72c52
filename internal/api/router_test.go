package api

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRoutesMatchDocument holds routes.go and openapi.yaml to each other: paths, methods, who may
// call without a credential, and who has to log in.
func TestRoutesMatchDocument(t *testing.T) {
	c := compiledContract(t)
	s := &server{contract: c}
	var routes []string
	for _, r := range s.table() {
		routes = append(routes, r.method+" /api"+r.path)
	}
	slices.Sort(routes)
	if diff := cmp.Diff(c.Operations(), routes); diff != "" {
		t.Errorf("openapi.yaml (-) and routes.go (+) differ:\n%s", diff)
	}
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(c.JSON(), &document); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.table() {
		var operation struct {
			Security *[]map[string][]string `json:"security"`
		}
		if err := json.Unmarshal(document.Paths["/api"+r.path][strings.ToLower(r.method)], &operation); err != nil {
			t.Fatal(err)
		}
		open := operation.Security != nil && (len(*operation.Security) == 0 ||
			slices.ContainsFunc(*operation.Security, func(scheme map[string][]string) bool { return len(scheme) == 0 }))
		if open != (r.who == everybody) {
			t.Errorf("%s %s: open to everybody is %t in openapi.yaml and %t in routes.go", r.method, r.path, open, r.who == everybody)
		}
		login, admin := false, false
		if operation.Security != nil && len(*operation.Security) == 1 {
			var roles []string
			roles, login = (*operation.Security)[0]["login"]
			admin = slices.Contains(roles, "admin")
		}
		if admin != (r.who == admins) {
			t.Errorf("%s %s: is for administrators is %t in openapi.yaml and %t in routes.go", r.method, r.path, admin, r.who == admins)
		}
		if want := r.who == people || r.who == admins; login != want {
			t.Errorf("%s %s: needs a log-in is %t in openapi.yaml and %t in routes.go", r.method, r.path, login, want)
		}
	}
}

func TestRouter(t *testing.T) {
	table := []route{
		{method: "GET", path: "/stream"},
		{method: "GET", path: "/stream/{id}"},
		{method: "GET", path: "/stream/{id}/sessions"},
		{method: "GET", path: "/stream/sessions/{parentId}"},
		{method: "GET", path: "/webhook/subscribed/{event}"},
		{method: "GET", path: "/webhook/{id}/log"},
		{method: "DELETE", path: "/stream/{id}/multistream/{targetId}"},
	}
	rt := newRouter(table)
	for _, tt := range []struct {
		method, path, want string
		values             map[string]string
	}{
		{"GET", "/api/stream", "/stream", nil},
		{"HEAD", "/api/stream", "/stream", nil},
		{"GET", "/api/stream/a", "/stream/{id}", map[string]string{"id": "a"}},
		{"GET", "/api/stream/a/sessions", "/stream/{id}/sessions", map[string]string{"id": "a"}},
		{"GET", "/api/stream/sessions/b", "/stream/sessions/{parentId}", map[string]string{"parentId": "b"}},
		{"GET", "/api/stream/sessions/sessions", "/stream/sessions/{parentId}", map[string]string{"parentId": "sessions"}},
		{"GET", "/api/webhook/subscribed/log", "/webhook/subscribed/{event}", map[string]string{"event": "log"}},
		{"GET", "/api/webhook/w/log", "/webhook/{id}/log", map[string]string{"id": "w"}},
		{"DELETE", "/api/stream/a/multistream/t", "/stream/{id}/multistream/{targetId}", map[string]string{"id": "a", "targetId": "t"}},
		{"POST", "/api/stream/a", "", nil},
		{"GET", "/api/stream/", "", nil},
		{"GET", "/api//a", "", nil},
		{"GET", "/api/", "", nil},
		{"GET", "/other", "", nil},
	} {
		r := httptest.NewRequest(tt.method, tt.path, nil)
		got := rt.match(r)
		switch {
		case got == nil && tt.want != "":
			t.Errorf("%s %s: no route, want %s", tt.method, tt.path, tt.want)
		case got != nil && got.path != tt.want:
			t.Errorf("%s %s: %s, want %q", tt.method, tt.path, got.path, tt.want)
		}
		for name, want := range tt.values {
			if got := r.PathValue(name); got != want {
				t.Errorf("%s %s: %s = %q, want %q", tt.method, tt.path, name, got, want)
			}
		}
	}
}

func FuzzRouter(f *testing.F) {
	rt := newRouter((&server{}).table())
	for _, seed := range []string{"/api/stream", "/api/stream/x/y/z", "/api///", "/api/webhook/a/log/b/resend"} {
		f.Add("GET", seed)
	}
	f.Fuzz(func(_ *testing.T, method, path string) {
		r := httptest.NewRequest("GET", "/api/", nil)
		r.Method, r.URL.Path = method, path
		rt.match(r)
	})
}
