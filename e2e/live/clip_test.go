package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
	words "weir/internal/weir"
)

// TestClip cuts ten clips out of assets, of a stream on air and of its recording, with a reconnect
// inside, and compares every frame with what was asked for. `make soak-clip` cuts two hundred of films of
// every kind, and plays them.
func TestClip(t *testing.T) {
	t.Parallel()
	c := newClipper(t, 17, "")
	t.Run("asset", func(t *testing.T) {
		t.Parallel()
		c := c.in(t)
		for _, kind := range []harness.FilmKind{
			{HEVC: true, Open: true, BFrames: 3, FPS: 24, Key: 1, Seconds: 9},
			{Open: true, VFR: true, BFrames: 2, FPS: 60, Key: 1, Seconds: 9},
		} {
			film := harness.MakeFilm(t, kind)
			asset := c.upload(film)
			c.cutAsset(film, asset, 1)
		}
	})
	t.Run("HEVC", func(t *testing.T) {
		t.Parallel()
		b := c.in(t).broadcast(harness.MakeFilm(t, harness.FilmKind{HEVC: true, BFrames: 2, FPS: 30, Key: 1, Seconds: 8}), false)
		b.cutLive(1)
		b.cutRecording(1)
	})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		c := c.in(t)
		film := harness.MakeFilm(t, harness.FilmKind{BFrames: 2, FPS: 30, Key: 1, Seconds: 8})
		var last *cutClip // the longest one
		c.keep = func(k *cutClip) {
			// Where the encoder was away, browsers see a hole, as in the recording.
			if !k.reconnect && (last == nil || k.frames > last.frames) {
				last = k
			}
		}
		b := c.broadcast(film, true)
		b.cutLive(3)
		b.cutRecording(3)
		if last != nil {
			last.playsInBrowser()
		}
	})
}

// clipper cuts clips and checks them.
type clipper struct {
	t         *testing.T
	w         *harness.Weir
	rtmp, srt string
	log       *clipLog
	random    *rand.Rand
	keep      func(*cutClip) // is told of each clip that is right; nil = nobody is
}

// clipLog is what came of all clips.
type clipLog struct {
	seed  uint64
	dir   string
	mu    sync.Mutex
	files int
	rows  []string
	parse []parsedClip
}

func newClipLog(t *testing.T, seed uint64) *clipLog {
	t.Helper()
	return &clipLog{seed: seed, dir: t.TempDir()}
}

// newRandom returns what chooses the clips of a part of a test, whatever runs beside it.
func newRandom(seed uint64, name string) *rand.Rand {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, sum.Sum64()))
}

// file returns a new name for the file of a clip. It stays until the test has ended.
func (l *clipLog) file() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files++
	return filepath.Join(l.dir, fmt.Sprintf("clip-%d.mp4", l.files))
}

// add adds what came of a clip.
func (l *clipLog) add(row string, file parsedClip) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows, l.parse = append(l.rows, row), append(l.parse, file)
}

// report lets others parse the files of all clips and prints what came of them.
func (l *clipLog) report(t *testing.T) {
	t.Helper()
	l.checkParsed(t)
	t.Logf("seed %d, %d clips:\n%s", l.seed, len(l.rows), strings.Join(l.rows, "\n"))
}

// newClipper starts weir. binary is its program; "" = the one with the race detector.
func newClipper(t *testing.T, seed uint64, binary string) *clipper {
	t.Helper()
	c := &clipper{t: t, w: harness.NewWeir(t), rtmp: harness.FreeAddr(t), srt: freeUDPAddr(t), random: newRandom(seed, "")}
	c.w.Binary = binary
	c.w.Start("--rtmp", c.rtmp, "--srt", c.srt)
	c.log = newClipLog(t, seed)
	t.Cleanup(func() {
		c.log.report(t)
		for line := range strings.Lines(c.w.Log.String()) {
			if strings.Contains(line, "tried again") || strings.Contains(line, `"level":"ERROR"`) {
				t.Errorf("weir says: %s", line)
			}
		}
		if t.Failed() {
			t.Logf("weir says:\n%s", harness.Tail(harness.WithoutRequests(c.w.Log.String())))
		}
	})
	return c
}

// in is the clipper for a part of a test.
func (c *clipper) in(t *testing.T) *clipper {
	other, w := *c, *c.w
	w.T = t
	other.t, other.w, other.random = t, &w, newRandom(c.log.seed, t.Name())
	return &other
}

// upload makes an asset of a film.
func (c *clipper) upload(film *harness.Film) words.Asset {
	c.t.Helper()
	var made struct {
		URL   string
		Asset words.Asset
	}
	c.w.Must("POST", "/api/asset/request-upload", map[string]any{
		"name": film.String(), "profiles": []any{harness.Rung("whole", "H.264", 256, 144, 4_000_000)}, // H.264 passes through
	}, &made)
	data, err := os.ReadFile(film.Path)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPut, made.URL, bytes.NewReader(data))
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		c.t.Fatalf("upload: %s", response.Status)
	}
	return c.ready(made.Asset.ID)
}

// ready waits until an asset can be played.
func (c *clipper) ready(id string) (a words.Asset) {
	c.t.Helper()
	harness.Eventually(c.t, func() error {
		c.w.Must("GET", "/api/asset/"+id, nil, &a)
		if a.Status.Phase == words.AssetFailed {
			c.t.Fatalf("asset %s failed: %+v; weir says:\n%s", a.Name, a.Status, harness.Tail(harness.WithoutRequests(c.w.Log.String())))
		}
		if a.Status.Phase != words.AssetReady {
			return fmt.Errorf("asset %s is %+v", a.Name, a.Status)
		}
		return nil
	})
	return a
}

// frames reads the video of an asset that has one rendition.
func (c *clipper) frames(film *harness.Film, playbackURL string) []harness.Frame {
	c.t.Helper()
	media, hevc := c.rendition(playbackURL)
	frames := harness.Frames(c.t, media, hevc)
	if len(frames) == 0 || frames[0].SEI >= 0 {
		return frames
	}
	// It is encoded, because only H.264 passes through: the numbers are in the pictures alone.
	shown := harness.Watch(c.t, playbackURL, hevc).Numbers()
	if len(shown) != len(frames) {
		c.t.Fatalf("ffmpeg shows %d frames of %v, the playlist has %d", len(shown), film, len(frames))
	}
	for i, n := range shown {
		frames[i].Number = n
	}
	return frames
}

// rendition returns the media playlist of the only rendition in a master playlist, and whether it is HEVC.
func (c *clipper) rendition(playbackURL string) (media string, hevc bool) {
	c.t.Helper()
	master := string(harness.Fetch(c.t, playbackURL))
	if strings.Count(master, "#EXT-X-STREAM-INF") != 1 {
		c.t.Fatalf("%s has not one rendition:\n%s", playbackURL, master)
	}
	_, rest, _ := strings.Cut(master, "#EXT-X-STREAM-INF")
	media, err := resolve(playbackURL, strings.Fields(rest)[1])
	if err != nil {
		c.t.Fatal(err)
	}
	return media, strings.Contains(rest, `CODECS="hvc1`)
}

// cutAsset cuts clips at random out of an asset.
func (c *clipper) cutAsset(film *harness.Film, asset words.Asset, n int) {
	c.t.Helper()
	frames := c.frames(film, asset.PlaybackURL)
	if len(frames) < film.FPS*film.Seconds/2 {
		c.t.Fatalf("asset of %v: %d frames", film, len(frames))
	}
	c.several(n, func(i int) *cutClip {
		start, end := c.pick(frames, harness.FromStart)
		return c.cut(film, "asset", asset.PlaybackID, start, end)
	}, func(k *cutClip) { k.check(harness.Window(frames, harness.FromStart, k.start, k.end)) })
}

// atOnce is how many clips of an account may be in progress.
const atOnce = 5

// several orders clips, five at a time, and checks them.
func (c *clipper) several(n int, order func(i int) *cutClip, check func(*cutClip)) {
	c.t.Helper()
	var pending []*cutClip
	for i := range n {
		pending = append(pending, order(i))
		if len(pending) == atOnce || i == n-1 {
			for _, k := range pending {
				check(k)
			}
			pending = nil
		}
	}
}

// pick chooses a start and an end between frames, or at one.
func (c *clipper) pick(frames []harness.Frame, clock func(harness.Frame) float64) (start, end float64) {
	c.t.Helper()
	random := c.random
	// The dates in a playlist are rounded, so whether a time is more than 1 ms from a frame may not be clear.
	unclear := 0.1
	if clock(frames[0]) == frames[0].Wall {
		unclear = 0.7
	}
	clear := func(at float64) bool {
		return !slices.ContainsFunc(frames, func(f harness.Frame) bool { return math.Abs(clock(f)-(at-1)) < unclear })
	}
	moment := func(i int) float64 {
		for {
			at := clock(frames[i])
			switch random.IntN(4) {
			case 0: // the frame
			case 1:
				at = math.Round(at)
			case 2:
				at = math.Floor(at)
			default: // between it and the one before
				if i > 0 && frames[i].Part == frames[i-1].Part {
					at -= random.Float64() * (at - clock(frames[i-1]))
				}
			}
			// Before the first frame there is nothing to cut, and a rounded date must not be rounded again.
			if at = max(at, clock(frames[0])); clear(at) {
				return at
			}
			i = random.IntN(len(frames) - 1)
		}
	}
	for start >= end-1 {
		start, end = moment(random.IntN(len(frames))), moment(random.IntN(len(frames)))
		if len(harness.Window(frames, clock, start, end)) == 0 {
			end = start
		}
	}
	return start, end
}

// cutClip is a clip that was asked for.
type cutClip struct {
	c          *clipper
	film       *harness.Film
	of         string // what it is cut from
	start, end float64
	asset      words.Asset
	task       string
	mp4        string // the file, once it was checked
	frames     int
	reconnect  bool // of the encoder, in the clip
}

// cut asks for a clip.
func (c *clipper) cut(film *harness.Film, of, playback string, start, end float64) *cutClip {
	c.t.Helper()
	k := &cutClip{c: c, film: film, of: of, start: start, end: end}
	var made struct {
		Asset words.Asset
		Task  struct{ ID string }
	}
	c.w.Must("POST", "/api/clip", map[string]any{"playbackId": playback, "startTime": start, "endTime": end, "name": fmt.Sprintf("%s of %v", of, film)}, &made)
	if made.Asset.Source.Type != words.SourceClip || made.Asset.Source.PlaybackID != playback || made.Task.ID == "" {
		c.t.Errorf("the clip is %+v, its task %q", made.Asset, made.Task.ID)
	}
	k.asset, k.task = made.Asset, made.Task.ID
	return k
}

func (k *cutClip) String() string {
	return fmt.Sprintf("%s of %v from %.3f to %.3f", k.of, k.film, k.start, k.end)
}

// check waits for the clip and compares it with the frames that it must have.
func (k *cutClip) check(want []harness.Frame) {
	c := k.c
	c.t.Helper()
	k.asset = c.ready(k.asset.ID)
	k.mp4 = c.log.file()
	if err := os.WriteFile(k.mp4, harness.Fetch(c.t, k.asset.DownloadURL), 0o600); err != nil {
		c.t.Fatal(err)
	}
	row := fmt.Sprintf("%-10s %-28v %3d frames", k.of, k.film, len(want))
	// The task is completed after the asset is ready.
	c.w.Completed(k.task)
	_, task := c.w.Do("GET", "/api/task/"+k.task, nil)
	whole := strings.Contains(string(task), "all frames of the clip were encoded")
	if whole && !k.film.Open {
		c.t.Errorf("all frames of the clip of %v were encoded: %s", k, task)
	}
	media, hevc := c.rendition(k.asset.PlaybackURL)
	right := true
	for name, input := range map[string]string{"MP4": k.mp4, "HLS": k.asset.PlaybackURL} {
		got, wrong := k.film.CheckClip(want, harness.Watch(c.t, input, hevc), whole)
		for _, err := range wrong {
			right = false
			c.t.Errorf("%s of the clip of %v: %v", name, k, err)
		}
		row += fmt.Sprintf(", %s: %3d copied, audio %+.0f ms", name, got.Copied, 1000*got.Offset)
	}
	if len(want) > 0 && want[0].Part != want[len(want)-1].Part {
		row += ", reconnect"
		k.reconnect = true
		if text := string(harness.Fetch(c.t, media)); !strings.Contains(text, "#EXT-X-DISCONTINUITY\n") {
			c.t.Errorf("the encoder reconnected in the clip of %v, and the playlist has no discontinuity:\n%s", k, text)
		}
	}
	k.frames = len(want)
	c.log.add(row, parsedClip{k.mp4, len(want)})
	if right && c.keep != nil {
		c.keep(k)
	}
}

// playsInBrowser plays the clip in Chromium, which must decode each frame.
func (k *cutClip) playsInBrowser() {
	t := k.c.t
	t.Helper()
	b := harness.NewBrowser(t, t.TempDir())
	for engine, url := range map[string]string{"video": k.asset.DownloadURL, "hls.js": k.asset.PlaybackURL} {
		p := b.Play(engine, url, "", k.frames)
		if len(p.Errors) > 0 || len(p.Renditions) == 0 {
			t.Errorf("%s plays the clip of %v: %q, %+v", engine, k, p.Errors, p.Renditions)
		}
		for _, r := range p.Renditions {
			if r.Frames < k.frames || r.Corrupted > 0 || r.Holes > 0 {
				t.Errorf("%s plays %d frames of the clip of %v: %+v", engine, k.frames, k, r)
			}
		}
	}
}

// parsedClip is a file that others shall parse.
type parsedClip struct {
	path   string
	frames int
}

// checkParsed lets mp4box.js and mux.js parse the files of all clips.
func (l *clipLog) checkParsed(t *testing.T) {
	t.Helper()
	if len(l.parse) == 0 {
		return
	}
	type file struct {
		Name  string   `json:"name"`
		Kind  string   `json:"kind"`
		Parts []string `json:"parts"`
	}
	var files []file
	for _, p := range l.parse {
		files = append(files, file{p.path, "mp4", []string{p.path}})
	}
	request, err := json.Marshal(map[string]any{"files": files})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "parse.mjs")
	cmd.Dir = filepath.Join("..", "player")
	cmd.Stdin = bytes.NewReader(request)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("parse.mjs: %v\n%s", err, &said)
	}
	var results []struct {
		Name     string
		Warnings []string
		MP4Box   struct {
			Tracks []struct {
				Type, Codec string
				Samples     int
				Duration    float64
				FirstIsSync bool
			}
		}
	}
	if err := json.Unmarshal(out, &results); err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		var video, audio float64
		samples := 0
		for _, track := range r.MP4Box.Tracks {
			switch track.Type {
			case "video":
				samples, video = track.Samples, track.Duration
				if !track.FirstIsSync {
					t.Errorf("%s: the first frame is no key frame", r.Name)
				}
			case "audio":
				audio = track.Duration
			}
		}
		if len(r.Warnings) > 0 || len(r.MP4Box.Tracks) != 2 || samples != l.parse[i].frames || math.Abs(video-audio) > 0.25 {
			t.Errorf("%s of %d frames: mp4box sees %+v, warnings %q", r.Name, l.parse[i].frames, r.MP4Box.Tracks, r.Warnings)
		}
	}
}

// onAir is a recorded stream that a film is sent to.
type onAir struct {
	*clipper
	film    *harness.Film
	stream  *liveStream
	encoder *encoder
	sent    int // how often an encoder was started
	ordered []*cutClip
}

// broadcast sends a film, twice if the encoder shall reconnect, and returns while it is sent.
func (c *clipper) broadcast(film *harness.Film, reconnect bool) *onAir {
	c.t.Helper()
	b := &onAir{clipper: c, film: film, stream: newRecordedStream(c.w, c.rtmp)}
	b.send()
	if reconnect {
		// Somewhere in the second half.
		b.encoder.untilSent(int64(film.FPS * film.Seconds / 2))
		b.encoder.kill()
		b.send()
	}
	return b
}

// send starts an encoder. ffmpeg sends HEVC over SRT only.
func (b *onAir) send() {
	b.t.Helper()
	b.sent++
	if b.film.HEVC {
		b.encoder = b.stream.encode("-re", "-i", b.film.Path, "-c", "copy", "-f", "mpegts", "srt://"+b.srt+"?linger=2&streamid="+b.stream.key)
		return
	}
	b.encoder = b.stream.send(b.film.Path)
}

// known returns the frames of the session that are in the playlist, and those that will follow.
func (b *onAir) known() []harness.Frame {
	b.t.Helper()
	var frames []harness.Frame
	harness.Eventually(b.t, func() error {
		if err := b.encoder.running(); err != nil {
			b.t.Fatal(err)
		}
		status, text := b.stream.get("source/dvr.m3u8")
		if status != http.StatusOK || !strings.Contains(string(text), "#EXTINF") {
			return fmt.Errorf("source/dvr.m3u8: %d %s", status, text)
		}
		frames = harness.Frames(b.t, b.stream.url("source/dvr.m3u8"), b.film.HEVC)
		// It must be of this encoder: those that will follow are counted from it.
		if last := frames[len(frames)-1]; last.Part < b.sent-1 || last.SEI < b.film.FPS {
			return fmt.Errorf("the last frame is %d, after %d discontinuities", last.SEI, last.Part)
		}
		return nil
	})
	return frames
}

// cutLive cuts clips at random while the stream is on air. Some of them end where it has not been yet.
func (b *onAir) cutLive(n int) {
	b.t.Helper()
	frames := b.known()
	last := frames[len(frames)-1]
	ahead := frames
	for number := last.SEI + 1; b.film.Time(number) < float64(b.film.Seconds)-1; number++ {
		next := last
		next.SEI, next.Number = number, number
		next.Wall += 1000 * (b.film.Time(number) - b.film.Time(last.SEI))
		if b.film.Has(number) {
			ahead = append(ahead, next)
		}
	}
	for range min(n, atOnce) {
		start, end := b.pick(ahead, harness.ByWall)
		if start > last.Wall {
			start = frames[0].Wall // a clip can't begin in the future
		}
		// Nobody knows to the millisecond when a frame will be there, so the end is between two.
		if i := slices.IndexFunc(ahead, func(f harness.Frame) bool { return f.Wall >= end }); end > last.Wall && i > 0 {
			end = (ahead[i-1].Wall + ahead[i].Wall) / 2
		}
		b.ordered = append(b.ordered, b.cut(b.film, "live", b.stream.playback, start, end))
	}
}

// recorded lets the stream end and returns its recording. The clips that were cut while it was on air are ready.
func (b *onAir) recorded() (words.Asset, []harness.Frame) {
	b.t.Helper()
	if err := b.encoder.wait(); err != nil {
		b.t.Error(err)
	}
	for _, k := range b.ordered {
		b.ready(k.asset.ID)
	}
	b.w.Must("DELETE", "/api/stream/"+b.stream.id+"/terminate", nil, nil)
	session := b.stream.waitRecorded("ready")
	asset := b.ready(session.ID)
	frames := b.frames(b.film, asset.PlaybackURL)
	b.withoutGaps(frames, asset)
	return asset, frames
}

// cutRecording lets the stream end, checks the clips that were cut while it was on air, and cuts others out
// of its recording, by both clocks.
func (b *onAir) cutRecording(n int) {
	b.t.Helper()
	asset, frames := b.recorded()
	for _, k := range b.ordered {
		k.check(harness.Window(frames, harness.ByWall, k.start, k.end))
	}
	clocks := []func(harness.Frame) float64{harness.ByWall, harness.FromStart}
	picked := map[*cutClip]int{}
	b.several(n, func(i int) *cutClip {
		start, end := b.pick(frames, clocks[i%2])
		k := b.cut(b.film, "recording", asset.PlaybackID, start, end)
		picked[k] = i % 2
		return k
	}, func(k *cutClip) { k.check(harness.Window(frames, clocks[picked[k]], k.start, k.end)) })
}

// withoutGaps sets the times from the start to those of the file of a recording, which has no gap where the
// encoder was away.
func (b *onAir) withoutGaps(frames []harness.Frame, recording words.Asset) {
	b.t.Helper()
	file := b.log.file()
	if err := os.WriteFile(file, harness.Fetch(b.t, recording.DownloadURL), 0o600); err != nil {
		b.t.Fatal(err)
	}
	shown := harness.Watch(b.t, file, b.film.HEVC).Frames
	if len(shown) != len(frames) {
		b.t.Fatalf("the file of the recording has %d frames, the playlist %d", len(shown), len(frames))
	}
	for i := range frames {
		frames[i].Start = 1000 * (shown[i].Time - shown[0].Time)
	}
}

// TestClipKill kills weir while it cuts clips: after the restart they are finished, each of them once.
func TestClipKill(t *testing.T) {
	t.Parallel()
	c := newClipper(t, 18, "")
	film := harness.MakeFilm(t, harness.FilmKind{BFrames: 2, FPS: 30, Key: 2, Seconds: 8})
	c.killed(film, 1, 2, 0)
}

// killed lets some accounts ask for clips of a film, kills weir when so many of them are ready, and counts.
func (c *clipper) killed(film *harness.Film, accounts, each, ready int) {
	c.t.Helper()
	type job struct {
		c    *clipper
		clip *cutClip
		want []harness.Frame
	}
	var jobs []job
	began := harness.Listen(c.t, c.w, "")
	owners := []*clipper{c}
	for i := 1; i < accounts; i++ {
		owners = append(owners, c.account(fmt.Sprintf("killed%d@example.com", i)))
	}
	assets := map[*clipper]words.Asset{}
	for _, o := range owners {
		assets[o] = o.upload(film)
	}
	cursor, _ := next(began, c.t, "asset")
	for _, o := range owners {
		frames := o.frames(film, assets[o].PlaybackURL)
		for range each {
			start, end := o.pick(frames, harness.FromStart)
			jobs = append(jobs, job{o, o.cut(film, "kill", assets[o].PlaybackID, start, end), harness.Window(frames, harness.FromStart, start, end)})
		}
	}
	harness.Eventually(c.t, func() error {
		done := 0
		for _, j := range jobs {
			var a words.Asset
			j.c.w.Must("GET", "/api/asset/"+j.clip.asset.ID, nil, &a)
			if a.Status.Phase == words.AssetReady {
				done++
			}
		}
		if done < ready {
			return fmt.Errorf("%d of %d clips are ready, want %d", done, len(jobs), ready)
		}
		c.t.Logf("weir is killed when %d of %d clips are ready", done, len(jobs))
		return nil
	})
	c.w.Kill()
	c.w.Start("--rtmp", c.rtmp, "--srt", c.srt)
	restarted := time.Now()
	for _, j := range jobs {
		j.c.w.URL = c.w.URL
		j.c.w.Completed(j.clip.task)
		j.clip.check(j.want)
	}
	c.t.Logf("all finished %.1f s after the restart", time.Since(restarted).Seconds())
	for _, o := range owners {
		events := o.eventsSince(cursor)
		for _, j := range jobs {
			if j.c != o {
				continue
			}
			for _, name := range []string{"asset.ready " + j.clip.asset.ID, "task.completed " + j.clip.task} {
				if events[name] != 1 {
					c.t.Errorf("%s was told %d times, want once: %v", name, events[name], events)
				}
			}
		}
	}
}

// account is the clipper of a new account.
func (c *clipper) account(email string) *clipper {
	c.t.Helper()
	c.w.Run("user", "create", email)
	other := c.in(c.t)
	other.w.Key = harness.Match(c.t, c.w.Run("key", "create", "clips", "--user", email), `API key +(\S+)`)
	return other
}

// eventsSince counts the events of the account behind a cursor, by name and id.
func (c *clipper) eventsSince(cursor string) map[string]int {
	c.t.Helper()
	var last struct{ Asset words.Asset }
	c.w.Must("POST", "/api/asset/request-upload", map[string]any{"name": "the last event"}, &last)
	l := harness.Listen(c.t, c.w, cursor)
	count := map[string]int{}
	l.Next(c.t, "the last event", func(got harness.Event) bool {
		var e struct {
			Event   string
			Payload struct{ Asset, Task struct{ ID string } }
		}
		got.Read(c.t, &e)
		id := e.Payload.Asset.ID
		if strings.HasPrefix(e.Event, "task.") {
			id = e.Payload.Task.ID
		}
		count[e.Event+" "+id]++
		return id == last.Asset.ID
	})
	return count
}
