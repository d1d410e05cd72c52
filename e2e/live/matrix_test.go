//go:build soak

package live

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
)

const (
	// playTime is how long each player of the matrix plays.
	playTime = 30 * time.Second
	// leastBeats is how many flashes with a beep a player must have shown meanwhile. A
	// browser that has no time to show a picture leaves it out.
	leastBeats = 6
	// sentTime is how long a publisher sends: for two groups of players.
	sentTime = 10 * time.Minute
)

// TestLiveMatrix lets every kind of encoder send to weir, and every kind of player play
// that: half a minute without a stall that weir can be blamed for, with audio and
// picture together, and with both renditions where the player can change.
// `make test-live-matrix` runs it.
func TestLiveMatrix(t *testing.T) {
	plain := harness.Shipped(t)
	table := &matrixTable{}
	groups := []struct {
		name    string
		players map[string]func(*testing.T, *matrixStream, string) outcome
	}{
		{"first", map[string]func(*testing.T, *matrixStream, string) outcome{"ffmpeg": playFFmpeg, "GStreamer": playGStreamer, "hls.js": playHLS}},
		{"second", map[string]func(*testing.T, *matrixStream, string) outcome{"shaka": playShaka, "WHEP": playWHEP}},
	}
	for _, publisher := range []struct {
		name  string
		start func(*testing.T, *matrixStream) func() error
		loose bool // what it sends together is not together to the millisecond
	}{
		{"ffmpeg RTMP", sendFFmpegRTMP, false},
		{"ffmpeg SRT", sendFFmpegSRT, false},
		{"GStreamer RTMP", sendGStreamerRTMP, false},
		{"GStreamer SRT", sendGStreamerSRT, false},
		{"srt-live-transmit", sendTransmit, false},
		{"Chromium WHIP", sendWHIP, true},
	} {
		t.Run(publisher.name, func(t *testing.T) {
			s := newMatrixStream(t, plain)
			running := publisher.start(t, s)
			s.waitRung(running)
			for _, group := range groups {
				t.Run(group.name, func(t *testing.T) {
					for name, play := range group.players {
						t.Run(name, func(t *testing.T) {
							t.Parallel()
							through := newDelivery(t, s.w.URL)
							got := play(t, s, through.url)
							got.publisher, got.player, got.loose = publisher.name, name, publisher.loose
							if s.late != nil {
								late := s.late()
								for _, off := range [][]float64{got.offsets, got.sent} {
									for i := range off {
										off[i] -= late
									}
								}
							}
							got.judge(t, s.log, through)
							table.add(got)
						})
					}
				})
			}
			if err := running(); err != nil {
				t.Error(err)
			}
			s.log.end()
			s.w.Stop()
		})
	}
	t.Logf("\n%s", table)
}

// matrixStream is a stream of the matrix, with one rendition beside the source.
type matrixStream struct {
	*liveStream
	srt    string
	log    *watchLog
	sent   *sentLog
	silent func(from, to time.Time) time.Duration // for how long nothing was sent
	late   func() float64                         // by how much beeps were sent later than flashes; nil = they were not
}

func newMatrixStream(t *testing.T, plain string) *matrixStream {
	t.Helper()
	w := harness.NewWeir(t)
	w.Binary = plain
	rtmp, srt := harness.FreeAddr(t), freeUDPAddr(t)
	w.Start("--rtmp", rtmp, "--srt", srt, "--webrtc", harness.FreeAddr(t), "--session-timeout", "3s")
	var made struct{ ID, StreamKey, PlaybackID string }
	w.Must("POST", "/api/stream", map[string]any{"name": "matrix", "profiles": []any{
		map[string]any{"name": "240p", "width": 426, "height": 240, "bitrate": 250_000, "fps": 0},
	}}, &made)
	sent := &sentLog{}
	return &matrixStream{
		liveStream: &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, sent.relayTCP(t, rtmp)}, srt: sent.relayUDP(t, srt), sent: sent, silent: sent.silence,
	}
}

// waitRung waits until all renditions have as many segments as players want to begin
// with, and begins to write down when something new is there.
func (s *matrixStream) waitRung(running func() error) {
	s.w.T.Helper()
	names := []string{"source", "240p", "audio"}
	harness.Eventually(s.w.T, func() error {
		if err := running(); err != nil {
			s.w.T.Fatal(err)
		}
		for _, name := range names {
			if status, text := s.get(name + "/index.m3u8?ll=0"); status != http.StatusOK || strings.Count(string(text), "\n#EXTINF") < 3 {
				return fmt.Errorf("%s: %d %s", name, status, text)
			}
		}
		return nil
	})
	s.log = newWatchLog(s.w.T, s.url(""), names, s.silent)
}

// started starts a program that sends, and returns a function that says whether it still
// does.
func started(t *testing.T, name string, args ...string) func() error {
	t.Helper()
	var said harness.LockedBuffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var err error
	go func() {
		defer close(ended)
		err = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return func() error {
		select {
		case <-ended:
			return fmt.Errorf("%s ended: %w\n%s", name, err, &said)
		default:
			return nil
		}
	}
}

// ffmpeg sends B-frames, GStreamer does not.
func (s *matrixStream) film(bFrames int) string {
	return beatClip(s.w.T, fmt.Sprintf("matrix-%d.mkv", bFrames), int(sentTime.Seconds()), bFrames)
}

func (s *matrixStream) srtURL() string { return "srt://" + s.srt + "?streamid=" + s.key }

func sendFFmpegRTMP(t *testing.T, s *matrixStream) func() error {
	return started(t, "ffmpeg", "-v", "error", "-nostdin", "-re", "-i", s.film(2), "-c", "copy", "-f", "flv", s.ingest())
}

func sendFFmpegSRT(t *testing.T, s *matrixStream) func() error {
	return started(t, "ffmpeg", "-v", "error", "-nostdin", "-re", "-i", s.film(2), "-c", "copy", "-f", "mpegts", s.srtURL())
}

// gstreamer sends a film, in its own time.
func gstreamer(t *testing.T, s *matrixStream, muxer string, sink ...string) func() error {
	args := []string{"-q", "filesrc", "location=" + s.film(0), "!", "matroskademux", "name=film"}
	for _, track := range []string{"video_0 ! queue ! h264parse", "audio_0 ! queue ! aacparse"} {
		args = append(args, strings.Fields("film."+track+" ! clocksync ! queue ! mux.")...)
	}
	args = append(args, strings.Fields(muxer+" name=mux !")...)
	return started(t, "gst-launch-1.0", append(args, sink...)...)
}

// A track that is late on a busy machine is waited for: otherwise GStreamer gives its frames
// the time of the other track, and sends what is not together.
func sendGStreamerRTMP(t *testing.T, s *matrixStream) func() error {
	return gstreamer(t, s, "flvmux streamable=true latency=1000000000", "rtmp2sink", "location="+s.ingest())
}

func sendGStreamerSRT(t *testing.T, s *matrixStream) func() error {
	return gstreamer(t, s, "mpegtsmux alignment=7", "srtsink", "uri="+s.srtURL())
}

// sendTransmit lets srt-live-transmit repeat what ffmpeg sends over UDP.
func sendTransmit(t *testing.T, s *matrixStream) func() error {
	udp := "udp://" + freeUDPAddr(t)
	transmits := started(t, "srt-live-transmit", "-q", udp, s.srtURL())
	encodes := started(t, "ffmpeg", "-v", "error", "-nostdin", "-re", "-i", s.film(2), "-c", "copy", "-f", "mpegts", udp+"?pkt_size=1316")
	return func() error {
		if err := transmits(); err != nil {
			return err
		}
		return encodes()
	}
}

func sendWHIP(t *testing.T, s *matrixStream) func() error {
	b := harness.NewBrowser(t, t.TempDir())
	page(b, "/matrix.html")
	call(b, "beat", s.w.URL+"/webrtc/"+s.key)
	s.late = func() float64 {
		late, err := chromedp.Run(b.Ctx, chromedp.Evaluate[[]float64]("late"))
		if err != nil {
			t.Error(err)
		}
		median, _ := middle(late)
		t.Logf("the publisher begins its beeps %v after its flashes: %.3f", median, late)
		return median.Seconds()
	}
	s.silent = func(from, to time.Time) time.Duration {
		ms, err := chromedp.Run(b.Ctx, chromedp.Evaluate[float64](fmt.Sprintf("silence(%d, %d)", from.UnixMilli(), to.UnixMilli())))
		if err != nil {
			return 0
		}
		return time.Duration(ms * float64(time.Millisecond))
	}
	return func() error {
		state, err := chromedp.Run(b.Ctx, chromedp.Evaluate[string]("peers.publisher.pc.connectionState"))
		if err != nil || state == "failed" || state == "closed" {
			return fmt.Errorf("the publisher in Chromium is %s: %w", state, err)
		}
		return nil
	}
}

// playFFmpeg lets ffmpeg play. It decodes as soon as it can, so a stall is where it comes
// later than somebody needs it who began to watch with the first picture.
func playFFmpeg(t *testing.T, s *matrixStream, base string) (o outcome) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*playTime)
	defer cancel()
	var begun time.Time // when the picture at 0 would have been shown
	span := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	b, err := ffmpegBeats(ctx, func(m mark) {
		due := begun.Add(span(m.at))
		switch late := m.seen.Sub(due); {
		case begun.IsZero():
			begun = m.seen.Add(-span(m.at))
		case late > 100*time.Millisecond:
			o.stalls = append(o.stalls, stall{at: due, length: late})
			begun = begun.Add(late)
		}
		if o.first.IsZero() {
			o.first = m.seen
		}
		if o.played = m.seen.Sub(o.first); o.played >= playTime {
			cancel()
		}
	}, "-i", base+"/hls/"+s.playback+"/index.m3u8")
	if err != nil || ctx.Err() == nil {
		t.Errorf("ffmpeg ended while the stream goes on: %v", err)
	}
	o.offsets = b.offsets()
	return o
}

// playHLS lets hls.js play in Chromium, and change between the renditions.
func playHLS(t *testing.T, s *matrixStream, base string) outcome {
	return playBrowser(t, "watchHLS", base+"/hls/"+s.playback+"/index.m3u8", true)
}

// playShaka lets shaka play in Chromium, and change between the renditions.
func playShaka(t *testing.T, s *matrixStream, base string) outcome {
	return playBrowser(t, "watchShaka", base+"/hls/"+s.playback+"/index.m3u8", true)
}

// playWHEP lets Chromium play over WebRTC. What weir sends is looked at beside it.
func playWHEP(t *testing.T, s *matrixStream, base string) outcome {
	sent := watchWire(t, base+"/webrtc/"+s.playback)
	o := playBrowser(t, "watchWHEP", base+"/webrtc/"+s.playback, false)
	o.sent = sent()
	return o
}

// matrixState is what the page of the matrix tells of how it goes.
type matrixState struct {
	Fatal    []string
	Others   map[string]int // errors that it got over
	Played   float64        // seconds
	Height   int
	Pictures int
}

// playBrowser lets a function of the page play an address.
func playBrowser(t *testing.T, function, url string, changes bool) (o outcome) {
	b := harness.NewBrowser(t, t.TempDir())
	page(b, "/matrix.html")
	call(b, function, url)
	var now matrixState
	plays := func(good func() error) {
		t.Helper()
		harness.Eventually(t, func() (err error) {
			if now, err = chromedp.Run(b.Ctx, chromedp.Evaluate[matrixState]("state()")); err != nil || len(now.Fatal) > 0 {
				t.Fatalf("the player gave up: %+v, %v", now, err)
			}
			if o.first.IsZero() && now.Pictures > 0 {
				o.first = time.Now()
			}
			return good()
		})
	}
	plays(func() error {
		if o.played = time.Duration(now.Played * float64(time.Second)); o.played < playTime {
			return fmt.Errorf("it played %v: %+v", o.played, now)
		}
		return nil
	})
	told, err := chromedp.Run(b.Ctx, chromedp.Evaluate[matrixTold]("told()"))
	if err != nil {
		t.Fatal(err)
	}
	if changes {
		for _, height := range []int{240, 360} {
			if _, err := chromedp.Run(b.Ctx, chromedp.Evaluate[any](fmt.Sprintf("change(%d)", height))); err != nil {
				t.Fatal(err)
			}
			plays(func() error {
				if now.Height != height {
					return fmt.Errorf("it does not change to %d: %+v", height, now)
				}
				return nil
			})
		}
		o.changed = true
	}
	o.others, o.stalls = now.Others, told.stalls()
	o.offsets = told.offsets(t)
	return o
}

// matrixTold is what the page has seen.
type matrixTold struct {
	Pictures [][2]float64 // when, and how bright
	Beeps    []float64    // over WebRTC
	Skews    [][2]float64 // over WebRTC: by how much the browser lets audio be ahead of the picture, and when
	Sound    []struct {   // else
		Offset float64
		Data   []byte
	}
	Stalls []struct{ At, Length, Position, Ahead, Dry float64 } // milliseconds, seconds
}

func (m matrixTold) stalls() (all []stall) {
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	for _, s := range m.Stalls {
		all = append(all, stall{at: time.UnixMilli(int64(s.At)), length: ms(s.Length), dry: ms(s.Dry), where: fmt.Sprintf(" at %.3f of what ends %.3f later", s.Position, s.Ahead)})
	}
	return all
}

// offsets returns by how much beeps come after flashes. The audio that a player gave to
// the browser is decoded here.
func (m matrixTold) offsets(t *testing.T) []float64 {
	t.Helper()
	var b beats
	for _, p := range m.Pictures {
		b.pictures = append(b.pictures, mark{at: p[0], level: p[1]})
	}
	if len(m.Sound) == 0 {
		return m.overWebRTC(t, b.flashes())
	}
	for i, audio := range m.Sound {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.mp4", i))
		if err := os.WriteFile(file, audio.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		heard, err := ffmpegBeats(t.Context(), func(mark) {}, "-i", file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range heard.audio {
			m.at += audio.Offset
			b.audio = append(b.audio, m)
		}
	}
	return b.offsets()
}

// overWebRTC returns by how much beeps come after flashes as weir has sent them. A browser
// brings audio and video together in its own time, by the sender's clock, and says how
// far it is; the rest is in what it got.
func (m matrixTold) overWebRTC(t *testing.T, flashes []float64) (off []float64) {
	t.Helper()
	var seen []float64
	for _, flash := range flashes {
		one := pair([]float64{flash}, m.Beeps)
		if len(one) == 0 || len(m.Skews) == 0 {
			continue
		}
		near := slices.MinFunc(m.Skews, func(a, b [2]float64) int { return cmpFloat(math.Abs(a[0]-flash), math.Abs(b[0]-flash)) })
		if math.Abs(near[1]) > beatEvery/4 {
			continue // it has only begun to do so
		}
		seen, off = append(seen, one[0]), append(off, one[0]+near[1])
	}
	t.Logf("in the browser beeps come %.3f after flashes", seen)
	return off
}

// outcome is what became of a player.
type outcome struct {
	publisher, player string
	loose             bool // what was sent together was not together to the millisecond
	first             time.Time
	played            time.Duration
	stalls            []stall
	blamed            int // of them, on weir
	offsets           []float64
	sent              []float64 // the same in what weir sent, over WebRTC
	changed           bool
	others            map[string]int
}

// stall is a time in which a player had nothing to show.
type stall struct {
	at     time.Time
	length time.Duration
	dry    time.Duration // how long nothing had come before, over WebRTC
	where  string        // in the player's words
}

// judge fails the test if weir is to blame for something.
func (o *outcome) judge(t *testing.T, log *watchLog, through *delivery) {
	t.Helper()
	if o.played < playTime {
		t.Errorf("it played for %v only", o.played)
	}
	for _, s := range o.stalls {
		why := through.blame(s)
		if why == "" {
			why = log.blame(s, through.taken(s))
		}
		if why == "" && s.dry > time.Second && log.silent(s.at.Add(-s.dry), s.at) < latePart {
			why = fmt.Sprintf("nothing came for %v", s.dry)
		}
		t.Logf("stalled for %v at %v%s; it was answered:\n%s", s.length, s.at.Format("15:04:05.000"), s.where, through.around(s))
		if why != "" {
			o.blamed++
			t.Errorf("it stalled for %v, and %s", s.length, why)
		}
	}
	overWebRTC := o.player == "WHEP" // there it is measured by the clock on the wall
	inStepBy(t, o.offsets, o.loose || overWebRTC, "what is shown")
	if overWebRTC {
		inStepBy(t, o.sent, o.loose, "what weir sends")
	}
	t.Logf("offsets %.3f, sent %.3f, others %v", o.offsets, o.sent, o.others)
}

// inStepBy fails the test if beeps don't come with their flashes. loose says that it is the
// middle one that counts, not the worst.
func inStepBy(t *testing.T, offsets []float64, loose bool, of string) {
	t.Helper()
	median, worst := middle(offsets)
	limit := worst
	if loose {
		limit = median
	}
	switch {
	case len(offsets) < leastBeats:
		t.Errorf("in %s there were %d flashes with a beep, want %d: %.3f", of, len(offsets), leastBeats, offsets)
	case limit.Abs().Seconds() > harness.InStep:
		t.Errorf("in %s beeps come %v after their flashes, at worst %v: %.3f", of, median, worst, offsets)
	}
}

// matrixTable collects what became of all.
type matrixTable struct {
	mu   sync.Mutex
	rows []outcome
}

func (m *matrixTable) add(o outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = append(m.rows, o)
}

func (m *matrixTable) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-18s %-10s %7s %7s %8s %7s %6s %9s %9s %9s %s\n", "publisher", "player", "played", "stalls", "stalled", "blamed", "beats", "median", "worst", "sent", "changed")
	for _, o := range m.rows {
		var stalled time.Duration
		for _, s := range o.stalls {
			stalled += s.length
		}
		median, worst := middle(o.offsets)
		sent := ""
		if len(o.sent) > 0 {
			m, _ := middle(o.sent)
			sent = fmt.Sprintf("%.1f ms", 1000*m.Seconds())
		}
		fmt.Fprintf(&b, "%-18s %-10s %7.1f %7d %8.1f %7d %6d %6.1f ms %6.1f ms %9s %t\n", o.publisher, o.player, o.played.Seconds(), len(o.stalls), stalled.Seconds(), o.blamed,
			len(o.offsets), 1000*median.Seconds(), 1000*worst.Seconds(), sent, o.changed)
	}
	return b.String()
}
