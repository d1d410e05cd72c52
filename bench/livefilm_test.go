//go:build bench

package bench

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	chunkSize = 64 << 10 // that the RTMP client of gortmplib announces

	messageAudio = 8
	messageVideo = 9
	messageData  = 18
)

// film is what every publisher sends, over and over: messages that are chunked already,
// in which only the times are put.
type film struct {
	head   []tag // about the tracks, sent once
	frames []tag
	length time.Duration
}

// tag is a message with its chunk headers.
type tag struct {
	at      time.Duration
	chunks  []byte
	stampAt int // where in chunks the wall clock stands; 0 = nowhere
}

// stampMark is in front of a wall clock in a frame: what unregistered user data must
// begin with is a UUID, any.
var stampMark = []byte("weir-bench-clock")

// stampLength is that of the wall clock behind it: nanoseconds as hexadecimal digits, which
// are never taken for a start code.
const stampLength = 16

// liveFilm is the film at 5 Mbit/s, by default with 30 frames a second, with a key frame every 2
// seconds. It is longer than a measurement: MediaMTX drops its viewers when the film starts
// again.
func (b *vodBench) liveFilm(t *testing.T) *film {
	t.Helper()
	fps, gop := strconv.Itoa(*liveFPS), strconv.Itoa(2**liveFPS)
	file := b.clip(t, fmt.Sprintf("live-60-%s-%d.flv", fps, *liveBFrames), func(file string) []string {
		return []string{
			"-stream_loop", "-1", "-i", b.bunny(t), "-t", "60", "-vf", "fps=" + fps, "-c:v", "libx264", "-preset", "fast", "-profile:v", "high", "-bf", strconv.Itoa(*liveBFrames), "-pix_fmt", "yuv420p",
			"-b:v", "5M", "-minrate", "5M", "-maxrate", "5M", "-bufsize", "5M", "-g", gop, "-keyint_min", gop, "-sc_threshold", "0",
			"-c:a", "aac", "-b:a", "128k", "-ac", "2", "-ar", "48000", "-flvflags", "no_duration_filesize", "-f", "flv", file,
		}
	})
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parseFLV(data, *liveFPS)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var size int
	for _, tag := range f.frames {
		size += len(tag.chunks)
	}
	fmt.Printf("# %v of film, %.2f Mbit/s with sound\n", f.length, float64(size)*8/f.length.Seconds()/1e6)
	return f
}

// parseFLV makes a film of an FLV file with H.264 and AAC.
func parseFLV(data []byte, fps int) (*film, error) {
	const fileHead, tagHead, tagTail = 13, 11, 4
	if len(data) < fileHead || string(data[:3]) != "FLV" {
		return nil, fmt.Errorf("no FLV file")
	}
	f := &film{}
	pictures := 0
	for rest := data[fileHead:]; len(rest) > 0; {
		if len(rest) < tagHead {
			return nil, fmt.Errorf("a tag is cut off")
		}
		kind, size := rest[0], int(rest[1])<<16|int(rest[2])<<8|int(rest[3])
		at := time.Duration(int(rest[7])<<24|int(rest[4])<<16|int(rest[5])<<8|int(rest[6])) * time.Millisecond
		if len(rest) < tagHead+size+tagTail {
			return nil, fmt.Errorf("a tag of %d bytes is cut off", size)
		}
		body := rest[tagHead : tagHead+size]
		rest = rest[tagHead+size+tagTail:]
		const config = 0
		switch {
		case kind == messageData:
			// What encoders put in front of it: a string of AMF.
			body = append([]byte("\x02\x00\x0d@setDataFrame"), body...)
			f.head = append(f.head, newTag(kind, 0, body))
		case size < 2:
			return nil, fmt.Errorf("a tag of %d bytes", size)
		case body[1] == config:
			f.head = append(f.head, newTag(kind, 0, body))
		case kind == messageVideo && body[1] == 1:
			pictures++
			f.frames = append(f.frames, newTag(kind, at, stamped(body)))
		case kind == messageAudio:
			f.frames = append(f.frames, newTag(kind, at, body))
		}
	}
	f.length = time.Duration(pictures) * time.Second / time.Duration(fps)
	if pictures == 0 || pictures%(2*fps) != 0 {
		return nil, fmt.Errorf("%d pictures are no whole number of 2 seconds", pictures)
	}
	for i, tag := range f.frames {
		if tag.at >= f.length { // audio that goes on
			f.frames = f.frames[:i]
			break
		}
	}
	return f, nil
}

// stamped puts room for the wall clock into a message with a picture, in front of it.
func stamped(body []byte) []byte {
	const head, seiUnit, userData, stop = 5, 6, 5, 0x80
	nal := []byte{seiUnit, userData, byte(len(stampMark) + stampLength)}
	nal = append(append(nal, stampMark...), bytes.Repeat([]byte{'0'}, stampLength)...)
	nal = append(nal, stop)
	out := append([]byte{}, body[:head]...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(nal)))
	return append(append(out, nal...), body[head:]...)
}

// newTag chunks a message. Its chunk stream is none that the client uses for commands.
func newTag(kind byte, at time.Duration, body []byte) tag {
	stream := kind + 2
	chunks := []byte{stream, 0, 0, 0, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body)), kind, 1, 0, 0, 0}
	for rest := body; ; {
		n := min(len(rest), chunkSize)
		chunks = append(chunks, rest[:n]...)
		if rest = rest[n:]; len(rest) == 0 {
			break
		}
		chunks = append(chunks, 0xC0|stream)
	}
	t := tag{at: at, chunks: chunks}
	if i := bytes.Index(chunks, stampMark); kind == messageVideo && i > 0 {
		t.stampAt = i + len(stampMark)
	}
	return t
}

// appendTo appends the message to b as it is sent now.
func (t *tag) appendTo(b []byte, at time.Duration) []byte {
	start := len(b)
	b = append(b, t.chunks...)
	milliseconds := at.Milliseconds() // a benchmark does not last until they need a fourth byte
	b[start+1], b[start+2], b[start+3] = byte(milliseconds>>16), byte(milliseconds>>8), byte(milliseconds)
	if t.stampAt > 0 {
		var now [8]byte
		binary.BigEndian.PutUint64(now[:], uint64(time.Now().UnixNano()))
		hex.Encode(b[start+t.stampAt:], now[:])
	}
	return b
}

// stamps returns how long ago the frames in some media were sent.
func stamps(media []byte, now time.Time) (ages []time.Duration, err error) {
	for {
		i := bytes.Index(media, stampMark)
		if i < 0 {
			return ages, nil
		}
		media = media[i+len(stampMark):]
		var sent [8]byte
		if len(media) < stampLength {
			return nil, fmt.Errorf("a wall clock is cut off")
		}
		if _, err := hex.Decode(sent[:], media[:stampLength]); err != nil {
			return nil, err
		}
		ages = append(ages, now.Sub(time.Unix(0, int64(binary.BigEndian.Uint64(sent[:])))))
	}
}
