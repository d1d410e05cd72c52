package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// openapi returns the document of the service.
func openapi(t testing.TB) []byte {
	t.Helper()
	source, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// compileOnce compiles the document once for all tests.
var compileOnce = sync.OnceValues(func() (*Contract, error) {
	source, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		return nil, err
	}
	return New(source)
})

func compiled(t testing.TB) *Contract {
	t.Helper()
	c, err := compileOnce()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// messagesOf returns the messages about a body, nil when it is valid.
func messagesOf(t testing.TB, schema *Body, body string) []string {
	t.Helper()
	_, err := schema.Check([]byte(body))
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*weir.Error](err)
	if !ok {
		t.Fatalf("error %v (%T), want a weir.Error", err, err)
	}
	return e.Messages
}

func TestMessages(t *testing.T) {
	c := compiled(t)
	profile := func(members string) string {
		return `{"name":"n","profiles":[` + strings.Repeat(`{"name":"a","width":128,"height":128,"bitrate":400,"fps":0},`, 2) +
			`{"name":"b","height":720,"bitrate":1000,"fps":0,` + members + `}]}`
	}
	for _, tt := range []struct {
		name, pattern, body string
		want                []string
	}{
		{
			"required", "POST /api/stream", `{}`,
			[]string{
				`{"instancePath":"","schemaPath":"#/required","keyword":"required","params":{"missingProperty":"name"},"message":"must have required property 'name'"}`,
				`name: is required`,
			},
		},
		{
			"required below", "POST /api/stream", `{"name":"n","profiles":[{"name":"a"}]}`,
			[]string{
				`{"instancePath":"/profiles/0","schemaPath":"#/components/schemas/NewLiveProfile/required","keyword":"required","params":{"missingProperty":"height"},"message":"must have required property 'height'"}`,
				`profiles[0].height: is required`,
			},
		},
		{
			"additionalProperties", "POST /api/stream", `{"name":"n","zoo":1,"colour":2}`,
			[]string{
				`{"instancePath":"","schemaPath":"#/additionalProperties","keyword":"additionalProperties","params":{"additionalProperty":"colour"},"message":"must NOT have additional properties"}`,
				`colour: is not a known property`,
			},
		},
		{
			"type", "POST /api/stream", `{"name":1}`,
			[]string{
				`{"instancePath":"/name","schemaPath":"#/properties/name/type","keyword":"type","params":{"type":"string"},"message":"must be string"}`,
				`name: must be a string`,
			},
		},
		{
			"type of the body", "POST /api/stream", `[]`,
			[]string{
				`{"instancePath":"","schemaPath":"#/type","keyword":"type","params":{"type":"object"},"message":"must be object"}`,
				`body: must be an object`,
			},
		},
		{
			"several types", "POST /api/stream", `{"name":"n","profiles":"none"}`,
			[]string{
				`{"instancePath":"/profiles","schemaPath":"#/properties/profiles/type","keyword":"type","params":{"type":["array","null"]},"message":"must be array,null"}`,
				`profiles: must be an array or null`,
			},
		},
		{
			"enum", "POST /api/access-control/gate", `{"type":"none","stream":"s"}`,
			[]string{
				`{"instancePath":"/type","schemaPath":"#/properties/type/enum","keyword":"enum","params":{"allowedValues":["jwt","accessKey"]},"message":"must be equal to one of the allowed values"}`,
				`type: must be one of jwt, accessKey`,
			},
		},
		{
			"pattern", "POST /api/webhook", `{"name":"n","url":"ftp://example.org"}`,
			[]string{
				`{"instancePath":"/url","schemaPath":"#/properties/url/pattern","keyword":"pattern","params":{"pattern":"^http(s)?://"},"message":"must match pattern \"^http(s)?://\""}`,
				`url: must be a URL that starts with http:// or https://`,
			},
		},
		{
			"format", "POST /api/webhook", `{"name":"n","url":"https://exa mple.org/%zz"}`,
			[]string{
				`{"instancePath":"/url","schemaPath":"#/properties/url/format","keyword":"format","params":{"format":"uri"},"message":"must match format \"uri\""}`,
				`url: must be a URL that starts with http:// or https://`,
			},
		},
		{
			"minimum", "POST /api/stream", profile(`"width":127`),
			[]string{
				`{"instancePath":"/profiles/2/width","schemaPath":"#/components/schemas/NewLiveProfile/properties/width/minimum","keyword":"minimum","params":{"comparison":">=","limit":128},"message":"must be >= 128"}`,
				`profiles[2].width: must be 128 or more`,
			},
		},
		{
			"maximum", "PATCH /api/stream/{id}", profile(`"width":128,"quality":45`),
			[]string{
				`{"instancePath":"/profiles/2/quality","schemaPath":"#/components/schemas/NewLiveProfile/properties/quality/maximum","keyword":"maximum","params":{"comparison":"<=","limit":44},"message":"must be <= 44"}`,
				`profiles[2].quality: must be 44 or less`,
			},
		},
		{
			"integer", "POST /api/stream", profile(`"width":128.5`),
			[]string{
				`{"instancePath":"/profiles/2/width","schemaPath":"#/components/schemas/NewLiveProfile/properties/width/type","keyword":"type","params":{"type":"integer"},"message":"must be integer"}`,
				`profiles[2].width: must be an integer`,
			},
		},
		{
			"minLength", "POST /api/stream/{id}/create-multistream-target", `{"profile":""}`,
			[]string{
				`{"instancePath":"/profile","schemaPath":"#/properties/profile/minLength","keyword":"minLength","params":{"limit":1},"message":"must NOT have fewer than 1 characters"}`,
				`profile: must not be empty`,
			},
		},
		{
			"maxLength", "POST /api/stream/{id}/create-multistream-target", `{"profile":"` + strings.Repeat("ä", 501) + `"}`,
			[]string{
				`{"instancePath":"/profile","schemaPath":"#/properties/profile/maxLength","keyword":"maxLength","params":{"limit":500},"message":"must NOT have more than 500 characters"}`,
				`profile: must have at most 500 characters`,
			},
		},
		{
			"minItems", "POST /api/stream", `{"name":"n","detection":{"sceneClassification":[]}}`,
			[]string{
				`{"instancePath":"/detection/sceneClassification","schemaPath":"#/properties/detection/properties/sceneClassification/minItems","keyword":"minItems","params":{"limit":1},"message":"must NOT have fewer than 1 items"}`,
				`detection.sceneClassification: must not be empty`,
			},
		},
		{
			"maxItems", "POST /api/asset/request-upload", `{"name":"n","profiles":[` + strings.Repeat(`{},`, 32) + `{}]}`,
			[]string{
				`{"instancePath":"/profiles","schemaPath":"#/components/schemas/NewAssetProfiles/maxItems","keyword":"maxItems","params":{"limit":32},"message":"must NOT have more than 32 items"}`,
				`profiles: must have at most 32 items`,
			},
		},
		{
			"oneOf, no form", "POST /api/stream", `{"name":"n","creatorId":5}`,
			[]string{
				`{"instancePath":"/creatorId","schemaPath":"#/components/schemas/NewCreatorId/oneOf/0/type","keyword":"type","params":{"type":"object"},"message":"must be object"}`,
				`{"instancePath":"/creatorId","schemaPath":"#/components/schemas/NewCreatorId/oneOf/1/type","keyword":"type","params":{"type":"string"},"message":"must be string"}`,
				`{"instancePath":"/creatorId","schemaPath":"#/components/schemas/NewCreatorId/oneOf","keyword":"oneOf","params":{"passingSchemas":null},"message":"must match exactly one schema in oneOf"}`,
				`creatorId: must be an object with type and value or a string`,
			},
		},
		{
			"oneOf, near a form", "POST /api/stream", `{"name":"n","creatorId":{"type":"verified","value":"v"}}`,
			[]string{
				`{"instancePath":"/creatorId/type","schemaPath":"#/components/schemas/NewCreatorId/oneOf/0/properties/type/enum","keyword":"enum","params":{"allowedValues":["unverified"]},"message":"must be equal to one of the allowed values"}`,
				`{"instancePath":"/creatorId","schemaPath":"#/components/schemas/NewCreatorId/oneOf/1/type","keyword":"type","params":{"type":"string"},"message":"must be string"}`,
				`{"instancePath":"/creatorId","schemaPath":"#/components/schemas/NewCreatorId/oneOf","keyword":"oneOf","params":{"passingSchemas":null},"message":"must match exactly one schema in oneOf"}`,
				`creatorId.type: must be one of unverified`,
			},
		},
		{
			"oneOf, both far", "POST /api/asset/{id}/export", `{}`,
			[]string{
				`{"instancePath":"","schemaPath":"#/oneOf/0/required","keyword":"required","params":{"missingProperty":"custom"},"message":"must have required property 'custom'"}`,
				`{"instancePath":"","schemaPath":"#/oneOf/1/required","keyword":"required","params":{"missingProperty":"ipfs"},"message":"must have required property 'ipfs'"}`,
				`{"instancePath":"","schemaPath":"#/oneOf","keyword":"oneOf","params":{"passingSchemas":null},"message":"must match exactly one schema in oneOf"}`,
				`body: must be an object with custom or an object with ipfs`,
			},
		},
		{
			"oneOf, one nearer", "POST /api/asset/{id}/export", `{"custom":{"url":"ftp://x"}}`,
			[]string{
				`{"instancePath":"/custom/url","schemaPath":"#/oneOf/0/properties/custom/properties/url/pattern","keyword":"pattern","params":{"pattern":"^http(s)?://"},"message":"must match pattern \"^http(s)?://\""}`,
				`{"instancePath":"","schemaPath":"#/oneOf/1/required","keyword":"required","params":{"missingProperty":"ipfs"},"message":"must have required property 'ipfs'"}`,
				`{"instancePath":"","schemaPath":"#/oneOf","keyword":"oneOf","params":{"passingSchemas":null},"message":"must match exactly one schema in oneOf"}`,
				`custom.url: must be a URL that starts with http:// or https://`,
			},
		},
		{
			"names that callers made up", "POST /api/stream", `{"name":"n","userTags":{"a/b~ c":true}}`,
			[]string{
				`{"instancePath":"/userTags/a~1b~0 c","schemaPath":"#/components/schemas/UserTags/additionalProperties/type","keyword":"type","params":{"type":["string","number","array"]},"message":"must be string,number,array"}`,
				`userTags["a/b~ c"]: must be a string or a number or an array`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			schema := c.Body(tt.pattern)
			if schema == nil {
				t.Fatalf("%s has no body in the document", tt.pattern)
			}
			got := messagesOf(t, schema, tt.body)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

// A form that a member names is the one that is meant, whatever else is missing.
func TestNearestForm(t *testing.T) {
	schema := compiled(t).Body("POST /api/transcode")
	for storage, want := range map[string]string{
		`{"type":"ipfs","credentials":{"proof":"x"}}`: `storage.type: must be one of s3, web3.storage, object-store`,
		`{"type":"ipfs"}`:                                   `storage.type: must be one of s3, web3.storage, object-store`,
		`{"type":"s3","endpoint":"https://h"}`:              `storage.bucket: is required`,
		`{"type":"s3"}`:                                     `storage.endpoint: is required`,
		`{"type":"s3","endpoint":"https://h","bucket":"b"}`: `storage.credentials: is required`,
		`{"type":"s3","endpoint":"https://h","bucket":"b","credentials":{"accessKeyId":"a"}}`: `storage.credentials.secretAccessKey: is required`,
		`{"type":"web3.storage"}`:               `storage.credentials: is required`,
		`{"endpoint":"https://h","bucket":"b"}`: `storage.type: is required`,
		`{}`:                                    `storage.type: is required`,
		`"s3"`:                                  `storage: must be a bucket or a space on IPFS or an object store`,
	} {
		for range 20 {
			body := `{"input":{"url":"https://a"},"storage":` + storage + `,"outputs":{}}`
			if got := messagesOf(t, schema, body); len(got) < 2 || got[len(got)-1] != want {
				t.Fatalf("storage %s: messages %q, want the sentence %q", storage, got, want)
			}
		}
	}
}

// A body that is wrong in every way, mended step by step: each response must name
// the next step, and the same one every time.
func TestOrder(t *testing.T) {
	c, err := New([]byte(`
openapi: 3.1.0
paths:
  /api/a:
    post:
      requestBody: { content: { application/json: { schema: { $ref: '#/components/schemas/A' } } } }
      responses: { '204': { description: none } }
components:
  schemas:
    A:
      type: object
      additionalProperties: false
      required: [url, list]
      properties:
        zebra: { type: string }
        url: { type: string, minLength: 20, pattern: '^https:', format: uri }
        list: { type: array, minItems: 3, items: { $ref: '#/components/schemas/Item' } }
        ape: { type: integer }
    Item:
      type: object
      required: [b, a]
      additionalProperties: false
      properties:
        b: { type: string }
        a: { type: integer, minimum: 10 }
`))
	if err != nil {
		t.Fatal(err)
	}
	schema := c.Body("POST /api/a")
	for _, tt := range []struct{ body, keyword, sentence string }{
		{`"a"`, "type", "body: must be an object"},
		{`{"ape":"x","new":1,"zebra":1}`, "required", "url: is required"},
		{`{"ape":"x","new":1,"zebra":1,"url":":"}`, "required", "list: is required"},
		{`{"ape":"x","new":1,"old":2,"zebra":1,"url":":","list":[1]}`, "additionalProperties", "new: is not a known property"},
		{`{"ape":"x","zebra":1,"url":":","list":[1]}`, "type", "zebra: must be a string"},
		{`{"ape":"x","url":":","list":[1]}`, "minLength", "url: must have at least 20 characters"},
		{`{"ape":"x","url":":23456789012345678901","list":[1]}`, "pattern", "url: must match ^https:"},
		{`{"ape":"x","url":"https://exa mple.org/path","list":[1]}`, "format", "url: must be a valid URI"},
		{`{"ape":"x","url":"https://example.org/path","list":[1]}`, "minItems", "list: must have at least 3 items"},
		{`{"ape":"x","url":"https://example.org/path","list":[{"b":"","a":10},{"a":1,"b":2,"c":3},4]}`, "additionalProperties", "list[1].c: is not a known property"},
		{`{"ape":"x","url":"https://example.org/path","list":[{"b":"","a":10},{"a":1,"b":2},4]}`, "type", "list[1].b: must be a string"},
		{`{"ape":"x","url":"https://example.org/path","list":[{"b":"","a":10},{"a":1,"b":""},4]}`, "minimum", "list[1].a: must be 10 or more"},
		{`{"ape":"x","url":"https://example.org/path","list":[{"b":"","a":10},{"a":11,"b":""},4]}`, "type", "list[2]: must be an object"},
		{`{"ape":"x","url":"https://example.org/path","list":[{"b":"","a":10},{"a":11,"b":""},{"a":12,"b":""}]}`, "type", "ape: must be an integer"},
	} {
		for range 50 {
			got := messagesOf(t, schema, tt.body)
			if len(got) != 2 || got[1] != tt.sentence || !strings.Contains(got[0], `"keyword":"`+tt.keyword+`"`) {
				t.Fatalf("%s: messages %q, want keyword %s and %q", tt.body, got, tt.keyword, tt.sentence)
			}
		}
	}
	if got := messagesOf(t, schema, `{"ape":1,"url":"https://example.org/path","list":[{"b":"","a":10},{"a":11,"b":""},{"a":12,"b":""}]}`); got != nil {
		t.Errorf("mended body: messages %q, want none", got)
	}
}

// Items are reported by index, not in the order of the indexes as text.
func TestOrderOfItems(t *testing.T) {
	schema := compiled(t).Body("POST /api/webhook")
	for range 20 {
		body := `{"name":"n","url":"https://a","events":[` + strings.Repeat(`"stream.idle",`, 9) + `"x","y"]}`
		got := messagesOf(t, schema, body)
		if want := "events[9]: must be one of stream.started,"; len(got) != 2 || !strings.HasPrefix(got[1], want) {
			t.Fatalf("messages %q, want a sentence that starts with %q", got, want)
		}
	}
}

// Names that callers made up have an order too, whatever they look like.
func TestOrderOfNames(t *testing.T) {
	schema := compiled(t).Body("POST /api/stream")
	for range 100 {
		body := `{"name":"n","userTags":{"b":null,"2":null,"1a":null,"10":null,"02":null,"a":null}}`
		got := messagesOf(t, schema, body)
		if want := "userTags[02]: must be a string or a number or an array"; len(got) != 2 || got[1] != want {
			t.Fatalf("messages %q, want the sentence %q", got, want)
		}
	}
}

func TestLimits(t *testing.T) {
	c := compiled(t)
	context := func(value string) string {
		return `{"name":"n","playbackPolicy":{"type":"webhook","webhookContext":{"b":1,"a":` + value + `}}}`
	}
	nested := func(levels int) string { return strings.Repeat(`[`, levels) + strings.Repeat(`]`, levels) }
	width := func(value string) string {
		return `{"name":"n","profiles":[{"name":"a","width":` + value + `,"height":128,"bitrate":400,"fps":0}]}`
	}
	const path = "playbackPolicy.webhookContext.a"
	for _, tt := range []struct{ name, body, want string }{ // want "" = valid
		{"deep", context(nested(maxDepth - 3)), ""},
		{"too deep", context(nested(maxDepth - 2)), "the body is nested deeper than 64 levels"},
		{"many values", context(`[` + strings.Repeat(`0,`, maxValues-8) + `0]`), ""},
		{"too many values", context(`[` + strings.Repeat(`0,`, maxValues) + `0]`), "body: must have at most 10000 values in all"},
		{"large number", context(`1.5e308`), ""},
		{"tiny number", context(`1e-308`), ""},
		{"number over float64", context(`1e309`), path + ": must be a number with fewer digits"},
		{"mantissa over float64", context(`100e307`), path + ": must be a number with fewer digits"},
		{"huge exponent", context(`1e999999999`), path + ": must be a number with fewer digits"},
		{"exponent over int", context(`1E99999999999999999999`), path + ": must be a number with fewer digits"},
		{"huge negative exponent", context(`-1e-999999999`), path + ": must be a number with fewer digits"},
		{"endless digits", context(strings.Repeat(`9`, 100_000)), path + ": must be a number with fewer digits"},
		{"endless fraction", context(`0.` + strings.Repeat(`1`, 100_000)), path + ": must be a number with fewer digits"},
		{"integer with exponent", width(`1.28e2`), ""},
		{"integer over int64", width(`92233720368547758080`), "profiles[0].width: must be 16384 or less"},
		{"huge exponent where an integer belongs", width(`1e999999999`), "profiles[0].width: must be a number with fewer digits"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := messagesOf(t, c.Body("POST /api/stream"), tt.body)
			switch {
			case tt.want == "" && got != nil:
				t.Errorf("messages %q, want none", got)
			case tt.want != "" && (len(got) == 0 || got[len(got)-1] != tt.want):
				t.Errorf("messages %q, want the sentence %q", got, tt.want)
			}
		})
	}
}

// Names that a caller made up must not fill the response.
func TestShortensNames(t *testing.T) {
	schema := compiled(t).Body("POST /api/stream")
	long := strings.Repeat("x", 100_000)
	for _, body := range []string{`{"name":"n","` + long + `":1}`, `{"name":"n","userTags":{"` + long + `":null}}`} {
		for _, message := range messagesOf(t, schema, body) {
			if len(message) > 1000 {
				t.Errorf("message of %d characters: %.200s…", len(message), message)
			}
		}
	}
}

func TestAccepts(t *testing.T) {
	c := compiled(t)
	for _, tt := range []struct{ pattern, body string }{
		{"POST /api/stream", `{"name":"","profiles":null}`},
		{"POST /api/stream", `{"name":"n","profiles":[],"record":true,"recordingSpec":{"profiles":null}}`},
		{"POST /api/stream", `{"name":"n","creatorId":"me","userTags":{"a":"b","c":1.5,"d":["e",2]}}`},
		{"POST /api/stream", `{"name":"n","creatorId":{"type":"unverified","value":""},"playbackPolicy":null}`},
		{"POST /api/stream", `{"name":"n","pull":{"source":"https://a","headers":{"A":"b"},"isMobile":2,"location":{"lat":39.7,"lon":-105}}}`},
		{"POST /api/stream", `{"name":"n","pull":{"source":"https://a","isMobile":true}}`},
		{"POST /api/stream", `{"name":"n","multistream":{"targets":[{"profile":"source","videoOnly":false,"spec":{"url":"srt://a:1?streamid=b"}}]}}`},
		{"POST /api/stream", `{"name":"n","objectStoreId":"o","recordObjectStoreId":"o","presets":["P720p60fps16x9"],"wowza":{"a":1},"renditions":{"a":"b"},"detection":{"sceneClassification":[{"name":"soccer"}]}}`},
		{"POST /api/stream", `{"name":"n","profiles":[{"width":1280,"name":"720p","height":720,"bitrate":3000000,"fps":30,"fpsDen":1,"quality":23,"gop":"2","profile":"H264Baseline","encoder":"h264"}]}`},
		{"PATCH /api/stream/{id}", `{}`},
		{"PATCH /api/stream/{id}", `{"profiles":null,"playbackPolicy":null}`},
		{"DELETE /api/stream", `{}`},
		{"DELETE /api/stream", `{"ids":"not a list: the handler says so"}`},
		{"PATCH /api/stream/{id}/record", `{}`},
		{"PATCH /api/stream/{id}/suspended", `{"suspended":true}`},
		{"POST /api/multistream/target", `{"url":"rtmps://live.example.org/a/b"}`},
		{"PATCH /api/multistream/target/{id}", `{"name":"","url":""}`},
		{"POST /api/webhook", `{"name":"n","url":"http://a","events":[]}`},
		{"PUT /api/webhook/{id}", `{"id":"i","kind":"webhook","userId":"u","projectId":"p","createdAt":1,"status":{"lastTriggeredAt":2},"name":"n","url":"https://a","event":"stream.idle","sharedSecret":"s"}`},
		{"POST /api/access-control/signing-key", `{}`},
		{"POST /api/asset/upload/url", `{"name":"n","url":"ipfs://bafy/a","profiles":[],"storage":{"ipfs":true},"staticMp4":true,"c2pa":false,"targetSegmentSizeSecs":2.5}`},
		{"POST /api/asset/upload/url", `{"name":"n","url":"ar://tx","profiles":[{"bitrate":400,"encoder":"av1"},{"bitrate":400,"encoder":"VP8","gop":"intra"}]}`},
		{"POST /api/asset/request-upload", `{"name":"n","storage":{"ipfs":{"spec":null}},"encryption":{"encryptedKey":"x"},"catalystPipelineStrategy":"catalyst"}`},
		{"PATCH /api/asset/{id}", `{"storage":{"ipfs":{"spec":{"nftMetadataTemplate":"player","nftMetadata":{"a":null}}}}}`},
		{"POST /api/asset/{id}/export", `{"custom":{"url":"https://a","method":"POST","headers":{"A":"b"}}}`},
		{"POST /api/asset/{id}/export", `{"ipfs":{"pinata":{"jwt":"j"}}}`},
		{"POST /api/object-store", `{"url":"s3+https://k:s@h/b","id":"i","deleted":false}`},
		{"POST /api/user", `{"email":"a@b.c","password":"` + strings.Repeat("A", 64) + `","recaptchaToken":"x"}`},
		{"POST /api/api-token", `{"name":"n","access":{"cors":{"allowedOrigins":["*"]},"rules":[{"resources":["stream/*"],"methods":["get","*"]}]}}`},
		{"PATCH /api/project/{id}", `{"name":"n"}`},
	} {
		if got := messagesOf(t, c.Body(tt.pattern), tt.body); got != nil {
			t.Errorf("%s %s: messages %q, want none", tt.pattern, tt.body, got)
		}
	}
	if c.Body("GET /api/stream") != nil || c.Body("POST /api/task/{id}/cancel") != nil || c.Body("POST /api/nowhere") != nil {
		t.Error("an operation without a body has a schema for one")
	}
}

func TestResponse(t *testing.T) {
	c := compiled(t)
	target := `"id":"3b1c5a1e-64f1-4a6e-9a53-0f5d7c1b9e21","userId":"3b1c5a1e-64f1-4a6e-9a53-0f5d7c1b9e21","name":"n","disabled":false,"createdAt":1760000000000`
	for _, tt := range []struct {
		name, pattern string
		status        int
		body          string
		valid         bool
	}{
		{"as documented", "GET /api/multistream/target/{id}", 200, `{` + target + `}`, true},
		{"stray member", "GET /api/multistream/target/{id}", 200, `{` + target + `,"url":"rtmp://a/secret"}`, false},
		{"null for a member without value", "GET /api/webhook/{id}/log/{logId}", 200, `{"id":null}`, false},
		{"member of an administrator's list", "GET /api/multistream/target", 200, `[{` + target + `,"deleted":true}]`, true},
		{"the same on its own", "GET /api/multistream/target/{id}", 200, `{` + target + `,"deleted":true}`, false},
		{"error", "GET /api/multistream/target/{id}", 404, `{"errors":["not found"]}`, true},
		{"error that the operation does not list", "GET /api/multistream/target/{id}", 500, `{"errors":["x"]}`, true},
		{"error without a message", "GET /api/multistream/target/{id}", 404, `{"errors":[]}`, false},
		{"status that is not documented", "GET /api/multistream/target/{id}", 201, `{}`, false},
		{"status without a body", "DELETE /api/stream/{id}", 204, ``, true},
		{"no such operation", "GET /api/nowhere", 404, `{}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := c.CheckResponse(tt.pattern, tt.status, []byte(tt.body)); (err == nil) != tt.valid {
				t.Errorf("valid = %v, want %v (%v)", err == nil, tt.valid, err)
			}
		})
	}
}

func TestRefusesBadDocuments(t *testing.T) {
	for name, source := range map[string]string{
		"not YAML":       "openapi: [",
		"lost reference": "paths: { /api/a: { post: { requestBody: { content: { application/json: { schema: { $ref: '#/no' } } } } } } }",
		"bad schema":     "paths: { /api/a: { post: { requestBody: { content: { application/json: { schema: { type: strin } } } } } } }",
		"unknown format": "paths: { /api/a: { post: { requestBody: { content: { application/json: { schema: { format: colour } } } } } } }",
	} {
		if _, err := New([]byte(source)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRenderings(t *testing.T) {
	source, c := openapi(t), compiled(t)
	if string(c.YAML()) != string(source) {
		t.Error("yaml is not the document as it was written")
	}
	var fromYAML, fromJSON any
	if err := yaml.Unmarshal(source, &fromYAML); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &fromYAML); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(c.JSON(), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromYAML, fromJSON); diff != "" {
		t.Errorf("JSON differs from YAML (-yaml +json):\n%s", diff)
	}
	if first := `{"openapi":"3.1.0","info":{"title":"weir",`; !strings.HasPrefix(string(c.JSON()), first) {
		t.Errorf("JSON starts with %.60s, want the order of the YAML", c.JSON())
	}
}

// TestContractDocument checks what OpenAPI 3.1 asks of a document and JSON Schema
// doesn't know about.
func TestDocument(t *testing.T) {
	var root any
	if err := yaml.UnmarshalWithOptions(openapi(t), &root, yaml.UseOrderedMap()); err != nil {
		t.Fatal(err)
	}
	doc := &document{root: root}

	referenced := map[string]bool{}
	walk(root, "", func(place string, value any) {
		object, _ := value.(yaml.MapSlice)
		names := map[any]bool{}
		for _, member := range object {
			if names[member.Key] {
				t.Errorf("%s: %v is there twice", place, member.Key)
			}
			names[member.Key] = true
			if ref, ok := member.Value.(string); ok && member.Key == "$ref" {
				referenced[strings.TrimPrefix(ref, "#")] = true
				if !strings.HasPrefix(ref, "#/components/") || doc.at(strings.TrimPrefix(ref, "#")) == nil {
					t.Errorf("%s: $ref %q leads nowhere", place, ref)
				}
			}
		}
	})
	for _, section := range []string{"headers", "parameters", "responses", "schemas"} {
		for name, place := range doc.members("/components/" + section) {
			if !referenced[place] {
				t.Errorf("%s: nothing refers to %s", place, name)
			}
		}
	}

	tags := map[string]bool{}
	for i := range doc.at("/tags").([]any) {
		tags[fmt.Sprint(doc.at(fmt.Sprintf("/tags/%d/name", i)))] = true
	}
	operations := map[string]string{}
	for path, item := range doc.members("/paths") {
		for method, place := range doc.members(item) {
			if slices.Contains(methods, method) {
				checkOperation(t, doc, path, item, place, tags, operations)
			} else if method != "parameters" {
				t.Errorf("%s: weir does not know the method %s", item, method)
			}
		}
	}
}

func walk(value any, place string, do func(place string, value any)) {
	do(place, value)
	switch value := value.(type) {
	case yaml.MapSlice:
		for _, member := range value {
			walk(member.Value, place+"/"+escape(fmt.Sprint(member.Key)), do)
		}
	case []any:
		for i, item := range value {
			walk(item, fmt.Sprintf("%s/%d", place, i), do)
		}
	}
}

func checkOperation(t *testing.T, doc *document, path, item, place string, tags map[string]bool, operations map[string]string) {
	id, _ := doc.at(place + "/operationId").(string)
	if other := operations[id]; id == "" || other != "" {
		t.Errorf("%s: operationId %q is missing, or that of %s", place, id, other)
	}
	operations[id] = place

	if summary, _ := doc.at(place + "/summary").(string); !regexp.MustCompile(`^[A-Z][^.]*\.$`).MatchString(summary) {
		t.Errorf("%s: summary %q is not one sentence", place, summary)
	}
	named, _ := doc.at(place + "/tags").([]any)
	for _, tag := range named {
		if !tags[fmt.Sprint(tag)] {
			t.Errorf("%s: tag %v is not declared", place, tag)
		}
	}
	if len(named) == 0 {
		t.Errorf("%s: no tag", place)
	}

	var inPath, declared []string
	for _, match := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
		inPath = append(inPath, match[1])
	}
	for _, list := range []string{item + "/parameters", place + "/parameters"} {
		parameters, _ := doc.at(list).([]any)
		for i := range parameters {
			parameter := doc.follow(fmt.Sprintf("%s/%d", list, i))
			if doc.at(parameter+"/schema") == nil || doc.at(parameter+"/description") == nil {
				t.Errorf("%s: a parameter has no schema or no description", parameter)
			}
			if doc.at(parameter+"/in") == "path" {
				declared = append(declared, fmt.Sprint(doc.at(parameter+"/name")))
				if doc.at(parameter+"/required") != true {
					t.Errorf("%s: a parameter in the path must be required", parameter)
				}
			}
		}
	}
	slices.Sort(inPath)
	slices.Sort(declared)
	if !slices.Equal(inPath, declared) {
		t.Errorf("%s: the path has %v, parameters are %v", place, inPath, declared)
	}
	checkResponses(t, doc, place)
}

func checkResponses(t *testing.T, doc *document, place string) {
	success := 0
	statuses := map[string]bool{}
	for status, response := range doc.members(place + "/responses") {
		statuses[status] = true
		response = doc.follow(response)
		if doc.at(response+"/description") == nil {
			t.Errorf("%s: no description", response)
		}
		schema := doc.at(response + "/content/application~1json/schema")
		switch {
		case status[0] == '2':
			success++
			if status == "204" && schema != nil {
				t.Errorf("%s: 204 has no body", response)
			}
		case doc.at(response+"/content/application~1json/schema/$ref") != "#/components/schemas/Errors":
			t.Errorf("%s: a failure answers Errors", response)
		}
	}
	public := doc.at(place+"/security") != nil && len(doc.at(place+"/security").([]any)) == 0
	if !statuses["default"] || !public && !statuses["401"] || success == 0 && !statuses["501"] {
		t.Errorf("%s: responses %v miss success, 401 or default", place, statuses)
	}
	isFile := doc.at(place+"/requestBody/content/application~1octet-stream") != nil || doc.at(place+"/requestBody/content/application~1offset+octet-stream") != nil
	if body := doc.at(place + "/requestBody"); body != nil && !isFile {
		if doc.at(place+"/requestBody/content/application~1json/schema") == nil || !statuses["422"] {
			t.Errorf("%s: a body needs a JSON schema and the response 422", place)
		}
	}
}

// Every body schema must be closed: what it does not name is refused.
func TestBodiesAreClosed(t *testing.T) {
	c := compiled(t)
	for pattern, schema := range c.bodies {
		got := messagesOf(t, schema, `{"noSuchMember":true}`)
		if len(got) < 2 {
			t.Errorf("%s: an unknown member is accepted", pattern)
		}
	}
}

// The operations that need no credential are few, and named here once more.
func TestPublicOperations(t *testing.T) {
	var root any
	if err := yaml.UnmarshalWithOptions(openapi(t), &root, yaml.UseOrderedMap()); err != nil {
		t.Fatal(err)
	}
	doc := &document{root: root}
	var got []string
	for path, item := range doc.members("/paths") {
		for method, place := range doc.members(item) {
			security, ok := doc.at(place + "/security").([]any)
			none := func(scheme any) bool { m, ok := scheme.(yaml.MapSlice); return ok && len(m) == 0 }
			if ok && (len(security) == 0 || slices.ContainsFunc(security, none)) {
				got = append(got, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(got)
	want := []string{
		"DELETE /api/asset/upload/tus/{id}", // this and what follows of uploads: the address is the credential
		"GET /api/access-control/public-key", "GET /api/c2pa/root.pem", "GET /api/data/views/query/total/{playbackId}", "GET /api/did", "GET /api/ingest",
		"GET /api/openapi.json", "GET /api/openapi.yaml", "GET /api/playback/{id}", "GET /api/version", "HEAD /api/asset/upload/tus/{id}",
		"PATCH /api/asset/upload/tus/{id}", "POST /api/access-control/gate", "POST /api/asset/upload/tus", "POST /api/clip",
		"POST /api/user", "POST /api/user/password/reset", "POST /api/user/password/reset-token", "POST /api/user/token",
		"POST /api/user/token/refresh", "PUT /api/asset/upload/direct",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("public operations (-want +got):\n%s", diff)
	}
}

func FuzzBody(f *testing.F) {
	c := compiled(f)
	var patterns []string
	for _, pattern := range c.Operations() {
		if c.Body(pattern) != nil {
			patterns = append(patterns, pattern)
		}
	}
	for i := range patterns {
		f.Add(uint(i), []byte(`{"name":"n","url":"https://a","profiles":[{"bitrate":1e3}],"creatorId":"c","ids":["a"]}`))
	}
	f.Add(uint(0), []byte(`[[[[[[1e999999]]]]]]`))
	f.Add(uint(0), []byte(`{"custom":{"url":""},"ipfs":{"pinata":{}},"userTags":{"~/":[null]},"":{}}`))
	f.Fuzz(func(t *testing.T, which uint, body []byte) {
		if _, err := parse(body); err != nil {
			return
		}
		pattern := patterns[which%uint(len(patterns))]
		messages := messagesOf(t, c.Body(pattern), string(body))
		if messages == nil {
			return
		}
		if again := messagesOf(t, c.Body(pattern), string(body)); !slices.Equal(messages, again) {
			t.Fatalf("%s: messages %q, then %q", pattern, messages, again)
		}
		if strings.Contains(string(body), `u0000`) && len(messages) == 1 {
			return // a zero character; the schema has nothing to say about it
		}
		if len(messages) < 2 {
			t.Fatalf("%s: messages %q, want at least two", pattern, messages)
		}
		for _, message := range messages[:len(messages)-1] {
			var members struct {
				InstancePath, SchemaPath, Keyword, Message *string
				Params                                     map[string]any
			}
			strict := json.NewDecoder(strings.NewReader(message))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&members); err != nil {
				t.Fatalf("%s: message %q: %v", pattern, message, err)
			}
			if members.InstancePath == nil || members.SchemaPath == nil || members.Keyword == nil || *members.Keyword == "" ||
				members.Message == nil || *members.Message == "" || members.Params == nil {
				t.Fatalf("%s: message %q misses a member", pattern, message)
			}
		}
	})
}

func BenchmarkNew(b *testing.B) {
	source := openapi(b)
	for b.Loop() {
		if _, err := New(source); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBody(b *testing.B) {
	schema := compiled(b).Body("POST /api/stream")
	for _, bb := range []struct{ name, body string }{
		{"good", `{"name":"n","record":true}`},
		{"profiles", `{"name":"n","profiles":[{"name":"a","width":1280,"height":720,"bitrate":3000000,"fps":30},{"name":"b","width":640,"height":360,"bitrate":800000,"fps":30}]}`},
		{"bad", `{"name":1,"nope":true}`},
		{"worst", `{"name":"n","userTags":{"a":[` + strings.Repeat(`true,`, 9_900) + `true]}}`},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = schema.Check([]byte(bb.body))
			}
		})
	}
}
