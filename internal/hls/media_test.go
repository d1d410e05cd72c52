package hls

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Eyevinn/hls-m3u8/m3u8"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the playlists of testdata again")

// numbered returns segments of two seconds from a number on.
func numbered(first, count int) []Segment {
	var list []Segment
	for n := first; n < first+count; n++ {
		list = append(list, Segment{File: File{URI: fmt.Sprintf("%d.m4s", n)}, Duration: 2 * time.Second, Map: &File{URI: fmt.Sprintf("init%d.mp4", n/1002)}})
	}
	return list
}

func TestMedia(t *testing.T) {
	sliding := numbered(1000, 4)
	sliding[0].Discontinuity, sliding[2].Discontinuity = true, true
	for name, m := range map[string]Media{
		"sliding": {Sequence: 1000, DiscontinuitySequence: 3, Segments: sliding},
		"empty":   {Sequence: 7, Target: 2 * time.Second, Version: 6},
		"start":   {Type: Event, FromStart: true, Target: 3500 * time.Millisecond, Segments: numbered(0, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".m3u8")
			if *update {
				if err := os.WriteFile(file, m.Text(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(m.Text())); diff != "" {
				t.Errorf("%s differs (-want +got); run with -update and read the diff:\n%s", file, diff)
			}
			_, read, err := Parse(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(read.Text())); diff != "" {
				t.Errorf("written again (-read +written):\n%s", diff)
			}
			// Another reader.
			list, err := m3u8.NewMediaPlaylist(0, 100)
			if err != nil {
				t.Fatal(err)
			}
			if err := list.DecodeFrom(strings.NewReader(string(want)), true); err != nil {
				t.Fatal(err)
			}
			if int(list.Count()) != len(m.Segments) || list.SeqNo != uint64(m.Sequence) || list.Closed {
				t.Errorf("%d segments from %d, closed = %v", list.Count(), list.SeqNo, list.Closed)
			}
			if v, reason := list.CalcMinVersion(); v > list.Version() {
				t.Errorf("version %d, want %d: %s", list.Version(), v, reason)
			}
		})
	}
}

// TestEntries: a playlist that is written entry by entry is the one that is written as a whole.
func TestEntries(t *testing.T) {
	m := Media{Type: Event, Sequence: 40, Target: time.Second}
	var e Entries
	all := numbered(1000, 6)
	all[3].Discontinuity, all[4].Gap, all[5].Duration = true, true, 5*time.Second
	all[2].File = File{"all.mp4", 700, 30}
	for n, s := range all {
		s.Date = time.Date(2026, 3, 4, 5, 6, 7+2*n, 89e6, time.UTC)
		m.Segments = append(m.Segments, s)
		e.Add(s)
		m.Ended = n == len(all)-1
		if diff := cmp.Diff(string(m.Text()), string(m.TextWith(&e))); diff != "" {
			t.Fatalf("after %d segments (-whole +by entries):\n%s", n+1, diff)
		}
	}
	// Nothing comes before the first entry, so it breaks nothing off.
	var first Entries
	all[3].Discontinuity = true
	first.Add(all[3])
	if text := string(Media{}.TextWith(&first)); strings.Contains(text, "DISCONTINUITY\n") {
		t.Errorf("a discontinuity before the first segment:\n%s", text)
	}
}

// TestDelta: an update leaves out what is at least six target durations before the end.
func TestDelta(t *testing.T) {
	m := Media{Target: 2 * time.Second, PartTarget: time.Second, Sequence: 30, Segments: numbered(30, 10)}
	m.Segments[9].Duration = 1500 * time.Millisecond
	for segments, want := range map[int]int{10: 3, 9: 3, 7: 1, 6: 0, 0: 0} {
		list := m
		list.Segments = m.Segments[:segments]
		d := list.Delta()
		if d.Skipped != want || len(d.Segments) != segments-want || d.Sequence != 30 {
			t.Errorf("of %d segments %d are left out and %d are listed, want %d", segments, d.Skipped, len(d.Segments), want)
		}
		if again := d.Delta(); again.Skipped != want {
			t.Errorf("an update of an update leaves out %d segments, want %d", again.Skipped, want)
		}
	}
	// A long segment decides on the target duration, even if it is left out.
	long := m
	long.Segments = numbered(30, 14)
	long.Segments[0].Duration = 2600 * time.Millisecond
	if d := long.Delta(); d.Skipped != 5 || !strings.Contains(string(d.Text()), "TARGETDURATION:3\n") {
		t.Errorf("%d segments are left out:\n%s", d.Skipped, d.Text())
	}
	m.PartTarget = 0
	if d := m.Delta(); d.Skipped != 0 {
		t.Errorf("%d segments are left out of a playlist that does not offer it", d.Skipped)
	}
}

func TestPartsFrom(t *testing.T) {
	m := Media{Target: 2 * time.Second, Segments: numbered(0, 10)}
	if got := m.PartsFrom(); got != 7 {
		t.Errorf("parts from segment %d on, want 7", got)
	}
	m.Segments[9].Open, m.Segments[9].Duration = true, 7*time.Second
	if got := m.PartsFrom(); got != 9 {
		t.Errorf("with a long open segment: parts from segment %d on, want 9", got)
	}
	if got := (Media{}).PartsFrom(); got != 0 {
		t.Errorf("without segments: %d", got)
	}
}

func TestWrapURIs(t *testing.T) {
	const text = "#EXTM3U\n#EXT-X-MAP:URI=\"init-0.mp4\"\n#EXT-X-PART:DURATION=0.2,URI=\"1.0.m4s\",INDEPENDENT=YES\n#EXTINF:2,\n1.m4s\n\n#EXT-X-ENDLIST\n"
	const want = "#EXTM3U\n#EXT-X-MAP:URI=\"a/init-0.mp4?b\"\n#EXT-X-PART:DURATION=0.2,URI=\"a/1.0.m4s?b\",INDEPENDENT=YES\n#EXTINF:2,\na/1.m4s?b\n\n#EXT-X-ENDLIST\n"
	if diff := cmp.Diff(want, string(wrapURIs([]byte(text), "a/", "?b"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := string(wrapURIs([]byte(text), "", "")); got != text {
		t.Errorf("with nothing to add:\n%s", got)
	}
}
