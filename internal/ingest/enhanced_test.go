package ingest

import (
	"bytes"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gortmplib"
	"github.com/bluenviron/gortmplib/pkg/codecs"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/av1"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/opus"
	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
)

// clipSample is a sample of a clip.
type clipSample struct {
	DTS, PTS time.Duration
	Sync     bool
	Data     []byte
}

// samplesOf returns the track of a clip that has one, and its samples.
func samplesOf(t testing.TB, name string) (cmaf.Track, []clipSample) {
	t.Helper()
	data, err := os.ReadFile(clip(t, name))
	if err != nil {
		t.Fatal(err)
	}
	r := cmaf.NewReader(bytes.NewReader(data))
	tracks, err := r.Tracks()
	if err != nil {
		t.Fatal(err)
	}
	var all []clipSample
	for {
		f, err := r.Next()
		if err == io.EOF {
			return tracks[0], all
		}
		if err != nil {
			t.Fatal(err)
		}
		at := f.Start
		for _, s := range f.Samples {
			all = append(all, clipSample{tracks[0].Time(at), tracks[0].Time(at + int64(s.Offset)), s.Sync, f.Data[:s.Size]})
			at, f.Data = at+int64(s.Duration), f.Data[s.Size:]
		}
	}
}

// encoder is a client of Enhanced RTMP.
type encoder struct {
	*gortmplib.Client
	*gortmplib.Writer
}

func newEncoder(t *testing.T, address string, tracks ...codecs.Codec) (encoder, []*gortmplib.Track) {
	t.Helper()
	c := &gortmplib.Client{URL: &url.URL{Scheme: "rtmp", Host: address, Path: "/live", Fragment: goodKey}, Publish: true}
	if err := c.Initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var all []*gortmplib.Track
	for _, codec := range tracks {
		all = append(all, &gortmplib.Track{Codec: codec})
	}
	w := &gortmplib.Writer{Conn: c, Tracks: all}
	if err := w.Initialize(); err != nil {
		t.Fatal(err)
	}
	return encoder{c, w}, all
}

// h265Of returns the parameter sets of a track.
func h265Of(t testing.TB, track cmaf.Track) *codecs.H265 {
	t.Helper()
	sets, err := track.Config().ParameterSets()
	if err != nil {
		t.Fatal(err)
	}
	return &codecs.H265{VPS: sets.Units[0], SPS: sets.Units[1], PPS: sets.Units[2]}
}

// check compares received frames with the samples that were sent.
func check(t *testing.T, frames []testFrame, samples []clipSample, same func(want, got []byte) bool) {
	t.Helper()
	if len(frames) != len(samples) {
		t.Fatalf("%d frames came, want %d", len(frames), len(samples))
	}
	for i, f := range frames {
		want := samples[i]
		shown := (f.PTS - frames[0].PTS) - (want.PTS - samples[0].PTS)
		decoded := (f.DTS - frames[0].DTS) - (want.DTS - samples[0].DTS)
		if shown.Abs() > 2*time.Millisecond || decoded.Abs() > 2*time.Millisecond || f.Sync != want.Sync || !same(want.Data, f.Data) {
			t.Fatalf("frame %d: %v late, decoded %v late, sync %v, %d bytes; want sync %v, %d bytes",
				i, shown, decoded, f.Sync, len(f.Data), want.Sync, len(want.Data))
		}
	}
}

func TestH265AndOpus(t *testing.T) {
	hub := newTestHub()
	address, _ := start(t, RTMP{}, hub)
	video, videoSamples := samplesOf(t, "h265.mp4")
	_, audio := samplesOf(t, "opus.mp4")
	enc, tracks := newEncoder(t, address, h265Of(t, video), &codecs.Opus{IDHeader: &opus.IDHeader{Version: 1, ChannelCount: 1, InputSampleRate: 48000}})
	base := -videoSamples[0].DTS
	for i, s := range videoSamples {
		var au h264.AVCC // the same lengths
		if err := au.Unmarshal(s.Data); err != nil {
			t.Fatal(err)
		}
		if err := enc.WriteH265(tracks[0], s.PTS+base, s.DTS+base, au); err != nil {
			t.Fatal(err)
		}
		for j := i * 2; j < min(i*2+2, len(audio)); j++ {
			if err := enc.WriteOpus(tracks[1], audio[j].PTS+base, audio[j].Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	enc.Close()
	p := hub.only(t)
	if p.closed != "lost" {
		t.Errorf("ended %s, want lost: nobody said goodbye", p.closed)
	}
	if len(p.tracks) != 1 || len(p.tracks[0]) != 2 || p.tracks[0][0].Codec != video.Codec || p.tracks[0][1].Codec != "opus" {
		t.Errorf("tracks %+v, want %s and opus", p.tracks, video.Codec)
	}
	check(t, p.of(cmaf.Video), videoSamples, bytes.Equal)
	check(t, p.of(cmaf.Audio), audio[:min(len(audio), 2*len(videoSamples))], bytes.Equal)
}

func TestAV1(t *testing.T) {
	hub := newTestHub()
	address, _ := start(t, RTMP{}, hub)
	_, videoSamples := samplesOf(t, "av1.mp4")
	enc, tracks := newEncoder(t, address, &codecs.AV1{})
	for _, s := range videoSamples {
		var tu av1.Bitstream
		if err := tu.Unmarshal(s.Data); err != nil {
			t.Fatal(err)
		}
		if err := enc.WriteAV1(tracks[0], s.PTS, tu); err != nil {
			t.Fatal(err)
		}
	}
	enc.Close()
	p := hub.only(t)
	// The configuration record is invalid: that in the stream is used.
	if last := p.tracks[len(p.tracks)-1]; !strings.HasPrefix(last[0].Codec, "av01.0.") || last[0].Width != 160 || last[0].Height != 90 {
		t.Errorf("track %s %dx%d, want av01.0. and 160x90", last[0].Codec, last[0].Width, last[0].Height)
	}
	check(t, p.of(cmaf.Video), videoSamples, func(want, got []byte) bool {
		// A file may omit the size of the last OBU; stored frames have it.
		var a, b av1.Bitstream
		return a.Unmarshal(want) == nil && b.Unmarshal(got) == nil && slices.EqualFunc(a, b, bytes.Equal)
	})
}

// Of several tracks of a kind the first counts.
func TestFirstTrackCounts(t *testing.T) {
	hub := newTestHub()
	address, log := start(t, RTMP{}, hub)
	video, videoSamples := samplesOf(t, "h265.mp4")
	one := &opus.IDHeader{Version: 1, ChannelCount: 1, InputSampleRate: 48000}
	enc, tracks := newEncoder(t, address, h265Of(t, video), &codecs.AV1{}, &codecs.Opus{IDHeader: one}, &codecs.Opus{IDHeader: one})
	for i := range 10 {
		at := time.Duration(i) * 40 * time.Millisecond
		var au h264.AVCC
		if err := au.Unmarshal(videoSamples[i].Data); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			enc.WriteH265(tracks[0], at, at, au),
			enc.WriteAV1(tracks[1], at, [][]byte{{0x30, 0x10}}),
			enc.WriteOpus(tracks[2], at, []byte{0xFC, byte(i)}),
			enc.WriteOpus(tracks[3], at, []byte{0xFC, 0xFF}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	enc.Close()
	p := hub.only(t)
	if len(p.tracks) != 1 || len(p.tracks[0]) != 2 {
		t.Fatalf("tracks %+v, want one set of two", p.tracks)
	}
	if n := len(p.of(cmaf.Video)); n != 10 {
		t.Errorf("%d video frames, want 10", n)
	}
	var audio []byte
	for _, f := range p.of(cmaf.Audio) {
		audio = append(audio, f.Data[1])
	}
	if diff := cmp.Diff([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, audio); diff != "" {
		t.Errorf("audio (-want +got):\n%s", diff)
	}
	if n := bytes.Count([]byte(log.String()), []byte("the first one is used")); n != 2 {
		t.Errorf("the log has %d lines about other tracks, want 2:\n%s", n, log)
	}
}
