package cmaf

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/Eyevinn/mp4ff/bits"
	"github.com/Eyevinn/mp4ff/mp4"
	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func indices(tracks ...stored) []TrackIndex {
	var all []TrackIndex
	for _, t := range tracks {
		all = append(all, t.TrackIndex)
	}
	return all
}

// Every sample must come out of the file with its bytes, and be shown when it was.
func TestProgressive(t *testing.T) {
	for _, tt := range codings {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tracks := store(t, generate(t, tt.options))
			layout, err := Progressive(indices(tracks...), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			file := writeFile(t, render(t, layout, tracks...))
			decode(t, file)
			for i, track := range tracks {
				want := fromFragments(track.Track, track.fragments())
				hide(track, want)
				got := packets(t, file, fmt.Sprint(i))
				if len(want) != len(got) {
					t.Fatalf("track %d has %d samples, want %d", i, len(got), len(want))
				}
				for n := range want {
					if off := seconds(t, want[n].PTS) - seconds(t, got[n].PTS); math.Abs(off) > 2e-6 {
						t.Errorf("sample %d of track %d is shown at %s, want %s", n, i, got[n].PTS, want[n].PTS)
					}
					got[n].PTS = want[n].PTS
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("samples of track %d (-want +got):\n%s", i, diff)
				}
				start := max(0, track.Track.Time(track.Start()).Seconds())
				end := track.Track.Time(track.End()).Seconds()
				p := probe(t, file, fmt.Sprint(i), "stream=start_time,nb_frames,nb_read_frames:format=start_time,duration")
				if off := seconds(t, p["start_time"]) - start; math.Abs(off) > 2e-6 {
					t.Errorf("track %d starts at %s, want %v", i, p["start_time"], start)
				}
				if p["nb_frames"] != fmt.Sprint(track.Frames()) {
					t.Errorf("track %d has %s frames, want %d", i, p["nb_frames"], track.Frames())
				}
				if track.Track.Kind == Video && p["nb_read_frames"] != fmt.Sprint(track.Frames()) {
					t.Errorf("%s frames are shown, want %d", p["nb_read_frames"], track.Frames())
				}
				if i == 0 && len(tracks) == 1 {
					if off := seconds(t, p["duration"]) - (end - start); math.Abs(off) > 2e-6 {
						t.Errorf("the duration of the file is %s, want %v", p["duration"], end-start)
					}
				}
			}
		})
	}
}

// hide marks the samples that are over before the presentation starts.
func hide(track stored, all []packet) {
	n := 0
	for _, f := range track.fragments() {
		for i, pts := range f.PTS() {
			if pts+int64(f.Samples[i].Duration) <= 0 {
				all[n].Flags = all[n].Flags[:1] + "D"
			}
			n++
		}
	}
}

func seconds(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A track that starts late does so in the file; a presentation that starts late does
// not.
func TestProgressiveKeepsTracksInStep(t *testing.T) {
	tracks := store(t, generate(t, codings[0].options))
	video, audio := tracks[0], tracks[1]
	for _, tt := range []struct {
		name                 string
		video, audio         float64 // when they start
		wantVideo, wantAudio float64
	}{
		{"together", 0, 0, 0, 0},
		{"video late", 0.5, 0, 0.5, 0},
		{"audio late", 0, 0.25, 0, 0.25},
		{"both late", 100.5, 100, 0.5, 0},
		{"audio hidden at first", 0, -0.1, 0, 0},
		{"both hidden at first", -0.04, -0.1, 0, 0},
		{"long ago", 1e5, 1e5 + 0.5, 0, 0.5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, a := moved(video, tt.video), moved(audio, tt.audio)
			layout, err := Progressive(indices(v, a), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			file := writeFile(t, render(t, layout, v, a))
			decode(t, file)
			for i, want := range []float64{tt.wantVideo, tt.wantAudio} {
				all := shown(packets(t, file, fmt.Sprint(i)))
				first := math.Inf(1)
				for _, p := range all {
					first = min(first, seconds(t, p.PTS))
				}
				// A packet of audio that is cut at 0 is shown in part.
				if first > want+1e-4 || first < want-0.024 || i == 0 && first < want-1e-4 {
					t.Errorf("track %d starts at %v, want %v", i, first, want)
				}
			}
		})
	}
}

// Audio that only prepares the decoder is in the file, and is not heard.
func TestProgressiveHidesPriming(t *testing.T) {
	tracks := store(t, generate(t, codings[0].options))
	video, audio := moved(tracks[0], 100.05), moved(tracks[1], 100)
	audio.Track.Priming = audio.Track.Ticks(50 * time.Millisecond)
	layout, err := Progressive(indices(video, audio), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, render(t, layout, video, audio))
	decode(t, file)
	for i := range 2 {
		if first := seconds(t, shown(packets(t, file, fmt.Sprint(i)))[0].PTS); first > 1e-3 || first < -0.024 {
			t.Errorf("track %d starts at %v", i, first)
		}
	}
	whole := video.Track.Time(video.End()) - video.Track.Time(video.Start())
	if played := Played(indices(video, audio)); played < whole || played > whole+100*time.Millisecond {
		t.Errorf("it plays for %v, the video for %v", played, whole)
	}
}

// moved returns a track that starts at another time.
func moved(s stored, at float64) stored {
	by := int64(math.Round(at*float64(s.Track.Timescale))) - s.Start()
	old := s.Segments
	s.Segments = nil
	for _, segment := range old {
		segment.Parts = append([]Part(nil), segment.Parts...)
		for i := range segment.Parts {
			segment.Parts[i].Start += by
		}
		s.Segments = append(s.Segments, segment)
	}
	return s
}

func TestProgressiveEnablesOneAudio(t *testing.T) {
	tracks := store(t, generate(t, codings[0].options))
	first, second, third := tracks[1], tracks[1], tracks[1]
	first.Track.Default = false
	third.Track.Language, third.Track.Name = "fra", "Commentaire"
	all := []stored{tracks[0], first, second, third}
	layout, err := Progressive(indices(all...), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	data := render(t, layout, all...)
	moov := decodeMoov(t, data)
	type track struct {
		Flags    uint32
		Group    int16
		Language string
		Name     string
	}
	var got []track
	for _, trak := range moov.Traks {
		got = append(got, track{trak.Tkhd.Flags, trak.Tkhd.AlternateGroup, trak.Mdia.Mdhd.GetLanguage(), trak.Mdia.Hdlr.Name})
	}
	want := []track{{3, 0, "und", "VideoHandler"}, {2, 1, "deu", "SoundHandler"}, {3, 1, "deu", "SoundHandler"}, {2, 1, "fra", "Commentaire"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tracks (-want +got):\n%s", diff)
	}
	decode(t, writeFile(t, data))
}

// decodeMoov reads the moov box of a file, which must come before the samples.
func decodeMoov(t *testing.T, file []byte) *mp4.MoovBox {
	t.Helper()
	sr := bits.NewFixedSliceReader(file)
	for at := uint64(0); ; {
		box, err := mp4.DecodeBoxSR(at, sr)
		if err != nil {
			t.Fatal(err)
		}
		if moov, ok := box.(*mp4.MoovBox); ok {
			return moov
		}
		if box.Type() == "mdat" {
			t.Fatal("mdat comes before moov")
		}
		at += box.Size()
	}
}

func TestProgressivePads(t *testing.T) {
	tracks := store(t, generate(t, codings[0].options))
	plain, err := Progressive(indices(tracks...), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := len(plain.Head)
	for _, pad := range []int{0, n - 1, n, n + 1, n + 7, n + 8, n + 9, n + 5<<20} {
		layout, err := Progressive(indices(tracks...), nil, pad)
		if err != nil {
			t.Fatal(err)
		}
		if len(layout.Head) < pad || len(layout.Head) > max(n, pad+7) {
			t.Errorf("padded to %d: the head has %d bytes", pad, len(layout.Head))
		}
		decode(t, writeFile(t, render(t, layout, tracks...)))
	}
}

// synthetic makes the index of a track without its bytes.
func synthetic(kind Kind, scale uint32, segments, frames int, duration, size uint32) TrackIndex {
	t := TrackIndex{Track: Track{Kind: kind, Codec: "test", Timescale: scale, Width: 16, Height: 16, Entry: entryOf(kind)}}
	at := int64(0)
	for range segments {
		p := Part{Start: at, Head: 1000}
		for i := range frames {
			p.Samples = append(p.Samples, Sample{Duration: duration, Size: size, Sync: i == 0 || kind == Audio})
		}
		at = p.End()
		t.Segments = append(t.Segments, Segment{Parts: []Part{p}})
	}
	return t
}

// Files on both sides of 4 GiB, where offsets and sizes need more bits, and longer than
// 32 bits of ticks.
func TestProgressiveHuge(t *testing.T) {
	for _, tt := range []struct {
		name     string
		size     uint32 // of a frame
		segments int
		frames   int // of a segment
		seconds  int // of a segment
		wide     bool
	}{
		{"just below 4 GiB", 1431500, 100, 30, 10, false},
		{"just above 4 GiB", 1431700, 100, 30, 10, true},
		{"six hours, 40 GB", 617284, 2160, 30, 10, true},
		{"a month", 10, 20000, 1, 130, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			video := synthetic(Video, 90000, tt.segments, tt.frames, uint32(90000*tt.seconds/tt.frames), tt.size)
			audio := synthetic(Audio, 48000, tt.segments, tt.frames, uint32(48000*tt.seconds/tt.frames), 20)
			layout, err := Progressive([]TrackIndex{video, audio}, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			moov := decodeMoov(t, layout.Head)
			checkPlaces(t, layout, moov, []TrackIndex{video, audio}, tt.wide)
			ends := layout.Head[len(layout.Head)-16:]
			large := string(ends[4:8]) == "mdat"
			if large != (layout.Size-int64(len(layout.Head)) > math.MaxUint32-8) {
				t.Errorf("a mdat box of %d bytes has a head of %q", layout.Size-int64(len(layout.Head)), ends)
			}
			if want := uint64(tt.segments*tt.seconds) * uint64(moov.Mvhd.Timescale); moov.Mvhd.Duration != want {
				t.Errorf("duration = %d, want %d", moov.Mvhd.Duration, want)
			}
			if want := uint64(tt.segments*tt.seconds) * 90000; moov.Traks[0].Mdia.Mdhd.Duration != want {
				t.Errorf("duration of the video = %d, want %d", moov.Traks[0].Mdia.Mdhd.Duration, want)
			}
			// A box of the caller moves everything after it.
			w := new(boxWriter)
			w.container("uuid", func() { w.data = append(w.data, make([]byte, 3000)...) })
			boxed, err := Progressive([]TrackIndex{video, audio}, nil, 0, w.data)
			if err != nil {
				t.Fatal(err)
			}
			ftyp := binary.BigEndian.Uint32(boxed.Head)
			if !bytes.Equal(boxed.Head[ftyp:int(ftyp)+len(w.data)], w.data) || boxed.Size != layout.Size+int64(len(w.data)) {
				t.Error("the box is not after ftyp, or the file has another size")
			}
			checkPlaces(t, boxed, decodeMoov(t, boxed.Head), []TrackIndex{video, audio}, tt.wide)
		})
	}
}

// checkPlaces compares where the tables say that samples are with where they are.
func checkPlaces(t *testing.T, layout Layout, moov *mp4.MoovBox, tracks []TrackIndex, wide bool) {
	t.Helper()
	at := int64(len(layout.Head))
	for _, e := range layout.Extents {
		if e.At != at {
			t.Fatalf("extent %+v should stand at %d", e, at)
		}
		at += e.Length
	}
	if at != layout.Size {
		t.Errorf("size = %d, want %d", layout.Size, at)
	}
	for i, trak := range moov.Traks {
		stbl := trak.Mdia.Minf.Stbl
		if (stbl.Co64 != nil) != wide || (stbl.Stco != nil) == wide {
			t.Errorf("track %d: offsets of 64 bits: %v, want %v", i, stbl.Co64 != nil, wide)
		}
		sample := 0
		for n := range chunks(stbl) {
			offset, count := chunkAt(t, stbl, n)
			e := extentAt(layout, offset)
			segment, start := sampleAt(tracks[i], sample)
			if e.Track != i || e.Segment != segment || e.Offset+offset-e.At != start {
				t.Fatalf("chunk %d of track %d is at %d, in %+v; want byte %d of segment %d", n, i, offset, e, start, segment)
			}
			sample += count
		}
		if sample != tracks[i].Frames() || int(stbl.Stsz.SampleNumber) != sample {
			t.Errorf("the chunks of track %d have %d samples, the sizes %d, want %d", i, sample, stbl.Stsz.SampleNumber, tracks[i].Frames())
		}
	}
}

func chunks(stbl *mp4.StblBox) int {
	if stbl.Co64 != nil {
		return len(stbl.Co64.ChunkOffset)
	}
	return len(stbl.Stco.ChunkOffset)
}

// chunkAt returns where chunk n, counted from 0, is and how many samples it has.
func chunkAt(t *testing.T, stbl *mp4.StblBox, n int) (offset int64, samples int) {
	t.Helper()
	if stbl.Co64 != nil {
		offset = int64(stbl.Co64.ChunkOffset[n])
	} else {
		offset = int64(stbl.Stco.ChunkOffset[n])
	}
	return offset, int(stbl.Stsc.GetChunk(uint32(n + 1)).NrSamples)
}

func extentAt(l Layout, at int64) Extent {
	n, _ := slices.BinarySearchFunc(l.Extents, at, func(e Extent, at int64) int { return int(min(1, max(-1, e.At+e.Length-1-at))) })
	return l.Extents[n]
}

// sampleAt returns where sample n of a synthetic track is stored.
func sampleAt(t TrackIndex, n int) (segment int, offset int64) {
	p := t.Segments[0].Parts[0]
	each := len(p.Samples)
	return n / each, int64(p.Head) + int64(n%each)*int64(p.Samples[0].Size)
}

// Between parts that do not join, the last frame before a gap stays.
func TestProgressiveBridgesGaps(t *testing.T) {
	tracks := store(t, generate(t, codings[0].options))
	video := moved(tracks[0], 0)
	for i := range video.Segments[2].Parts {
		video.Segments[2].Parts[i].Start += 12800
	}
	layout, err := Progressive(indices(video), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	late, last := 0, 0.0
	for _, p := range packets(t, writeFile(t, render(t, layout, video)), "0") {
		if at := seconds(t, p.PTS); at > 2.5 {
			late++
			last = max(last, at)
		}
	}
	if late != 25 || last != 3.96 {
		t.Errorf("%d frames are shown after the gap, the last at %v; want 25 and 3.96", late, last)
	}
	video.Segments[2].Parts[0].Start = 0
	if _, err := Progressive(indices(video), nil, 0); weir.KindOf(err) != weir.Invalid {
		t.Errorf("parts that go back in time: error = %v, want one of kind invalid", err)
	}
}

// TestProgressiveBytes holds the bytes of files: what was uploaded in part is completed by another version of
// weir.
func TestProgressiveBytes(t *testing.T) {
	video, audio := synthetic(Video, 12800, 3, 50, 512, 1000), synthetic(Audio, 48000, 4, 50, 1024, 300)
	video.Track.Delay, video.Segments[0].Parts[0].Samples[0].Offset = 1024, 1024
	other, late := audio, audio
	other.Track.Language, other.Track.Name, other.Track.Default = "fra", "Commentaire", true
	late.Segments = moved(stored{TrackIndex: audio}, 0.25).Segments
	var got bytes.Buffer
	for _, tt := range []struct {
		name   string
		pad    int
		texts  []TextTrack
		tracks []TrackIndex
	}{
		{"video", 0, nil, []TrackIndex{video}},
		{"both", 0, nil, []TrackIndex{video, audio}},
		{"padded", 10_000, nil, []TrackIndex{video, audio}},
		{"late", 0, nil, []TrackIndex{video, late}},
		{"languages", 0, nil, []TrackIndex{video, audio, other}},
		{"large", 0, nil, []TrackIndex{synthetic(Video, 90000, 100, 30, 30000, 1_431_700), audio}},
		{"text", 0, someTexts(), []TrackIndex{video, audio, other}},
		{"text, padded", 10_000, someTexts(), []TrackIndex{audio}},
	} {
		layout, err := Progressive(tt.tracks, tt.texts, tt.pad)
		if err != nil {
			t.Fatal(err)
		}
		places := sha256.New()
		for _, e := range layout.Extents {
			fmt.Fprintf(places, "%d %d %d %d %d %x\n", e.Track, e.Segment, e.Offset, e.Length, e.At, e.Bytes)
		}
		fmt.Fprintf(&got, "%s: %d bytes, head %d %x, rest %x\n", tt.name, layout.Size, len(layout.Head), sha256.Sum256(layout.Head), places.Sum(nil))
	}
	checkGolden(t, "mp4.txt", func(w io.Writer) error {
		_, err := got.WriteTo(w)
		return err
	})
}

func TestProgressiveRefusesNothing(t *testing.T) {
	for _, tracks := range [][]TrackIndex{nil, {{Track: Track{Kind: Video, Timescale: 1}}}} {
		if _, err := Progressive(tracks, nil, 0); weir.KindOf(err) != weir.Invalid {
			t.Errorf("error = %v, want one of kind invalid", err)
		}
	}
}

// A segment in one fragment has the same samples, and plays like the stored one.
func TestWholeSegment(t *testing.T) {
	tracks := store(t, generate(t, codings[0].options))
	for _, track := range tracks {
		joined := Init(track.Track)
		var want, got []byte
		for n, s := range track.Segments {
			w := new(boxWriter)
			w.container("uuid", func() { w.data = append(w.data, "sixteen bytes id anything"...) })
			layout, err := WholeSegment(track.TrackIndex, n, false, w.data)
			if err != nil {
				t.Fatal(err)
			}
			file := render(t, layout, track)
			styp := binary.BigEndian.Uint32(file)
			if !bytes.HasPrefix(file[styp:], w.data) || bytes.Count(file, []byte("moof")) != 1 {
				t.Errorf("segment %d does not have the box before one fragment", n)
			}
			got = append(got, file[len(layout.Head):]...)
			offset := 0
			for _, p := range s.Parts {
				want = append(want, track.segments[n][offset+p.Head:offset+int(p.Size())]...)
				offset += int(p.Size())
			}
			joined = append(joined, file...)
		}
		if !bytes.Equal(got, want) {
			t.Error("other samples")
		}
		stored := append(Init(track.Track), bytes.Join(track.segments, nil)...)
		if diff := cmp.Diff(frames(t, writeFile(t, stored), 0), frames(t, writeFile(t, joined), 0)); diff != "" {
			t.Errorf("other frames (-stored +whole):\n%s", diff)
		}
	}
}

func TestSingleFile(t *testing.T) {
	tracks := store(t, generate(t, codings[0].options))
	for _, track := range tracks {
		track.Segments = append(track.Segments, Segment{}) // of which there is nothing
		layout, err := SingleFile(track.TrackIndex)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(layout.Head[:layout.Init], ZeroInit(track.TrackIndex)) {
			t.Error("the head does not start with the init segment")
		}
		file := render(t, layout, track)
		decode(t, writeFile(t, file))
		box, err := mp4.DecodeBoxSR(uint64(layout.Init), bits.NewFixedSliceReader(layout.Head[layout.Init:]))
		if err != nil {
			t.Fatal(err)
		}
		sidx, ok := box.(*mp4.SidxBox)
		if !ok || len(sidx.SidxRefs) != len(track.segments) || sidx.Timescale != track.Track.Timescale {
			t.Fatalf("index = %+v, want one of %d segments", box, len(track.segments))
		}
		if want := max(0, track.Start()); int64(sidx.EarliestPresentationTime) != want {
			t.Errorf("the index starts at %d, want %d", sidx.EarliestPresentationTime, want)
		}
		at := len(layout.Head)
		for i, ref := range sidx.SidxRefs {
			if !bytes.Equal(file[at:at+int(ref.ReferencedSize)], track.segments[i]) || ref.StartsWithSAP != 1 ||
				int64(ref.SubSegmentDuration) != track.TrackIndex.Segments[i].Duration() {
				t.Errorf("reference %d = %+v", i, ref)
			}
			at += int(ref.ReferencedSize)
		}
	}
}

func TestSingleFileHuge(t *testing.T) {
	long := synthetic(Video, 90000, 70000, 1, 180000, 500000)
	layout, err := SingleFile(long)
	if err != nil {
		t.Fatal(err)
	}
	box, err := mp4.DecodeBoxSR(uint64(layout.Init), bits.NewFixedSliceReader(layout.Head[layout.Init:]))
	if err != nil {
		t.Fatal(err)
	}
	var size, duration int64
	for _, ref := range box.(*mp4.SidxBox).SidxRefs {
		size += int64(ref.ReferencedSize)
		duration += int64(ref.SubSegmentDuration)
	}
	if size != long.Size() || duration != long.End() || layout.Size != size+int64(len(layout.Head)) {
		t.Errorf("the index has %d bytes and %d ticks, want %d and %d", size, duration, long.Size(), long.End())
	}
	large := synthetic(Video, 90000, 1, 3, 3000, 1<<30)
	if _, err := SingleFile(large); weir.KindOf(err) != weir.Invalid {
		t.Errorf("a segment of 3 GiB: error = %v, want one of kind invalid", err)
	}
	if _, err := SingleFile(TrackIndex{}); weir.KindOf(err) != weir.Invalid {
		t.Errorf("no segment: error = %v, want one of kind invalid", err)
	}
}
