package account

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

func TestLocalAddress(t *testing.T) {
	for _, good := range []string{
		"streams", "streams/abc", "streams/abc?tab=health&x=//y", "assets?search=a%20b", "tasks#top", "?x=1", "assets/%C3%A9",
	} {
		if got := localAddress(good); got != good {
			t.Errorf("%q became %q", good, got)
		}
	}
	for _, bad := range []string{
		"", "/", "/streams", "//evil.example", "///evil.example", "https://evil.example", "https:evil.example", "javascript:alert(1)",
		"JavaScript:alert(1)", "data:text/html,x", `\\evil.example`, `/\evil.example`, `streams\..\..`, "a//b", "..", "../x", "streams/../../x",
		"%2e%2e/x", "streams/%2E%2e/x", "%2f%2fevil.example", "%5cevil.example", "\t//evil.example", "a\nb", "a\x00b", "x%0d%0ay", "\xff",
		"@evil.example:80", "a:b/c", "./a:b", ".", "%zz", "streams/" + strings.Repeat("x", maxNext),
	} {
		if got := localAddress(bad); got != "" {
			t.Errorf("%q became %q, want nothing", bad, got)
		}
	}
}

func TestLogInBringsBack(t *testing.T) {
	f := newFixture(t, Options{})
	f.addUser(t, "ann@example.com")
	b := newBrowser(t, f, "")
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for next, want := range map[string]string{
		"streams/abc?tab=a": "./streams/abc?tab=a", "//evil.example": "./", "https://evil.example": "./", `/\evil.example`: "./",
	} {
		b.get(t, "/login?next="+url.QueryEscape(next))
		fields := []string{"email", "ann@example.com", "password", "wrong password"}
		if m := regexp.MustCompile(`name="next" value="([^"]*)"`).FindStringSubmatch(b.last); m != nil {
			fields = append(fields, "next", html.UnescapeString(m[1]))
		}
		b.post(t, "/login", fields...) // a wrong password does not lose it
		if (want != "./") != strings.Contains(b.last, html.EscapeString(next)) {
			t.Errorf("next=%s: after a wrong password the page has\n%s", next, b.last)
		}
		fields[3] = goodPassword
		other := b.fresh(t)
		if resp := other.post(t, "/login", fields...); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != want {
			t.Errorf("next=%s: %s to %q, want %q", next, resp.Status, resp.Header.Get("Location"), want)
		}
		if resp := other.get(t, "/login?next="+url.QueryEscape(next)); resp.Header.Get("Location") != want {
			t.Errorf("next=%s, logged in: %s to %q, want %q", next, resp.Status, resp.Header.Get("Location"), want)
		}
		// The form itself is not trusted either.
		if resp := b.fresh(t).post(t, "/login", "email", "ann@example.com", "password", goodPassword, "next", next); resp.Header.Get("Location") != want {
			t.Errorf("form with next=%s: %s to %q, want %q", next, resp.Status, resp.Header.Get("Location"), want)
		}
	}
}

func TestRequireLogIn(t *testing.T) {
	f := newFixture(t, Options{})
	f.addUser(t, "ann@example.com")
	b := newBrowser(t, f, "")
	b.logIn(t, "ann@example.com")
	guarded := f.RequireLogIn(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inside") }))
	for _, tt := range []struct{ method, path, want string }{
		{"GET", "/", "login"},
		{"GET", "/streams", "login?next=streams"},
		{"GET", "/streams/abc?tab=x&y=%20", "../login?next=streams%2Fabc%3Ftab%3Dx%26y%3D%2520"},
		{"GET", "/a/b/", "../../login?next=a%2Fb%2F"},
		{"GET", "/a//evil.example", "../../login"},
		{"POST", "/streams/abc", "../login"},
	} {
		r := httptest.NewRequest(tt.method, "http://weir.test"+tt.path, nil)
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != tt.want {
			t.Errorf("%s %s: %d to %q, want %q", tt.method, tt.path, w.Code, w.Header().Get("Location"), tt.want)
		}
		r.AddCookie(&http.Cookie{Name: "weir", Value: b.cookie(t)})
		w = httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Body.String() != "inside" {
			t.Errorf("%s %s with a session: %d %s", tt.method, tt.path, w.Code, w.Body)
		}
	}
}

var address = regexp.MustCompile(`(?:src|href|action|data-now-at)="([^"]*)"`)

// The pages work below a prefix that a proxy removes from the paths.
func TestBelowPrefix(t *testing.T) {
	f := newFixture(t, Options{Signup: true})
	ann := f.addUser(t, "ann@example.com")
	inner := newBrowser(t, f, "")
	target, err := url.Parse(inner.base)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.StripPrefix("/video", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}))
	defer proxy.Close()
	b := inner.fresh(t)
	b.base = proxy.URL + "/video"
	inside := func(resp *http.Response, path string) {
		t.Helper()
		if resp.Request.URL.Path != "/video"+path {
			t.Errorf("ends at %s with %s, want /video%s", resp.Request.URL.Path, resp.Status, path)
		}
		for _, m := range address.FindAllStringSubmatch(b.last, -1) {
			to, err := resp.Request.URL.Parse(html.UnescapeString(m[1]))
			if err != nil || !strings.HasPrefix(to.Path, "/video/") {
				t.Errorf("%s refers to %q, which is %v (%v)", path, m[1], to, err)
			}
			if strings.Contains(m[1], "_account/") {
				file := b.fresh(t)
				file.wantPage(t, file.get(t, strings.TrimPrefix(to.RequestURI(), "/video")), http.StatusOK, to.Path, "")
			}
		}
	}
	inside(b.get(t, "/nowhere/at/all"), "/nowhere/at/all")
	inside(b.get(t, "/account"), "/login")
	if m := regexp.MustCompile(`name="next" value="account"`).FindString(b.last); m == "" {
		t.Error("the log-in does not lead back to the page")
	}
	inside(b.post(t, "/login", "email", ann.Email, "password", goodPassword, "next", "account"), "/account")
	inside(b.post(t, "/account", "old", goodPassword, "password", "another good one", "repeat", "another good one"), "/account")
	inside(b.get(t, "/"), "/account")
	inside(b.get(t, "/login"), "/account")
	inside(b.get(t, "/account"), "/account")
	inside(b.post(t, "/logout"), "/login")
	inside(b.get(t, "/signup"), "/signup")
	link, err := f.NewLink(t.Context(), ann.ID)
	if err != nil {
		t.Fatal(err)
	}
	inside(b.get(t, "/set-password?token="+link.Reveal()), "/set-password")
	inside(b.post(t, "/set-password", "token", link.Reveal(), "email", ann.Email, "password", goodPassword, "repeat", goodPassword), "/account")
}
