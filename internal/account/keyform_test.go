package account

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestKeyForm(t *testing.T) {
	pages := func(full bool, origins ...string) *weir.CORSAccess {
		return &weir.CORSAccess{FullAccess: full, AllowedOrigins: origins}
	}
	for _, tt := range []struct {
		name    string
		form    keyForm
		want    *weir.Access
		summary string
	}{
		{"all", keyForm{Where: fromServers, What: doAll}, nil, "Full access, from servers"},
		{
			"what is not chosen does not count",
			keyForm{Where: fromServers, What: doAll, Origins: "https://a.example", Rules: "nonsense nonsense"},
			nil, "Full access, from servers",
		},
		{
			"pages",
			keyForm{Where: fromPages, What: doPage, Origins: "https://A.example/\nhttp://localhost:3000"},
			&weir.Access{CORS: pages(false, "https://a.example", "http://localhost:3000")}, "What a web page needs, also from https://a.example and 1 more",
		},
		{
			"pages with all",
			keyForm{Where: fromPages, What: doAll, Origins: "*"},
			&weir.Access{CORS: pages(true, "*")}, "Full access, also from any web page",
		},
		{
			"rules",
			keyForm{Where: fromServers, What: doRules, Rules: "GET,patch /stream/:id\n\nasset*\n* clip task/:id\n"},
			&weir.Access{Rules: &[]weir.AccessRule{
				{Resources: []string{"stream/:id"}, Methods: []string{"get", "patch"}}, {Resources: []string{"asset*"}}, {Resources: []string{"clip", "task/:id"}},
			}}, "3 rules, from servers",
		},
		{
			"rules in pages",
			keyForm{Where: fromPages, What: doRules, Origins: "https://a.example", Rules: "get stream"},
			&weir.Access{CORS: pages(false, "https://a.example"), Rules: &[]weir.AccessRule{{Resources: []string{"stream"}, Methods: []string{"get"}}}},
			"1 rule, also from https://a.example",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.form.access()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("access (-want +got):\n%s", diff)
			}
			if s := summary(got); s != tt.summary {
				t.Errorf("summary %q, want %q", s, tt.summary)
			}
			back, err := keyFormOf(weir.Token{Access: got}).access()
			if diff := cmp.Diff(got, back); err != nil || diff != "" {
				t.Errorf("the form of the key makes another key (%v):\n%s", err, diff)
			}
		})
	}
}

func TestKeyFormRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		form keyForm
		want string // part of the message
	}{
		{"nothing chosen", keyForm{}, "Choose where"},
		{"nothing allowed", keyForm{Where: fromServers}, "Choose what"},
		{"pages without origins", keyForm{Where: fromPages, What: doAll}, "Name the web pages"},
		{"origin with path", keyForm{Where: fromPages, What: doAll, Origins: "https://a.example/app"}, "not the origin"},
		{"origin without scheme", keyForm{Where: fromPages, What: doAll, Origins: "a.example"}, "not the origin"},
		{"origin with user", keyForm{Where: fromPages, What: doAll, Origins: "https://u@a.example"}, "not the origin"},
		{"other scheme", keyForm{Where: fromPages, What: doAll, Origins: "ftp://a.example"}, "not the origin"},
		{"page needs on servers", keyForm{Where: fromServers, What: doPage}, "Name the pages"},
		{"no rules", keyForm{Where: fromServers, What: doRules, Rules: "\n \n"}, "at least one rule"},
		{"unknown method", keyForm{Where: fromServers, What: doRules, Rules: "get stream\nfetch stream"}, "Line 2: \"fetch\" is not a method"},
		{"a path of nothing", keyForm{Where: fromServers, What: doRules, Rules: "get /"}, "must be one path"},
		{"question mark", keyForm{Where: fromServers, What: doRules, Rules: "get stream?x"}, "question mark"},
		{"star in the middle", keyForm{Where: fromServers, What: doRules, Rules: "get s*m"}, "only at its end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := tt.form.access()
			if err == nil || weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("access %+v, error %v; want one with %q", a, err, tt.want)
			}
		})
	}
	for name, want := range map[string]string{"": "Give the key a name", strings.Repeat("ä", 101): "too long", "a\x01b": "cannot be shown", "ci": ""} {
		err := keyForm{Name: name}.checkName()
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("name %q: %v, want %q", name, err, want)
		}
	}
}

func TestCurlLine(t *testing.T) {
	rules := func(r weir.AccessRule) *weir.Access { return &weir.Access{Rules: &[]weir.AccessRule{r}} }
	for _, tt := range []struct {
		name   string
		access *weir.Access
		want   string
	}{
		{"all", nil, "curl -H 'Authorization: Bearer KEY' https://v.example/api/stream"},
		{
			"page", &weir.Access{CORS: &weir.CORSAccess{AllowedOrigins: []string{"*"}}},
			`curl -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' -d '{"name":"first stream"}' https://v.example/api/stream`,
		},
		{"other rules", rules(weir.AccessRule{Resources: []string{"user/me"}}), "curl -H 'Authorization: Bearer KEY' https://v.example/api/user/me"},
	} {
		if got := curlLine("https://v.example", "KEY", tt.access); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// Whatever people type, what is taken is what the page shows afterwards.
func FuzzKeyForm(f *testing.F) {
	f.Add("https://a.example", "get,post stream/:id asset*")
	f.Add("*", "*")
	f.Add("*", "/")
	f.Add("*", "get //a")
	f.Add("http://[::1]:80/", "* a\n\r\nb")
	f.Fuzz(func(t *testing.T, origins, rules string) {
		a, err := keyForm{Where: fromPages, What: doRules, Origins: origins, Rules: rules}.access()
		if err != nil {
			if weir.KindOf(err) != weir.Invalid {
				t.Fatalf("error %v is none for people", err)
			}
			return
		}
		back, err := keyFormOf(weir.Token{Access: a}).access()
		if diff := cmp.Diff(a, back); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}
