// Package c2pa checks signed outputs with validators that others wrote, and with weir's own.
package c2pa

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	words "weir/internal/weir"
)

func TestMain(m *testing.M) { os.Exit(harness.MainPlain(m)) }

// check is a file, or an init segment and a segment, for all validators.
type check struct {
	Name    string `json:"name"`
	File    string `json:"file"`
	Segment string `json:"segment,omitempty"`
	good    bool
	tainted bool // it is as it was signed, but its source was not
	damaged bool // it is no whole file
}

// verdict is what a validator says.
type verdict struct {
	State   string   `json:"state"`
	Codes   []string `json:"codes"`
	Sources []string `json:"sources"` // what is wrong with the sources
}

// signed is what a task wrote.
type signed struct {
	words.TranscodeOutput
	dir string
}

func (s signed) file(path string) string { return filepath.Join(s.dir, path) }

// segment returns the path of an init segment, or of a segment.
func (s signed) segment(rendition, name string) string {
	return s.file(filepath.Join(filepath.Dir(s.HLS.Path), rendition, name))
}

// transcode makes two renditions; half is the bitrate of the smaller one.
func transcode(t *testing.T, w *harness.Weir, input string, sign bool, half int) signed {
	t.Helper()
	b := s3test.Start(t)
	request := harness.Transcode(input, b, harness.Rung("full", "h264", 320, 180, 900_000), harness.Rung("half", "h264", 228, 128, half))
	request["c2pa"], request["targetSegmentSizeSecs"] = sign, 2
	request["creatorId"] = "somebody"
	var posted words.Task
	w.Must("POST", "/api/transcode", request, &posted)
	return signed{*w.Completed(posted.ID).Output.Transcode, b.Dir}
}

// TestSigned signs all outputs of a task, and those of a task whose source is one of them.
func TestSigned(t *testing.T) {
	t.Parallel()
	w, o := harness.NewWeir(t), harness.NewOrigin(t, harness.SmallClip(t))
	w.Start()
	status, root := w.Do("GET", "/api/c2pa/root.pem", nil)
	if status != http.StatusOK {
		t.Fatalf("the root: %d %s", status, root)
	}
	first, plain := transcode(t, w, o.URL+"/small.mp4", true, 250_000), transcode(t, w, o.URL+"/small.mp4", false, 250_000)
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.mp4")
	data := read(t, first.file(first.MP4[0].Path))
	data[len(data)-1] ^= 1
	write(t, changed, data)
	again, bad := harness.NewOrigin(t, first.file(first.MP4[0].Path)), harness.NewOrigin(t, changed)
	// Of another bitrate: two encodes of the same frames may be equal, byte by byte.
	second := transcode(t, w, again.URL+"/"+filepath.Base(first.MP4[0].Path), true, 200_000)
	tainted := transcode(t, w, bad.URL+"/changed.mp4", true, 250_000)
	w.Stop()
	if len(plain.C2PA) > 0 {
		t.Errorf("signed, but nobody asked: %+v", plain.C2PA)
	}
	if len(first.C2PA) != 2+3+1 { // MP4 files, fragmented files, HLS
		t.Errorf("signed: %+v", first.C2PA)
	}

	checks := append(goodChecks(t, "first", first), goodChecks(t, "second", second)...)
	for _, c := range goodChecks(t, "of a changed source", tainted) {
		c.tainted = true
		checks = append(checks, c)
	}
	checks = append(checks, badChecks(t, dir, first, second, plain)...)
	askOthers(t, string(root), checks)

	trust := filepath.Join(dir, "root.pem")
	write(t, trust, root)
	for _, c := range checks {
		args := []string{"verify", "--trust", trust, c.File}
		if c.Segment != "" {
			args = append(args, c.Segment)
		}
		out, ok := verify(t, args...)
		if ok != (c.good && !c.tainted) || strings.Contains(out, ": tainted\n") != c.tainted || strings.Contains(out, "the file is damaged") != c.damaged {
			t.Errorf("%s: weir verify says %t\n%s", c.Name, ok, out)
		}
	}
	verifyPlaylists(t, trust, first, second)

	// Signing changes no frame. The full rendition is copied from the source, so it is the same in
	// all tasks; two encodes need not be.
	sameFrames(t, first.file(first.MP4[0].Path), plain.file(plain.MP4[0].Path))
	sameFrames(t, first.file(first.Renditions[0].FMP4), plain.file(plain.Renditions[0].FMP4))
	sameFrames(t, first.file(first.Renditions[0].Playlist), plain.file(plain.Renditions[0].Playlist))
}

// goodChecks are all files of an output.
func goodChecks(t *testing.T, name string, s signed) (checks []check) {
	t.Helper()
	for _, p := range s.C2PA {
		if strings.HasSuffix(p.Path, ".mp4") {
			checks = append(checks, check{Name: name + p.Path, File: s.file(p.Path), good: true})
		}
	}
	inits, err := filepath.Glob(s.segment("*", "init.mp4"))
	if err != nil || len(inits) != 3 {
		t.Fatalf("init segments: %v, %v", inits, err)
	}
	for _, init := range inits {
		segments, err := filepath.Glob(filepath.Join(filepath.Dir(init), "*.m4s"))
		if err != nil || len(segments) < 4 {
			t.Fatalf("segments: %v, %v", segments, err)
		}
		for _, segment := range segments {
			checks = append(checks, check{Name: name + strings.TrimPrefix(segment, s.dir), File: init, Segment: segment, good: true})
		}
	}
	return checks
}

// badChecks are files that were changed.
func badChecks(t *testing.T, dir string, first, second, plain signed) []check {
	t.Helper()
	flipped := func(file, after string) string {
		data := read(t, file)
		at := bytes.Index(data, []byte(after))
		if at < 0 {
			t.Fatalf("%s has no %s", file, after)
		}
		data[at+40] ^= 1
		name := filepath.Join(dir, fmt.Sprint(after, "-", filepath.Base(filepath.Dir(file)), "-", filepath.Base(file)))
		write(t, name, data)
		return name
	}
	truncated := func(file string) string {
		data := read(t, file)
		name := filepath.Join(dir, "truncated-"+filepath.Base(file))
		write(t, name, data[:len(data)-1000])
		return name
	}
	init, segment := first.segment("full", "init.mp4"), first.segment("full", "1.m4s")
	return []check{
		{Name: "a byte of an MP4 file", File: flipped(first.file(first.MP4[0].Path), "mdat")},
		{Name: "a byte of the index of an MP4 file", File: flipped(first.file(first.MP4[0].Path), "stsz")},
		{Name: "a byte of a fragmented file", File: flipped(first.file("/out/fmp4/index-stream1.mp4"), "mdat")},
		{Name: "a byte of a claim", File: flipped(first.file(first.MP4[0].Path), "c2pa.claim.v2")},
		{Name: "a byte of a segment", File: init, Segment: flipped(segment, "mdat")},
		{Name: "a byte of an init segment", File: flipped(init, "stsd"), Segment: segment},
		{Name: "a segment of another rendition", File: init, Segment: first.segment("half", "1.m4s")},
		{Name: "a segment of another film", File: first.segment("half", "init.mp4"), Segment: second.segment("half", "1.m4s")},
		{Name: "an unsigned segment", File: init, Segment: withoutBox(t, dir, segment)},
		{Name: "a truncated MP4 file", File: truncated(first.file(first.MP4[0].Path)), damaged: true},
		{Name: "a truncated segment", File: init, Segment: truncated(segment)},
		{Name: "an unsigned file", File: plain.file(plain.MP4[0].Path)},
	}
}

// withoutBox returns a segment without the box that signs it.
func withoutBox(t *testing.T, dir, segment string) string {
	t.Helper()
	data := read(t, segment)
	from, to := bytes.Index(data, []byte("uuid"))-4, bytes.Index(data, []byte("moof"))-4
	name := filepath.Join(dir, "unsigned.m4s")
	write(t, name, append(data[:from:from], data[to:]...))
	return name
}

// askOthers asks the validators of others about all files, in one process.
func askOthers(t *testing.T, root string, checks []check) {
	t.Helper()
	input, err := json.Marshal(map[string]any{"trust": root, "checks": checks})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "validate.mjs")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("validate.mjs: %v (make e2e/c2pa/node_modules/.package-lock.json installs what it needs)", err)
	}
	var results []struct {
		Name string
		Wasm verdict
		TS   *verdict
	}
	if err := json.Unmarshal(output, &results); err != nil || len(results) != len(checks) {
		t.Fatalf("%d results: %v", len(results), err)
	}
	for i, r := range results {
		if c := checks[i]; (r.Wasm.State == "Trusted") != c.good {
			t.Errorf("%s: c2pa-wasm says %s %q", c.Name, r.Wasm.State, r.Wasm.Codes)
		} else if r.TS != nil && (r.TS.State == "Valid") != c.good {
			t.Errorf("%s: c2pa-ts says %s %q", c.Name, r.TS.State, r.TS.Codes)
		} else if (len(r.Wasm.Sources) > 0) != c.tainted {
			t.Errorf("%s: c2pa-wasm says of the sources %q", c.Name, r.Wasm.Sources)
		}
	}
}

// verify runs weir verify and reports whether everything is as it was signed.
func verify(t *testing.T, args ...string) (string, bool) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), harness.Binary, args...).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 2) {
		t.Errorf("weir %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err == nil
}

// verifyPlaylists verifies whole outputs, from a server and from a folder.
func verifyPlaylists(t *testing.T, trust string, first, second signed) {
	t.Helper()
	server := httptest.NewServer(http.FileServer(http.Dir(first.dir)))
	defer server.Close()
	for _, address := range []string{server.URL + first.HLS.Path, server.URL + first.FMP4.Path, second.file(second.HLS.Path)} {
		if out, ok := verify(t, "verify", address, "--trust", trust); !ok {
			t.Errorf("%s\n%s", address, out)
		}
	}
	out, _ := verify(t, "verify", "--json", second.file(second.HLS.Path))
	for _, want := range []string{`"state": "valid"`, `"c2pa.transcoded"`, first.C2PA[3].ManifestID, `"somebody"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	// A muted film and a missing rendition: all that is left is as it was signed.
	for _, path := range []string{first.HLS.Path, first.FMP4.Path} {
		whole := read(t, first.file(path))
		for name, cut := range map[string]struct{ gone, want string }{
			"muted":               {`#EXT-X-MEDIA:.*\n`, "does not have the audio"},
			"without a rendition": {`#EXT-X-STREAM-INF:.*\n.*\n`, "does not have the video"},
		} {
			line := regexp.MustCompile(cut.gone).FindIndex(whole)
			if line == nil {
				t.Fatalf("%s has no %s", path, cut.gone)
			}
			write(t, first.file(path), slices.Concat(whole[:line[0]], whole[line[1]:]))
			if out, ok := verify(t, "verify", server.URL+path, "--trust", trust); ok || !strings.Contains(out, cut.want) {
				t.Errorf("%s, %s:\n%s", path, name, out)
			}
		}
		write(t, first.file(path), whole)
	}
	// Two segments change places: each is as it was signed.
	one, two := first.segment("full", "1.m4s"), first.segment("full", "2.m4s")
	data := read(t, one)
	write(t, one, read(t, two))
	write(t, two, data)
	out, ok := verify(t, "verify", server.URL+first.HLS.Path)
	if ok || !strings.Contains(out, "has segment 2 at the position of segment 1") {
		t.Errorf("segments changed places:\n%s", out)
	}
	write(t, two, read(t, one))
	write(t, one, data)
}

func sameFrames(t *testing.T, a, b string) {
	t.Helper()
	args := []string{"-allowed_extensions", "ALL"}
	if !strings.HasSuffix(a, ".m3u8") {
		args = nil
	}
	got, want := harness.FrameSums(t, a, args...), harness.FrameSums(t, b, args...)
	if len(got) != 250 || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s has %d frames, %s %d, or other ones", a, len(got), b, len(want))
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
