package ingest

import (
	"bytes"
	"crypto/md5"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
)

// sent is a packet of a clip, or the received frame.
type sent struct {
	DTS, PTS time.Duration // since the first packet of the clip is shown
	Sync     bool
	Digest   string
}

// packetsOf returns the packets of a kind in a clip, by ffprobe.
func packetsOf(t *testing.T, path string, kind cmaf.Kind) (all []sent) {
	t.Helper()
	out := run(t, "ffprobe", "-v", "error", "-select_streams", string(kind[0]), "-show_data_hash", "md5",
		"-show_entries", "packet=dts_time,pts_time,flags,data_hash", "-of", "json", path)
	var found struct {
		Packets []struct {
			DTS    string `json:"dts_time"`
			PTS    string `json:"pts_time"`
			Flags  string `json:"flags"`
			Digest string `json:"data_hash"`
		} `json:"packets"`
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	at := func(text string) time.Duration {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(seconds*1e6+0.5) * time.Microsecond
	}
	for _, p := range found.Packets {
		all = append(all, sent{at(p.DTS), at(p.PTS), p.Flags[0] == 'K', strings.TrimPrefix(p.Digest, "MD5:")})
	}
	return all
}

// framesOf returns the received frames of a kind.
func framesOf(p *testPublisher, kind cmaf.Kind) (all []sent) {
	for _, f := range p.of(kind) {
		digest := md5.Sum(f.Data)
		all = append(all, sent{f.DTS, f.PTS, f.Sync, hex.EncodeToString(digest[:])})
	}
	return all
}

// publish starts ffmpeg as an encoder.
func publish(t *testing.T, arguments, path, target string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	args := strings.Fields("-v error -nostdin " + arguments)
	args = append(args, "-i", path, "-c", "copy", "-f", "flv", target)
	cmd := exec.CommandContext(t.Context(), "ffmpeg", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &errs
}

// Every frame of a clip arrives as it is, when it is.
func TestPublish(t *testing.T) {
	for _, tt := range []struct {
		name, clip, options string
		kinds               []cmaf.Kind
	}{
		{"audio and video", "flv", "", []cmaf.Kind{cmaf.Video, cmaf.Audio}},
		{"in real time", "flv", "-re", []cmaf.Kind{cmaf.Video, cmaf.Audio}},
		{"audio", "audio.flv", "", []cmaf.Kind{cmaf.Audio}},
		{"video", "video.flv", "", []cmaf.Kind{cmaf.Video}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hub := newTestHub()
			address, _ := start(t, RTMP{}, hub)
			path := clip(t, tt.clip)
			cmd, errs := publish(t, tt.options, path, "rtmp://"+address+"/live/"+goodKey)
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, errs)
			}
			p := hub.only(t)
			if p.closed != "clean" || p.from.Protocol != "rtmp" {
				t.Errorf("the publisher, %s, ended %s, want rtmp, clean", p.from.Protocol, p.closed)
			}
			if len(p.tracks) != 1 {
				t.Fatalf("%d sets of tracks, want 1", len(p.tracks))
			}
			var kinds []cmaf.Kind
			for _, track := range p.tracks[0] {
				kinds = append(kinds, track.Kind)
			}
			if diff := cmp.Diff(tt.kinds, kinds); diff != "" {
				t.Errorf("tracks (-want +got):\n%s", diff)
			}
			for _, kind := range tt.kinds {
				near := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= time.Millisecond })
				if diff := cmp.Diff(packetsOf(t, path, kind), framesOf(p, kind), near); diff != "" {
					t.Errorf("%s (-sent +came):\n%s", kind, diff)
				}
			}
			if audio := p.of(cmaf.Audio); len(audio) > 0 {
				rate := time.Duration(p.tracks[0][len(kinds)-1].SampleRate)
				for i, f := range audio {
					if want := audio[0].DTS + time.Duration(i)*1024*time.Second/rate; f.DTS != want {
						t.Fatalf("audio frame %d is at %v, want %v: not rounded to milliseconds", i, f.DTS, want)
					}
				}
			}
		})
	}
}

// Some users put the stream key into the address of the server; then it comes in the application, and the
// name of the stream is empty or anything.
func TestKeyInApplication(t *testing.T) {
	for name, path := range map[string]string{
		"no stream name": "/live/" + goodKey + "/",
		"any name":       "/live/" + goodKey + "/stream",
		"the key twice":  "/live/" + goodKey + "/" + goodKey + "?x=y",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := newTestHub()
			address, _ := start(t, RTMP{}, hub)
			cmd, errs := publish(t, "", clip(t, "flv"), "rtmp://"+address+path)
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, errs)
			}
			if p := hub.only(t); p.closed != "clean" || len(p.frames) == 0 {
				t.Errorf("the publisher ended %s with %d frames, want clean, some", p.closed, len(p.frames))
			}
		})
	}
}

func TestPublishOverTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // it has a certificate
	config := web.TLS.Clone()
	web.Close()
	hub := newTestHub()
	address, _ := start(t, RTMP{Listener: tls.NewListener(listen(t), config)}, hub)
	path := clip(t, "flv")
	cmd, errs := publish(t, "", path, "rtmps://"+address+"/live/"+goodKey)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	p := hub.only(t)
	if p.closed != "clean" || p.from.Protocol != "rtmps" {
		t.Errorf("the publisher, %s, ended %s, want rtmps, clean", p.from.Protocol, p.closed)
	}
	if got, want := len(p.of(cmaf.Video)), len(packetsOf(t, path, cmaf.Video)); got != want {
		t.Errorf("%d video frames arrived, want %d", got, want)
	}
}

// An encoder that stops ends its stream in order; one that is killed does not.
func TestPublisherStops(t *testing.T) {
	for _, tt := range []struct {
		signal syscall.Signal
		want   string
	}{{syscall.SIGTERM, "clean"}, {syscall.SIGKILL, "lost"}} {
		t.Run(tt.signal.String(), func(t *testing.T) {
			t.Parallel()
			hub := newTestHub()
			address, log := start(t, RTMP{}, hub)
			cmd, _ := publish(t, "-re -stream_loop -1", clip(t, "flv"), "rtmp://"+address+"/live/"+goodKey)
			hub.wait(t, "media", func() bool { return hub.count() > 20 })
			if err := cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			p := hub.only(t)
			if p.closed != tt.want {
				t.Errorf("ended %s, want %s", p.closed, tt.want)
			}
			_ = cmd.Wait()
			log.wait(t, "stream=stream-1", "remote=127.0.0.1:")
		})
	}
}

// An encoder without a valid stream key is refused before any media.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name, path string
		log        string
	}{
		{"wrong key", "/live/0000-1111-2222-3333", "no stream has this stream key"},
		{"no key", "/live/", "no stream has this stream key"},
		{"another application", "/other/" + goodKey, "another application than live"},
		{"wrong key as application", "/live/0000-1111-2222-3333/", "no stream has this stream key"},
		{"application below", "/live/more/" + goodKey, "no stream has this stream key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hub := newTestHub()
			address, log := start(t, RTMP{}, hub)
			cmd, errs := publish(t, "-re -stream_loop -1", clip(t, "flv"), "rtmp://"+address+tt.path)
			checkRefused(t, hub, cmd, errs, "Server error:", log, tt.log)
		})
	}
}

// checkRefused waits for the end of ffmpeg, and checks its message and the log.
func checkRefused(t *testing.T, hub *testHub, cmd *exec.Cmd, errs *bytes.Buffer, message string, log *logBook, reason string) {
	t.Helper()
	if err := cmd.Wait(); err == nil || !strings.Contains(errs.String(), message) {
		t.Errorf("ffmpeg ended with %v, want %q:\n%s", err, message, errs)
	}
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if len(hub.publishers) > 0 {
		t.Errorf("%d publishers, want none", len(hub.publishers))
	}
	log.wait(t, reason)
	if text := log.String(); strings.Contains(text, "0000-1111") {
		t.Errorf("a secret is in the log:\n%s", text)
	}
}

// The hub can end a stream with and without incoming media.
func TestHubEndsStream(t *testing.T) {
	hub := newTestHub()
	address, log := start(t, RTMP{}, hub)
	cmd, _ := publish(t, "-re -stream_loop -1", clip(t, "flv"), "rtmp://"+address+"/live/"+goodKey)
	checkHubEnds(t, hub, cmd, log)
}

// checkHubEnds ends the stream of ffmpeg in the hub.
func checkHubEnds(t *testing.T, hub *testHub, cmd *exec.Cmd, log *logBook) {
	t.Helper()
	hub.wait(t, "media", func() bool { return hub.count() > 20 })
	hub.mu.Lock()
	close(hub.publishers[0].done)
	hub.mu.Unlock()
	if p := hub.only(t); p.closed != "lost" {
		t.Errorf("ended %s, want lost", p.closed)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("ffmpeg did not notice")
	}
	log.wait(t, "the stream was ended by its owner")
}
