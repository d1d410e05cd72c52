package publish

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/c2pa"
	"weir/internal/media/mediatest"
)

// verifyIn verifies a playlist in a folder.
func verifyIn(t *testing.T, dir, playlist string, o c2pa.Options) []Verified {
	t.Helper()
	fetch := func(_ context.Context, address string, into *os.File) error {
		from, err := os.Open(strings.TrimPrefix(address, "file://"))
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = io.Copy(into, from)
		return err
	}
	results, err := VerifyPlaylist(t.Context(), "file://"+filepath.Join(dir, playlist), VerifyOptions{Options: o, Fetch: fetch, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// state returns the worst state of results, and all problems.
func state(results []Verified) (c2pa.State, string) {
	worst, problems := c2pa.Trusted, []string{}
	for _, r := range results {
		if r.State != c2pa.Trusted {
			worst = r.State
		}
		for _, p := range r.Problems {
			problems = append(problems, p.Where+" "+p.Explanation)
		}
	}
	return worst, strings.Join(problems, "\n")
}

// A playlist that lacks something that was signed with the rest is not as it was signed, although
// all that it names is.
func TestVerifyTracks(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	p := testPresentation(t, h264...)
	sign, root := signing(t)
	dir, dest := mediatest.NewDestination(t)
	outputs := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), Dir: t.TempDir(), Sign: sign}
	if err := outputs.Publish(t.Context(), &State{}, p.video, p.audio); err != nil {
		t.Fatal(err)
	}
	o := c2pa.Options{Trust: root, Now: time.Now()}
	const master, files, list = "v/hls/index.m3u8", "fmp4/master.m3u8", "v/hls/320x180/index.m3u8"
	for _, tt := range []struct {
		name, playlist string
		cut            string // regexp of what is deleted
		want           string // in the problems
	}{
		{"nothing", master, "", ""},
		{"nothing", files, "", ""},
		{"nothing", list, "", ""},
		{"all audio", master, `#EXT-X-MEDIA:.*\n`, `the playlist does not have the audio "` + p.audio[0].Name + `"`},
		{"all audio", files, `#EXT-X-MEDIA:.*\n`, `the playlist does not have the audio "` + p.audio[0].Name + `"`},
		{"one audio", master, `#EXT-X-MEDIA:.*"` + p.audio[1].Name + `/.*\n`, `the playlist does not have the audio "` + p.audio[1].Name + `"`},
		{"the group of audio", master, `,AUDIO="[^"]*"`, "plays without " + p.audio[0].Name + ", " + p.audio[1].Name},
		{"a rendition", master, `#EXT-X-STREAM-INF.*\n160x90/.*\n`, `the playlist does not have the video "160x90"`},
		{"the end", list, `#EXTINF.*\n3\.m4s\n#EXT-X-ENDLIST\n`, "the playlist has 3 segments, but 4 were signed"},
	} {
		name := filepath.Join(dir, tt.playlist)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		cut := regexp.MustCompile(tt.cut).ReplaceAll(text, nil)
		if tt.cut != "" && len(cut) == len(text) {
			t.Fatalf("%s has no %s:\n%s", tt.playlist, tt.cut, text)
		}
		if err := os.WriteFile(name, cut, 0o600); err != nil {
			t.Fatal(err)
		}
		results := verifyIn(t, dir, tt.playlist, o)
		if got, problems := state(results); (got == c2pa.Trusted) != (tt.want == "") || !strings.Contains(problems, tt.want) {
			t.Errorf("%s without %s is %s: %s", tt.playlist, tt.name, got, problems)
		}
		if slices.ContainsFunc(results, func(r Verified) bool { return r.Note != "" }) {
			t.Errorf("%s: notes in %+v", tt.playlist, results)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What was signed before manifests named their tracks is verified as before. testdata/before was
// made by weir transcode --c2pa at that time.
func TestVerifyTracksBefore(t *testing.T) {
	t.Parallel()
	root, err := os.ReadFile("testdata/before/root.pem")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("testdata/before")
	if err != nil {
		t.Fatal(err)
	}
	results := verifyIn(t, dir, "index.m3u8", c2pa.Options{Trust: root, Now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)})
	if len(results) != 2 {
		t.Fatalf("%d results", len(results))
	}
	for _, r := range results {
		if r.State != c2pa.Trusted || r.Segments == 0 || !strings.HasPrefix(r.Note, "tracks not covered") {
			t.Errorf("%s: %d segments, %s, %q %+v", r.Name, r.Segments, r.State, r.Note, r.Problems)
		}
	}
}
