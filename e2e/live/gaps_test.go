package live

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/e2e/harness"
)

const (
	// maxLost is how many frames may be missing of what was received before weir was
	// killed: half a second.
	maxLost = 12
	// maxHeld is how many frames ffmpeg counts that wait for the audio beside them.
	maxHeld = 3
)

// liveGaps watches a stream whose encoder is killed and comes back, and then weir
// itself. Each encoder sends frames with numbers of its own, so that one can see what
// became of them.
func liveGaps(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	args := []string{"--rtmp", rtmp}
	w.Start(args...)
	var base atomic.Pointer[string]
	base.Store(&w.URL)
	s := newStream(w, rtmp)
	video, audio := s.watch(&base, "source", 1), s.watch(&base, "audio", 1)

	films := numbered(t, 3)
	var encoders []*encoder
	var began []time.Time
	send := func() *encoder {
		began = append(began, time.Now())
		e := s.send(films[len(encoders)])
		encoders = append(encoders, e)
		return e
	}
	e := send()
	e.untilSeen(video, 3)
	e.kill()
	session := s.session()

	gap := time.Now()
	harness.Eventually(t, func() error { // the stream stays as it is, for the time of a gap
		if list := video.state(); list.ended || list.segments[len(list.segments)-1].uri == "" {
			return fmt.Errorf("the encoder is gone, and the last segment is open: %+v", list)
		}
		if time.Since(gap) < 5*time.Second {
			return fmt.Errorf("the gap is %v long", time.Since(gap))
		}
		return nil
	})
	e = send()
	e.untilSeen(video, 2)

	// While the encoder holds its breath, everything that it has sent is received.
	harness.Suspend(t, e.cmd.Process.Pid)
	allReceived(t, rtmp)
	before := s.now()
	base.Store(new(string))
	w.Kill()
	e.kill()
	w.Start(args...)
	base.Store(&w.URL)
	e = send()
	e.untilSeen(video, 2)
	if now := s.now(); now.SourceBytes < before.SourceBytes || now.SourceSegments < before.SourceSegments {
		t.Errorf("the counters went back from %+v to %+v", before, now)
	}
	e.stop()
	w.Must("DELETE", "/api/stream/"+s.id+"/terminate", nil, nil)
	video.wait()
	audio.wait()

	harness.Eventually(t, func() error { // players learn of the end a moment earlier
		now, segments := s.session(), int64(len(video.state().segments))
		if now.ID != session.ID || now.SourceSegments != segments || now.IngestRate != 0 {
			return fmt.Errorf("session %s has ended with %d segments, and is %+v", session.ID, segments, now)
		}
		return nil
	})
	for _, v := range []*viewer{video, audio} {
		t.Logf("%s: %d segments, %d of them compared with their parts, %d parts fetched as promised", v.name, len(v.segments), v.compared, v.promised)
		// On a quiet machine nearly all are; on a busy one the viewer is often late, and parts are there.
		if v.compared == 0 || v.promised == 0 {
			t.Errorf("%s: of %d segments none could be compared with its parts, or of %d parts none came as promised", v.name, len(v.segments), len(v.parts))
		}
	}
	frames := checkStretches(t, video.stretches(), audio.stretches(), encoders, began)
	if shown := ffmpegReads(t, s.url("index.m3u8")); shown["video"] != frames {
		t.Errorf("ffmpeg read %d frames, %d are there", shown["video"], frames)
	}
	w.Stop()
}

// untilSeen waits until a viewer has seen some whole segments of what the encoder
// sends, and something of the next one.
func (e *encoder) untilSeen(v *viewer, segments int) {
	e.t.Helper()
	var first int64
	if list := v.state(); list != nil {
		first, _ = list.next()
	}
	harness.Eventually(e.t, func() error {
		if err := e.running(); err != nil {
			e.t.Fatal(err)
		}
		select {
		case <-v.done:
			e.t.Fatalf("the viewer of %s is gone", v.name)
		default:
		}
		list := v.state()
		if list == nil {
			return fmt.Errorf("there is no playlist; %d frames were sent", e.frames.Load())
		}
		if number, part := list.next(); number < first+int64(segments) || part < 2 {
			return fmt.Errorf("next is part %d of segment %d, the encoder began with %d; it sent %d frames", part, number, first, e.frames.Load())
		}
		return nil
	})
}

// checkStretches expects the frames of each encoder, with a discontinuity in front of
// those of the second and the third, and nowhere else. It returns how many there are.
func checkStretches(t *testing.T, video, audio []stretch, encoders []*encoder, began []time.Time) (frames int) {
	t.Helper()
	if len(video) != len(encoders) || len(audio) != len(encoders) {
		t.Fatalf("%d encoders, and %d discontinuities in the picture:%v, and %d in the sound:%v", len(encoders), len(video)-1, video, len(audio)-1, audio)
	}
	for i, e := range encoders {
		got := frameNumbers(t, video[i].media)
		frames += len(got)
		for j, n := range got {
			// Of two B-frames at the end, what they lead to may have come without them.
			if missing := n - firstNumber(i) - j; missing < 0 || missing > 2 || missing > 0 && j < len(got)-2 {
				t.Fatalf("frame %d of %d of encoder %d has the number %d, want %d", j, len(got), i, n, firstNumber(i)+j)
			}
		}
		sent, lost := int(e.frames.Load()), maxHeld
		if i == 1 { // weir was killed
			lost = maxLost
		}
		t.Logf("encoder %d sent at least %d frames, %d are there", i, sent, len(got))
		if len(got) < sent-lost {
			t.Errorf("encoder %d sent %d frames, and %d are there", i, sent, len(got))
		}
		checkWalls(t, fmt.Sprintf("picture of encoder %d", i), video[i].list(), began[i], video[i].seen)
		checkWalls(t, fmt.Sprintf("sound of encoder %d", i), audio[i].list(), began[i], audio[i].seen)
		v, a := harness.FFprobe(t, mediaFile(t, video[i].media)), harness.FFprobe(t, mediaFile(t, audio[i].media))
		if apart := harness.Number(a.Streams[0].StartTime) - harness.Number(v.Streams[0].StartTime); math.Abs(apart) > 0.040 {
			t.Errorf("encoder %d: sound and picture start %.3f s apart", i, apart)
		}
	}
	return frames
}

// The pictures that have a number are of 8 by 2 blocks, each black or white.
const (
	block                = 32
	numberedW, numberedH = 8 * block, 2 * block
	numberedSeconds      = 100 // longer than a playlist: see liveNodes
)

// firstNumber is the number of the first frame that an encoder sends.
func firstNumber(encoder int) int { return 4000 * encoder }

// numbered are films for so many encoders: 25 frames a second, each with its number in it, key frames
// every two seconds and B-frames between them, and a tone.
func numbered(t *testing.T, encoders int) (films []string) {
	t.Helper()
	for encoder := range encoders {
		films = append(films, harness.MakeOnce(t, fmt.Sprintf("numbered%d.mp4", encoder), func(path string) {
			harness.FFmpeg(t, "-f", "rawvideo", "-pix_fmt", "gray", "-s", fmt.Sprintf("%dx%d", numberedW, numberedH), "-r", "25", "-i", numberedPictures(t, encoder),
				"-f", "lavfi", "-i", fmt.Sprintf("sine=sample_rate=48000:duration=%d", numberedSeconds),
				"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2", "-b_strategy", "0", "-g", "50", "-sc_threshold", "0", "-c:a", "aac", path)
		}))
	}
	return films
}

// numberedPictures writes the pictures of an encoder into a file.
func numberedPictures(t *testing.T, encoder int) string {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "raw")
	f, err := os.Create(raw)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture := make([]byte, numberedW*numberedH)
	for i := range 25 * numberedSeconds {
		for at := range picture {
			x, y := at%numberedW/block, at/numberedW/block
			picture[at] = 16
			if (firstNumber(encoder)+i)>>(8*y+x)&1 == 1 {
				picture[at] = 235
			}
		}
		if _, err := f.Write(picture); err != nil {
			t.Fatal(err)
		}
	}
	return raw
}

// frameNumbers decodes media and returns the numbers in its frames.
func frameNumbers(t *testing.T, media []byte) (numbers []int) {
	t.Helper()
	raw := harness.FFmpeg(t, "-i", mediaFile(t, media), "-map", "0:v", "-fps_mode", "passthrough", "-pix_fmt", "gray", "-f", "rawvideo", "-")
	for picture := range slices.Chunk(raw, numberedW*numberedH) {
		numbers = append(numbers, numberIn(picture))
	}
	return numbers
}

// numberIn returns the number in a picture.
func numberIn(picture []byte) (n int) {
	for bit := range 16 {
		x, y := bit%8*block+block/2, bit/8*block+block/2
		if picture[y*numberedW+x] > 128 {
			n |= 1 << bit
		}
	}
	return n
}

func mediaFile(t *testing.T, media []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "media.mp4")
	if err := os.WriteFile(path, media, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// allReceived waits until nothing is on its way to an address of this machine.
func allReceived(t *testing.T, addr string) {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	here := fmt.Sprintf(":%04X", port)
	harness.Eventually(t, func() error {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		connections := 0
		for line := range bytes.Lines(table) {
			// number, local and remote address, state, sending:receiving …
			fields := strings.Fields(string(line))
			if len(fields) < 5 || fields[3] != "01" || !strings.HasSuffix(fields[1], here) && !strings.HasSuffix(fields[2], here) {
				continue
			}
			connections++
			sending, receiving, _ := strings.Cut(fields[4], ":")
			if sending != "00000000" && strings.HasSuffix(fields[2], here) || receiving != "00000000" && strings.HasSuffix(fields[1], here) {
				return fmt.Errorf("there is something on its way: %s", line)
			}
		}
		if connections == 0 {
			t.Fatalf("nobody is connected to %s:\n%s", addr, table)
		}
		return nil
	})
}
