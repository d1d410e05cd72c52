package mpegts

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/codec"
	"weir/internal/weir"
)

// avcRecord is an avcC record with short parameter sets, and avcSets are those.
const (
	avcRecord = "\x01\x64\x00\x1f\xff\xe1\x00\x04\x67\x64\x00\x1f\x01\x00\x02\x68\xeb"
	avcSets   = "\x00\x00\x00\x04\x67\x64\x00\x1f\x00\x00\x00\x02\x68\xeb"
)

func h264Track() *Track {
	return &Track{Config: codec.Config{Kind: codec.Video, Codec: codec.H264, RFC6381: "avc1.64001f", Record: []byte(avcRecord)}}
}

func aacTrack() *Track {
	return &Track{Config: codec.Config{Kind: codec.Audio, Codec: codec.AAC, RFC6381: "mp4a.40.2", Record: []byte{0x12, 0x10}}}
}

// TestMuxDemux: a demuxer returns the frames of a muxer, with the same times.
func TestMuxDemux(t *testing.T) {
	m, err := NewMuxer(h264Track(), aacTrack(), State{})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	data := func(first byte) []byte {
		b := make([]byte, 20+random.IntN(2000))
		for i := range b {
			b[i] = byte(random.Uint32()) | 1 // no start codes
		}
		b[0] = first
		return b
	}
	type timed struct {
		PTS  time.Duration
		Data string
	}
	want, got := map[codec.Kind][]timed{}, map[codec.Kind][]timed{}
	var stream bytes.Buffer
	for segment := range int64(4) {
		for i := range int64(25) {
			unit := data(0x65)
			u := Unit{
				DTS: (25*segment + i) * 3600, PTS: (25*segment + i + []int64{0, 2, -1, -1, 0}[i%5]) * 3600,
				Sync: i == 0, Data: codec.AppendUnit([]byte("\x00\x00\x00\x02\x09\x10"), unit),
			}
			sent := []byte("\x00\x00\x00\x02\x09\xf0")
			if u.Sync {
				sent = append(sent, avcSets...)
			}
			want[codec.Video] = append(want[codec.Video], timed{codec.Duration(u.PTS+origin, ClockRate), string(codec.AppendUnit(sent, unit))})
			m.AddVideo(u)
		}
		var run []Unit
		for i := 43 * segment; i < 43*(segment+1); i++ {
			u := Unit{PTS: i * 1024 * ClockRate / 44100, Data: data(1)}
			u.Duration = (i+1)*1024*ClockRate/44100 - u.PTS
			want[codec.Audio] = append(want[codec.Audio], timed{codec.Duration(u.PTS+origin, ClockRate), string(u.Data)})
			run = append(run, u)
		}
		m.AddAudio(run...)
		if err := m.WriteSegment(&stream); err != nil {
			t.Fatal(err)
		}
	}
	decoded := time.Duration(-1)
	d := NewDemuxer(func(p codec.Packet, at time.Duration) error {
		if p.Kind == codec.Video {
			if at <= decoded {
				t.Errorf("decoded at %v, after a frame at %v", at, decoded)
			}
			decoded = at
		}
		if !p.Config {
			got[p.Kind] = append(got[p.Kind], timed{at + p.Composition, string(p.Data)})
		}
		return nil
	}, func(bool, bool) {}, slog.New(slog.DiscardHandler))
	if err := d.Write(stream.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	near := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= 20*time.Microsecond })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("(-sent +received):\n%s", diff)
	}
}

// TestState: the state that an earlier version stored is read and stored as it was.
func TestState(t *testing.T) {
	const stored = `{"pat":3,"pmt":3,"video":11,"audio":7,"delay":3600,"started":true,"decoded":1162800,"clock":1164321}`
	want := State{PAT: 3, PMT: 3, Video: 11, Audio: 7, Delay: 3600, Started: true, Decoded: 1162800, Clock: 1164321}
	var state State
	if err := json.Unmarshal([]byte(stored), &state); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, state); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := json.Marshal(state)
	if err != nil || string(text) != stored {
		t.Errorf("stored again as %s, %v", text, err)
	}
}

// TestMuxRefuses: tracks that a transport stream can't carry are an error.
func TestMuxRefuses(t *testing.T) {
	for name, config := range map[string]codec.Config{
		"VP9":             {Kind: codec.Video, RFC6381: "vp09.00.10.08"},
		"Opus":            {Kind: codec.Audio, Codec: codec.Opus, RFC6381: "opus", Record: codec.OpusHead(2)},
		"no avcC":         {Kind: codec.Video, Codec: codec.H264},
		"short avcC":      {Kind: codec.Video, Codec: codec.H264, Record: []byte(avcRecord[:len(avcRecord)-1])},
		"lengths of 3":    {Kind: codec.Video, Codec: codec.H264, Record: []byte(avcRecord[:4] + "\xfe" + avcRecord[5:])},
		"no audio config": {Kind: codec.Audio, Codec: codec.AAC},
	} {
		if _, err := NewMuxer(&Track{Config: config}, nil, State{}); weir.KindOf(err) != weir.Invalid {
			t.Errorf("%s: error %v", name, err)
		}
	}
	m, err := NewMuxer(h264Track(), nil, State{})
	if err != nil {
		t.Fatal(err)
	}
	m.AddAudio(Unit{Data: []byte{1}})
	if err := m.WriteSegment(io.Discard); err == nil || m.State() != (State{}) {
		t.Errorf("audio without an audio track: error %v, state %+v", err, m.State())
	}
	m.AddVideo(Unit{Sync: true, Data: []byte("\x00\x00\x00\x02\x65")})
	if err := m.WriteSegment(io.Discard); weir.KindOf(err) != weir.Invalid || m.State() != (State{}) {
		t.Errorf("a damaged sample: error %v, state %+v", err, m.State())
	}
	var out bytes.Buffer
	if err := m.WriteSegment(&out); err != nil || out.Len() != TablesSize {
		t.Errorf("the segment after it has %d bytes, %v; want tables only", out.Len(), err)
	}
}

// TestDecodeTimes: whatever the frames do, decode times rise and no frame is decoded after its
// presentation time.
func TestDecodeTimes(t *testing.T) {
	order := []int64{0, 3, 1, 2} // decode order of frames, by presentation
	var state State
	last, start := int64(-1)<<62, int64(1e6)
	// In later segments frames lie further apart, so that the delay that the first one shows is not
	// enough, and then the timeline starts over.
	for _, gap := range []int64{3000, 9000, 30000, 200000, 3000, -1, 3000} {
		if gap < 0 {
			last, start = int64(-1)<<62, start-300000
			continue
		}
		var units []pesUnit
		for range 2 {
			for i, o := range order {
				units = append(units, pesUnit{dts: start + int64(i)*gap, pts: start + o*gap})
			}
			start += 4 * gap
		}
		if !state.Started {
			state.Delay = reorderDelay(units, 0)
		}
		decodeTimes(units, &state)
		state.Started = true
		for i, u := range units {
			if u.dts <= last || u.dts > u.pts {
				t.Errorf("gap %d, frame %d: decoded at %d, presented at %d, the one before decoded at %d", gap, i, u.dts, u.pts, last)
			}
			last = u.dts
		}
	}
	if state.Delay != 3000 {
		t.Errorf("delay = %d, want that of one frame", state.Delay)
	}
}

// FuzzMuxer: whatever the records, samples and times are, the output is made of packets, or there
// is an error of kind Invalid.
func FuzzMuxer(f *testing.F) {
	unit := []byte("\x00\x00\x00\x02\x09\xf0\x00\x00\x00\x03\x65\x88\x84")
	f.Add([]byte(avcRecord), unit, int64(0), int64(3600), true)
	f.Add([]byte{0x12, 0x10}, unit, int64(-90000), int64(1)<<40, false)
	f.Fuzz(func(t *testing.T, record, sample []byte, first, second int64, sync bool) {
		for _, config := range []codec.Config{
			{Kind: codec.Video, Codec: codec.H264, Record: record},
			{Kind: codec.Video, Codec: codec.H265, Record: record},
			{Kind: codec.Audio, Codec: codec.AAC, Record: record},
			{Kind: codec.Audio, RFC6381: "ac-3"},
		} {
			track := &Track{Config: config}
			var m *Muxer
			var err error
			if config.Kind == codec.Video {
				m, err = NewMuxer(track, nil, State{})
			} else {
				m, err = NewMuxer(nil, track, State{})
			}
			if err != nil {
				if weir.KindOf(err) != weir.Invalid {
					t.Fatal(err)
				}
				continue
			}
			for _, at := range []int64{first % (1 << 50), second % (1 << 50)} {
				u := Unit{PTS: at, DTS: at, Duration: 1920, Sync: sync, Data: sample}
				if config.Kind == codec.Video {
					m.AddVideo(u)
				} else {
					m.AddAudio(u)
				}
			}
			var out bytes.Buffer
			if err := m.WriteSegment(&out); err != nil {
				if weir.KindOf(err) != weir.Invalid {
					t.Fatal(err)
				}
				continue
			}
			if out.Len()%PacketSize != 0 || out.Len() < TablesSize+PacketSize {
				t.Fatalf("%d bytes", out.Len())
			}
			for packet := range slices.Chunk(out.Bytes(), PacketSize) {
				if packet[0] != syncByte {
					t.Fatalf("no packet: % x", packet[:4])
				}
			}
		}
	})
}

// BenchmarkMuxer writes segments of two seconds as a viewer asks for them: 1080p at 6 Mbit/s.
func BenchmarkMuxer(b *testing.B) {
	frame := codec.AppendUnit(nil, bytes.Repeat([]byte{0x41}, 25_000))
	audio := bytes.Repeat([]byte{1}, 370)
	m, err := NewMuxer(h264Track(), aacTrack(), State{})
	if err != nil {
		b.Fatal(err)
	}
	run := make([]Unit, 94)
	for i := range run {
		run[i] = Unit{PTS: int64(i) * 1920, Duration: 1920, Data: audio}
	}
	b.SetBytes(int64(60*len(frame) + len(run)*len(audio)))
	b.ReportAllocs()
	for b.Loop() {
		for i := range int64(60) {
			m.AddVideo(Unit{PTS: i * 3000, DTS: i * 3000, Sync: i == 0, Data: frame})
		}
		m.AddAudio(run...)
		if err := m.WriteSegment(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

// TestMuxBatches: a live stream that is written in short batches, as its frames arrive, has one
// clock. Audio arrives a little behind video here, and is not a new start.
func TestMuxBatches(t *testing.T) {
	m, err := NewMuxer(h264Track(), aacTrack(), State{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	frame := codec.AppendUnit(nil, bytes.Repeat([]byte{0x41}, 500))
	audio := int64(0)
	for i := range int64(100) {
		dts := i * 3600
		m.AddVideo(Unit{DTS: dts, PTS: dts + 3600*[]int64{1, 3, 0}[i%3], Sync: i == 0, Data: frame})
		for ; audio < dts-1000; audio += 1920 {
			m.AddAudio(Unit{PTS: audio, Data: frame[:300]})
		}
		if i%3 == 2 {
			if err := m.WriteSegment(&out); err != nil {
				t.Fatal(err)
			}
		}
	}
	jumps, clock := 0, int64(0)
	for p := range slices.Chunk(out.Bytes(), PacketSize) {
		if p[3]&0x20 == 0 || p[4] == 0 {
			continue
		}
		if p[5]&fieldJump != 0 && p[5]&fieldClock != 0 {
			jumps++
		}
		if p[5]&fieldClock != 0 {
			now := int64(p[6])<<25 | int64(p[7])<<17 | int64(p[8])<<9 | int64(p[9])<<1 | int64(p[10])>>7
			if now < clock || clock > 0 && now-clock > maxClockGap {
				t.Errorf("the clock goes from %d to %d", clock, now)
			}
			clock = now
		}
	}
	if jumps != 1 {
		t.Errorf("the clock starts again %d times, want once", jumps)
	}
}
