package live

import (
	"context"
	"strings"
	"testing"
	"time"
)

// sendGroups sends a group of pictures of each length, and the key frame after the last, with audio.
func (e *encoder) sendGroups(lengths ...time.Duration) {
	e.Helper()
	frame := func(sync bool) {
		at := time.Duration(e.frame) * 40 * ms
		if err := e.Write(Frame{Track: 0, PTS: at, DTS: at, Sync: sync, Data: []byte{byte(e.frame)}}); err != nil {
			e.Fatal(err)
		}
		e.frame++
		for ; time.Duration(e.audio)*time.Second*1024/48000 < at; e.audio++ {
			at := time.Duration(e.audio) * time.Second * 1024 / 48000
			if err := e.Write(Frame{Track: 1, PTS: at, DTS: at, Data: []byte{1}}); err != nil {
				e.Fatal(err)
			}
		}
	}
	for _, length := range lengths {
		for i := range int(length / (40 * ms)) {
			frame(i == 0)
		}
	}
	frame(true)
}

// All renditions have the same target duration, which the first segment decides. It never changes in a
// session: not with a longer segment, of which the owner hears, and not with a restart.
func TestTargetDuration(t *testing.T) {
	t.Parallel()
	s := newTestHub(t, true)
	want := func(when, target string) {
		t.Helper()
		for _, name := range []string{videoName, audioName} {
			for _, low := range []bool{false, true} {
				if text := s.playlist(name, Query{Segment: -1, Part: -1, Low: low}); !strings.Contains(text, "\n#EXT-X-TARGETDURATION:"+target+"\n") {
					t.Errorf("%s: the playlist of %s is\n%s", when, name, text)
				}
			}
			text, err := s.broadcast().WholePlaylist(name)
			if whole := plainOf(text); err != nil || !strings.Contains(whole, "\n#EXT-X-TARGETDURATION:"+target+"\n") {
				t.Errorf("%s: the playlist of the recording of %s is %v\n%s", when, name, err, whole)
			}
		}
	}
	issue := func() string {
		for _, issue := range s.broadcast().session.renditions.issues(false) {
			if strings.Contains(issue, "key-frame interval") {
				return issue
			}
		}
		return ""
	}
	e := s.publish()
	e.sendGroups(3480*ms, 3*time.Second)
	want("a first segment of 3.5 s", "4")
	if found := issue(); found != "" {
		t.Errorf("an issue of segments as they must be: %s", found)
	}
	e.sendGroups(6 * time.Second)
	want("a segment of 6 s", "4")
	if text := s.playlist(videoName, plain); !strings.Contains(text, "#EXTINF:6") && !strings.Contains(text, "#EXTINF:6.04") {
		t.Errorf("the segment of 6 s is not listed as it is:\n%s", text)
	}
	if found := issue(); !strings.Contains(found, "players were told that none is longer than 4 s") {
		t.Errorf("the issue is %q", found)
	}
	session := e.session
	for _, what := range []string{"only the files have it", "the store has it"} {
		if what == "the store has it" {
			if err := s.hub.report(t.Context(), session, time.Now()); err != nil {
				t.Fatal(err)
			}
			if info, err := s.store.Session(t.Context(), session.info.ID); err != nil || info.Target != 4*time.Second {
				t.Fatalf("the store has %s, %v", info.Target, err)
			}
		}
		s.store.Close() // as if it was killed
		for _, r := range session.renditions.source() {
			if err := r.recorder.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s.start()
		session = s.broadcast().session
		want("after a restart, "+what, "4")
	}
}

// Who asks before the first segment has ended gets a target duration that fits most encoders.
func TestUnknownTargetDuration(t *testing.T) {
	t.Parallel()
	s := newTestHub(t, false)
	e := s.publish()
	e.sendGroups(time.Second)
	over, cancel := context.WithCancel(t.Context())
	cancel() // waits no longer for the first segment
	for _, q := range []Query{{Segment: 0, Part: 0, Low: true}, plain} {
		text, err := s.broadcast().Playlist(over, videoName, q)
		if got := plainOf(text); err != nil || !strings.Contains(got, "\n#EXT-X-TARGETDURATION:10\n") {
			t.Errorf("%+v: %v\n%s", q, err, got)
		}
	}
	e.sendGroups(2*time.Second, 2*time.Second)
	if text := s.playlist(videoName, plain); !strings.Contains(text, "\n#EXT-X-TARGETDURATION:10\n") {
		t.Errorf("after the first segment:\n%s", text)
	}
}
