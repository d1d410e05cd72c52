package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weir/internal/caption/cea608test"
)

// FilmKind says what a film of numbered frames is like.
type FilmKind struct {
	HEVC    bool
	Open    bool // GOPs; every fourth second there is an IDR frame
	VFR     bool // frames are missing, and others come up to 10 ms late
	CC      bool // it has closed captions in its frames (CEA-608), see CaptionEvery
	BFrames int  // in a row
	FPS     int
	Key     int // seconds from one key frame to the next
	Seconds int
}

func (k FilmKind) String() string {
	name := "h264"
	if k.HEVC {
		name = "hevc"
	}
	if k.Open {
		name += "-open"
	}
	if k.VFR {
		name += "-vfr"
	}
	if k.CC {
		name += "-cc"
	}
	return fmt.Sprintf("%s-%dfps-%db-%ds-%ds", name, k.FPS, k.BFrames, k.Key, k.Seconds)
}

// Film is a film whose frames carry their numbers, from 0 on: as black and white blocks in the
// picture, which outlast an encoder, and as SEI in the stream, which does not. A click is heard at
// every whole second.
type Film struct {
	FilmKind
	Path  string
	times map[int]float64
}

// The picture: the number as 8 by 2 blocks, and below them something that moves.
const (
	filmWidth, filmHeight = 256, 144
	filmBlock             = 32
	filmClick             = 0.020 // seconds
)

// seiMark is the UUID before the number in a SEI message.
const seiMark = "weir-film-number"

// seiDigits is how many digits a number has there.
const seiDigits = 6

// MakeFilm makes a film once in a run of the tests.
func MakeFilm(t *testing.T, k FilmKind) *Film {
	t.Helper()
	path := MakeOnce(t, k.String()+".mp4", func(path string) { FFmpeg(t, append(k.args(numberedFrames(t, k)), path)...) })
	f := &Film{FilmKind: k, Path: path, times: map[int]float64{}}
	shown := Watch(t, path, k.HEVC)
	if len(shown.Said) > 0 || len(shown.Frames) < k.FPS*k.Seconds/2 {
		t.Fatalf("film %v has %d frames: %s", k, len(shown.Frames), shown.Said)
	}
	for _, frame := range shown.Frames {
		if frame.SEI != frame.Number {
			t.Fatalf("film %v: the frame with number %d has %d in its SEI", k, frame.Number, frame.SEI)
		}
		f.times[frame.Number] = frame.Time - shown.Frames[0].Time
	}
	return f
}

// args are those of ffmpeg that make the film of frames with a SEI each.
func (k FilmKind) args(frames string) []string {
	filter := fmt.Sprintf("setpts=N/(%d*TB)", k.FPS)
	if k.VFR {
		filter += `,select='not(eq(mod(n,7),3)+eq(mod(n,11),5))',settb=1/90000,setpts='PTS+450*mod(N,3)'`
	}
	args := []string{
		"-y", "-framerate", strconv.Itoa(k.FPS), "-f", "h264", "-i", frames,
		"-f", "lavfi", "-i", fmt.Sprintf("aevalsrc='0.6*sin(2*PI*1000*t)*lt(mod(t,1),%g)*gte(t,0.5)':s=48000:d=%d", filmClick, k.Seconds),
		"-map", "0:v", "-map", "1:a", "-vf", filter, "-c:a", "aac", "-b:a", "96k", "-pix_fmt", "yuv420p", "-crf", "26", "-udu_sei", "1",
		"-movflags", "+faststart",
	}
	if k.VFR {
		args = append(args, "-fps_mode", "passthrough", "-enc_time_base", "1:90000", "-video_track_timescale", "90000")
	}
	open, key := 0, k.Key*k.FPS
	if k.Open {
		open = 1
		args = append(args, "-force_key_frames", "expr:gte(t,n_forced*4)", "-forced-idr", "1")
	}
	params := fmt.Sprintf("keyint=%d:min-keyint=%d:scenecut=0:bframes=%d:b-adapt=0:open-gop=%d", key, min(key, k.FPS/2), k.BFrames, open)
	if k.HEVC {
		return append(args, "-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-x265-params", params+":log-level=error")
	}
	return append(args, "-c:v", "libx264", "-preset", "veryfast", "-x264-params", params)
}

// numberedFrames is H.264 without B-frames, each frame with its number. What encodes it again passes
// the SEI on with each frame, whatever becomes of the order.
func numberedFrames(t *testing.T, k FilmKind) string {
	t.Helper()
	fps, seconds := k.FPS, k.Seconds
	return MakeOnce(t, fmt.Sprintf("numbers-%d-%d-%t.h264", fps, seconds, k.CC), func(path string) {
		blocks := filepath.Join(t.TempDir(), "blocks")
		var pictures []byte
		for n := range fps * seconds {
			code := numberCode(n)
			for bit := range 16 {
				pictures = append(pictures, byte(16+(235-16)*(code>>bit&1)))
			}
		}
		if err := os.WriteFile(blocks, pictures, 0o600); err != nil {
			t.Fatal(err)
		}
		stream := FFmpeg(t, "-f", "rawvideo", "-pix_fmt", "gray", "-s", "8x2", "-r", strconv.Itoa(fps), "-i", blocks,
			"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=size=%dx%d:rate=%d:duration=%d", filmWidth, filmHeight-2*filmBlock, fps, seconds),
			"-filter_complex", fmt.Sprintf("[0:v]scale=%d:%d:flags=neighbor,format=yuv420p[n];[1:v]format=yuv420p[m];[n][m]vstack=shortest=1", filmWidth, 2*filmBlock),
			"-c:v", "libx264", "-preset", "ultrafast", "-bf", "0", "-qp", "14", "-f", "h264", "-")
		if err := os.WriteFile(path, withNumbers(stream, k.captions()), 0o600); err != nil {
			t.Fatal(err)
		}
	})
}

// A film with closed captions has one in CC1 for CaptionFor frames from every frame CaptionEvery on, but
// for the first one, before which there is no time to load it.
const (
	CaptionEvery = 50
	CaptionFor   = 25
)

// CaptionText is the caption that appears with a frame.
func CaptionText(frame int) string { return fmt.Sprintf("en %d", frame) }

// captions returns the pairs of bytes of captions for each frame; nil = there are none.
func (k FilmKind) captions() []cea608test.Pair {
	if !k.CC {
		return nil
	}
	frames := k.FPS * k.Seconds
	pairs := cea608test.New(1).Wait(frames).Pairs()
	for frame := CaptionEvery; frame+CaptionFor < frames; frame += CaptionEvery {
		show := cea608test.New(1).PopOn(CaptionText(frame)).Pairs() // ends with the command that shows it, twice
		copy(pairs[frame+2-len(show):], show)
		copy(pairs[frame+CaptionFor:], cea608test.New(1).Erase().Pairs())
	}
	return pairs
}

// withNumbers puts a SEI message with its number before each frame of an H.264 stream that has one
// slice a frame, and one with captions.
func withNumbers(stream []byte, captions []cea608test.Pair) (out []byte) {
	const start, seiUnit, userData, stop = "\x00\x00\x01", 6, 5, 0x80
	number := 0
	for i, unit := range bytes.Split(stream, []byte(start)) {
		unit = bytes.TrimRight(unit, "\x00")
		if i == 0 || len(unit) == 0 {
			continue
		}
		if kind := unit[0] & 31; kind == 1 || kind == 5 {
			out = append(out, start...)
			out = append(out, seiUnit, userData, byte(len(seiMark)+seiDigits))
			out = append(fmt.Appendf(append(out, seiMark...), "%0*d", seiDigits, number), stop)
			if number < len(captions) {
				out = append(append(out, start...), cea608test.SEI(captions[number])...)
			}
			number++
		}
		out = append(append(out, start...), unit...)
	}
	return out
}

// numberCode is what the blocks of a frame show: 12 bits of the number and 4 that prove them.
func numberCode(n int) int { return n&0xFFF | ((n^n>>4^n>>8^0xA)&0xF)<<12 }

// PictureNumber returns the number in the blocks of a gray picture; -1 = it is not clear.
func PictureNumber(picture []byte, width int) int {
	block := filmBlock * width / filmWidth
	code := 0
	for bit := range 16 {
		sum, left, top := 0, bit%8*block+block/4, bit/8*block+block/4
		for y := range block / 2 {
			for x := range block / 2 {
				sum += int(picture[(top+y)*width+left+x])
			}
		}
		if mean := sum / (block / 2 * block / 2); mean > 160 {
			code |= 1 << bit
		} else if mean > 95 {
			return -1
		}
	}
	if n := code & 0xFFF; numberCode(n) == code {
		return n
	}
	return -1
}

// seiNumber returns the number in the SEI of a frame; -1 = it has none.
func seiNumber(frame []byte) int {
	_, rest, found := strings.Cut(string(frame), seiMark)
	if !found || len(rest) < seiDigits {
		return -1
	}
	n, err := strconv.Atoi(rest[:seiDigits])
	if err != nil {
		return -1
	}
	return n
}

// Time is when a frame is shown, in seconds from the first one. One that is missing would be between
// others.
func (f *Film) Time(number int) float64 {
	if at, ok := f.times[number]; ok {
		return at
	}
	return float64(number) / float64(f.FPS)
}

// Has tells whether the film has a frame with a number.
func (f *Film) Has(number int) bool {
	_, ok := f.times[number]
	return ok
}
