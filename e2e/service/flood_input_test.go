package service

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
)

// badRequest is a request that must be answered with 4xx, as bytes on the wire.
type badRequest struct {
	kind   string
	method string
	head   []byte
	body   []byte
	closes bool // the connection can't be used afterwards
}

// bad makes bad requests. Each is wrong by construction, whatever chance adds: it
// has a property that does not exist, a member of a wrong type, an id that nobody
// has, or it is no HTTP at all.
type bad struct {
	random *rand.Rand
	host   string
	key    string
	ids    map[string]string // of things that exist: stream, asset, webhook
	cursor string            // of a second page of streams
	huge   []byte            // 2 MiB of a body, shared by all that are so large
}

// requests makes so many, of all kinds and in any order.
func (b *bad) requests(n int) []badRequest {
	b.huge = fmt.Appendf(nil, `{"name":"%s"}`, strings.Repeat("x", 2<<20))
	kinds := []struct {
		name string
		make func() badRequest
	}{
		{"unknown property", b.unknownProperty},
		{"wrong type", b.wrongType},
		{"huge numbers", b.hugeNumbers},
		{"deep nesting", b.deepNesting},
		{"invalid UTF-8", b.invalidUTF8},
		{"broken JSON", b.brokenJSON},
		{"garbage", b.garbage},
		{"wrong content type", b.wrongContentType},
		{"many properties", b.manyProperties},
		{"absurd path", b.absurdPath},
		{"absurd filter", b.absurdFilter},
		{"absurd cursor", b.absurdCursor},
		{"absurd headers", b.absurdHeaders},
		{"no credential", b.noCredential},
		{"broken HTTP", b.brokenHTTP},
	}
	all := make([]badRequest, n)
	for i := range all {
		kind := kinds[i%len(kinds)]
		if i%25 == 24 { // one in 25 is 2 MiB long
			kind.name, kind.make = "2 MiB", b.tooLarge
		}
		all[i] = kind.make()
		all[i].kind = kind.name
	}
	b.random.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// taking are the endpoints that take a body.
var taking = []string{
	"POST /api/stream", "PATCH /api/stream/{stream}", "DELETE /api/stream", "PATCH /api/stream/{stream}/record",
	"POST /api/stream/{stream}/create-multistream-target", "POST /api/webhook", "PUT /api/webhook/{webhook}", "PATCH /api/webhook/{webhook}",
	"POST /api/asset/upload/url", "POST /api/asset/request-upload", "PATCH /api/asset/{asset}", "POST /api/asset/{asset}/export",
	"POST /api/multistream/target", "POST /api/object-store", "POST /api/access-control/gate", "POST /api/user/token",
}

// to returns a request with a body to one of those endpoints.
func (b *bad) to(endpoint string, body []byte, headers ...string) badRequest {
	method, path, _ := strings.Cut(endpoint, " ")
	for name, id := range b.ids {
		path = strings.ReplaceAll(path, "{"+name+"}", id)
	}
	headers = append(headers, fmt.Sprintf("Content-Length: %d", len(body)))
	if !strings.Contains(strings.Join(headers, "\n"), "Content-Type:") {
		headers = append(headers, "Content-Type: application/json")
	}
	return b.keyed(method, path, body, headers...)
}

// keyed is a request with the key of an account.
func (b *bad) keyed(method, target string, body []byte, headers ...string) badRequest {
	return b.request(method, target, body, append(headers, "Authorization: Bearer "+b.key)...)
}

func (b *bad) request(method, target string, body []byte, headers ...string) badRequest {
	head := method + " " + target + " HTTP/1.1\r\nHost: " + b.host + "\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
	return badRequest{method: method, head: []byte(head), body: body}
}

func (b *bad) endpoint() string { return pick(b.random, taking) }

func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// text is any text that fits into JSON between quotation marks.
func (b *bad) text() string {
	return pick(b.random, []string{"", "x", `\u0000`, `\ud800`, `\"`, "ü", "💧", "' OR 1=1 --", "../../etc/passwd", "%00", "$(id)", strings.Repeat("long ", b.random.IntN(400))})
}

// value is any JSON value.
func (b *bad) value(depth int) string {
	switch n := b.random.IntN(7); {
	case n == 0:
		return "null"
	case n == 1:
		return pick(b.random, []string{"true", "false"})
	case n == 2:
		return b.number()
	case n == 3 && depth > 0:
		return "[" + b.value(depth-1) + "," + b.value(depth-1) + "]"
	case n == 4 && depth > 0:
		return `{"` + b.text() + `":` + b.value(depth-1) + `}`
	}
	return `"` + b.text() + `"`
}

func (b *bad) number() string {
	return pick(b.random, []string{
		"0", "-0", "-1", "1e400", "-1e400", "1e-400", "9223372036854775808", "-9223372036854775809", "1.5", "1e999999", "123e-999999",
		"9" + strings.Repeat("9", b.random.IntN(2000)),
	})
}

// members are what bodies of the contract have, and what those members are not.
var members = []string{"name", "url", "events", "profiles", "playbackPolicy", "multistream", "email", "password", "sharedSecret", "spec", "ipfs", "ids", "userTags"}

func (b *bad) unknownProperty() badRequest {
	unknown := fmt.Sprintf(`"unknown%d":%s`, b.random.IntN(1000), b.value(4))
	known := fmt.Sprintf(`"%s":%s`, pick(b.random, members), b.value(2))
	parts := []string{known, unknown}
	if b.random.IntN(2) == 0 {
		parts = []string{unknown, known}
	}
	return b.to(b.endpoint(), []byte("{"+strings.Join(parts, ",")+"}"))
}

func (b *bad) wrongType() badRequest {
	if b.random.IntN(3) == 0 { // not an object
		return b.to(b.endpoint(), []byte(pick(b.random, []string{"[]", "[{}]", "1", `"{}"`, "true", "false", "null"})))
	}
	wrong := pick(b.random, []string{"17", "-1.5", "true", `[[]]`, `[{"":1}]`})
	return b.to(b.endpoint(), fmt.Appendf(nil, `{"%s":%s}`, pick(b.random, members), wrong))
}

func (b *bad) hugeNumbers() badRequest {
	profile := fmt.Sprintf(`{"name":"p","width":%s,"height":%s,"bitrate":%s,"fps":%s}`, b.number(), b.number(), b.number(), "1e999999")
	many := strings.Repeat(profile+",", b.random.IntN(20)) + profile
	endpoint := pick(b.random, []string{"POST /api/stream", "PATCH /api/stream/{stream}", "POST /api/asset/upload/url"})
	return b.to(endpoint, fmt.Appendf(nil, `{"name":17e308,"url":1e999999,"profiles":[%s]}`, many))
}

func (b *bad) deepNesting() badRequest {
	depth := pick(b.random, []int{65, 100, 1000, 10_000, 400_000})
	open, end := pick(b.random, []string{"[", `{"a":`}), ""
	if b.random.IntN(2) == 0 {
		end = strings.Repeat(map[string]string{"[": "]", `{"a":`: "}"}[open], depth)
	}
	body := fmt.Sprintf(`{"name":%s1%s}`, strings.Repeat(open, min(depth, 900_000/len(open)/2)), end)
	return b.to(b.endpoint(), []byte(body)[:min(len(body), 1<<20-1)])
}

func (b *bad) invalidUTF8() badRequest {
	wrong := pick(b.random, []string{"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82", "\x80"})
	return b.to(b.endpoint(), fmt.Appendf(nil, `{"name":"a%sb"}`, wrong))
}

func (b *bad) brokenJSON() badRequest {
	whole := fmt.Sprintf(`{"name":"x","%s":%s}`, b.text(), b.value(3))
	broken := []string{
		whole[:1+b.random.IntN(len(whole)-1)], whole + "}", "{" + whole, whole + whole, strings.ReplaceAll(whole, ":", "="), whole[:len(whole)-1] + ",}",
	}
	return b.to(b.endpoint(), []byte(pick(b.random, broken)))
}

func (b *bad) garbage() badRequest {
	body := make([]byte, 1+b.random.IntN(4000))
	for i := range body {
		body[i] = byte(b.random.Uint32())
	}
	body[0] = 0xff // never JSON
	return b.to(b.endpoint(), body)
}

func (b *bad) wrongContentType() badRequest {
	types := []struct{ header, body string }{
		{"Content-Type: application/xml", `<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>`},
		{"Content-Type: application/x-www-form-urlencoded", "name=x&profiles=1"},
		{"Content-Type: multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nx\r\n--b--\r\n"},
		{"Content-Type: application/json\r\nContent-Encoding: gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xaaV\xcaK\xccMU\xb2R\xaaP\xaa\x05\x00"},
		{"Content-Type: " + strings.Repeat("a", 5000), `{"name":17}`},
		{"Content-Type: application/json; charset=utf-16", "\xff\xfe{\x00}\x00"},
	}
	t := pick(b.random, types)
	return b.to(b.endpoint(), []byte(t.body), t.header)
}

func (b *bad) manyProperties() badRequest {
	var body bytes.Buffer
	body.WriteString(`{"unknown":1`)
	for i := range b.random.IntN(5000) {
		fmt.Fprintf(&body, `,"p%d":%d`, i, i)
	}
	body.WriteString("}")
	return b.to(b.endpoint(), body.Bytes())
}

func (b *bad) tooLarge() badRequest {
	r := b.to(b.endpoint(), b.huge)
	if b.random.IntN(2) == 0 { // without a length
		r.head = bytes.Replace(r.head, fmt.Appendf(nil, "Content-Length: %d", len(b.huge)), []byte("Transfer-Encoding: chunked"), 1)
		r.head = fmt.Appendf(r.head, "%x\r\n", len(b.huge))
	}
	r.closes = true
	return r
}

func (b *bad) absurdPath() badRequest {
	id := pick(b.random, []string{
		"%00", "a%00b", "%ff%fe", "%ed%a0%80", "..%2f..%2fetc%2fpasswd", "%2e%2e", strings.Repeat("a", 8000), "💧", "'%20OR%201=1--", "{id}", "*", "%25", "-1",
		"%0d%0aX-Evil:%201",
	})
	before := pick(b.random, []string{
		"/api/stream/", "/api/stream/playback/", "/api/stream/key/", "/api/asset/", "/api/task/", "/api/session/", "/api/webhook/", "/api/multistream/target/",
		"/api/access-control/signing-key/", "/api/object-store/", "/api/project/", "/api/playback/", "/api/nothing/", "/api/",
	})
	method := pick(b.random, []string{"GET", "GET", "GET", "DELETE", "TRACE", "PROPFIND", "get", strings.Repeat("A", 300)})
	if method == "DELETE" {
		before = "/api/stream/" // not every resource tells what was never there
	}
	return b.keyed(method, before+id, nil)
}

// lists are the endpoints that take the parameters of lists.
var lists = []string{"/api/stream", "/api/asset", "/api/task", "/api/session", "/api/webhook", "/api/multistream/target", "/api/access-control/signing-key", "/api/object-store"}

func (b *bad) absurdFilter() badRequest {
	filters := pick(b.random, []string{
		`[{"id":"nothing","value":1}]`, `{"id":"id"}`, `[{"id":"id"}]`, `[{"id":"id","value":17}]`, `[{"id":"id","value":{"gte":"x"}}]`,
		`[{"id":"createdAt","value":{"or":1}}]`, `[{"id":"createdAt","value":"x"}]`, `[{"id":"createdAt","value":1e400}]`, `[{"id":"id","value":"\u0000"}]`,
		`[` + strings.Repeat(`{"id":"id","value":"x"},`, 600) + `1]`, strings.Repeat("[", 20_000), `"`, "%", "\xff", "[null]", "[[]]",
	})
	query := url.Values{
		"filters": {filters}, "limit": {pick(b.random, []string{"-1", "1e99", "99999999999999999999", "x", "\x00"})},
		"order": {pick(b.random, []string{"id-true", "name'--", strings.Repeat("id-true,", 500), "\xff"})}, "all": {"true"}, "allUsers": {"1"}, "count": {"yes"},
	}
	return b.keyed("GET", pick(b.random, lists)+"?"+query.Encode(), nil)
}

func (b *bad) absurdCursor() badRequest {
	cursor := pick(b.random, []string{"skip-1", "skip99999999999999999999", "x", "\x00", "\xff\xfe", strings.Repeat("A", 10_000), "e30", "W10", b.forgedCursor()})
	return b.keyed("GET", "/api/stream?limit=1&cursor="+url.QueryEscape(cursor), nil)
}

// forgedCursor is a real cursor whose values have been exchanged for others.
func (b *bad) forgedCursor() string {
	var parts map[string]any
	encoded, mark, _ := strings.Cut(b.cursor, ".")
	plain, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || json.Unmarshal(plain, &parts) != nil {
		return "not-a-cursor-any-more"
	}
	wrong := pick(b.random, []any{nil, []any{}, map[string]any{"a": 1}, "x", "\x00", true, 1e300})
	for _, part := range parts {
		values, _ := part.([]any)
		for i := range values {
			values[i] = wrong // not all of them are of one type
		}
	}
	text, _ := json.Marshal(parts)
	return base64.RawURLEncoding.EncodeToString(text) + "." + mark
}

func (b *bad) absurdHeaders() badRequest {
	r := b.keyed("GET", "/api/stream/nobody", nil, pick(b.random, []string{
		"X-Forwarded-For: " + strings.Repeat("1.1.1.1, ", 1000), "X-Request-Id: " + strings.Repeat("\xff", 100), "Origin: null", "Origin: javascript:alert(1)",
		"Cookie: " + strings.Repeat("a=b; ", 2000), "Accept: " + strings.Repeat("*/*,", 500), "Range: bytes=0-,0-,0-", "If-None-Match: *", "X-Forwarded-Host: evil",
		"X-Forwarded-Proto: gopher", "Traceparent: 00-" + strings.Repeat("f", 32) + "-" + strings.Repeat("f", 16) + "-zz", strings.Repeat("X-A: b\r\n", 500) + "X-A: b",
		"X-Large: " + strings.Repeat("y", 100_000),
	}))
	r.closes = len(r.head) > 60_000
	return r
}

func (b *bad) noCredential() badRequest {
	return b.request("GET", pick(b.random, lists), nil, pick(b.random, []string{"X-Authorization: Bearer " + b.key, "Authorization: ", "Cookie: key=" + b.key}))
}

// brokenHTTP is not answered by a handler at all.
func (b *bad) brokenHTTP() badRequest {
	return badRequest{method: "GET", closes: true, head: []byte(pick(b.random, []string{
		"\r\n\r\n\r\nGARBAGE\r\n\r\n", "GET\r\n\r\n", "GET /api/stream HTTP/1.1\r\n\r\n", "GET /api/stream HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET /api/stream HTTP/1.1\r\nHost: a b\r\n\r\n", "GET /api/stream HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
		"GET /api/stream HTTP/1.1\r\nHost: x\r\nA\x00b: c\r\n\r\n", "GET /api/%zz HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /api/stream HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "POST /api/stream HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 40) + "\r\n\r\n", // TLS
	}))}
}
