package live

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	"weir/internal/rtc/rtctest"
	"weir/internal/store/pgtest"
	words "weir/internal/weir"
)

// liveNodes sends to one of two nodes and watches at the other, and at a third that carries
// nothing. Then the encoder goes to the other one: once while the first is well, once because
// it was killed. Players that never reload go on, playlists have what both nodes received, and
// so has the asset each time.
func liveNodes(t *testing.T) {
	a, b, c, bucket := harness.NewWeir(t), harness.NewWeir(t), harness.NewWeir(t), s3test.Start(t)
	a.Database = pgtest.Start(t)
	b.Database, c.Database = a.Database, a.Database
	rtmp := map[*harness.Weir]string{}
	for _, w := range []*harness.Weir{a, b, c} {
		w.Env = append(w.Env, "WEIR_STORAGE="+bucket.URL())
	}
	for _, w := range []*harness.Weir{a, b} {
		rtmp[w] = harness.FreeAddr(t)
		w.Start("--rtmp", rtmp[w], "--webrtc", harness.FreeAddr(t), "--webrtc-host", "127.0.0.1")
	}
	c.Start("--run", "api")
	browser := harness.NewBrowser(t, t.TempDir())
	films := numbered(t, 2)
	checkSignalling(t, newStream(a, rtmp[a]), b)
	for _, how := range []string{"well", "killed"} {
		first := newRecordedStream(a, rtmp[a])
		second, third := *first, *first
		second.w, second.rtmp, third.w = b, rtmp[b], c
		e := first.send(films[0])
		third.waitLive()
		harness.Eventually(t, func() error { // hls.js starts anew on a playlist without one
			if len(third.plainPlaylist("source").segments) == 0 {
				return errors.New("there is no whole segment yet")
			}
			return nil
		})
		watch(browser, third.url("index.m3u8"))
		last := second.watchAtEdge(t, e)
		player := second.play(t)
		player.until(t, 0)
		plays(browser, e, watched{}, 0.5)
		session := second.session()
		if how == "well" {
			third.checkClip(t, session.ID)
		}
		harness.Suspend(t, e.cmd.Process.Pid)
		allReceived(t, rtmp[a])
		lost := maxHeld
		if how == "killed" {
			for _, name := range []string{"source", "audio"} {
				harness.Eventually(t, func() error {
					return stored(filepath.Join(bucket.Dir, "asset", session.ID), name, wholeSegments(last)-1)
				})
			}
			a.Kill()
			// What was not a whole segment by then is gone with the machine.
			lost = int(e.frames.Load()) - 50*wholeSegments(last)
		}
		moved := time.Now()
		e2 := second.send(films[1])
		player.until(t, 1)
		seen := watchState(browser)
		seen.Date = float64(moved.UnixMilli())
		plays(browser, e2, seen, 0.5)
		t.Logf("%s: hls.js shows the second encoder after %.1f s", how, time.Since(moved).Seconds())
		e.kill()
		e2.untilSent(80)
		for _, at := range []*liveStream{&second, &third} {
			at.checkMoved(last, how == "killed")
		}
		if now := second.session(); now.ID != session.ID || now.SourceSegments < session.SourceSegments {
			t.Errorf("%s: session %+v goes on as %+v", how, session, now)
		}
		e2.stop()
		b.Must("DELETE", "/api/stream/"+second.id+"/terminate", nil, nil)
		player.wait(t)
		second.checkJoined(second.waitRecorded("ready"), []int{int(e.frames.Load()) - lost, int(e2.frames.Load()) - maxHeld})
		if left, _ := filepath.Glob(filepath.Join(bucket.Dir, "asset", session.ID, "legs", "*", "*", "*", "*")); len(left) > 0 {
			t.Errorf("%s: %v is left", how, left)
		}
	}
	b.Stop()
	c.Stop()
}

// checkClip asks for a clip at a node that does not have the session: the node that has it cuts it.
func (s *liveStream) checkClip(t *testing.T, session string) {
	t.Helper()
	now := time.Now().UnixMilli()
	var made struct{ Asset words.Asset }
	s.w.Must("POST", "/api/clip", map[string]any{"playbackId": s.playback, "startTime": now - 1000, "endTime": now}, &made)
	harness.Eventually(t, func() error {
		var a words.Asset
		s.w.Must("GET", "/api/asset/"+made.Asset.ID, nil, &a)
		switch {
		case a.Status.Phase == words.AssetFailed:
			t.Fatalf("clip: %+v", a.Status)
		case a.Status.Phase != words.AssetReady:
			return fmt.Errorf("the clip is %s", a.Status.Phase)
		case a.Source.SessionID != session:
			t.Errorf("the clip is of session %q, not of %q", a.Source.SessionID, session)
		case a.VideoSpec.Duration < 0.95 || a.VideoSpec.Duration > 1.05:
			t.Errorf("the clip has %.3f s, not 1", a.VideoSpec.Duration)
		}
		return nil
	})
	if code, body := get(t, s.w.URL+"/_node/ranges/"+session); code == http.StatusOK {
		t.Errorf("anybody is told the ranges of a session: %s", body)
	}
}

// checkSignalling publishes and watches over WebRTC at a node that another one has the
// session of: that one takes both.
func checkSignalling(t *testing.T, s *liveStream, other *harness.Weir) {
	t.Helper()
	e := s.send(numbered(t, 1)[0])
	s.waitLive()
	e.kill()
	session := s.session()
	publisher, viewer := rtctest.New(t), rtctest.New(t)
	publisher.Post(other.URL+"/webrtc/"+s.key, publisher.OfferToSend())
	publisher.Play(rtctest.MakeFilm(t, "2"))
	harness.Eventually(t, func() error {
		if n := strings.Count(s.w.Log.String(), `"protocol":"whip"`); n != 1 {
			return fmt.Errorf("the node that has the session was asked to take %d publishers", n)
		}
		return nil
	})
	harness.Eventually(t, func() error {
		// The picture of the encoder before has B-frames, which browsers don't get.
		response := rtctest.Request(t, http.MethodPost, other.URL+"/webrtc/"+s.playback, "application/sdp", viewer.OfferToWatch())
		if response.StatusCode != http.StatusCreated {
			viewer = rtctest.New(t)
			return fmt.Errorf("who wants to watch gets %d %s", response.StatusCode, response.Text)
		}
		viewer.Answered(response.Text)
		return nil
	})
	harness.Eventually(t, func() error {
		if packets, _ := viewer.Got("video"); packets < 25 {
			return fmt.Errorf("%d packets of the picture came", packets)
		}
		return nil
	})
	if now := s.session(); now.ID != session.ID {
		t.Errorf("session %s goes on as %s", session.ID, now.ID)
	}
	viewer.Close()
	publisher.Close()
	s.w.Must("DELETE", "/api/stream/"+s.id, nil, nil)
}

// watchAtEdge watches a stream that another node carries, as a player does that minds every
// rule, and returns the last playlist of the picture.
func (s *liveStream) watchAtEdge(t *testing.T, e *encoder) (last *livePlaylist) {
	t.Helper()
	t.Run("edge", func(t *testing.T) {
		here := *s
		here.w = in(s.w, t)
		var base atomic.Pointer[string]
		base.Store(&here.w.URL)
		viewers := []*viewer{here.watch(&base, "source", 1), here.watch(&base, "audio", 1)}
		e.untilSeen(viewers[0], 2)
		e.untilSeen(viewers[1], 1)
		last = viewers[0].state()
	})
	if last == nil {
		t.FailNow()
	}
	return last
}

// checkMoved looks at the playlists of a stream that has moved: they have what the first node
// carried, as long as it is in the last one that was seen there, and then what the second does.
// Between them there may be gaps only if the first was killed before it could say how far it was.
func (s *liveStream) checkMoved(last *livePlaylist, killed bool) {
	s.w.T.Helper()
	t := s.w.T
	for _, name := range []string{"source", "audio"} {
		_, text := s.get(name + "/dvr.m3u8")
		dvr, err := parseLive([]byte(strings.Replace(string(text), "#EXT-X-PLAYLIST-TYPE:EVENT\n", "", 1)))
		if err != nil {
			t.Fatalf("%s/dvr.m3u8: %v\n%s", name, err, text)
		}
		for what, list := range map[string]*livePlaylist{"last minute": s.plainPlaylist(name), "all": dvr} {
			before, gaps, after := 0, 0, 0
			for i, segment := range list.segments {
				switch {
				case segment.gap && after == 0 && segment.seconds < 0.3: // the encoder had not sent this audio yet
				case segment.gap && after == 0:
					gaps++
				case segment.gap:
					t.Errorf("%s, %s: a gap among what the second node carries", name, what)
				case segment.discontinuity, after > 0:
					after++
				default:
					before++
				}
				if after == 1 && i > 0 && (!segment.discontinuity || segment.init == list.segments[0].init) {
					t.Errorf("%s, %s: the second node begins with %+v", name, what, segment)
				}
				if status, _ := s.get(name + "/" + segment.uri); (status == http.StatusOK) == segment.gap {
					t.Errorf("%s, %s: segment %d of %d is answered with %d: %+v", name, what, i, len(list.segments), status, segment)
				}
			}
			// What is older than a minute is gone by now if the machine was busy.
			if int(list.sequence)+before < wholeSegments(last) || gaps > 0 && !killed || after == 0 || list.sequence < last.sequence || list.sequence > 0 && what == "all" {
				t.Errorf("%s, %s: %d segments, %d gaps, %d segments from %d on, after %d from %d on", name, what, before, gaps, after, list.sequence, wholeSegments(last), last.sequence)
			}
		}
	}
}

// stored returns an error unless a segment of a session is in a bucket, and what tells of it.
func stored(dir, name string, segment int) error {
	is, err := os.Stat(filepath.Join(dir, name, fmt.Sprintf("%d.m4s", segment)))
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "legs", "0", name, "index", "*"))
	for _, file := range files {
		if index, err := os.Stat(file); err == nil && index.ModTime().After(is.ModTime()) {
			return nil
		}
	}
	return errors.Join(err, fmt.Errorf("nothing tells of segment %d of %s", segment, name))
}

// wholeSegments returns how many segments of a stream from its start on are whole.
func wholeSegments(list *livePlaylist) int {
	whole := 0
	for _, s := range list.segments {
		if s.uri != "" {
			whole = int(s.number) + 1
		}
	}
	return whole
}

// player is an ffmpeg that plays a stream until its end.
type player struct {
	said   *harness.LockedBuffer
	ended  chan error
	frames [2]atomic.Int64 // by the encoder that sent them
}

// play starts one.
func (s *liveStream) play(t *testing.T) *player {
	t.Helper()
	p := &player{said: &harness.LockedBuffer{}, ended: make(chan error, 1)}
	cmd := exec.Command("ffmpeg", "-hide_banner", "-nostdin", "-v", "error", "-i", s.url("index.m3u8"), "-map", "0:v",
		"-fps_mode", "passthrough", "-pix_fmt", "gray", "-f", "rawvideo", "-")
	cmd.Stderr = p.said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		picture := make([]byte, numberedW*numberedH)
		for {
			if _, err := io.ReadFull(out, picture); err != nil {
				break
			}
			if n := numberIn(picture) / firstNumber(1); n < len(p.frames) {
				p.frames[n].Add(1)
			}
		}
		p.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	return p
}

// until waits until frames of an encoder are shown.
func (p *player) until(t *testing.T, encoder int) {
	t.Helper()
	harness.Eventually(t, func() error {
		select {
		case err := <-p.ended:
			t.Fatalf("the player ended: %v\n%s", err, p.said)
		default:
		}
		if n := p.frames[encoder].Load(); n < 25 {
			return fmt.Errorf("the player shows %d frames of encoder %d:\n%s", n, encoder, p.said)
		}
		return nil
	})
}

// wait waits until the player has seen the end.
func (p *player) wait(t *testing.T) {
	t.Helper()
	harness.Eventually(t, func() error {
		select {
		case <-p.ended:
			return nil
		default:
			return fmt.Errorf("the player does not notice that the stream has ended:\n%s", p.said)
		}
	})
	t.Logf("the player showed %d and %d frames", p.frames[0].Load(), p.frames[1].Load())
}

// checkJoined looks at the MP4 file of a recording of two nodes: it has at least so many
// frames of each encoder, from the first on.
func (s *liveStream) checkJoined(kept recordedSession, least []int) {
	s.w.T.Helper()
	t := s.w.T
	status, file := get(t, kept.MP4URL)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %.200s", kept.MP4URL, status, file)
	}
	numbers := map[int][]int{}
	for _, n := range frameNumbers(t, []byte(file)) {
		numbers[n/firstNumber(1)] = append(numbers[n/firstNumber(1)], n)
	}
	for i, n := range least {
		got := numbers[i]
		t.Logf("%d frames of encoder %d are in the recording, at least %d are wanted", len(got), i, n)
		if len(got) < n {
			t.Errorf("%d frames of encoder %d are in the recording, want %d", len(got), i, n)
		}
		for j := range got[:max(0, len(got)-2)] {
			if got[j] != firstNumber(i)+j {
				t.Fatalf("frame %d of encoder %d has the number %d", j, i, got[j])
			}
		}
	}
	if status, text := get(t, kept.RecordingURL); status != http.StatusOK || !strings.Contains(text, "source/index.m3u8") {
		t.Errorf("%s: %d %s", kept.RecordingURL, status, text)
	}
}

// get fetches a text.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
