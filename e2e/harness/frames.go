package harness

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/wait"
)

// Coded is a frame of a film as it is stored.
type Coded struct {
	Time float64 // seconds
	SEI  int     // its number there; -1 = it has none
	IDR  bool
	Sum  string // of its slices
}

// newCoded looks at a frame whose NAL units have their length in front.
func newCoded(at float64, data []byte, hevc bool) (c Coded, err error) {
	c = Coded{Time: at, SEI: seiNumber(data)}
	sum := sha256.New()
	for len(data) > 0 {
		if len(data) < 5 || uint64(len(data)-4) < uint64(binary.BigEndian.Uint32(data)) {
			return c, fmt.Errorf("the frame at %.3f s has a NAL unit that is cut off", at)
		}
		unit := data[4 : 4+binary.BigEndian.Uint32(data)]
		data = data[4+len(unit):]
		if len(unit) == 0 {
			return c, fmt.Errorf("the frame at %.3f s has an empty NAL unit", at)
		}
		kind := unit[0] & 31
		slice, idr := kind <= 5, kind == 5
		if hevc {
			kind = unit[0] >> 1 & 63
			slice, idr = kind < 32, kind == 19 || kind == 20
		}
		c.IDR = c.IDR || idr
		if slice {
			sum.Write(unit)
		}
	}
	c.Sum = fmt.Sprintf("%x", sum.Sum(nil)[:8])
	return c, nil
}

// Shown is what a player shows and lets hear of a film.
type Shown struct {
	Frames []ShownFrame // in the order in which they are shown
	Clicks []float64    // seconds
	Said   []string     // what it complained about
}

// ShownFrame is a frame that was decoded.
type ShownFrame struct {
	Coded
	Number int // in the picture; -1 = it is not clear
}

// Numbers are those of the frames.
func (s *Shown) Numbers() (list []int) {
	for _, f := range s.Frames {
		list = append(list, f.Number)
	}
	return list
}

// harmless is what ffmpeg says of media that is right: a playlist may name several init segments, of
// which it needs only the first to know the tracks.
var harmless = []string{"Found duplicated MOOV Atom. Skipped it"}

// Watch lets ffmpeg decode a film, a file or a playlist with video and audio. Whatever it says counts.
func Watch(t *testing.T, input string, hevc bool) *Shown {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	const width, height = filmWidth / 4, filmHeight / 4
	args := []string{"-hide_banner", "-nostdin", "-v", "repeat+warning", "-y", "-copyts", "-copytb", "1"}
	if strings.HasSuffix(input, ".m3u8") && !strings.Contains(input, "://") {
		args = append(args, "-allowed_extensions", "ALL")
	}
	args = append(args, "-i", input, "-filter_complex",
		fmt.Sprintf("[0:v:0]scale=%d:%d:flags=area,format=gray,split[n][t];[0:a:0]aformat=sample_fmts=s16:channel_layouts=mono:sample_rates=48000,asplit[p][h]", width, height),
		"-map", "[n]", "-fps_mode", "passthrough", "-enc_time_base", "1:90000", "-f", "rawvideo", file("pictures"),
		"-map", "[t]", "-fps_mode", "passthrough", "-enc_time_base", "1:90000", "-f", "framecrc", file("times"),
		"-map", "0:v:0", "-c", "copy", "-f", "data", file("packets"),
		"-map", "0:v:0", "-c", "copy", "-f", "framecrc", file("packed"),
		"-map", "[p]", "-f", "s16le", file("audio"),
		"-map", "[h]", "-f", "framecrc", file("heard"))
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ffmpeg", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	err := cmd.Run()
	s := &Shown{}
	for line := range strings.Lines(said.String()) {
		if !slices.ContainsFunc(harmless, func(text string) bool { return strings.Contains(line, text) }) {
			s.Said = append(s.Said, strings.TrimSpace(line))
		}
	}
	if err != nil {
		t.Errorf("ffmpeg can't play %s: %v\n%s", input, err, &said)
		return s
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	// Both in the order in which they are shown. The i-th of one is the i-th of the other.
	decoded, packets := framecrc(t, read("times")), framecrc(t, read("packed"))
	data := read("packets")
	var coded []Coded
	for _, p := range packets {
		c, err := newCoded(p.at, data[:p.size], hevc)
		if err != nil {
			t.Errorf("%s: %v", input, err)
		}
		coded, data = append(coded, c), data[p.size:]
	}
	slices.SortStableFunc(coded, func(a, b Coded) int { return cmp.Compare(a.Time, b.Time) })
	if len(coded) != len(decoded) {
		t.Errorf("%s has %d frames, ffmpeg shows %d of them", input, len(coded), len(decoded))
		coded = append(coded, make([]Coded, max(0, len(decoded)-len(coded)))...)
	}
	pictures := read("pictures")
	for i, d := range decoded {
		frame := ShownFrame{coded[i], PictureNumber(pictures[i*width*height:(i+1)*width*height], width)}
		frame.Time = d.at
		s.Frames = append(s.Frames, frame)
	}
	s.Clicks = clicks(framecrc(t, read("heard")), read("audio"))
	return s
}

// packed is a line of ffmpeg's framecrc format.
type packed struct {
	at   float64 // seconds
	size int
}

func framecrc(t *testing.T, text []byte) (list []packed) {
	t.Helper()
	base := 0.0
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "#tb 0: "); ok {
			num, den, _ := strings.Cut(strings.TrimSpace(rest), "/")
			base = Number(num) / Number(den)
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		// stream, decode time, presentation time, duration, size, checksum
		fields := strings.Split(line, ",")
		if len(fields) < 6 || base == 0 {
			t.Fatalf("framecrc: %q", line)
		}
		size, err := strconv.Atoi(strings.TrimSpace(fields[4]))
		if err != nil {
			t.Fatalf("framecrc: %q: %v", line, err)
		}
		list = append(list, packed{Number(strings.TrimSpace(fields[2])) * base, size})
	}
	return list
}

// clicks returns when clicks begin in mono audio of 48 kHz.
func clicks(frames []packed, audio []byte) (at []float64) {
	const rate, quietFor = 48000.0, 0.2
	lastLoud := math.Inf(-1)
	for _, f := range frames {
		for i := range f.size / 2 {
			level := int(int16(binary.LittleEndian.Uint16(audio[2*i:])))
			if max(level, -level) < 6000 {
				continue
			}
			now := f.at + float64(i)/rate
			if now-lastLoud > quietFor {
				at = append(at, now)
			}
			lastLoud = now
		}
		audio = audio[f.size:]
	}
	return at
}

// Frame is a frame of what a clip is cut from.
type Frame struct {
	Coded
	Number int
	Wall   float64 // when it was recorded, milliseconds since 1970; 0 = the playlist has no dates
	Start  float64 // when it is shown, milliseconds from the start
	Part   int     // how many discontinuities are before it
}

// Frames reads a media playlist of weir's with a film, and all segments in it, and returns the frames
// in the order in which they are shown.
func Frames(t *testing.T, playlist string, hevc bool) []Frame {
	t.Helper()
	base, err := url.Parse(playlist)
	if err != nil {
		t.Fatal(err)
	}
	var all []Frame
	var init []byte
	var date time.Time
	part := 0
	text := Fetch(t, playlist)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		tag, value, _ := strings.Cut(line, ":")
		fetch := func(uri string) []byte {
			at, err := base.Parse(uri)
			if err != nil {
				t.Fatal(err)
			}
			return Fetch(t, at.String())
		}
		switch {
		case tag == "#EXT-X-MAP":
			init = fetch(Attributes(value)["URI"])
		case tag == "#EXT-X-DISCONTINUITY":
			if len(all) > 0 {
				part++
			}
		case tag == "#EXT-X-PROGRAM-DATE-TIME":
			if date, err = time.Parse(time.RFC3339, value); err != nil {
				t.Fatal(err)
			}
		case line != "" && !strings.HasPrefix(line, "#"):
			frames, err := SegmentFrames(append(slices.Clone(init), fetch(line)...), date, hevc)
			if err != nil {
				t.Fatalf("%s of %s: %v", line, playlist, err)
			}
			for _, f := range frames {
				f.Part = part
				all = append(all, f)
			}
			date = time.Time{}
		}
	}
	// The first frame is at the start, whatever the timeline.
	for i := len(all) - 1; i >= 0; i-- {
		all[i].Start -= all[0].Start
	}
	return all
}

// SegmentFrames returns the frames of a segment behind its init segment. The date is that of the time
// when its first frame is decoded.
func SegmentFrames(media []byte, date time.Time, hevc bool) (frames []Frame, err error) {
	r := cmaf.NewReader(bytes.NewReader(media))
	tracks, err := r.Tracks()
	if err != nil {
		return nil, err
	}
	first := int64(math.MinInt64)
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if first == math.MinInt64 {
			first = f.Start
		}
		scale, at, data := float64(tracks[f.Track].Timescale), f.Start, f.Data
		for _, s := range f.Samples {
			shown := at + int64(s.Offset)
			c, err := newCoded(float64(shown)/scale, data[:s.Size], hevc)
			if err != nil {
				return nil, err
			}
			frame := Frame{Coded: c, Number: c.SEI, Start: 1000 * float64(shown) / scale}
			if !date.IsZero() {
				frame.Wall = float64(date.UnixMicro())/1000 + 1000*float64(shown-first)/scale
			}
			frames = append(frames, frame)
			at, data = at+int64(s.Duration), data[s.Size:]
		}
	}
	slices.SortStableFunc(frames, func(a, b Frame) int { return cmp.Compare(a.Time, b.Time) })
	return frames, nil
}

// Fetch reads an address that must be there.
func Fetch(t *testing.T, address string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", address, response.Status, err, body[:min(len(body), 1000)])
	}
	return body
}

// within is how far the time of a request may be from that of a frame to mean it, in milliseconds.
const within = 1.0

// Window returns the frames that a clip from start to end must have, on a clock in milliseconds.
func Window(frames []Frame, clock func(Frame) float64, start, end float64) (window []Frame) {
	for _, f := range frames {
		if at := clock(f); at >= start-within && at < end-within {
			window = append(window, f)
		}
	}
	return window
}

// ByWall and FromStart are the clocks of requests.
func ByWall(f Frame) float64    { return f.Wall }
func FromStart(f Frame) float64 { return f.Start }

// ClipCheck is what came of a comparison of a clip with its source.
type ClipCheck struct {
	Frames, Copied int
	Offset         float64 // seconds that audio comes late, at worst
}

// CheckClip compares what is shown of a clip with what was asked for: the same frames in the same
// distances, those between the first and the last IDR frame bit by bit, and the audio with them. whole
// says that all frames may have been encoded.
func (f *Film) CheckClip(want []Frame, got *Shown, whole bool) (c ClipCheck, wrong []error) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if len(got.Said) > 0 {
		add("the player says:\n%s", strings.Join(got.Said[:min(len(got.Said), 8)], "\n"))
	}
	if c.Frames = len(got.Frames); c.Frames == 0 || len(want) == 0 {
		add("%d frames are shown, want %d", c.Frames, len(want))
		return c, wrong
	}
	if first, last, n := got.Frames[0].Number, got.Frames[c.Frames-1].Number, len(want); first != want[0].Number || last != want[n-1].Number || c.Frames != n {
		add("frames %d to %d, %d of them; want %d to %d, %d of them", first, last, c.Frames, want[0].Number, want[n-1].Number, n)
	}
	for i := range min(len(want), c.Frames) {
		if got.Frames[i].Number != want[i].Number {
			add("frame %d of %d has the number %d, want %d: %v", i, len(want), got.Frames[i].Number, want[i].Number, got.Numbers())
			return c, wrong
		}
	}
	if len(want) != c.Frames {
		return c, wrong
	}
	const slack = 0.002 // seconds
	for i := 1; i < len(want); i++ {
		if want[i].Part != want[i-1].Part {
			continue
		}
		if apart, wanted := got.Frames[i].Time-got.Frames[i-1].Time, want[i].Time-want[i-1].Time; math.Abs(apart-wanted) > slack {
			add("frame %d of %d comes %.4f s after the one before, want %.4f", i, len(want), apart, wanted)
			break
		}
	}
	wrong = append(wrong, f.checkCopied(want, got, whole, &c)...)
	if err := f.checkAudio(got, &c); err != nil {
		wrong = append(wrong, err)
	}
	return c, wrong
}

// checkCopied looks whether the frames that need not be encoded are those of the source.
func (f *Film) checkCopied(want []Frame, got *Shown, whole bool, c *ClipCheck) (wrong []error) {
	first := slices.IndexFunc(want, func(f Frame) bool { return f.IDR })
	last := first
	for i, frame := range want {
		if frame.IDR {
			last = i
		}
		if got.Frames[i].Sum == frame.Sum {
			c.Copied++
		}
	}
	if whole && c.Copied == 0 {
		return nil
	}
	differ := 0
	for i := max(first, 0); i < last; i++ {
		if got.Frames[i].Sum != want[i].Sum || got.Frames[i].SEI != want[i].SEI {
			if differ++; differ == 1 {
				wrong = append(wrong, fmt.Errorf("frame %d is not that of the source; the first IDR frame is %d, the last %d of %d", i, first, last, len(want)))
			}
		}
	}
	if differ > 1 {
		wrong = append(wrong, fmt.Errorf("%d frames between the edges are not those of the source", differ))
	}
	return wrong
}

// checkAudio compares the times of clicks with those of the frames that they belong to.
func (f *Film) checkAudio(got *Shown, c *ClipCheck) error {
	// At edges and seams a click may be cut.
	const margin = 0.1 // seconds
	from, to := got.Frames[0].Time, got.Frames[c.Frames-1].Time
	heard, wanted := 0, 0
	for i := 1; i < c.Frames; i++ {
		second := math.Floor(f.times[got.Frames[i].Number])
		if f.times[got.Frames[i-1].Number] < second && f.continues(got, i, 2*margin) {
			wanted++
		}
	}
	for _, click := range got.Clicks {
		i, exact := slices.BinarySearchFunc(got.Frames, click, func(f ShownFrame, at float64) int { return cmp.Compare(f.Time, at) })
		if !exact {
			i--
		}
		if i < 0 || !f.continues(got, i, margin) {
			continue
		}
		heard++
		at := f.times[got.Frames[i].Number] + click - got.Frames[i].Time
		if off := at - math.Round(at); math.Abs(off) > math.Abs(c.Offset) {
			c.Offset = off
		}
	}
	if math.Abs(c.Offset) > InStep {
		return fmt.Errorf("audio comes %.3f s after the video: clicks at %.3f, frames from %.3f to %.3f", c.Offset, got.Clicks, from, to)
	}
	if heard < wanted {
		return fmt.Errorf("%d clicks are heard, want %d: at %.3f, frames from %.3f to %.3f", heard, wanted, got.Clicks, from, to)
	}
	return nil
}

// continues tells whether the frames around one follow each other as in the film, for so many seconds
// before and after it.
func (f *Film) continues(got *Shown, i int, margin float64) bool {
	follows := func(j int) bool {
		if j < 1 || j >= len(got.Frames) {
			return false
		}
		at, before := got.Frames[j], got.Frames[j-1]
		return math.Abs((at.Time-before.Time)-(f.times[at.Number]-f.times[before.Number])) < 0.005
	}
	after, before := i, i
	for follows(after+1) && got.Frames[after].Time-got.Frames[i].Time < margin {
		after++
	}
	for follows(before) && got.Frames[i].Time-got.Frames[before].Time < margin {
		before--
	}
	return got.Frames[after].Time-got.Frames[i].Time >= margin && got.Frames[i].Time-got.Frames[before].Time >= margin
}
