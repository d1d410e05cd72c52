package weir

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// clipNow is 2026-03-01T12:00:00Z.
const clipNow = 1772366400000

// The sources of the tests: a stream on air for a minute whose first half is not kept any more, an interrupted
// recording of half a minute, an asset of 12.5 s.
func clipSources() (onAir, recording, asset ClipOf, ranges map[string][]ClipRange) {
	stream := &Stream{ID: "s", UserID: "u", ProjectID: "p", PlaybackID: "stream", CreatorID: &CreatorID{Type: "unverified", Value: "cleo"}}
	session := &Session{ID: "session", CreatedAt: clipNow - 60_000}
	kept := &Asset{ID: "session", UserID: "u", ProjectID: "p", PlaybackID: "recording", PlaybackPolicy: &PlaybackPolicy{Type: PolicyJWT}}
	film := &Asset{ID: "film", UserID: "u", ProjectID: "p", PlaybackID: "asset"}
	return ClipOfSession(stream, session, nil), ClipOfAsset(kept, session), ClipOfAsset(film, nil), map[string][]ClipRange{
		"on air":    {{clipNow - 30_000, clipNow - 20_000}, {clipNow - 15_000.5, clipNow - 250}},
		"wall":      {{clipNow - 60_000, clipNow - 50_000}, {clipNow - 40_000, clipNow - 30_000}},
		"recording": {{0, 20_000}},
		"asset":     {{0, 12_500}},
	}
}

func TestClipWindow(t *testing.T) {
	onAir, recording, asset, ranges := clipSources()
	const (
		live   = "; available: 1772366370000 (2026-03-01T11:59:30.000Z) to 1772366380000 (2026-03-01T11:59:40.000Z), 1772366384999.5 (2026-03-01T11:59:44.999Z) to 1772366399750 (2026-03-01T11:59:59.750Z)"
		wall   = "; available: 1772366340000 (2026-03-01T11:59:00.000Z) to 1772366350000 (2026-03-01T11:59:10.000Z), 1772366360000 (2026-03-01T11:59:20.000Z) to 1772366370000 (2026-03-01T11:59:30.000Z)"
		stored = "; available: 0 to 12500 ms from the start"
	)
	for _, tt := range []struct {
		name       string
		of         ClipOf
		exists     string
		start, end float64 // end 0 = none is sent
		longest    time.Duration
		want       ClipRange
		err        string
	}{
		{name: "inside", of: asset, exists: "asset", start: 1000, end: 2000.25, want: ClipRange{1000, 2000.25}},
		{name: "all", of: asset, exists: "asset", start: 0, end: 12500, want: ClipRange{0, 12500}},
		{name: "to the end", of: asset, exists: "asset", start: 100.5, want: ClipRange{100.5, 12500}},
		{name: "rounded up at the end", of: asset, exists: "asset", start: 0, end: 12501, want: ClipRange{0, 12501}},
		{name: "one millisecond", of: asset, exists: "asset", start: 5, end: 6, want: ClipRange{5, 6}},
		{name: "less", of: asset, exists: "asset", start: 5, end: 5.5, err: "a clip must be at least 1 ms long"},
		{name: "nothing", of: asset, exists: "asset", start: 5, end: 5, err: "endTime must occur after startTime"},
		{name: "backwards", of: asset, exists: "asset", start: 5, end: 4, err: "endTime must occur after startTime"},
		{name: "at the end", of: asset, exists: "asset", start: 12499.5, err: "startTime is at the end" + stored},
		{name: "after the end", of: asset, exists: "asset", start: 12500, end: 13000, err: "startTime 12500 is after the end" + stored},
		{name: "after the end, without an end", of: asset, exists: "asset", start: 13000, err: "startTime 13000 is after the end" + stored},
		{name: "beyond the end", of: asset, exists: "asset", start: 5, end: 12503, err: "endTime 12503 is after the end" + stored},
		{name: "huge", of: asset, exists: "asset", start: 5, end: 1e300, err: "endTime 1e+300 is after the end" + stored},
		{name: "negative", of: asset, exists: "asset", start: -1, end: 5, err: "startTime must not be negative" + stored},
		{name: "negative end", of: asset, exists: "asset", start: 1, end: -5, err: "endTime must not be negative" + stored},
		{name: "not a number", of: asset, exists: "asset", start: math.NaN(), end: 5, err: "startTime is not a number" + stored},
		{name: "infinite", of: asset, exists: "asset", start: 1, end: math.Inf(1), err: "endTime is not a number" + stored},
		{name: "wall clock of an asset", of: asset, exists: "asset", start: clipNow, end: clipNow + 5, err: "startTime 1772366400000 is after the end" + stored},
		{name: "too long", of: asset, exists: "asset", start: 0, longest: 10 * time.Second, err: "a clip may be at most 10s long"},
		{name: "as long as possible", of: asset, exists: "asset", start: 0, longest: 12500 * time.Millisecond, want: ClipRange{0, 12500}},
		{name: "nothing is kept", of: asset, start: 0, err: "this content has no media yet; try again when it plays"},

		{name: "live", of: onAir, exists: "on air", start: clipNow - 10_000, end: clipNow - 5000, want: ClipRange{clipNow - 10_000, clipNow - 5000}},
		{name: "live, until now", of: onAir, exists: "on air", start: clipNow - 10_000, want: ClipRange{clipNow - 10_000, clipNow - 250}},
		{name: "live, not received yet", of: onAir, exists: "on air", start: clipNow - 10_000, end: clipNow, want: ClipRange{clipNow - 10_000, clipNow}},
		{name: "live, in the future", of: onAir, exists: "on air", start: clipNow - 10_000, end: clipNow + 30_000, want: ClipRange{clipNow - 10_000, clipNow + 30_000}},
		{
			name: "live, too far in the future", of: onAir, exists: "on air", start: clipNow - 10_000, end: clipNow + 30_001,
			err: "endTime 1772366430001 (2026-03-01T12:00:30.001Z) is more than 30 s in the future" + live,
		},
		{name: "live, huge", of: onAir, exists: "on air", start: clipNow - 10_000, end: 1e18, err: "endTime 1e+18 is more than 30 s in the future" + live},
		{name: "across an interruption", of: onAir, exists: "on air", start: clipNow - 25_000, end: clipNow - 5000, want: ClipRange{clipNow - 25_000, clipNow - 5000}},
		{name: "end of a range", of: onAir, exists: "on air", start: clipNow - 25_000, end: clipNow - 20_000, want: ClipRange{clipNow - 25_000, clipNow - 20_000}},
		{name: "rounded down at the start", of: onAir, exists: "on air", start: clipNow - 15_001, end: clipNow - 10_000, want: ClipRange{clipNow - 15_001, clipNow - 10_000}},
		{name: "rounded down twice by a player", of: onAir, exists: "on air", start: clipNow - 30_001.7, end: clipNow - 25_000, want: ClipRange{clipNow - 30_001.7, clipNow - 25_000}},
		{
			name: "start in an interruption", of: onAir, exists: "on air", start: clipNow - 17_000, end: clipNow - 10_000,
			err: "the stream was interrupted at startTime 1772366383000 (2026-03-01T11:59:43.000Z)" + live,
		},
		{
			name: "end in an interruption", of: onAir, exists: "on air", start: clipNow - 25_000, end: clipNow - 17_000,
			err: "the stream was interrupted at endTime 1772366383000 (2026-03-01T11:59:43.000Z)" + live,
		},
		{
			name: "no longer kept", of: onAir, exists: "on air", start: clipNow - 45_000, end: clipNow - 10_000,
			err: "startTime 1772366355000 (2026-03-01T11:59:15.000Z) is no longer kept" + live,
		},
		{
			name: "before the session", of: onAir, exists: "on air", start: clipNow - 65_000, end: clipNow - 10_000,
			err: "the stream was not on air at startTime 1772366335000 (2026-03-01T11:58:55.000Z)" + live,
		},
		{
			name: "from the start of a stream", of: onAir, exists: "on air", start: 0, end: 5000,
			err: "the stream was not on air at startTime 0 (1970-01-01T00:00:00.000Z)" + live,
		},
		{
			name: "not on air yet", of: onAir, exists: "on air", start: clipNow + 1000, end: clipNow + 5000,
			err: "startTime 1772366401000 (2026-03-01T12:00:01.000Z) has not been on air yet" + live,
		},
		{name: "seconds", of: onAir, exists: "on air", start: clipNow/1000 - 10, end: clipNow / 1000, err: "times are milliseconds, and startTime 1772366390 looks like seconds" + live},
		{name: "seconds, the end only", of: onAir, exists: "on air", start: clipNow - 10_000, end: clipNow / 1000, err: "times are milliseconds, and endTime 1772366400 looks like seconds" + live},

		{name: "recording from its start", of: recording, exists: "recording", start: 0, end: 5000, want: ClipRange{0, 5000}},
		{name: "recording by wall clock", of: recording, exists: "wall", start: clipNow - 55_000, end: clipNow - 35_000, want: ClipRange{clipNow - 55_000, clipNow - 35_000}},
		{
			name: "recording, in the future", of: recording, exists: "wall", start: clipNow - 55_000, end: clipNow + 1000,
			err: "endTime 1772366401000 (2026-03-01T12:00:01.000Z) is after the end" + wall,
		},
		{
			name: "recording, both units", of: recording, exists: "recording", start: 0, end: clipNow - 35_000,
			err: "startTime and endTime must both be Unix milliseconds or both count from the start; available: 0 to 20000 ms from the start",
		},
		{
			name: "recording, seconds", of: recording, exists: "recording", start: clipNow / 1000, end: clipNow/1000 + 5,
			err: "times are milliseconds, and startTime 1772366400 looks like seconds; available: 0 to 20000 ms from the start",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := NewClip{StartTime: tt.start}
			if tt.end != 0 {
				n.EndTime = &tt.end
			}
			got, err := n.Window(tt.of, ranges[tt.exists], tt.longest, time.UnixMilli(clipNow))
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tt.err || err != nil && KindOf(err) != Invalid {
				t.Errorf("error %q (%s), want %q", text, KindOf(err), tt.err)
			}
			if got != tt.want {
				t.Errorf("window %v, want %v", got, tt.want)
			}
		})
	}
}

// A long recording has from-start times that look like seconds since 1970.
func TestClipOfLongRecording(t *testing.T) {
	_, recording, _, _ := clipSources()
	got, err := NewClip{StartTime: 1.5e9, EndTime: new(1.6e9)}.Window(recording, []ClipRange{{0, 2e9}}, 0, time.UnixMilli(clipNow))
	if want := (ClipRange{1.5e9, 1.6e9}); err != nil || got != want {
		t.Errorf("window %v, %v, want %v", got, err, want)
	}
}

// An error lists a few of many ranges.
func TestClipRanges(t *testing.T) {
	var many []ClipRange
	for i := range 10 {
		many = append(many, ClipRange{float64(i), float64(i) + 0.5})
	}
	if got, want := clipRanges(many, false), "available: 0 to 0.5, 1 to 1.5, 2 to 2.5, 6 more, and 9 to 9.5 ms from the start"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestClipSource(t *testing.T) {
	onAir, recording, asset, _ := clipSources()
	for _, tt := range []struct {
		name  string
		of    ClipOf
		start float64
		want  ClipSource
	}{
		{"stream", onAir, clipNow, ClipSource{SessionID: "session"}},
		{"stream, from its start", onAir, 5, ClipSource{SessionID: "session"}},
		{"recording by wall clock", recording, clipNow, ClipSource{SessionID: "session", AssetID: "session"}},
		{"recording from its start", recording, 5, ClipSource{AssetID: "session"}},
		{"asset", asset, clipNow, ClipSource{AssetID: "film"}},
	} {
		if got := (NewClip{StartTime: tt.start}).Source(tt.of); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestClip(t *testing.T) {
	onAir, recording, asset, _ := clipSources()
	now := time.UnixMilli(clipNow)
	owner := &Caller{UserID: "u", ProjectID: "other", TokenName: "key"}
	ben := &CreatorID{Type: "unverified", Value: "ben"}
	for _, tt := range []struct {
		name    string
		n       NewClip
		of      ClipOf
		caller  *Caller
		source  AssetSource
		creator string
		token   string
		policy  string
		input   string
		session string
	}{
		{"stream", NewClip{}, onAir, owner, AssetSource{Type: SourceClip, PlaybackID: "stream", SessionID: "session"}, "cleo", "key", "", "", "session"},
		{"recording", NewClip{CreatorID: ben}, recording, owner, AssetSource{Type: SourceClip, PlaybackID: "recording", SessionID: "session"}, "ben", "key", PolicyJWT, "session", "session"},
		{"asset", NewClip{Name: "mine"}, asset, owner, AssetSource{Type: SourceClip, PlaybackID: "asset", AssetID: "film"}, "", "key", "", "film", ""},
		{"by an admin", NewClip{}, onAir, &Caller{UserID: "root", Admin: true, TokenName: "no"}, AssetSource{Type: SourceClip, PlaybackID: "stream", SessionID: "session"}, "cleo", "", "", "", "session"},
		{"by a viewer", NewClip{CreatorID: ben}, onAir, nil, AssetSource{Type: SourceClip, PlaybackID: "stream", SessionID: "session"}, "cleo", "", "", "", "session"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, task := tt.n.Clip(tt.of, ClipRange{1.5, 2.5}, tt.caller, now)
			want := Asset{
				ID: a.ID, Name: "clip-" + a.PlaybackID, PlaybackID: a.PlaybackID, UserID: "u", ProjectID: "p", CreatedAt: clipNow,
				CreatedByTokenName: tt.token, Source: tt.source, Status: AssetStatus{Phase: AssetWaiting, UpdatedAt: clipNow},
			}
			if tt.n.Name != "" {
				want.Name = tt.n.Name
			}
			if tt.creator != "" {
				want.CreatorID = &CreatorID{Type: "unverified", Value: tt.creator}
			}
			if tt.policy != "" {
				want.PlaybackPolicy = &PlaybackPolicy{Type: tt.policy}
			}
			if diff := cmp.Diff(want, a); diff != "" {
				t.Errorf("asset (-want +got):\n%s", diff)
			}
			wantTask := Task{
				ID: task.ID, Type: TaskClip, CreatedAt: clipNow, ScheduledAt: clipNow, UserID: "u", ProjectID: "p", InputAssetID: tt.input, OutputAssetID: a.ID,
				Params: TaskParams{Clip: &ClipParams{
					ClipStrategy: &ClipStrategy{StartTime: 1.5, EndTime: 2.5, PlaybackID: tt.source.PlaybackID}, SessionID: tt.session, InputID: tt.input,
				}},
				Status: TaskStatus{Phase: TaskWaiting, UpdatedAt: clipNow, Retries: new(0)},
			}
			if diff := cmp.Diff(wantTask, task); diff != "" {
				t.Errorf("task (-want +got):\n%s", diff)
			}
		})
	}
}

// A clip that is cut from a recording has the policy of the recording, also if the stream is open by now.
func TestClipOfSessionPolicy(t *testing.T) {
	session := &Session{ID: "session", RecordingSpec: &RecordingSpec{Profiles: []Profile{{Name: "a"}}}}
	gated := &PlaybackPolicy{Type: PolicyJWT}
	of := ClipOfSession(&Stream{}, session, &Asset{ID: "session", PlaybackPolicy: gated})
	if of.Policy != gated || of.OnAir() || of.FromStart {
		t.Errorf("%+v, want the policy of the recording", of)
	}
	of = ClipOfSession(&Stream{PlaybackPolicy: gated}, session, nil)
	if of.Policy != gated || !of.OnAir() || len(of.Profiles) != 1 {
		t.Errorf("%+v, want the policy of the stream and the profiles of its recordings", of)
	}
}

func TestCheckClips(t *testing.T) {
	if err := CheckClips(MaxClips); err != nil {
		t.Error(err)
	}
	if err := CheckClips(MaxClips + 1); KindOf(err) != Denied || err.Error() != "Too many clips are being processed." {
		t.Error(err)
	}
}

func TestMayClip(t *testing.T) {
	for _, tt := range []struct {
		own           *bool
		setting, want bool
	}{{nil, false, false}, {nil, true, true}, {new(true), false, true}, {new(false), true, false}} {
		if got := (&Stream{PublicClips: tt.own}).MayClip(tt.setting); got != tt.want {
			t.Errorf("with %v and the setting %t: %t", tt.own, tt.setting, got)
		}
	}
}

// FuzzClipWindow checks that a window that is accepted begins and ends in what exists, or a little after it if
// more is to come.
func FuzzClipWindow(f *testing.F) {
	f.Add(float64(clipNow-10_000), float64(clipNow-5000), uint8(0))
	f.Add(float64(clipNow-55_000), float64(clipNow), uint8(1))
	f.Add(5.5, 6.5, uint8(2))
	f.Add(-1.0, math.Inf(1), uint8(3))
	f.Fuzz(func(t *testing.T, start, end float64, which uint8) {
		onAir, recording, asset, ranges := clipSources()
		of, exists := onAir, ranges["on air"]
		switch which % 4 {
		case 1:
			of, exists = recording, ranges["wall"]
		case 2:
			of, exists = recording, ranges["recording"]
		case 3:
			of, exists = asset, ranges["asset"]
		}
		w, err := NewClip{StartTime: start, EndTime: &end}.Window(of, exists, 0, time.UnixMilli(clipNow))
		if err != nil {
			if KindOf(err) != Invalid || len(err.Error()) > 1000 {
				t.Errorf("%v", err)
			}
			return
		}
		last := exists[len(exists)-1].End
		if !inRange(w.Start, exists) || w.Start != start || w.End != end || w.End-w.Start < 1 || !inRange(w.End, exists) && (!of.OnAir() || w.End < last || w.End > clipNow+30_000) {
			t.Errorf("%v is accepted for %v", w, exists)
		}
	})
}
