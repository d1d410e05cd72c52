package account

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// browser is a client with cookies that sends what browsers send.
type browser struct {
	http.Client
	base string
	last string // the page that it shows
}

// newBrowser opens the pages; scheme is "https" or anything else.
func newBrowser(t *testing.T, f *fixture, scheme string) *browser {
	t.Helper()
	var server *httptest.Server
	if scheme == "https" {
		server = httptest.NewTLSServer(f.Pages())
	} else {
		server = httptest.NewServer(f.Pages())
	}
	b := (&browser{Client: *server.Client(), base: server.URL}).fresh(t)
	t.Cleanup(func() {
		b.CloseIdleConnections()
		server.Close()
	})
	return b
}

// fresh returns another browser for the same pages.
func (b *browser) fresh(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	other := *b
	other.Jar = jar
	return &other
}

func (b *browser) do(t *testing.T, r *http.Request) *http.Response {
	t.Helper()
	resp, err := b.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	b.last = string(body)
	return resp
}

func (b *browser) get(t *testing.T, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b.do(t, r)
}

var formValue = regexp.MustCompile(`name="form" value="([^"]+)"`)

// request is a form as the page that was shown last would send it.
func (b *browser) request(t *testing.T, path string, fields ...string) *http.Request {
	t.Helper()
	v := url.Values{}
	if m := formValue.FindStringSubmatch(b.last); m != nil {
		v.Set("form", m[1])
	}
	for i := 0; i+1 < len(fields); i += 2 {
		v.Set(fields[i], fields[i+1])
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.base+path, strings.NewReader(v.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

func (b *browser) post(t *testing.T, path string, fields ...string) *http.Response {
	t.Helper()
	return b.do(t, b.request(t, path, fields...))
}

func (b *browser) logIn(t *testing.T, email string) {
	t.Helper()
	b.get(t, "/login")
	if resp := b.post(t, "/login", "email", email, "password", goodPassword); resp.Request.URL.Path != "/account" || resp.StatusCode != http.StatusOK {
		t.Fatalf("log-in ends at %s with %s:\n%s", resp.Request.URL.Path, resp.Status, b.last)
	}
}

// cookie returns the session's cookie.
func (b *browser) cookie(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(b.base)
	if err != nil {
		t.Fatal(err)
	}
	cookies := b.Jar.Cookies(u)
	if len(cookies) != 1 {
		t.Fatalf("cookies %v, want one", cookies)
	}
	return cookies[0].Value
}

// wantPage checks where the browser ended, and what it shows.
func (b *browser) wantPage(t *testing.T, resp *http.Response, status int, path, text string) {
	t.Helper()
	if resp.StatusCode != status || resp.Request.URL.Path != path || !strings.Contains(b.last, text) {
		t.Errorf("%s %s ends at %s with %d; want %s with %d and %q on it:\n%s", resp.Request.Method, resp.Request.URL.Path,
			resp.Request.URL.Path, resp.StatusCode, path, status, text, b.last)
	}
}

func TestPagesForUnauthenticated(t *testing.T) {
	f := newFixture(t, Options{})
	f.addUser(t, "ann@example.com")
	b := newBrowser(t, f, "")
	for _, path := range []string{"/", "/account"} {
		b.wantPage(t, b.get(t, path), http.StatusOK, "/login", "Log in")
	}
	b.wantPage(t, b.get(t, "/nowhere"), http.StatusNotFound, "/nowhere", "There is nothing here")
	b.wantPage(t, b.post(t, "/account", "old", goodPassword), http.StatusOK, "/login", "Log in")
	b.wantPage(t, b.get(t, "/signup"), http.StatusNotFound, "/signup", "There is nothing here")
	b.wantPage(t, b.post(t, "/signup", "email", "eve@example.com", "password", goodPassword, "repeat", goodPassword), http.StatusNotFound, "/signup", "There is nothing here")
	b.wantPage(t, b.get(t, "/set-password?token=nonsense"), http.StatusForbidden, "/set-password", "This link does not work any more")
	// The page does not reveal who has an account.
	const wrong = "The e-mail address or the password is wrong."
	b.wantPage(t, b.post(t, "/login", "email", "ann@example.com", "password", "wrong password"), http.StatusForbidden, "/login", wrong)
	b.wantPage(t, b.post(t, "/login", "email", "eve@example.com", "password", "wrong password"), http.StatusForbidden, "/login", wrong)
	if !strings.Contains(b.last, `value="eve@example.com"`) || strings.Contains(b.last, "wrong password\"") {
		t.Error("the form should bring back the address and not the password")
	}
}

func TestHeaders(t *testing.T) {
	f := newFixture(t, Options{})
	b := newBrowser(t, f, "")
	for _, path := range []string{"/login", "/nowhere", "/_account/style.css"} {
		resp := b.get(t, path)
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s = %q, want %q", path, name, got, want)
			}
		}
	}
	if got := b.get(t, "/login").Header.Get("Cache-Control"); got != "private, no-store" {
		t.Errorf("pages are cached: %q", got)
	}
	// Every file that a page refers to is there, and may be kept for good.
	b.get(t, "/login")
	refs := regexp.MustCompile(`(?:src|href)="(_account/[^"]+)"`).FindAllStringSubmatch(b.last, -1)
	if len(refs) < 3 {
		t.Fatalf("the page refers to %v", refs)
	}
	for _, ref := range refs {
		resp := b.get(t, "/"+strings.ReplaceAll(ref[1], "&amp;", "&"))
		if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") || resp.Header.Get("Content-Type") == "" {
			t.Errorf("%s: %s %v", ref[1], resp.Status, resp.Header)
		}
	}
	b.wantPage(t, b.get(t, "/_account/layout.html"), http.StatusNotFound, "/_account/layout.html", "nothing here")
	if regexp.MustCompile(`(?i)(src|href|action)="(https?:|/)|<script>|style=|onclick=`).MatchString(b.last) {
		t.Error("a page refers to something from elsewhere, or has a script or style in it")
	}
}

func TestCookie(t *testing.T) {
	for _, tt := range []struct {
		name, scheme string
		opt          Options
		header       string // X-Forwarded-Proto
		cookie       string
		secure       bool
	}{
		{"plain", "http", Options{}, "", "weir", false},
		{"encrypted", "https", Options{}, "", "__Host-weir", true},
		{"behind a trusted proxy", "http", Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, "https", "__Host-weir", true},
		{"behind an untrusted proxy", "http", Options{}, "https", "weir", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, tt.opt)
			f.addUser(t, "ann@example.com")
			b := newBrowser(t, f, tt.scheme)
			r := b.request(t, "/login", "email", "ann@example.com", "password", goodPassword)
			if tt.header != "" {
				r.Header.Set("X-Forwarded-Proto", tt.header)
			}
			b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			resp := b.do(t, r)
			cookies := resp.Cookies()
			if len(cookies) != 1 {
				t.Fatalf("%s, cookies %v", resp.Status, cookies)
			}
			c := cookies[0]
			if c.Name != tt.cookie || c.Secure != tt.secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" {
				t.Errorf("cookie %v, want %s", c, tt.cookie)
			}
		})
	}
}

// With a public address over HTTPS, a person on the machine itself still gets in over plain HTTP.
func TestCookieWithPublicURL(t *testing.T) {
	f := newFixture(t, Options{PublicURL: "https://video.example.com"})
	f.addUser(t, "ann@example.com")
	b := newBrowser(t, f, "")
	b.logIn(t, "ann@example.com")
	r := b.fresh(t).request(t, "/login", "email", "ann@example.com", "password", goodPassword)
	r.Host = "video.example.com"
	r.Header.Del("Sec-Fetch-Site")
	r.Header.Set("Origin", "https://video.example.com")
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp := b.do(t, r)
	if c := resp.Cookies(); len(c) != 1 || !c[0].Secure {
		t.Errorf("%s, cookies %v; want a secure one", resp.Status, c)
	}
}

func TestForeignForms(t *testing.T) {
	f := newFixture(t, Options{})
	f.addUser(t, "ann@example.com")
	b := newBrowser(t, f, "")
	b.logIn(t, "ann@example.com")
	page := b.last
	send := func(change func(r *http.Request), fields ...string) *http.Response {
		b.last = page
		r := b.request(t, "/account", append([]string{"old", goodPassword, "password", "a stolen account", "repeat", "a stolen account"}, fields...)...)
		change(r)
		return b.do(t, r)
	}
	for name, resp := range map[string]*http.Response{
		"from another site": send(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }),
		"from a subdomain":  send(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }),
		"by an old browser": send(func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "https://evil.example")
		}),
		"without the value":  send(func(*http.Request) {}, "form", ""),
		"with another value": send(func(*http.Request) {}, "form", strings.Repeat("A", 32)),
	} {
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s, want 403", name, resp.Status)
		}
	}
	r := b.fresh(t).request(t, "/login", "email", "ann@example.com", "password", goodPassword)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp := b.do(t, r); resp.StatusCode != http.StatusForbidden {
		t.Errorf("log-in from another site: %s, want 403", resp.Status)
	}
	b.fresh(t).logIn(t, "ann@example.com") // with the password that it was
	if resp := send(func(*http.Request) {}); resp.StatusCode != http.StatusOK || !strings.Contains(b.last, "Your password is changed.") {
		t.Errorf("our own form: %s\n%s", resp.Status, b.last)
	}
}

func TestBadForms(t *testing.T) {
	f := newFixture(t, Options{})
	f.addUser(t, "ann@example.com")
	b := newBrowser(t, f, "")
	for name, email := range map[string]string{"huge": strings.Repeat("x", maxForm+1), "zero byte": "a\x00b", "no UTF-8": "\xff\xfe"} {
		if resp := b.post(t, "/login", "email", email, "password", goodPassword); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s, want 400", name, resp.Status)
		}
	}
	b.post(t, "/login", "email", `<script>alert("x")</script>`, "password", goodPassword)
	if strings.Contains(b.last, "<script>alert") || !strings.Contains(b.last, "&lt;script&gt;alert") {
		t.Error("what was typed is not shown as text")
	}
}

func TestThrottledPage(t *testing.T) {
	proxy := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for _, tt := range []struct {
		name string
		opt  Options
		want int // status of a right log-in from elsewhere, after one address used up its tries
	}{
		{"clients of a trusted proxy are distinguished", Options{TrustedProxies: proxy}, http.StatusSeeOther},
		{"others can say what they like", Options{}, http.StatusTooManyRequests},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, tt.opt)
			f.stopClock()
			f.addUser(t, "ann@example.com")
			b := newBrowser(t, f, "")
			b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			try := func(from, email string) *http.Response {
				r := b.request(t, "/login", "email", email, "password", goodPassword)
				r.Header.Set("X-Forwarded-For", from)
				return b.do(t, r)
			}
			for i := range freeByAddress {
				try("192.0.2.1", string(rune('a'+i))+"@example.org")
			}
			resp := try("192.0.2.1", "ann@example.com")
			if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(b.last, "Too many attempts; try again in 1 second.") {
				t.Errorf("%s, Retry-After %q:\n%s", resp.Status, resp.Header.Get("Retry-After"), b.last)
			}
			if resp := try("192.0.2.2", "ann@example.com"); resp.StatusCode != tt.want {
				t.Errorf("from elsewhere: %s, want %d", resp.Status, tt.want)
			}
		})
	}
}

func TestLogInsEnd(t *testing.T) {
	f := newFixture(t, Options{})
	ann := f.addUser(t, "ann@example.com")
	b := newBrowser(t, f, "")
	b.logIn(t, ann.Email)

	// Logging out ends the session on the server too.
	old := b.cookie(t)
	b.wantPage(t, b.post(t, "/logout"), http.StatusOK, "/login", "You are logged out.")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+"/account", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "weir", Value: old})
	b.wantPage(t, b.do(t, r), http.StatusOK, "/login", "Log in")

	// A new password ends all others.
	b.logIn(t, ann.Email)
	other := b.fresh(t)
	other.logIn(t, ann.Email)
	b.get(t, "/account")
	b.wantPage(t, b.post(t, "/account", "old", goodPassword, "password", "another good one", "repeat", "another bad one"),
		http.StatusUnprocessableEntity, "/account", "The two passwords are not the same.")
	b.wantPage(t, b.post(t, "/account", "old", "wrong password", "password", "another good one", "repeat", "another good one"),
		http.StatusForbidden, "/account", "The old password is wrong.")
	b.wantPage(t, b.post(t, "/account", "old", goodPassword, "password", "another good one", "repeat", "another good one"),
		http.StatusOK, "/account", "Your password is changed.")
	other.wantPage(t, other.get(t, "/account"), http.StatusOK, "/login", "Log in")

	f.suspend(t, ann.ID)
	b.wantPage(t, b.get(t, "/account"), http.StatusOK, "/login", "Log in")
	b.wantPage(t, b.post(t, "/login", "email", ann.Email, "password", "another good one"), http.StatusForbidden, "/login", "User is suspended.")
}

func TestSignUpPage(t *testing.T) {
	f := newFixture(t, Options{Signup: true})
	b := newBrowser(t, f, "")
	b.get(t, "/login")
	if !strings.Contains(b.last, `href="signup"`) {
		t.Error("the log-in page does not lead to sign-up")
	}
	b.get(t, "/signup")
	sign := func(email, password, repeat string) *http.Response {
		return b.post(t, "/signup", "email", email, "password", password, "repeat", repeat)
	}
	b.wantPage(t, sign("ann@example.com", goodPassword, "something else"), http.StatusUnprocessableEntity, "/signup", "The two passwords are not the same.")
	b.wantPage(t, sign("ann@example.com", "short", "short"), http.StatusUnprocessableEntity, "/signup", "The password has 5 characters")
	b.wantPage(t, sign("ann", goodPassword, goodPassword), http.StatusUnprocessableEntity, "/signup", "Invalid email.")
	b.wantPage(t, sign("ann@example.com", goodPassword, goodPassword), http.StatusOK, "/account", "ann@example.com")
	other := b.fresh(t)
	other.wantPage(t, other.post(t, "/signup", "email", "ann@example.com", "password", goodPassword, "repeat", goodPassword),
		http.StatusConflict, "/signup", "There is an account with this e-mail address already.")
}

func TestSetPasswordPage(t *testing.T) {
	f := newFixture(t, Options{})
	first, _, err := f.CreateFirst(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, f, "")
	token := first.LinkToken.Reveal()
	set := func(email, password, repeat string) *http.Response {
		return b.post(t, "/set-password", "token", token, "email", email, "password", password, "repeat", repeat)
	}
	b.wantPage(t, b.get(t, "/set-password?token="+token), http.StatusOK, "/set-password", "Nothing is sent to it.")
	b.wantPage(t, set("ann", goodPassword, goodPassword), http.StatusUnprocessableEntity, "/set-password", "Invalid email.")
	b.wantPage(t, set("ann@example.com", goodPassword, "else"), http.StatusUnprocessableEntity, "/set-password", "not the same")
	b.wantPage(t, set("ann@example.com", goodPassword, goodPassword), http.StatusOK, "/account", "ann@example.com")
	b.wantPage(t, set("ann@example.com", goodPassword, goodPassword), http.StatusForbidden, "/set-password", "This link does not work any more")

	link, err := f.NewLink(t.Context(), first.User.ID)
	if err != nil {
		t.Fatal(err)
	}
	token = link.Reveal()
	b.wantPage(t, b.get(t, "/set-password?token="+token), http.StatusOK, "/set-password", "This is the address of your account.")
	b.wantPage(t, set("bob@example.com", goodPassword, goodPassword), http.StatusForbidden, "/set-password", "This link is for another e-mail address.")
	if strings.Contains(f.log.String(), token) || strings.Contains(f.log.String(), first.LinkToken.Reveal()) {
		t.Error("the log has the token of a link in it")
	}
	if !strings.Contains(f.log.String(), `route="POST /set-password" status=403`) {
		t.Errorf("the log does not have the requests:\n%s", f.log)
	}
}

// The log says of a browser that disconnected that it got nothing.
func TestBrowserGone(t *testing.T) {
	f := newFixture(t, Options{})
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for _, request := range [][2]string{{"GET", "/account"}, {"POST", "/session/token"}} {
		f.log.Reset()
		r := httptest.NewRequestWithContext(ctx, request[0], request[1], nil)
		r.AddCookie(&http.Cookie{Name: cookieName(false), Value: "x"})
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		f.Pages().ServeHTTP(httptest.NewRecorder(), r)
		if text := f.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, " status=499 ") {
			t.Errorf("%s: the log has:\n%s", request, text)
		}
	}
}
