package cmaf

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"weir/internal/mpegts"
	"weir/internal/weir"
)

// clip is media that ffmpeg made, in weir's form.
type clip struct {
	video, audio *Track
	segments     []tsSegment
}

// tsSegment is what one segment of a transport stream is made of.
type tsSegment struct{ video, audio []Fragment }

var clips sync.Map // arguments → func() (clip, error)

// makeClip runs ffmpeg once for each list of arguments.
func makeClip(t testing.TB, args string) clip {
	t.Helper()
	f, _ := clips.LoadOrStore(args, sync.OnceValues(func() (clip, error) { return encodeClip(args) }))
	c, err := f.(func() (clip, error))()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// clipOrigin is where ffmpeg puts the timeline's 0, in seconds.
const clipOrigin = 10

func encodeClip(args string) (clip, error) {
	cmd := exec.Command("ffmpeg", append(
		append([]string{"-nostdin", "-v", "error"}, strings.Fields(args)...),
		"-output_ts_offset", strconv.Itoa(clipOrigin), "-avoid_negative_ts", "disabled", "-use_editlist", "0", "-movflags", "delay_moov+default_base_moof+frag_discont",
		"-frag_duration", "1000000", "-f", "mp4", "pipe:1",
	)...)
	cmd.Stderr = os.Stderr
	data, err := cmd.Output()
	if err != nil {
		return clip{}, fmt.Errorf("ffmpeg %s: %w", args, err)
	}
	r := NewReader(bytes.NewReader(data))
	tracks, err := r.Tracks()
	if err != nil {
		return clip{}, err
	}
	frags := make([][]Fragment, len(tracks))
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return clip{}, err
		}
		f.Start -= clipOrigin * int64(tracks[f.Track].Timescale)
		frags[f.Track] = append(frags[f.Track], f)
	}

	var c clip
	cuts := []float64{1, 2, 3, 4, 5, 6} // seconds, when there is no video
	for i, t := range tracks {
		whole, err := retime(frags[i]...)
		if err != nil {
			return clip{}, err
		}
		if t.Kind == Video {
			c.video = &tracks[i]
			for _, s := range whole.Samples {
				c.video.Delay = max(c.video.Delay, -int64(s.Offset))
			}
			cuts = nil
			for _, f := range cutFragment(whole, func(_ int64, s Sample) bool { return s.Sync }) {
				c.segments = append(c.segments, tsSegment{video: []Fragment{f}})
				cuts = append(cuts, float64(f.Start)/float64(t.Timescale))
			}
			cuts = cuts[1:]
			continue
		}
		c.audio = &tracks[i]
		for n, f := range cutFragment(whole, func(at int64, _ Sample) bool {
			if len(cuts) == 0 || float64(at)/float64(t.Timescale) < cuts[0] {
				return false
			}
			cuts = cuts[1:]
			return true
		}) {
			if n == len(c.segments) {
				c.segments = append(c.segments, tsSegment{})
			}
			c.segments[n].audio = []Fragment{f}
		}
	}
	return c, nil
}

// cutFragment cuts before the samples that cut says, the first excepted.
func cutFragment(f Fragment, cut func(at int64, s Sample) bool) []Fragment {
	var list []Fragment
	from, at, data := 0, f.Start, f.Data
	start, size := f.Start, 0
	for i, s := range f.Samples {
		if i > 0 && cut(at, s) {
			list = append(list, Fragment{Start: start, Samples: f.Samples[from:i], Data: data[:size]})
			data, from, start, size = data[size:], i, at, 0
		}
		size += int(s.Size)
		at += int64(s.Duration)
	}
	return append(list, Fragment{Start: start, Samples: f.Samples[from:], Data: data})
}

// transport writes the clip, with another TS for each segment.
func (c clip) transport(t testing.TB) [][]byte {
	t.Helper()
	var state TSState
	var list [][]byte
	for _, s := range c.segments {
		ts, err := NewTS(c.video, c.audio, state)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := ts.Segment(&out, s.video, s.audio); err != nil {
			t.Fatal(err)
		}
		list = append(list, out.Bytes())
		text, err := json.Marshal(ts.State())
		if err != nil {
			t.Fatal(err)
		}
		state = TSState{}
		if err := json.Unmarshal(text, &state); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// shown returns the presentation times of the samples of one kind, sorted, on the
// clock of MPEG-TS.
func (c clip) shown(kind Kind) []int64 {
	var list []int64
	for _, s := range c.segments {
		frags, track := s.video, c.video
		if kind == Audio {
			frags, track = s.audio, c.audio
		}
		for _, f := range frags {
			for _, pts := range f.PTS() {
				list = append(list, rescale(pts, int64(track.Timescale), mpegts.ClockRate)+10*mpegts.ClockRate)
			}
		}
	}
	slices.Sort(list)
	return list
}

const (
	lavfiVideo = "-f lavfi -i testsrc2=size=320x180:rate=30:duration=3.5 "
	lavfiAudio = "-f lavfi -i sine=frequency=440:sample_rate=44100:duration=3.6 "
	x264       = "-c:v libx264 -preset veryfast -threads 1 -g 30 -pix_fmt yuv420p "
)

var tsClips = map[string]string{
	"h264-aac":   lavfiVideo + lavfiAudio + x264 + "-bf 3 -c:a aac -b:a 128k -ac 2",
	"no-b":       lavfiVideo + lavfiAudio + x264 + "-bf 0 -c:a aac -b:a 64k",
	"ntsc":       "-f lavfi -i testsrc2=size=320x180:rate=30000/1001:duration=3.5 " + x264 + "-bf 2 -b_strategy 0",
	"vfr":        lavfiVideo + lavfiAudio + "-vf select='not(mod(n,7))+not(mod(n,3))' -fps_mode passthrough " + x264 + "-bf 2 -b_strategy 0 -c:a aac",
	"slides":     "-f lavfi -i testsrc2=size=320x180:rate=1/2:duration=12 -f lavfi -i sine=duration=12 " + x264 + "-g 3 -bf 2 -b_strategy 0 -c:a aac",
	"hevc":       lavfiVideo + lavfiAudio + "-c:v libx265 -preset ultrafast -x265-params log-level=error:pools=1:keyint=30:open-gop=0 -tag:v hvc1 -c:a aac",
	"late-sound": lavfiVideo + "-itsoffset 0.75 " + lavfiAudio + x264 + "-c:a aac",
	"mp3":        lavfiAudio + "-c:a libmp3lame -ac 2",
	"ac3":        lavfiVideo + lavfiAudio + x264 + "-c:a ac3",
	"aac-only":   lavfiAudio + "-c:a aac -b:a 128k -ac 2 -metadata:s:a:0 language=deu",
	"5.1":        lavfiVideo + lavfiAudio + x264 + "-c:a aac -ac 6",
}

// TestTS lets ffmpeg read what was written by as many processes as there are
// segments: it must find nothing to complain of, and every frame at its time.
func TestTS(t *testing.T) {
	for name, args := range tsClips {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := makeClip(t, args)
			segments := c.transport(t)
			if c.video != nil && len(segments) < 2 {
				t.Fatalf("only %d segments", len(segments))
			}
			checkPackets(t, segments)

			file := filepath.Join(t.TempDir(), "all.ts")
			if err := os.WriteFile(file, bytes.Join(segments, nil), 0o600); err != nil {
				t.Fatal(err)
			}
			checkDecodes(t, "-i", file)
			if c.video != nil {
				got := probeTimes(t, file, "v")
				if diff := gocmp.Diff(c.shown(Video), got); diff != "" {
					t.Errorf("frames are not shown when they should be (-want +got):\n%s", diff)
				}
			}
			if c.audio != nil {
				checkAudioTimes(t, c, probeTimes(t, file, "a"))
			}
		})
	}
}

// checkAudioTimes: ffmpeg reckons the times of frames inside a PES packet itself,
// so roundings add up.
func checkAudioTimes(t *testing.T, c clip, got []int64) {
	t.Helper()
	want := c.shown(Audio)
	if len(got) != len(want) {
		t.Fatalf("%d frames of audio, want %d", len(got), len(want))
	}
	for i := range want {
		if d := got[i] - want[i]; d < -8 || d > 8 {
			t.Fatalf("frame %d of audio at %d, want %d", i, got[i], want[i])
		}
	}
}

// probeTimes returns the presentation times of packets as ffprobe sees them,
// sorted. It also checks the decode times.
func probeTimes(t testing.TB, file, stream string) []int64 {
	t.Helper()
	out, err := exec.Command("ffprobe", "-v", "error", "-select_streams", stream, "-show_entries", "packet=pts,dts", "-of", "csv=p=0", file).Output()
	if err != nil {
		t.Fatalf("ffprobe: %v", err)
	}
	var list []int64
	last := int64(-1) << 62
	for field := range strings.FieldsSeq(string(out)) {
		a, b, _ := strings.Cut(strings.TrimRight(field, ","), ",")
		pts, errPTS := strconv.ParseInt(a, 10, 64)
		dts, errDTS := strconv.ParseInt(b, 10, 64)
		if errPTS != nil || errDTS != nil || dts > pts || dts <= last {
			t.Fatalf("packet %d: pts %s, dts %s after %d", len(list), a, b, last)
		}
		list, last = append(list, pts), dts
	}
	slices.Sort(list)
	return list
}

// checkPackets checks the transport packets themselves: continuity over all
// segments, tables at their starts, a clock that runs and is told often enough.
func checkPackets(t *testing.T, segments [][]byte) {
	t.Helper()
	counters := map[int]int{}
	clock := int64(-1)
	for n, segment := range segments {
		if len(segment)%mpegts.PacketSize != 0 {
			t.Fatalf("segment %d has %d bytes", n, len(segment))
		}
		for i := 0; i < len(segment); i += mpegts.PacketSize {
			p := segment[i : i+mpegts.PacketSize]
			pid := int(p[1]&31)<<8 | int(p[2])
			want := map[int]int{0: 0, mpegts.PacketSize: 0x1000}
			if table, ok := want[i]; p[0] != 0x47 || ok && pid != table {
				t.Fatalf("segment %d, byte %d: % x", n, i, p[:4])
			}
			if p[3]&0x10 != 0 {
				if last, ok := counters[pid]; ok && int(p[3]&15) != (last+1)&15 {
					t.Fatalf("segment %d, byte %d: counter of %#x goes from %d to %d", n, i, pid, last, p[3]&15)
				}
				counters[pid] = int(p[3] & 15)
			} else if int(p[3]&15) != counters[pid]&15 && i > 2*mpegts.PacketSize {
				t.Fatalf("segment %d, byte %d: a packet without payload is counted", n, i)
			}
			if p[3]&0x20 == 0 || p[4] == 0 || p[5]&0x10 == 0 {
				continue
			}
			now := int64(p[6])<<25 | int64(p[7])<<17 | int64(p[8])<<9 | int64(p[9])<<1 | int64(p[10])>>7
			switch {
			case clock >= 0 && now < clock:
				t.Errorf("segment %d, byte %d: the clock goes from %d to %d", n, i, clock, now)
			case clock >= 0 && i > 3*mpegts.PacketSize && now-clock > mpegts.ClockRate/10:
				t.Errorf("segment %d, byte %d: no clock for %d ticks", n, i, now-clock)
			}
			clock = now
		}
	}
	if clock < 0 {
		t.Error("no clock at all")
	}
}

// TestTSAlone: segments that know nothing of one another play one after the other.
func TestTSAlone(t *testing.T) {
	for _, name := range []string{"h264-aac", "no-b", "vfr", "aac-only"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := makeClip(t, tsClips[name])
			var all bytes.Buffer
			state := TSAlone(c.index(cmp.Or(c.video, c.audio).Kind))
			for i := range c.segments {
				ts, err := NewTS(c.video, c.audio, state)
				if err != nil {
					t.Fatal(err)
				}
				if err := ts.Segment(&all, c.segments[i].video, c.segments[i].audio); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(t.TempDir(), "all.ts")
			if err := os.WriteFile(file, all.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			checkDecodes(t, "-i", file)
			if c.video != nil {
				if diff := gocmp.Diff(c.shown(Video), probeTimes(t, file, "v")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if c.audio != nil {
				checkAudioTimes(t, c, probeTimes(t, file, "a"))
			}
		})
	}
}

// index returns the index of the clip's segments, each of one part.
func (c clip) index(kind Kind) TrackIndex {
	var index TrackIndex
	if kind == Video {
		index.Track = *c.video
	} else {
		index.Track = *c.audio
	}
	for n, s := range c.segments {
		frags := s.video
		if kind == Audio {
			frags = s.audio
		}
		var segment Segment
		for _, f := range frags {
			part, _ := EncodePart(uint32(n), index.Track, f)
			segment.Parts = append(segment.Parts, part)
		}
		index.Segments = append(index.Segments, segment)
	}
	return index
}

// checkDecodes lets ffmpeg decode everything of an input, which must not make it
// say a word.
func checkDecodes(t testing.TB, input ...string) {
	t.Helper()
	args := append(append([]string{"-nostdin", "-xerror", "-v", "warning"}, input...), "-map", "0", "-f", "null", "-")
	complaints, err := exec.CommandContext(t.Context(), "ffmpeg", args...).CombinedOutput()
	if err != nil || len(complaints) > 0 {
		t.Errorf("ffmpeg: %v\n%s", err, complaints)
	}
}

func TestTSOverhead(t *testing.T) {
	c := makeClip(t, tsClips["aac-only"])
	var payload, written int
	for i, s := range c.transport(t) {
		written += len(s)
		for _, f := range c.segments[i].audio {
			payload += len(f.Data)
		}
	}
	if share := float64(written)/float64(payload) - 1; share > 0.12 {
		t.Errorf("%d bytes of audio take %d: %.0f %% more", payload, written, share*100)
	}
}

// TestTSWrap: time stamps have 33 bits, and a stream on air for a day and a bit
// goes beyond.
func TestTSWrap(t *testing.T) {
	c := makeClip(t, tsClips["no-b"])
	shift := func(frags []Fragment, scale uint32) []Fragment {
		frags = slices.Clone(frags)
		for i := range frags {
			frags[i].Start += (1<<33/mpegts.ClockRate - 11) * int64(scale)
		}
		return frags
	}
	moved := clip{video: c.video, audio: c.audio}
	for _, s := range c.segments {
		moved.segments = append(moved.segments, tsSegment{shift(s.video, c.video.Timescale), shift(s.audio, c.audio.Timescale)})
	}
	file := filepath.Join(t.TempDir(), "wrap.ts")
	if err := os.WriteFile(file, bytes.Join(moved.transport(t), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	got, want := probeTimes(t, file, "v"), moved.shown(Video)
	if want[0] >= 1<<33 || want[len(want)-1] < 1<<33 {
		t.Fatalf("times from %d to %d do not wrap", want[0], want[len(want)-1])
	}
	for i := range want {
		want[i] -= 1 << 33 // ffmpeg counts from the wrap
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTSFailedWrite: the state is that of the segments that were written.
func TestTSFailedWrite(t *testing.T) {
	c := makeClip(t, tsClips["h264-aac"])
	want := c.transport(t)
	ts, err := NewTS(c.video, c.audio, TSState{})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range c.segments {
		before := ts.State()
		if err := ts.Segment(failingWriter{}, s.video, s.audio); err == nil || ts.State() != before {
			t.Fatalf("segment %d: err = %v, state %+v, was %+v", i, err, ts.State(), before)
		}
		short := slices.Clone(s.video)
		short[0].Data = short[0].Data[:len(short[0].Data)-1]
		if err := ts.Segment(io.Discard, short, s.audio); weir.KindOf(err) != weir.Invalid || ts.State() != before {
			t.Fatalf("segment %d cut short: err = %v, state %+v, was %+v", i, err, ts.State(), before)
		}
		var out bytes.Buffer
		if err := ts.Segment(&out, s.video, s.audio); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), want[i]) {
			t.Errorf("segment %d differs after failed tries", i)
		}
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no room") }

// TestTSRefuses: what has no place in MPEG-TS is told at the start.
func TestTSRefuses(t *testing.T) {
	for name, track := range map[string]Track{
		"no entry":      {Kind: Video, Timescale: 1},
		"no timescale":  {Kind: Video, Entry: testEntry("avc1", "avcC", avcConfig)},
		"audio":         {Kind: Audio, Timescale: 1, Entry: testEntry("avc1", "avcC", avcConfig)},
		"vp9":           {Kind: Video, Timescale: 1, Entry: testEntry("vp09", "vpcC", "")},
		"no avcC":       {Kind: Video, Timescale: 1, Entry: testEntry("avc1", "xxxx", "")},
		"truncated":     {Kind: Video, Timescale: 1, Entry: testEntry("avc1", "avcC", avcConfig[:len(avcConfig)-1])},
		"truncated box": {Kind: Video, Timescale: 1, Entry: testEntry("avc1", "avcC", avcConfig)[:100]},
	} {
		t.Run(name, func(t *testing.T) {
			if ts, err := NewTS(&track, nil, TSState{}); weir.KindOf(err) != weir.Invalid {
				t.Errorf("ts = %v, err = %v", ts, err)
			}
		})
	}
	for name, config := range map[string]string{"Main profile of USAC": "\xf9\x46\x40", "odd rate": "\x17\x80\x00\x00\x10", "odd layout": "\x11\x80", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			if ts, err := NewTS(nil, &Track{Kind: Audio, Timescale: 1, Entry: testEntry("mp4a", "esds", aacConfig(config))}, TSState{}); weir.KindOf(err) != weir.Invalid {
				t.Errorf("ts = %v, err = %v", ts, err)
			}
		})
	}
	if _, err := NewTS(nil, nil, TSState{}); weir.KindOf(err) != weir.Invalid {
		t.Errorf("no track: err = %v", err)
	}
}

// avcConfig is the body of an avcC box with short parameter sets.
const avcConfig = "\x01\x64\x00\x1f\xff\xe1\x00\x04\x67\x64\x00\x1f\x01\x00\x02\x68\xeb"

// hevcConfig is the body of an hvcC box with one short parameter set.
const hevcConfig = "\x0101234567890123456789\xff\x01\x21\x00\x01\x00\x03\x42\x01\x01"

// aacConfig is the body of an esds box with an AudioSpecificConfig.
func aacConfig(specific string) string {
	n := byte(len(specific))
	return "\x00\x00\x00\x00\x03" + string([]byte{n + 20, 0, 0, 0, 4, n + 15, 0x40}) + "\x15\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05" + string([]byte{n}) + specific
}

// testEntry returns a sample entry with one box inside.
func testEntry(name, box, body string) []byte {
	w := new(boxWriter)
	w.container(name, func() {
		fields := 78
		if name == "mp4a" {
			fields = 28
		}
		w.data = append(w.data, make([]byte, fields)...)
		w.container(box, func() { w.data = append(w.data, body...) })
	})
	return w.data
}

// FuzzTS: sample entries and samples come from files of strangers.
func FuzzTS(f *testing.F) {
	unit := []byte("\x00\x00\x00\x02\x09\xf0\x00\x00\x00\x03\x65\x88\x84")
	f.Add(testEntry("avc1", "avcC", avcConfig), unit, true)
	f.Add(testEntry("hvc1", "hvcC", hevcConfig), unit, false)
	f.Add(testEntry("mp4a", "esds", aacConfig("\x12\x10")), unit, true)
	f.Add(testEntry("mp4a", "esds", "\x00\x00\x00\x00\x03\x03\x00\x00\xe0"), unit, true)
	f.Add(testEntry("ac-3", "dac3", ""), unit, true)
	f.Fuzz(func(t *testing.T, entry, sample []byte, sync bool) {
		for _, kind := range []Kind{Video, Audio} {
			track := &Track{Kind: kind, Timescale: 90000, Entry: entry}
			var ts *TS
			var err error
			frags := [2][]Fragment{}
			one := []Fragment{{Samples: []Sample{{Size: uint32(len(sample)), Duration: 3000, Sync: sync}}, Data: sample}}
			if kind == Video {
				frags[0] = one
				ts, err = NewTS(track, nil, TSState{})
			} else {
				frags[1] = one
				ts, err = NewTS(nil, track, TSState{})
			}
			if err != nil {
				if weir.KindOf(err) != weir.Invalid {
					t.Fatal(err)
				}
				continue
			}
			var out bytes.Buffer
			if err := ts.Segment(&out, frags[0], frags[1]); err != nil {
				if weir.KindOf(err) != weir.Invalid {
					t.Fatal(err)
				}
				continue
			}
			if out.Len()%mpegts.PacketSize != 0 || out.Len() < 3*mpegts.PacketSize {
				t.Fatalf("%d bytes", out.Len())
			}
			for i := 0; i < out.Len(); i += mpegts.PacketSize {
				if out.Bytes()[i] != 0x47 {
					t.Fatalf("no packet at %d", i)
				}
			}
		}
	})
}

func BenchmarkTS(b *testing.B) {
	c := makeClip(b, "-f lavfi -i testsrc2=size=1280x720:rate=30:duration=4,noise=alls=40:allf=t "+lavfiAudio+x264+"-preset ultrafast -b:v 8M -c:a aac")
	ts, err := NewTS(c.video, c.audio, TSState{})
	if err != nil {
		b.Fatal(err)
	}
	var bytes int64
	for _, s := range c.segments {
		bytes += int64(len(s.video[0].Data) + len(s.audio[0].Data))
	}
	b.SetBytes(bytes)
	b.ReportAllocs()
	for b.Loop() {
		for _, s := range c.segments {
			if err := ts.Segment(io.Discard, s.video, s.audio); err != nil {
				b.Fatal(err)
			}
		}
	}
}
