package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/weir"
)

// The token of a one-time link works at the API too.
func TestResetPassword(t *testing.T) {
	f := newFixture(t)
	link, err := f.server.Accounts.NewLink(t.Context(), f.vars["ann.id"])
	if err != nil {
		t.Fatal(err)
	}
	f.vars["link"] = link.Reveal()
	const reset = "POST /api/user/password/reset  as: anon\n\n" + `{"email":"%s","resetToken":"${link}","password":"another good one"}`
	const logIn = "POST /api/user/token  as: anon\n\n" + `{"email":"ann@example.com","password":"%s"}`
	for i, step := range []struct{ request, want string }{
		{fmt.Sprintf(reset, "bob@example.com"), "403\n"},
		{fmt.Sprintf(reset, "ann@example.com"), "200\n"},
		{fmt.Sprintf(reset, "ann@example.com"), "403\n"},
		{fmt.Sprintf(logIn, "correct horse battery"), "403\n"},
		{fmt.Sprintf(logIn, "another good one"), "201\n"},
		{"GET /api/user/me  as: ann-jwt", "401\n"}, // of the old password
		{"GET /api/user/me  as: JWT ${5.token}", "200\n"},
		{"GET /api/user/me", "200\n"}, // keys still work
	} {
		got := f.play(t, i+1, step.request)
		if !strings.HasPrefix(got, step.want) {
			t.Errorf("step %d: %s, want %s", i+1, got, step.want)
		}
		if strings.Contains(got, link.Reveal()) || strings.Contains(got, "another good one") {
			t.Errorf("step %d repeats a secret: %s", i+1, got)
		}
	}
}

// A client that sends wrong passwords must wait; the response says how long.
func TestGuessingPasswords(t *testing.T) {
	f := newFixture(t)
	for i := range 20 { // the wait doubles, so that at some point it is longer than a try takes
		got := f.play(t, i+1, "POST /api/user/token  as: anon\n\n"+`{"email":"ann@example.com","password":"wrong"}`)
		switch {
		case strings.HasPrefix(got, "429\nRetry-After: ") && strings.Contains(got, "too many attempts; try again in"):
			if i < 5 {
				t.Errorf("must wait after %d tries", i)
			}
			return
		case !strings.HasPrefix(got, "403\n"):
			t.Fatalf("try %d: %s", i, got)
		}
	}
	t.Error("the client does not have to wait")
}

func TestBasicCredential(t *testing.T) {
	f := newFixture(t)
	for name, tt := range map[string]struct {
		user, key string
		want      int
	}{
		"right":        {f.vars["ann.id"], f.vars["ann.key"], http.StatusOK},
		"wrong user":   {f.vars["bob.id"], f.vars["ann.key"], http.StatusUnauthorized},
		"user's email": {f.vars["ann.email"], f.vars["ann.key"], http.StatusUnauthorized},
		"unknown key":  {f.vars["ann.id"], weir.NewAPIKey().Reveal(), http.StatusUnauthorized},
	} {
		got := f.play(t, 1, "GET /api/user/me  as: Basic "+base64.StdEncoding.EncodeToString([]byte(tt.user+":"+tt.key)))
		if !strings.HasPrefix(got, fmt.Sprint(tt.want)) {
			t.Errorf("%s: %s, want %d", name, got, tt.want)
		}
	}
}

// A browser that has logged in on the pages gets a token for the API there. Its cookie alone counts
// for nothing.
func TestCookieIsNoCredential(t *testing.T) {
	f := newFixture(t)
	f.server.PublicURL = ""
	pages := f.server.Accounts.Pages()
	send := func(handler http.Handler, method, path, body string, header http.Header) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://weir.test"+path, strings.NewReader(body))
		maps.Copy(r.Header, header)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	own := http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://weir.test"}}
	form := maps.Clone(own)
	form.Set("Content-Type", "application/x-www-form-urlencoded")
	in := send(pages, "POST", "/login", "email=ann%40example.com&password=correct+horse+battery", form)
	cookies := in.Result().Cookies()
	if len(cookies) != 1 {
		t.Fatalf("the log-in answers %d with cookies %v", in.Code, cookies)
	}
	own.Set("Cookie", cookies[0].String())
	for _, path := range []string{"/api/user/me", "/api/stream", "/api/api-token", "/api/events"} {
		if w := send(f.server, "GET", path, "", own); w.Code != http.StatusUnauthorized {
			t.Errorf("%s with a cookie: %d %s, want 401", path, w.Code, w.Body)
		}
	}
	var response struct{ Token string }
	w := send(pages, "POST", "/session/token", "", own)
	if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil || response.Token == "" {
		t.Fatalf("%d %s (%v)", w.Code, w.Body, err)
	}
	for i, path := range []string{"/api/user/me", "/api/api-token"} {
		if got := f.play(t, i+1, "GET "+path+"  as: JWT "+response.Token); !strings.HasPrefix(got, "200\n") {
			t.Errorf("%s with the token: %s", path, got)
		}
	}
}
