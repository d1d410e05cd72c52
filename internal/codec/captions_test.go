package codec

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/caption/cea608test"
)

// captions are the pairs of a frame with both fields, and what Captions makes of them.
var (
	captionPairs = []cea608test.Pair{
		{Field: 1, Data: [2]byte{'a', 'b'}}, {Field: 2, Data: [2]byte{'c', 0x80}},
	}
	captionWant = []CaptionPair{
		{Field: 1, Data: [2]byte{'a', 'b'}}, {Field: 2, Data: [2]byte{'c', 0x80}},
	}
)

// h265SEI returns a NAL unit of H.265 with messages.
func h265SEI(kind byte, messages []byte) []byte {
	return join(int(kind<<1), 1, messages, 0x80)
}

// metadata returns an OBU with registered user data.
func metadata(data []byte) []byte {
	payload := join(4, data, 0x80)
	return join(5<<3|2, binary.AppendUvarint(nil, uint64(len(payload))), payload)
}

func TestCaptions(t *testing.T) {
	sei264, t35 := cea608test.SEI(captionPairs...), cea608test.T35(captionPairs...)
	message := join(4, len(t35), t35)
	// Messages with type 5 and more than 255 bytes are what x264 sends.
	large := join(5, 255, 45, bytes.Repeat([]byte{7}, 300))
	zeros := join(5, 6, []byte{0, 0, 3, 1, 0, 0, 3, 3})
	triplets := func(all ...byte) []byte {
		data := join([]byte("\xb5\x00\x31GA94\x03"), 0xc0|len(all)/3, 0xff, all, 0xff)
		return join(6, 4, len(data), data, 0x80)
	}
	off := bytes.Clone(sei264)
	off[3+8] &^= 0x40
	for _, tt := range []struct {
		name, codec string
		lengthSize  int
		sample      []byte
		want        []CaptionPair
	}{
		{"H.264", H264, 4, lengths(4, aud, sei264, key), captionWant},
		{"short lengths", H264, 2, lengths(2, sei264, key), captionWant},
		{"two units", H264, 4, lengths(4, sei264, slice, sei264, slice), slices.Concat(captionWant, captionWant)},
		{"behind other messages", H264, 4, lengths(4, join(6, large, zeros, message, 0x80), key), captionWant},
		{"H.265", H265, 4, lengths(4, h265SEI(39, message), []byte{21 << 1, 1, 9}), captionWant},
		{"H.265, SEI behind the frame", H265, 4, lengths(4, h265SEI(40, message)), nil},
		{"AV1", AV1, 0, join(metadata(t35), 0x32, 2, 0x10, 9), captionWant},
		{"AV1, the last OBU", AV1, 0, join(0x32, 2, 0x10, 9, 5<<3, 4, t35), captionWant},
		{"AV1, other metadata", AV1, 0, join(5<<3|2, 3, 1, 4, 4, 0x32, 2, 0x10, 9), nil},
		{"none", H264, 4, lengths(4, sei, slice), nil},
		{"AAC", AAC, 0, sei264, nil},
		{"a slice that looks like it", H264, 4, lengths(4, join(slice, message)), nil},
		{"another message", H264, 4, lengths(4, join(6, 5, len(t35), t35, 0x80)), nil},
		{"CEA-708", H264, 4, lengths(4, triplets(0xfe, 'a', 'b', 0xff, 'c', 'd')), nil},
		{"not valid", H264, 4, lengths(4, triplets(0xf8, 'a', 'b', 0xf9, 'c', 'd', 0xfc, 'e', 'f')), []CaptionPair{{1, [2]byte{'e', 'f'}}}},
		{"filler", H264, 4, lengths(4, triplets(0xfc, 0x80, 0x80, 0xfd, 0, 0)), nil},
		{"switched off", H264, 4, lengths(4, off), nil},
		{"fewer than it says", H264, 4, lengths(4, sei264[:len(sei264)-5]), nil},
		{"damaged behind it", H264, 4, join(lengths(4, sei264), 0, 0, 9), captionWant},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Config{Codec: tt.codec}.Captions(tt.sample, tt.lengthSize)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the pairs differ (-want +got):\n%s", diff)
			}
			for n := range tt.sample {
				Config{Codec: tt.codec}.Captions(tt.sample[:n], tt.lengthSize) // must not panic
			}
		})
	}
}

// What another program writes is read: libx264 takes the captions of its input into its own SEI.
func TestCaptionsOfAnEncoder(t *testing.T) {
	var stream []byte
	var want []CaptionPair
	text := cea608test.New(1).PopOn("One two three").Pairs()
	units := unitsOf(t, ffmpeg(t, video+" -c:v libx264 -preset ultrafast -x264-params aud=1:annexb=1:sliced-threads=0:slices=1", "h264"))
	for _, unit := range units {
		if k := H264NAL(unit); (k == NALSlice || k == NALKeySlice) && len(text) > 0 {
			stream = join(stream, []byte(StartCode), cea608test.SEI(text[0]))
			want = append(want, CaptionPair{Field: text[0].Field, Data: text[0].Data})
			text = text[1:]
		}
		stream = join(stream, []byte(StartCode), unit)
	}
	input := t.TempDir() + "/captions.h264"
	if err := os.WriteFile(input, stream, 0o600); err != nil {
		t.Fatal(err)
	}
	encoded := ffmpeg(t, "-i "+input+" -c:v libx264 -preset ultrafast -bf 0 -x264-params slices=1", "h264")
	var got []CaptionPair
	for _, unit := range unitsOf(t, encoded) {
		got = append(got, Config{Codec: H264}.Captions(AppendUnit(nil, unit), 4)...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pairs differ (-want +got):\n%s", diff)
	}
}

// Captions are looked for in every frame of every stream.
func TestCaptionsAllocations(t *testing.T) {
	for _, tt := range []struct {
		name, codec string
		sample      []byte
		most        float64
	}{
		{"H.264 without", H264, lengths(4, sei, key), 0},
		{"H.265 without", H265, lengths(4, []byte{39 << 1, 1, 5}, []byte{21 << 1, 1, 9}), 0},
		{"AV1 without", AV1, []byte{0x0A, 2, 0, 0, 5<<3 | 2, 2, 1, 1, 0x32, 2, 0x10, 9}, 0},
		{"filler", H264, lengths(4, cea608test.SEI(cea608test.Pair{Field: 1, Data: [2]byte{0x80, 0x80}}), key), 0},
		{"with a pair", H264, lengths(4, cea608test.SEI(captionPairs[:1]...), key), 1},
	} {
		c := Config{Codec: tt.codec}
		if got := testing.AllocsPerRun(100, func() { c.Captions(tt.sample, 4) }); got > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, got, tt.most)
		}
	}
}

// FuzzCaptions reads samples that may be anything.
func FuzzCaptions(f *testing.F) {
	sei264, t35 := cea608test.SEI(captionPairs...), cea608test.T35(captionPairs...)
	f.Add(0, 4, lengths(4, aud, sei264, key))
	f.Add(1, 2, lengths(2, h265SEI(39, join(4, len(t35), t35))))
	f.Add(2, 0, join(metadata(t35), 0x32, 2, 0x10, 9))
	f.Fuzz(func(t *testing.T, which, lengthSize int, sample []byte) {
		c := Config{Codec: []string{H264, H265, AV1}[uint(which)%3]}
		pairs := c.Captions(sample, lengthSize%5)
		if 3*len(pairs) > len(sample) {
			t.Fatalf("%d pairs in %d bytes", len(pairs), len(sample))
		}
		for _, p := range pairs {
			if p.Field != 1 && p.Field != 2 || p.Data[0]&0x7f == 0 && p.Data[1]&0x7f == 0 {
				t.Fatalf("a pair %+v", p)
			}
		}
	})
}

// BenchmarkCaptions looks for captions in a frame of a stream at 6 Mbit/s.
func BenchmarkCaptions(b *testing.B) {
	picture := join(slice, bytes.Repeat([]byte{1, 2, 3}, 4000))
	for _, bb := range []struct {
		name   string
		sample []byte
	}{
		{"none", lengths(4, join(6, 5, 255, 45, bytes.Repeat([]byte{7}, 300), 0x80), picture)},
		{"pairs", lengths(4, cea608test.SEI(captionPairs...), picture)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Config{Codec: H264}.Captions(bb.sample, 4)
			}
		})
	}
}
