package live

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/blob/s3test"
	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/hls"
	"weir/internal/store"
	"weir/internal/store/pgtest"
	"weir/internal/store/storetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(s3test.Runner{M: pgtest.Runner{M: m}}) }

// The tracks of tests: 640x360 in H.264 and AAC at 48 kHz.
func testTracks(t *testing.T) []cmaf.Track {
	t.Helper()
	video := newTrack(t)(codec.H264Config(
		[]byte{0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x2f, 0xf9, 0x61, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00, 0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2e, 0x48},
		[]byte{0x68, 0xcb, 0x83, 0xcb, 0x20},
	))
	return []cmaf.Track{video, newTrack(t)(codec.AACConfig([]byte{0x11, 0x90}))}
}

// newTrack returns the track of a configuration.
func newTrack(t *testing.T) func(codec.Config, error) cmaf.Track {
	return func(config codec.Config, err error) cmaf.Track {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		track, err := cmaf.NewTrack(config)
		if err != nil {
			t.Fatal(err)
		}
		return track
	}
}

// station is a node with a hub, and a stream.
type testHub struct {
	*testing.T
	database, dir string
	store         *store.Store
	hub           *Hub
	stream        weir.Stream
	engine        *ffmpeg.Engine // nil = no ladder
	stop          func()
}

func storeOptions(node string) store.Options {
	return store.Options{Secret: bytes.Repeat([]byte{3}, 32), NodeID: node}
}

func newTestHub(t *testing.T, record bool) *testHub {
	t.Helper()
	return newTestHubOn(t, storetest.SQLite(t, store.Open, storeOptions("")), record)
}

func newTestHubOn(t *testing.T, database string, record bool) *testHub {
	t.Helper()
	s := &testHub{T: t, database: database, dir: t.TempDir()}
	s.start()
	u := weir.User{ID: weir.NewID(), Email: "ann@example.com", CreatedAt: weir.At(time.Now())}
	var err error
	s.stream, err = weir.NewStream{Name: "x", Profiles: &[]weir.Profile{}, Record: record}.Stream(&weir.Caller{UserID: u.ID}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.write(func(tx *store.Tx) error {
		return errors.Join(tx.CreateUser(t.Context(), &u), tx.CreateStream(t.Context(), &s.stream))
	})
	t.Cleanup(func() { s.stop() })
	return s
}

// start opens the store and a hub, as a node does.
func (s *testHub) start() {
	s.Helper()
	st, err := store.Open(s.Context(), s.database, storeOptions("here"))
	if err != nil {
		s.Fatal(err)
	}
	s.store = st
	s.hub, err = New(s.Context(), Options{Store: st, Dir: s.dir, Node: "here", FFmpeg: s.engine, SessionTimeout: time.Minute, PartDuration: DefaultPart, Log: testLog(s.T)})
	if err != nil {
		s.Fatal(err)
	}
	s.stop = func() {
		if err := s.hub.stop(); err != nil {
			s.Error(err)
		}
		st.Close()
	}
}

// testLog shows what is logged when a test fails.
func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func (s *testHub) write(do func(*store.Tx) error) {
	s.Helper()
	if err := s.store.Tx(s.Context(), do); err != nil {
		s.Fatal(err)
	}
}

// encoder sends frames with a number in each.
type encoder struct {
	*testHub
	*Publisher
	frame, audio int
	size         int // of video frames; 0 = 100 bytes
}

func (s *testHub) publish() *encoder {
	s.Helper()
	return s.publishWith(func(data []byte) { clear(data) }) // data that is still in use would be damaged
}

// publishWith is publish with something else to do with data that goes back.
func (s *testHub) publishWith(reuse func([]byte)) *encoder {
	s.Helper()
	p, err := s.hub.Publish(s.Context(), s.stream.StreamKey.Reveal(), Source{Protocol: "test", Reuse: reuse})
	if err == nil {
		err = p.SetTracks(s.Context(), testTracks(s.T))
	}
	if err != nil {
		s.Fatal(err)
	}
	return &encoder{testHub: s, Publisher: p}
}

// Audio may begin a little before the video, but not before the end of the audio that there is. An
// encoder that runs already when it connects over SRT sends audio for a while until its first key frame.
func TestAudioDoesNotOverlap(t *testing.T) {
	s := newTestHub(t, true)
	p, err := s.hub.Publish(t.Context(), s.stream.StreamKey.Reveal(), Source{Protocol: "test"})
	if err != nil {
		t.Fatal(err)
	}
	tracks := testTracks(t)
	send := func(track int, from, to, step time.Duration) {
		t.Helper()
		for at := from; at < to; at += step {
			if err := p.Write(Frame{Track: track, PTS: at, DTS: at, Sync: true, Data: []byte{1}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const second, aac = time.Second, time.Second * 1024 / 48000
	if err := p.SetTracks(t.Context(), tracks[1:]); err != nil {
		t.Fatal(err)
	}
	send(0, 0, 2*second, aac)
	if err := p.SetTracks(t.Context(), tracks); err != nil {
		t.Fatal(err)
	}
	send(0, 2*second, 2*second+1, 40*ms)
	send(1, 1920*ms, 5*second, aac)
	send(0, 2040*ms, 5*second, 40*ms)
	p.Close(true)
	before := int64(0)
	index, _, err := p.session.renditions.audio.recorder.Index()
	if err != nil {
		t.Fatal(err)
	}
	for n, segment := range index.Segments {
		if segment.Start() < before {
			t.Errorf("segment %d of the audio begins at %d, the one before ends at %d", n, segment.Start(), before)
		}
		before = segment.End()
	}
	if len(index.Segments) < 2 {
		t.Errorf("%d segments", len(index.Segments))
	}
}

// The data of frames goes back to whoever sent them while it sends, and not when another
// encoder takes over: it may be reading into what it has.
func TestReuseWithinWrite(t *testing.T) {
	s := newTestHub(t, false)
	returned := 0
	e := s.publishWith(func([]byte) { returned++ })
	if err := e.send(1.12); err != nil {
		t.Fatal(err)
	}
	if returned < 15 {
		t.Errorf("of 28 frames %d went back", returned)
	}
	before := returned
	s.publish()
	if returned != before {
		t.Errorf("%d frames went back when another encoder came", returned-before)
	}
}

// send sends so many seconds at 25 frames a second, a key frame every two seconds.
func (e *encoder) send(seconds float64) error {
	for range int(seconds * 25) {
		at := time.Duration(e.frame) * 40 * time.Millisecond
		if err := e.Write(Frame{Track: 0, PTS: at, DTS: at, Sync: e.frame%50 == 0, Data: bytes.Repeat([]byte{byte(e.frame)}, cmp.Or(e.size, 100))}); err != nil {
			return err
		}
		e.frame++
		for ; time.Duration(e.audio)*time.Second*1024/48000 < at; e.audio++ {
			at := time.Duration(e.audio) * time.Second * 1024 / 48000
			if err := e.Write(Frame{Track: 1, PTS: at, DTS: at, Data: []byte{byte(e.audio)}}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *testHub) broadcast() *Broadcast {
	s.Helper()
	b, ok := s.hub.Find(s.stream.PlaybackID)
	if !ok {
		s.Fatal("nothing is on air")
	}
	return b
}

func (s *testHub) playlist(name string, q Query) string {
	s.Helper()
	text, err := s.broadcast().Playlist(s.Context(), name, q)
	if err != nil {
		s.Fatal(err)
	}
	return string(text.Plain)
}

func plainOf(text *hls.Text) string {
	if text == nil {
		return ""
	}
	return string(text.Plain)
}

// plain asks for a playlist as it is now.
var plain = Query{Segment: -1, Part: -1}

// frames returns the numbers of the frames in all segments of a playlist.
func (s *testHub) frames(name string, numbers ...int64) (frames []byte) {
	s.Helper()
	for _, n := range numbers {
		body, _, err := s.broadcast().Segment(name, n)
		if err != nil {
			s.Fatalf("segment %d: %v", n, err)
		}
		data, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil {
			s.Fatal(err)
		}
		init, err := s.broadcast().Init(name, 0)
		if err != nil {
			s.Fatal(err)
		}
		reader := cmaf.NewReader(io.MultiReader(bytes.NewReader(init), bytes.NewReader(data)))
		for {
			f, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				s.Fatal(err)
			}
			for _, sample := range f.Samples {
				frames = append(frames, f.Data[0])
				f.Data = f.Data[sample.Size:]
			}
		}
	}
	return frames
}

func TestSegments(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(7); err != nil {
		t.Fatal(err)
	}
	list := s.playlist(videoName, plain)
	if n := strings.Count(list, "#EXTINF:2.000000,"); n != 3 || strings.Contains(list, "PART") || strings.Contains(list, "DISCONTINUITY") {
		t.Errorf("playlist of 7 s has %d segments of 2 s:\n%s", n, list)
	}
	if audio := s.playlist(audioName, plain); strings.Count(audio, "#EXTINF") != 3 {
		t.Errorf("audio is not cut where the video is:\n%s", audio)
	}
	if low := s.playlist(videoName, Query{Low: true, Segment: -1}); !strings.Contains(low, `#EXT-X-PART:DURATION=0.200000,URI="3.0.m4s",INDEPENDENT=YES`) ||
		!strings.Contains(low, `RENDITION-REPORT:URI="../audio/index.m3u8",LAST-MSN=3`) {
		t.Errorf("playlist with parts:\n%s", low)
	}
	got := s.frames(videoName, 0, 1, 2)
	for i, number := range got {
		if int(number) != i {
			t.Fatalf("frame %d has the number %d", i, number)
		}
	}
	if len(got) != 150 {
		t.Errorf("%d frames in three segments, want 150", len(got))
	}
}

// TestWindow sends more than a playlist shows: of what is not recorded only that stays,
// and as much again.
func TestWindow(t *testing.T) {
	for name, record := range map[string]bool{"recorded": true, "not recorded": false} {
		t.Run(name, func(t *testing.T) {
			s := newTestHub(t, record)
			e := s.publish()
			if err := e.send(201); err != nil {
				t.Fatal(err)
			}
			list := s.playlist(videoName, plain)
			if n := strings.Count(list, "#EXTINF"); n != 30 || !strings.Contains(list, "#EXT-X-MEDIA-SEQUENCE:70\n") {
				t.Errorf("playlist has %d segments:\n%s", n, list)
			}
			_, _, err := s.broadcast().Segment(videoName, 0)
			if (err == nil) != record {
				t.Errorf("the first segment is answered with %v", err)
			}
			if len(s.frames(videoName, 40, 70, 99)) != 150 {
				t.Error("segments that players may still request are deleted")
			}
		})
	}
}

// TestReconnect lets the encoder go and come back: one session, nothing lost, and a
// discontinuity where it was away.
func TestReconnect(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	first := e.session.info.ID
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	e.Close(false)
	before := s.playlist(videoName, plain)
	if strings.Contains(before, "ENDLIST") || strings.Count(before, "#EXTINF") != 3 {
		t.Errorf("in the gap:\n%s", before)
	}
	back := s.publish()
	if back.session.info.ID != first {
		t.Errorf("another session: %s, was %s", back.session.info.ID, first)
	}
	if err := back.send(3); err != nil {
		t.Fatal(err)
	}
	after := s.playlist(videoName, plain)
	if i := strings.Index(after, "#EXT-X-DISCONTINUITY\n"); i < 0 || strings.Count(after, "#EXT-X-DISCONTINUITY\n") != 1 || strings.Count(after[i:], "#EXTINF") != 1 {
		t.Errorf("after the return:\n%s", after)
	}
	if got := s.frames(videoName, 0, 1, 2); len(got) != 125 {
		t.Errorf("%d of 125 frames were kept", len(got))
	}
	if by := back.session.beat(time.Now()).Received; !slices.Equal(by.Protocols, []string{e.from.Protocol}) || by.Encoded {
		t.Errorf("received %+v, want by %q, both times", by, e.from.Protocol)
	}
}

// TestLostBetweenFrames loses an encoder whose last frame is shown after others that did
// not come any more, and expects the next one to begin after it.
func TestLostBetweenFrames(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	const frame = 40 * time.Millisecond
	for i, shown := range []time.Duration{0, 3, 1, 2, 6} {
		if err := e.Write(Frame{Track: 0, DTS: time.Duration(i) * frame, PTS: (shown + 2) * frame, Sync: i == 0, Data: []byte{1}}); err != nil {
			t.Fatal(err)
		}
	}
	e.Close(false)
	back := s.publish()
	if want := e.clock.start + 7*frame; e.session.conn.end < want || back.clock.start < want {
		t.Errorf("the last frame ends at %v, the session at %v, and the next encoder begins at %v", want, e.session.conn.end, back.clock.start)
	}
}

// TestRestart stops a node without a word to the encoder, and expects another life of
// it to go on with what there is.
func TestRestart(t *testing.T) {
	s := newTestHub(t, true)
	e := s.publish()
	session := e.session.info.ID
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	s.store.Close() // the hub does not know: its files stay as they are
	for _, r := range e.session.renditions.source() {
		if err := r.recorder.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	list := s.playlist(videoName, plain)
	if strings.Count(list, "#EXTINF") != 3 || strings.Contains(list, "ENDLIST") {
		t.Errorf("after the restart:\n%s", list)
	}
	// The pending part is lost, the others are not.
	if got := s.frames(videoName, 0, 1, 2); len(got) < 120 {
		t.Errorf("%d of 125 frames were kept", len(got))
	}
	back := s.publish()
	if back.session.info.ID != session {
		t.Errorf("another session: %s, was %s", back.session.info.ID, session)
	}
	if err := back.send(3); err != nil {
		t.Fatal(err)
	}
	if list := s.playlist(videoName, plain); !strings.Contains(list, "#EXT-X-MEDIA-SEQUENCE:0\n") || strings.Count(list, "#EXTINF") != 4 {
		t.Errorf("after the return:\n%s", list)
	}
}

func TestTakeOver(t *testing.T) {
	s := newTestHub(t, false)
	first := s.publish()
	if err := first.send(3); err != nil {
		t.Fatal(err)
	}
	second := s.publish()
	select {
	case <-first.Done():
	default:
		t.Error("the first encoder was not stopped")
	}
	if err := first.send(0.1); !errors.Is(err, errTakenOver) {
		t.Errorf("the first encoder gets %v", err)
	}
	first.Close(false)
	if err := second.send(3); err != nil {
		t.Errorf("the second encoder gets %v", err)
	}
	s.hub.beat(t.Context())
	if err := second.send(1); err != nil {
		t.Errorf("after a beat the second encoder gets %v", err)
	}
}

// TestEnd lets the owner end the stream: the encoder is stopped, and playlists end.
func TestEnd(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	s.write(func(tx *store.Tx) error {
		_, err := tx.UpdateStream(t.Context(), s.stream.ID, func(st *weir.Stream) error { st.Suspended = true; return nil })
		return err
	})
	s.hub.beat(t.Context())
	if err := e.send(0.1); err == nil {
		t.Error("the encoder may continue")
	}
	if list := s.playlist(videoName, plain); !strings.Contains(list, "#EXT-X-ENDLIST") {
		t.Errorf("the playlist has no end:\n%s", list)
	}
	if _, err := s.hub.Publish(t.Context(), s.stream.StreamKey.Reveal(), Source{}); err == nil {
		t.Error("a suspended stream lets encoders in")
	}
	e.Close(false)
	s.hub.closeEnded(time.Now().Add(2 * shownAfter))
	if _, ok := s.hub.Find(s.stream.PlaybackID); ok {
		t.Error("the session is still shown")
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "*")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

// TestDeletedAccount ends the broadcast of an account that is deleted; after it is restored, encoders
// are let in again.
func TestDeletedAccount(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	s.write(func(tx *store.Tx) error {
		_, err := tx.DeleteUser(t.Context(), s.stream.UserID, weir.Base{}, time.Now())
		return err
	})
	s.hub.beat(t.Context())
	if err := e.send(0.1); err == nil {
		t.Error("the encoder may continue")
	}
	e.Close(false)
	if _, err := s.hub.Publish(t.Context(), s.stream.StreamKey.Reveal(), Source{}); !weir.IsNotFound(err) {
		t.Errorf("an encoder of a deleted account: %v, want not found", err)
	}
	s.write(func(tx *store.Tx) error { return tx.RestoreUser(t.Context(), s.stream.UserID, time.Now()) })
	if err := s.publish().send(1); err != nil {
		t.Errorf("an encoder of a restored account: %v", err)
	}
}

// TestNextSession ends a session and lets the encoder come back: until its first picture is
// there, players see the end of the session before.
func TestNextSession(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	s.write(func(tx *store.Tx) error {
		_, err := tx.UpdateStream(t.Context(), s.stream.ID, func(st *weir.Stream) error { return st.Terminate(time.Now()) })
		return err
	})
	s.hub.beat(t.Context())
	back := s.publish()
	if list := s.playlist(videoName, plain); !strings.Contains(list, "#EXT-X-ENDLIST") {
		t.Errorf("before the first video frame:\n%s", list)
	}
	if err := back.send(3); err != nil {
		t.Fatal(err)
	}
	if list := s.playlist(videoName, plain); strings.Contains(list, "#EXT-X-ENDLIST") {
		t.Errorf("with video:\n%s", list)
	}
	s.hub.closeEnded(time.Now().Add(2 * shownAfter))
	if now, ok := s.hub.Find(s.stream.PlaybackID); !ok || now.session.before != nil {
		t.Error("the session is closed, or holds the one before")
	}
}

// ffmpeg can't bear a rendition without a segment beside one that has some, so the
// playlist of audio waits for the audio that ends its first one.
func TestFirstSegmentsTogether(t *testing.T) { synctest.Test(t, firstSegmentsTogether) }

func firstSegmentsTogether(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(2.04); err != nil { // with the key frame that is held until the next frame
		t.Fatal(err)
	}
	at := time.Duration(e.frame) * 40 * time.Millisecond
	if err := e.Write(Frame{Track: 0, PTS: at, DTS: at, Data: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	if text := s.playlist(videoName, plain); !strings.Contains(text, "#EXTINF") {
		t.Fatalf("the video has no segment:\n%s", text)
	}
	playlist := make(chan string, 1)
	b := s.broadcast()
	go func() {
		text, err := b.Playlist(t.Context(), audioName, plain)
		playlist <- plainOf(text) + fmt.Sprint(err)
	}()
	synctest.Wait()
	select {
	case text := <-playlist:
		t.Fatalf("the audio has no segment yet, and there is a playlist:\n%s", text)
	default:
	}
	e.frame++
	if err := e.send(0.4); err != nil {
		t.Fatal(err)
	}
	if text := <-playlist; !strings.Contains(text, "#EXTINF") {
		t.Errorf("the audio has no segment after the wait:\n%s", text)
	}
}

// A player that has all parts of a long segment asks for the next one before it can know
// that there is none.
func TestWaitAfterALongSegment(t *testing.T) { synctest.Test(t, waitAfterALongSegment) }

func waitAfterALongSegment(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	send := func(frames int, sync bool) {
		t.Helper()
		for i := range frames {
			at := time.Duration(e.frame) * 40 * time.Millisecond
			if err := e.Write(Frame{Track: 0, PTS: at, DTS: at, Sync: sync && i == 0, Data: []byte{1}}); err != nil {
				t.Fatal(err)
			}
			e.frame++
		}
	}
	send(100, true) // 4 seconds, in 20 parts
	send(2, true)
	if text := s.playlist(videoName, Query{Low: true, Segment: -1}); !strings.Contains(text, "0.19.m4s") || !strings.HasSuffix(text, `URI="1.0.m4s"`+"\n") {
		t.Fatalf("there are not 20 parts of a segment:\n%s", text)
	}
	playlist := make(chan string, 1)
	b := s.broadcast()
	go func() {
		text, err := b.Playlist(t.Context(), videoName, Query{Low: true, Segment: 0, Part: 20})
		playlist <- plainOf(text) + fmt.Sprint(err)
	}()
	synctest.Wait()
	select {
	case text := <-playlist:
		t.Fatalf("there is nothing new, and a playlist:\n%s", text)
	default:
	}
	send(10, false)
	if text := <-playlist; !strings.Contains(text, "1.0.m4s") {
		t.Errorf("the first part of the next segment is there, and the playlist is\n%s", text)
	}
}

// TestWait asks for what is not there yet.
func TestWait(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(2.5); err != nil {
		t.Fatal(err)
	}
	playlists := make(chan string)
	for _, q := range []Query{{Low: true, Segment: 1, Part: 5}, {Low: true, Segment: 1, Part: -1}, {Low: true, Segment: 2, Part: 0}, {Low: true, Segment: 1, Part: 10}} {
		go func() { playlists <- s.playlist(videoName, q) }()
	}
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if text := <-playlists; !strings.Contains(text, "1.5.m4s") {
			t.Errorf("answered too early:\n%s", text)
		}
	}
	for _, q := range []Query{{Segment: 9, Part: -1}, {Segment: 3, Part: 99}} {
		if _, err := s.broadcast().Playlist(t.Context(), videoName, q); weir.KindOf(err) != weir.Refused {
			t.Errorf("%+v is answered with %v", q, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.broadcast().Playlist(ended, videoName, Query{Segment: 3, Part: -1}); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was given up: %v", err)
	}
}
