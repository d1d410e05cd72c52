package weir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSecretDoesNotShow(t *testing.T) {
	const value = "correct-horse"
	s := Secret(value)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", s, "in", struct{ S Secret }{s})
	text, err := json.Marshal(map[string]any{"s": s, "p": &s})
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{
		fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q %x", s, s, s, s, s, s), fmt.Sprintf("%+v", struct{ S Secret }{s}), string(text), log.String(),
	} {
		if strings.Contains(out, value) || strings.Contains(out, "636f7272") {
			t.Errorf("secret shows in %q", out)
		}
	}
	if s.Reveal() != value {
		t.Errorf("Reveal = %q, want %q", s.Reveal(), value)
	}
}

func TestIDs(t *testing.T) {
	id := NewID()
	for text, pattern := range map[string]string{
		id:                        `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`,
		NewPlaybackID(id):         `^` + id[:4] + `[0-9a-z]{12}$`,
		NewStreamKey(id).Reveal(): `^` + id[:4] + `(-[0-9a-z]{4}){3}$`,
		NewAPIKey().Reveal():      `^weir_[a-z2-7]{52}$`,
	} {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("%q does not match %s", text, pattern)
		}
	}
	if NewID() == id {
		t.Error("two ids are the same")
	}
}

func TestErrors(t *testing.T) {
	cause := errors.New("disk on fire")
	err := fmt.Errorf("save: %w", Wrap(Busy, cause, "try later"))
	if KindOf(err) != Busy || !errors.Is(err, cause) {
		t.Errorf("kind %s, cause kept: %t", KindOf(err), errors.Is(err, cause))
	}
	if KindOf(cause) != Internal {
		t.Errorf("kind of a foreign error = %s, want internal", KindOf(cause))
	}
}

func TestAccess(t *testing.T) {
	cors := &Access{CORS: &CORSAccess{AllowedOrigins: []string{"https://a.example"}}}
	full := &Access{CORS: &CORSAccess{AllowedOrigins: []string{"*"}, FullAccess: true}}
	rules := func(r ...AccessRule) *Access { return &Access{Rules: &r} }
	for _, tt := range []struct {
		name                string
		access              *Access
		method, path, route string
		want                string
	}{
		{"no restriction", nil, "DELETE", "/stream/1", "/stream/{id}", ""},
		{"page may read a stream", cors, "GET", "/stream/1", "/stream/{id}", ""},
		{"page may not delete", cors, "DELETE", "/stream/1", "/stream/{id}", "access forbidden for CORS-enabled API key with restricted access"},
		{"full access", full, "DELETE", "/stream/1", "/stream/{id}", ""},
		{"no rule allows", rules(), "GET", "/stream", "/stream", "credential has insufficent privileges"},
		{"rule with parameter", rules(AccessRule{Resources: []string{"/stream/:id"}}), "GET", "/stream/1", "/stream/{id}", ""},
		{"rule is exact", rules(AccessRule{Resources: []string{"/stream/:id"}}), "GET", "/stream/1/info", "/stream/{id}/info", "credential has insufficent privileges"},
		{"rule with star", rules(AccessRule{Resources: []string{"stream/*"}}), "GET", "/stream/1/info", "/stream/{id}/info", ""},
		{"star alone", rules(AccessRule{Resources: []string{"*"}}), "GET", "/asset", "/asset", ""},
		{"method not in rule", rules(AccessRule{Resources: []string{"*"}, Methods: []string{"get"}}), "POST", "/asset", "/asset", "credential has insufficent privileges"},
	} {
		err := tt.access.Check(tt.method, tt.path, tt.route)
		if got := text(err); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if !cors.AllowsOrigin("https://a.example") || cors.AllowsOrigin("https://b.example") || !full.AllowsOrigin("https://b.example") || (*Access)(nil).AllowsOrigin("x") {
		t.Error("AllowsOrigin is wrong")
	}
	if err := rules(AccessRule{Resources: []string{"/a?b"}}).Validate(); KindOf(err) != Invalid {
		t.Errorf("a question mark in a rule: %v, want invalid", err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestProfileEncoder(t *testing.T) {
	for in, want := range map[string]Profile{
		`{"bitrate":1,"encoder":"h264"}`:  {Bitrate: 1, Encoder: "H.264"},
		`{"bitrate":1,"encoder":"H.264"}`: {Bitrate: 1, Encoder: "H.264"},
		`{"bitrate":1,"encoder":"hevc"}`:  {Bitrate: 1, Encoder: "HEVC"},
		`{"bitrate":1,"encoder":"av1"}`:   {Bitrate: 1, Codec: "AV1"},
		`{"bitrate":1,"codec":"AV1"}`:     {Bitrate: 1, Codec: "AV1"},
	} {
		var got Profile
		if err := json.Unmarshal([]byte(in), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

func TestCheckFileProfiles(t *testing.T) {
	for _, tt := range []struct {
		profiles []Profile
		want     string
	}{
		{[]Profile{{Bitrate: 1000}}, ""},
		{[]Profile{{Name: "a", Width: 640, Height: 360}, {Name: "b", Width: 640, Height: 360}}, ""},
		{[]Profile{{Name: "a", Width: 640, Height: 360}, {Name: "a", Width: 640, Height: 360}}, `duplicate profile name "a"`},
		{[]Profile{{Name: "source"}}, `profile cannot be named "source"`},
		{[]Profile{{Name: "../etc"}}, `profiles[0].name: "../etc" can't be the name of a folder; use letters, digits and ._+@-`},
		{[]Profile{{Encoder: "VP8"}}, "profiles[0].encoder: VP8 is not supported, use VP9"},
		{[]Profile{{Width: 640}}, "profiles[0]: give a height with the width, or neither"},
		{[]Profile{{}, {}}, "profiles[0]: width and height are needed when there is more than one profile"},
		{[]Profile{{GOP: "-1"}}, `profiles[0].gop: "-1" is neither seconds such as "2.0" nor "intra"`},
		{[]Profile{{GOP: "0.05"}}, ""},
		{[]Profile{{GOP: "0.000001"}}, `profiles[0].gop: "0.000001" is shorter than 0.05 seconds; use "intra" if every frame is to be a key frame`},
		{[]Profile{{FPS: new(240_000), FPSDen: 1001}}, ""},
		{[]Profile{{FPS: new(241)}}, "profiles[0].fps: at most 240 frames a second are allowed"},
		{[]Profile{{FPS: new(1_000_000), FPSDen: 2}}, "profiles[0].fps: at most 240 frames a second are allowed"},
	} {
		for i := range tt.profiles {
			tt.profiles[i].Bitrate = 1000
		}
		if got := text(CheckFileProfiles(tt.profiles)); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.profiles, got, tt.want)
		}
	}
}

func TestStreamPatch(t *testing.T) {
	now := time.Now()
	live := func() *Stream {
		s, err := NewStream{Name: "s", Record: true}.Stream(&Caller{UserID: "u"}, now)
		if err != nil {
			t.Fatal(err)
		}
		s.IsActive = true
		return &s
	}
	for _, tt := range []struct {
		patch, want string
	}{
		{`{}`, ""},
		{`{"record":true}`, ""},
		{`{"record":false}`, "cannot change 'record' field while stream is active"},
		{`{"profiles":null}`, "cannot change 'profiles' field while stream is active"},
		{`{"recordingSpec":{"profiles":[{"bitrate":1000}]}}`, ""},
		{`{"playbackPolicy":{"type":"jwt","allowedOrigins":["*","https://a.example"]}}`, `allowedOrigins: "*" is not an origin; write <scheme>://<host>[:port], or exactly ["*"]`},
		{`{"userTags":{"a":"` + strings.Repeat("x", 2050) + `"}}`, "userTags object is too large. Max size is 2048 characters"},
	} {
		var patch StreamPatch
		if err := json.Unmarshal([]byte(tt.patch), &patch); err != nil {
			t.Fatal(err)
		}
		if got := text(patch.Apply(live())); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.patch, got, tt.want)
		}
	}
}

func TestCheckTargets(t *testing.T) {
	s, err := NewStream{Name: "s"}.Stream(&Caller{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	known := func(id string) bool { return id == "t1" || id == "t2" }
	spec := &TargetSpec{URL: "rtmp://live.example/app/key"}
	for _, tt := range []struct {
		refs []TargetRef
		want string
	}{
		{[]TargetRef{{ID: "t1", Profile: "source"}, {ID: "t1", Profile: "240p0"}, {Profile: "720p0", Spec: spec}}, ""},
		{[]TargetRef{{ID: "t1", Profile: "8k"}}, `multistream target profile not found: "8k". available: ["240p0","360p0","480p0","720p0","source"]`},
		{[]TargetRef{{Profile: "source"}}, `multistream target must have either an "id" or a "spec"`},
		{[]TargetRef{{ID: "t1", Profile: "source", Spec: spec}}, `multistream target must have either an "id" or a "spec"`},
		{[]TargetRef{{ID: "t3", Profile: "source"}}, `multistream target not found: "t3"`},
		{[]TargetRef{{ID: "t1", Profile: "source"}, {ID: "t1", Profile: "source"}}, "multistream target {id,profile} must be unique"},
	} {
		if got := text(s.CheckTargets(tt.refs, known)); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.refs, got, tt.want)
		}
	}
}

func TestTaskMoves(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		from          TaskPhase
		cancel, retry string
	}{
		{TaskPending, "", "task is not in a retryable state"},
		{TaskWaiting, "", "task is not in a retryable state"},
		{TaskRunning, "", "task is not in a retryable state"},
		{TaskCompleted, "task is not in a cancellable state", "task is not in a retryable state"},
		{TaskFailed, "task is not in a cancellable state", ""},
		{TaskCancelled, "task is not in a cancellable state", ""},
	} {
		task := func() *Task { return &Task{ScheduledAt: 1, Status: TaskStatus{Phase: tt.from}} }
		if got := text(task().Cancel(now)); got != tt.cancel {
			t.Errorf("cancel from %s: %q, want %q", tt.from, got, tt.cancel)
		}
		if got := text(task().Retry(now)); got != tt.retry {
			t.Errorf("retry from %s: %q, want %q", tt.from, got, tt.retry)
		}
	}
	expired := &Task{ScheduledAt: 1, Status: TaskStatus{Phase: TaskFailed}, Secrets: TaskSecrets{Gone: true}}
	if err := expired.Retry(now); KindOf(err) != Invalid {
		t.Errorf("retry without credentials: %v, want invalid", err)
	}
}

func TestExportHidesCredentials(t *testing.T) {
	custom := NewExport(ExportParams{Custom: &CustomExport{URL: "https://u:p@example.com/x?sig=abc", Headers: map[string]string{"X": "hush"}}}, Asset{}, &Caller{}, time.Now())
	pinata := NewExport(ExportParams{IPFS: &IPFSExport{Pinata: &Pinata{APIKey: "hush", APISecret: "hush"}}}, Asset{}, &Caller{}, time.Now())
	for _, task := range []Task{custom, pinata} {
		out, err := json.Marshal(task)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"hush", "sig=abc", "u:p@"} {
			if strings.Contains(string(out), secret) {
				t.Errorf("%q shows in %s", secret, out)
			}
		}
	}
	if custom.Secrets.ExportHeaders["X"] != "hush" || pinata.Secrets.Pinata.APISecret != "hush" {
		t.Error("the secrets are lost")
	}
}

func TestSessionRecording(t *testing.T) {
	now := At(time.Now())
	asset := func(phase AssetPhase, deleted bool) *Asset {
		return &Asset{Status: AssetStatus{Phase: phase}, Deleted: deleted, PlaybackURL: "play", DownloadURL: "load"}
	}
	for _, tt := range []struct {
		name             string
		record           bool
		lastSeen         Millis
		asset            *Asset
		status, url, mp4 string
	}{
		{"not recorded", false, now, asset(AssetReady, false), "", "", ""},
		{"no asset yet", true, now, nil, "waiting", "", ""},
		{"no asset ever", true, now - 4*3600*1000, nil, "none", "", ""},
		{"in the making", true, now, asset(AssetProcessing, false), "waiting", "play", ""},
		{"ready", true, now, asset(AssetReady, false), "ready", "play", "load"},
		{"failed", true, now, asset(AssetFailed, false), "failed", "play", ""},
		{"deleted", true, now, asset(AssetDeleting, true), "none", "", ""},
	} {
		s := Session{Record: tt.record, LastSeen: tt.lastSeen}
		s.SetRecording(tt.asset, now)
		if s.RecordingStatus != tt.status || s.RecordingURL != tt.url || s.MP4URL != tt.mp4 {
			t.Errorf("%s: %q %q %q, want %q %q %q", tt.name, s.RecordingStatus, s.RecordingURL, s.MP4URL, tt.status, tt.url, tt.mp4)
		}
	}
}

func TestKindOfStatus(t *testing.T) {
	if got := Outage.Status(); got != 503 || !Retriable(Errorf(Outage, "away")) {
		t.Errorf("an outage is %d, and must be worth a retry", got)
	}
	for status, want := range map[int]Kind{
		401: Unauthenticated, 404: NotFound, 410: Gone, 422: Invalid, 423: Busy, 429: Busy, 418: Refused, 500: Upstream, 503: Overloaded, 507: Full,
	} {
		if got := KindOfStatus(status); got != want {
			t.Errorf("%d is %q, want %q", status, got, want)
		}
	}
}

// The height of a profile is enough.
func TestProfileByHeight(t *testing.T) {
	for text, want := range map[string]Profile{
		`{"height":720}`:                             {Width: 1280, Height: 720, Bitrate: 3_000_000},
		`{"height":480,"quality":26}`:                {Width: 854, Height: 480, Bitrate: 1_600_000, Quality: new(26)},
		`{"height":500}`:                             {Width: 888, Height: 500, Bitrate: 2_000_000},
		`{"width":1080,"height":1920}`:               {Width: 1080, Height: 1920, Bitrate: 6_000_000},
		`{"height":720,"bitrate":500,"name":"mine"}`: {Name: "mine", Width: 1280, Height: 720, Bitrate: 500},
		`{"bitrate":500}`:                            {Bitrate: 500},
	} {
		var got Profile
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if err := CheckFileProfiles([]Profile{got}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := CheckFileProfiles([]Profile{{Quality: new(20)}}); KindOf(err) != Invalid {
		t.Errorf("neither height nor bitrate: %v", err)
	}
	s, err := NewStream{Name: "s", Profiles: &[]Profile{{Height: 720, Width: 1280, Bitrate: 1}}}.Stream(&Caller{}, time.Now())
	if err != nil || s.Profiles[0].Name != "720p" || s.Profiles[0].FPS == nil {
		t.Errorf("profile of a stream %+v, %v; want a name and a frame rate", s.Profiles, err)
	}
}
