package playback

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/access/accesstest"
	"weir/internal/blob"
	"weir/internal/blob/s3test"
	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(s3test.Runner{M: m}) }

// house is a server with a store, storage, and an account.
type fixture struct {
	testing.TB
	database string // its URL, if several nodes share it
	store    *store.Store
	media    blob.Store
	hub      *live.Hub // does not run unless a test runs it
	server   *Server
	web      *httptest.Server
	busy     sync.WaitGroup // requests that are being answered
	inside   atomic.Int64   // how many those are
	ann      weir.User
	logged   *journal
	sessions string // the folder of live sessions
	clients  atomic.Uint32
}

// journal keeps log lines.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func newDisk(t testing.TB) blob.Store {
	t.Helper()
	disk, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = disk.Close() })
	return disk
}

func storeOptions() store.Options { return store.Options{Secret: bytes.Repeat([]byte{3}, 32)} }

func openStore(t testing.TB, url string) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), url, storeOptions())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func newFixture(t testing.TB, media blob.Store) *fixture {
	t.Helper()
	return newFixtureOn(t, media, openStore(t, storetest.SQLite(t, store.Open, storeOptions())))
}

func newFixtureOn(t testing.TB, media blob.Store, st *store.Store) *fixture {
	t.Helper()
	ctx := t.Context()
	t.Cleanup(st.Close)
	var err error
	h := &fixture{TB: t, store: st, media: media, logged: &journal{}, sessions: t.TempDir()}
	log := slog.New(slog.NewTextHandler(h.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.hub, err = live.New(t.Context(), live.Options{Store: st, Dir: h.sessions, SessionTimeout: time.Minute, PartDuration: live.DefaultPart, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	h.server, err = New(ctx, Options{
		Store: st, Media: media, Gate: accesstest.NewGate(t, st), Live: h.hub, Dir: t.TempDir(), Log: log,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.busy.Add(1)
		h.inside.Add(1)
		defer func() {
			h.inside.Add(-1)
			h.busy.Done()
		}()
		h.server.ServeHTTP(w, r)
	}))
	h.web.Client().Transport.(*http.Transport).DisableCompression = true // tests see what is sent
	t.Cleanup(h.web.Close)
	h.ann = h.newUser("ann")
	return h
}

// from returns the headers of a request that a proxy passed on from an address.
func (h *fixture) from(address string, headers ...string) []string {
	return append([]string{"X-Forwarded-For", address}, headers...)
}

// newAddress returns the address of another client at each call.
func (h *fixture) newAddress() string {
	n := h.clients.Add(1)
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

func (h *fixture) write(do func(*store.Tx) error) {
	h.Helper()
	if err := h.store.Tx(h.Context(), do); err != nil {
		h.Fatal(err)
	}
}

func (h *fixture) newUser(name string) weir.User {
	h.Helper()
	u := weir.User{ID: weir.NewID(), Email: name + "@example.com", CreatedAt: weir.At(time.Now())}
	h.write(func(tx *store.Tx) error { return tx.CreateUser(h.Context(), &u) })
	return u
}

// names of the renditions in tests, with all characters that a profile name may have.
const (
	large = "180p"
	small = "90p größe +1@x" // not what one would call it, but allowed
)

// newAsset makes an asset of ann's that is ready, with two renditions, audio that is longer than
// the video, thumbnails, a poster and its source.
func (h *fixture) newAsset(policy *weir.PlaybackPolicy) weir.Asset {
	h.Helper()
	a := h.newRow(policy, weir.AssetReady)
	prefix := "asset/" + a.ID
	film := makeFilm(h)
	p := media.Presentation{Duration: film.seconds, Complete: true}
	for name, t := range map[string]film1{large: film.large, small: film.small, "audio0": film.audio} {
		h.putTrack(prefix+"/"+name, t, len(t.data))
	}
	for _, name := range []string{large, small} {
		p.Renditions = append(p.Renditions, media.Rendition{Name: name, Dir: name, Complete: true})
	}
	p.Audio = []media.Rendition{{Name: "audio0", Dir: "audio0", Complete: true}}
	h.put(prefix+"/thumbnails/thumbnails.vtt", "WEBVTT\n\n00:00.000 --> 00:02.000\nkeyframes_0.jpg\n\n00:02.000 --> 00:04.000\nsprite_0.jpg#xywh=0,0,10,10\n")
	h.put(prefix+"/thumbnails/keyframes_0.jpg", "a thumbnail")
	h.put(prefix+"/thumbnails/sprite_0.jpg", "many thumbnails")
	h.put(prefix+"/poster.jpg", "a poster")
	h.put(prefix+"/video", "the source, as it came")
	h.present(a, p)
	return a
}

func (h *fixture) newRow(policy *weir.PlaybackPolicy, phase weir.AssetPhase) weir.Asset {
	h.Helper()
	id := weir.NewID()
	a := weir.Asset{
		ID: id, Name: "film", PlaybackID: weir.NewPlaybackID(id), UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID,
		PlaybackPolicy: policy, Status: weir.AssetStatus{Phase: phase},
	}
	h.write(func(tx *store.Tx) error { return tx.CreateAsset(h.Context(), &a) })
	return a
}

func (h *fixture) changeAsset(a weir.Asset, change func(*weir.Asset)) {
	h.Helper()
	h.write(func(tx *store.Tx) error {
		_, err := tx.UpdateAsset(h.Context(), a.ID, func(a *weir.Asset) error {
			change(a)
			return nil
		})
		return err
	})
}

func (h *fixture) present(a weir.Asset, p media.Presentation) {
	h.Helper()
	if err := media.SavePresentation(h.Context(), h.media, "asset/"+a.ID, p); err != nil {
		h.Fatal(err)
	}
}

func (h *fixture) put(key, text string) {
	h.Helper()
	if err := h.media.Put(h.Context(), key, strings.NewReader(text), int64(len(text)), blob.PutOptions{}); err != nil {
		h.Fatal(err)
	}
}

// putTrack stores the first n segments of a track.
func (h *fixture) putTrack(prefix string, f film1, n int) {
	h.Helper()
	for i := range n {
		if err := media.Put(h.Context(), h.media, prefix, i, f.index.Segments[i], f.data[i]); err != nil {
			h.Fatal(err)
		}
	}
	if err := media.Seal(h.Context(), h.media, prefix, cmaf.TrackIndex{Track: f.index.Track, Segments: f.index.Segments[:n]}); err != nil {
		h.Fatal(err)
	}
}

// at is the address of something of an asset; the path is plain.
func (h *fixture) at(a weir.Asset, path string) string { return h.under(a.PlaybackID, path) }

// under is the address of something of an asset or a stream.
func (h *fixture) under(playbackID, path string) string {
	return h.web.URL + "/hls/" + playbackID + "/" + escape(path)
}

// escape writes a plain path, which may have a query, as it stands in a URL.
func escape(path string) string {
	path, query, found := strings.Cut(path, "?")
	var out strings.Builder
	for _, b := range []byte(path) {
		if b == '/' || b == '.' || b == '-' || b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' {
			out.WriteByte(b)
		} else {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	if found {
		out.WriteString("?" + query)
	}
	return out.String()
}

// got is a response.
type got struct {
	*http.Response
	body string
}

// ask sends a request; headers are pairs of name and value.
func (h *fixture) ask(method, url string, headers ...string) got {
	h.Helper()
	r, err := http.NewRequestWithContext(h.Context(), method, url, nil)
	if err != nil {
		h.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := h.web.Client().Do(r)
	if err != nil {
		h.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		h.Fatal(err)
	}
	return got{response, string(body)}
}

func (h *fixture) get(url string, headers ...string) got {
	h.Helper()
	return h.ask("GET", url, headers...)
}

// want is get where anything but 200 ends the test.
func (h *fixture) want(url string, headers ...string) got {
	h.Helper()
	g := h.get(url, headers...)
	if g.StatusCode != http.StatusOK {
		h.Fatalf("GET %s: %d %s\n%s", url, g.StatusCode, g.body, h.logged)
	}
	return g
}

// named returns the addresses in a playlist, as a player sees them.
func (h *fixture) named(url, text string) (addresses []string) {
	h.Helper()
	base, err := http.NewRequest("GET", url, nil)
	if err != nil {
		h.Fatal(err)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if _, quoted, ok := strings.Cut(line, `URI="`); ok {
			line, _, _ = strings.Cut(quoted, `"`)
		} else if line == "" || line[0] == '#' {
			continue
		}
		u, err := base.URL.Parse(line)
		if err != nil {
			h.Fatal(err)
		}
		addresses = append(addresses, u.String())
	}
	return addresses
}

// film is the media of the assets in tests.
type film struct {
	large, small, audio film1
	source              []byte  // large and audio as ffmpeg wrote them
	seconds             float64 // of the video
}

// film1 is one track of it, and the sink of the packer that makes it.
type film1 struct {
	index cmaf.TrackIndex
	data  [][]byte
}

// Part adds a segment of one part.
func (f *film1) Part(part cmaf.Part, _ bool, buffers ...[]byte) error {
	f.index.Segments = append(f.index.Segments, cmaf.Segment{Parts: []cmaf.Part{part}})
	f.data = append(f.data, bytes.Join(buffers, nil))
	return nil
}

func (f *film1) EndSegment() error { return nil }

// Durations of a film.
const (
	videoSeconds = 4
	audioSeconds = 7
	rate         = 25
)

var (
	filmOnce sync.Once
	theFilm  film
	errFilm  error
)

func makeFilm(t testing.TB) film {
	t.Helper()
	filmOnce.Do(func() { theFilm, errFilm = shoot() })
	if errFilm != nil {
		t.Fatal(errFilm)
	}
	return theFilm
}

// shoot makes a film with ffmpeg and cuts it into segments of a second.
func shoot() (film, error) {
	f := film{seconds: videoSeconds}
	make1 := func(size string) ([]byte, error) {
		return ffmpeg("-f", "lavfi", "-i", fmt.Sprintf("testsrc2=s=%s:r=%d:d=%d", size, rate, videoSeconds),
			"-f", "lavfi", "-i", fmt.Sprintf("sine=440:r=48000:d=%d", audioSeconds),
			"-map", "0", "-map", "1", "-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", fmt.Sprint(rate), "-c:a", "aac", "-b:a", "64k",
			"-output_ts_offset", "10", "-avoid_negative_ts", "disabled", "-use_editlist", "0",
			"-movflags", "delay_moov+default_base_moof+frag_discont", "-frag_duration", "400000", "-f", "mp4", "pipe:1")
	}
	var err error
	if f.source, err = make1("320x180"); err != nil {
		return f, err
	}
	little, err := make1("160x90")
	if err != nil {
		return f, err
	}
	if f.large, f.audio, err = cut(f.source); err != nil {
		return f, err
	}
	f.small, _, err = cut(little)
	return f, err
}

// cut makes tracks of the output of ffmpeg.
func cut(data []byte) (video, audio film1, err error) {
	r := cmaf.NewReader(bytes.NewReader(data))
	tracks, err := r.Tracks()
	if err != nil {
		return video, audio, err
	}
	retimers, wholes := make([]cmaf.Retimer, len(tracks)), make([]cmaf.Fragment, len(tracks))
	join := func(track int, f cmaf.Fragment, err error) error {
		whole := &wholes[track]
		if len(whole.Samples) == 0 {
			whole.Start = f.Start
		}
		whole.Samples, whole.Data = append(whole.Samples, f.Samples...), append(whole.Data, f.Data...)
		return err
	}
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return video, audio, err
		}
		f.Start -= tracks[f.Track].Ticks(cmaf.Lead)
		settled, err := retimers[f.Track].Add(f)
		if err := join(f.Track, settled, err); err != nil {
			return video, audio, err
		}
	}
	for i, track := range tracks {
		rest, err := retimers[i].Finish()
		if err := join(i, rest, err); err != nil {
			return video, audio, err
		}
		whole := wholes[i]
		for whole.Start < 0 { // what an encoder of audio needs to warm up
			whole.Start += int64(whole.Samples[0].Duration)
			whole.Data, whole.Samples = whole.Data[whole.Samples[0].Size:], whole.Samples[1:]
		}
		second := int64(track.Timescale)
		due := func(open cmaf.Contents, at int64, _ cmaf.Sample) bool { return at/second > open.Start/second }
		if track.Kind == cmaf.Video {
			due = func(open cmaf.Contents, at int64, s cmaf.Sample) bool { return s.Sync && at-open.Start >= second }
			for _, s := range whole.Samples {
				track.Delay = max(track.Delay, -int64(s.Offset))
			}
		}
		one := film1{index: cmaf.TrackIndex{Track: track}}
		packer := cmaf.Packer{Track: track, Sink: &one}
		for _, s := range whole.Samples {
			if open := packer.OpenSegment; open.Samples > 0 && due(open, whole.Start, s) {
				packer.EndSegment()
			}
			packer.Add(whole.Start, s, whole.Data[:s.Size])
			whole.Start, whole.Data = whole.Start+int64(s.Duration), whole.Data[s.Size:]
		}
		packer.EndSegment()
		if track.Kind == cmaf.Video {
			video = one
		} else {
			audio = one
		}
	}
	return video, audio, nil
}

// ffmpeg returns the output of ffmpeg, which must not log an error.
func ffmpeg(args ...string) ([]byte, error) {
	var out, complaints bytes.Buffer
	cmd := exec.Command("ffmpeg", append(strings.Fields("-v error -nostdin -xerror -threads 1"), args...)...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil || complaints.Len() > 0 {
		return nil, fmt.Errorf("ffmpeg %s: %w\n%s", strings.Join(args, " "), cmp.Or(err, errors.New("it complained")), complaints.String())
	}
	return out.Bytes(), nil
}

// decoded returns a digest of every frame of a stream such as v:0 or a:0, and where the stream ends
// in seconds.
func decoded(t testing.TB, input, stream string) (digests []string, end float64) {
	t.Helper()
	out, err := ffmpeg("-i", input, "-map", "0:"+stream, "-fps_mode", "passthrough", "-f", "framemd5", "-")
	if err != nil {
		t.Fatal(err)
	}
	base := 1.0
	for line := range strings.Lines(string(out)) {
		if _, err := fmt.Sscanf(line, "#tb 0: 1/%g", &base); err == nil || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
		var at, length float64
		if _, err := fmt.Sscan(fields[2]+" "+fields[3], &at, &length); err != nil {
			t.Fatal(err)
		}
		end = (at + length) / base
		digests = append(digests, fields[len(fields)-1])
	}
	return digests, end
}

func writeTemp(t testing.TB, data []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "source.mp4")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
