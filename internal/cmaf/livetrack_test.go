package cmaf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/internal/weir"
)

// sent returns the configuration that the sample entry of a track has, as encoders send
// it.
func sent(t Track) [][]byte {
	avc := func(in *bytesReader) int { return int(in.u8() & 31) }
	hevc := func(in *bytesReader) int {
		in.u8()
		return int(in.u16())
	}
	box := func(name string) []byte { return entryBox(t.Entry, visualEntry, name) }
	switch string(t.Entry[4:8]) {
	case "avc1":
		return unitsOf(box("avcC")[5:], 2, avc)
	case "hvc1":
		return unitsOf(box("hvcC")[23:], 3, hevc)
	case "av01":
		return [][]byte{box("av1C")[4:]}
	case "mp4a":
		return [][]byte{parseESDS(entryBox(t.Entry, audioEntry, "esds")).specific}
	default:
		return [][]byte{{byte(t.Channels)}}
	}
}

// unitsOf returns the first NAL unit of each of the arrays of a configuration.
func unitsOf(config []byte, arrays int, count func(*bytesReader) int) [][]byte {
	in := &bytesReader{data: config}
	var units [][]byte
	for range arrays {
		for i := range count(in) {
			if unit := in.take(int(in.u16())); i == 0 {
				units = append(units, unit)
			}
		}
	}
	return units
}

// received makes a track of what an encoder sends; entry is that of the coding.
func received(entry string, units [][]byte) (Track, error) {
	switch entry {
	case "avc1":
		return H264Track(units[0], units[1])
	case "hvc1":
		return H265Track(units[0], units[1], units[2])
	case "av01":
		return AV1Track(units[0])
	case "mp4a":
		return AACTrack(units[0])
	default:
		return OpusTrack(int(units[0][0]))
	}
}

// rebuild makes a track anew, as if an encoder had sent it.
func rebuild(t Track) (Track, error) { return received(string(t.Entry[4:8]), sent(t)) }

var encoders = []struct{ name, options string }{
	{"H.264 with B-frames", picture + " -c:v libx264 -preset veryfast -bf 3 -g 25 -pix_fmt yuv420p"},
	{"H.264 baseline", picture + " -t 1 -c:v libx264 -preset ultrafast -profile:v baseline -pix_fmt yuv420p"},
	{"H.264 4:2:2 of 10 bits", picture + " -t 1 -c:v libx264 -preset ultrafast -pix_fmt yuv422p10le"},
	{"H.264 4:4:4", picture + " -t 1 -c:v libx264 -preset ultrafast -pix_fmt yuv444p"},
	{"H.264 gray", picture + " -t 1 -c:v libx264 -preset ultrafast -pix_fmt gray"},
	{"H.264 interlaced", "-f lavfi -i testsrc2=s=176x144:r=25:d=1 -c:v libx264 -preset ultrafast -pix_fmt yuv420p -flags +ilme+ildct -x264-params tff=1"},
	{"H.264 with wide pixels", "-f lavfi -i testsrc2=s=144x90:r=25:d=0.4,setsar=4/3 -c:v libx264 -preset ultrafast -pix_fmt yuv420p"},
	{"H.264 with HRD", picture + " -t 1 -c:v libx264 -preset ultrafast -pix_fmt yuv420p -x264-params nal-hrd=cbr:vbv-maxrate=500:vbv-bufsize=500"},
	{"HEVC", picture + " -c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=25:bframes=3 -pix_fmt yuv420p -tag:v hvc1"},
	{"HEVC of 10 bits with wide pixels", "-f lavfi -i testsrc2=s=144x90:r=25:d=0.4,setsar=4/3 -c:v libx265 -preset ultrafast -x265-params log-level=none -pix_fmt yuv420p10le -tag:v hvc1"},
	{"HEVC with layers and HRD", picture + " -t 1 -c:v libx265 -preset ultrafast -x265-params log-level=none:temporal-layers=1:bframes=3:b-adapt=0:hrd=1:vbv-maxrate=500:vbv-bufsize=500 -pix_fmt yuv420p -tag:v hvc1"},
	{"AV1", picture + " -t 1 -c:v libaom-av1 -usage realtime -cpu-used 8 -g 25 -pix_fmt yuv420p"},
	{"AV1 of 10 bits", picture + " -t 0.2 -c:v libaom-av1 -usage realtime -cpu-used 8 -pix_fmt yuv420p10le"},
	{"AAC", audio + " -c:a aac"},
	{"AAC 5.1", audio + " -t 1 -c:a aac -ac 6 -ar 48000"},
	{"AAC of 96 kHz", audio + " -t 1 -c:a aac -ar 96000"},
	{"Opus", audio + " -c:a libopus -ac 2"},
	{"Opus 5.1", audio + " -t 1 -c:a libopus -ac 6 -mapping_family 1"},
}

// A track made of what an encoder sends must be as good as the one that a muxer made of
// the same stream: it says the same, and the same frames come out of a decoder.
func TestTrackOfEncoder(t *testing.T) {
	for _, tt := range encoders {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			data := generate(t, tt.options)
			kept := store(t, data)[0]
			got, err := rebuild(kept.Track)
			if err != nil {
				t.Fatal(err)
			}
			scale := uint32(90000)
			if got.Kind == Audio {
				scale = uint32(kept.Track.SampleRate)
			}
			if got.Timescale != scale {
				t.Errorf("timescale = %d, want %d", got.Timescale, scale)
			}
			if diff := cmp.Diff(kept.Track, got, cmpopts.IgnoreFields(Track{}, "Entry", "Delay", "Timescale")); diff != "" {
				t.Errorf("track (-muxer +encoder):\n%s", diff)
			}
			for _, box := range []string{"avcC", "av1C", "pasp", "dOps"} {
				want, have := entryBox(kept.Track.Entry, visualEntry, box), entryBox(got.Entry, visualEntry, box)
				if got.Kind == Audio {
					want, have = entryBox(kept.Track.Entry, audioEntry, box), entryBox(got.Entry, audioEntry, box)
				}
				want, have = essence(box, want), essence(box, have)
				if diff := cmp.Diff(want, have); diff != "" {
					t.Errorf("%s box (-muxer +encoder):\n%s", box, diff)
				}
			}

			if told := binary.BigEndian.Uint16(got.Entry[32:]); got.SampleRate > 1<<16 && told != 0 {
				t.Errorf("the sample entry says %d Hz, want nothing, because %d has no room", told, got.SampleRate)
			}
			tracks, _ := readAll(t, Init(got))
			if diff := cmp.Diff([]Track{got}, tracks); diff != "" {
				t.Errorf("init segment read again (-want +got):\n%s", diff)
			}
			want := frames(t, writeFile(t, kept.fmp4()), 0)
			got.Timescale, got.Delay = kept.Track.Timescale, kept.Track.Delay
			kept.Track = got
			file := writeFile(t, kept.fmp4())
			decode(t, file)
			if diff := cmp.Diff(want, frames(t, file, 0)); diff != "" || len(want) == 0 {
				t.Errorf("%d frames (-muxer +encoder):\n%s", len(want), diff)
			}
		})
	}
}

// essence takes off what two boxes may differ in: square pixels need no box, and the
// rate that audio had before it became Opus is for people.
func essence(box string, body []byte) []byte {
	switch {
	case box == "pasp" && len(body) == 8 && bytes.Equal(body[:4], body[4:]):
		return nil
	case box == "dOps" && len(body) > 8:
		return append(bytes.Clone(body[:4]), body[8:]...)
	}
	return body
}

// What an HEVC configuration says beyond the parameter sets, which ffmpeg does not
// check.
func TestH265Configuration(t *testing.T) {
	kept := store(t, generate(t, encoders[8].options))[0]
	got, err := rebuild(kept.Track)
	if err != nil {
		t.Fatal(err)
	}
	want, have := entryBox(kept.Track.Entry, visualEntry, "hvcC"), entryBox(got.Entry, visualEntry, "hvcC")
	// The muxer has an array of SEI more.
	if diff := cmp.Diff(want[:22], have[:22]); diff != "" || have[22] != 3 {
		t.Errorf("%d arrays, before them (-muxer +encoder):\n%s", have[22], diff)
	}
	sets := len(have) - 23
	if diff := cmp.Diff(want[23:23+sets], have[23:]); diff != "" {
		t.Errorf("arrays (-muxer +encoder):\n%s", diff)
	}
}

func TestOpusTrackLayouts(t *testing.T) {
	for channels := 1; channels <= 8; channels++ {
		track, err := OpusTrack(channels)
		if err != nil || track.Channels != channels || track.SampleRate != 48000 || track.Codec != "opus" {
			t.Errorf("%d channels: %+v, %v", channels, track, err)
		}
		dops := entryBox(track.Entry, audioEntry, "dOps")
		if channels <= 2 {
			if len(dops) != 11 || dops[10] != 0 {
				t.Errorf("%d channels: dOps = % x, want mapping family 0", channels, dops)
			}
			continue
		}
		streams, coupled, mapping := int(dops[11]), int(dops[12]), dops[13:]
		seen := map[byte]bool{}
		for _, m := range mapping {
			seen[m] = true
		}
		if streams+coupled != channels || len(mapping) != channels || len(seen) != channels {
			t.Errorf("%d channels: %d streams, %d of them stereo, mapping %v", channels, streams, coupled, mapping)
		}
	}
}

// Real parameter sets, as short as they come.
var (
	someSPS = []byte("\x67\x42\xc0\x0a\xdd\x28\x32\x26\xc0\x44\x00\x00\x03\x00\x04\x00\x00\x03\x00\xca\x3c\x48\x9e\x00")
	somePPS = []byte("\x68\xce\x0f\xc8")
)

// h264Size makes a parameter set of pictures of so many macroblocks less one.
func h264Size(width, height uint32) []byte {
	var digits strings.Builder
	golomb := func(values ...uint32) {
		for _, v := range values {
			binary := fmt.Sprintf("%b", v+1)
			digits.WriteString(strings.Repeat("0", len(binary)-1) + binary)
		}
	}
	golomb(0, 0, 2, 1) // number, frame numbers, order, frames to refer to
	digits.WriteString("0")
	golomb(width, height)
	digits.WriteString("1100" + "1") // whole frames, direct inference, no cropping, no VUI; the end
	for digits.Len()%8 != 0 {
		digits.WriteString("0")
	}
	set := []byte{0x67, 66, 0, 30}
	for octet := range slices.Chunk([]byte(digits.String()), 8) {
		v, _ := strconv.ParseUint(string(octet), 2, 8)
		set = append(set, byte(v))
	}
	return set
}

func TestTrackRefusesBadConfiguration(t *testing.T) {
	sets := sent(store(t, generate(t, encoders[8].options))[0].Track)
	h264 := func(sps, pps []byte) func() (Track, error) {
		return func() (Track, error) { return H264Track(sps, pps) }
	}
	h265 := func(vps, sps, pps []byte) func() (Track, error) {
		return func() (Track, error) { return H265Track(vps, sps, pps) }
	}
	av1 := func(header ...byte) func() (Track, error) {
		return func() (Track, error) { return AV1Track(header) }
	}
	aac := func(config ...byte) func() (Track, error) {
		return func() (Track, error) { return AACTrack(config) }
	}
	opus := func(channels int) func() (Track, error) {
		return func() (Track, error) { return OpusTrack(channels) }
	}
	for _, tt := range []struct {
		name string
		make func() (Track, error)
		want string
	}{
		{"H.264 without anything", h264(nil, nil), "missing"},
		{"H.264 without PPS", h264(someSPS, nil), "missing"},
		{"H.264 of zeros", h264(make([]byte, 9), somePPS), "missing"},
		{"H.264 in the wrong order", h264(somePPS, someSPS), "type 8"},
		{"H.264 cut off", h264(someSPS[:6], somePPS), "can't be read"},
		{"H.264 too long", h264(append(bytes.Clone(someSPS), bytes.Repeat([]byte{1}, 1<<16)...), somePPS), "bytes"},
		{"H.264 too wide", h264(h264Size(1100, 10), somePPS), "17616 x 176"},
		{"H.264 too high", h264(h264Size(10, 65535), somePPS), "176 x 1048576"},
		{"HEVC without VPS", h265(nil, sets[1], sets[2]), "missing"},
		{"HEVC with H.264", h265(sets[0], someSPS, sets[2]), "type"},
		{"HEVC cut off", h265(sets[0], sets[1][:12], sets[2]), "can't be read"},
		{"AV1 without anything", av1(), "no sequence header"},
		{"AV1 with a delimiter", av1(0x12, 0), "no sequence header"},
		{"AV1 cut off", av1(0x0a, 4, 0, 0), "exceeds"},
		{"AV1 too short", av1(0x0a, 2, 0, 0), "can't be read"},
		{"AAC without anything", aac(), "can't be read"},
		{"AAC without a rate", aac(0x16, 0x90), "can't be read"},
		{"AAC of no kind", aac(0xf9, 0x46, 0x40), "object type 42"},
		{"AAC with many channels", aac(0x12, 0x60), "layout"},
		{"AAC of a possible rate", aac(0x17, 0x80, 0, 0, 0x90), "1 Hz"},
		{"Opus without channels", opus(0), "channels"},
		{"Opus with many channels", opus(9), "channels"},
		{"Opus with a wrapped number of channels", opus(258), "channels"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			track, err := tt.make()
			if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("track %+v, error = %v; want one of kind invalid about %q", track, err, tt.want)
			}
		})
	}
	if track, err := H264Track(h264Size(9, 8), somePPS); err != nil || track.Width != 160 || track.Height != 144 {
		t.Errorf("a picture of 10 x 9 macroblocks: %+v, %v", track, err)
	}
	// Zeros after a parameter set are no part of it.
	plain, err := H264Track(someSPS, somePPS)
	if err != nil {
		t.Fatal(err)
	}
	padded, err := H264Track(append(bytes.Clone(someSPS), 0, 0), append(bytes.Clone(somePPS), 0))
	if diff := cmp.Diff(plain, padded); diff != "" || err != nil {
		t.Errorf("%v (-plain +padded):\n%s", err, diff)
	}
}

// A track does not change when the caller uses its buffers again.
func TestTrackOwnsItsBytes(t *testing.T) {
	sps, pps := bytes.Clone(someSPS), bytes.Clone(somePPS)
	track, err := H264Track(sps, pps)
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(track.Entry)
	clear(sps)
	clear(pps)
	if !bytes.Equal(before, track.Entry) {
		t.Error("the sample entry changed with the buffers of the caller")
	}
}

// checkTrack fails the test if a track can't be kept: its init segment must say the
// same.
func checkTrack(t *testing.T, track Track, err error) {
	t.Helper()
	if err != nil {
		if weir.KindOf(err) != weir.Invalid {
			t.Errorf("error = %v, want one of kind invalid", err)
		}
		return
	}
	tracks, err := NewReader(bytes.NewReader(Init(track))).Tracks()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual([]Track{track}, tracks) {
		t.Fatalf("init segment read again (-want +got):\n%s", cmp.Diff([]Track{track}, tracks))
	}
	video := track.Width > 0 && track.Height > 0 && track.Timescale == 90000
	audio := track.Channels > 0 && track.SampleRate > 0 && track.Timescale == uint32(track.SampleRate)
	if track.Codec == "" || video == audio {
		t.Fatalf("track %+v is neither video nor audio", track)
	}
}

// Bits that flip in real configurations go deeper into the parsers than random bytes.
func TestTrackOfDamagedConfiguration(t *testing.T) {
	for _, i := range []int{0, 2, 7, 8, 10, 11, 13} {
		t.Run(encoders[i].name, func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(3, 4))
			kept := store(t, generate(t, encoders[i].options))[0].Track
			usable := 0
			for range 400 {
				units := sent(kept)
				for range 1 + rnd.IntN(3) {
					n := rnd.IntN(len(units))
					units[n] = bytes.Clone(units[n])
					units[n][rnd.IntN(len(units[n]))] ^= 1 << rnd.IntN(8)
				}
				track, err := received(string(kept.Entry[4:8]), units)
				checkTrack(t, track, err)
				if err == nil {
					usable++
				}
			}
			if usable == 0 || usable == 400 {
				t.Errorf("%d of 400 damaged configurations make a track; the damage is not what it should be", usable)
			}
		})
	}
}

// FuzzTrack makes tracks of foreign configurations; units that a coding does not have
// are not looked at.
func FuzzTrack(f *testing.F) {
	for _, tt := range encoders {
		track := store(f, generate(f, tt.options))[0].Track
		units := append(sent(track), nil, nil)
		f.Add(string(track.Entry[4:8]), units[0], units[1], units[2])
	}
	f.Add("avc1", someSPS, somePPS, []byte(nil))
	f.Add("mp4a", []byte{0x2b, 0x92, 0x08}, []byte(nil), []byte(nil))
	f.Add("mp4a", []byte{0xeb, 0x8a, 0x08}, []byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, entry string, one, two, three []byte) {
		if entry == "Opus" && len(one) == 0 {
			return
		}
		switch entry {
		case "avc1", "hvc1", "av01", "mp4a", "Opus":
			track, err := received(entry, [][]byte{one, two, three})
			checkTrack(t, track, err)
		}
	})
}
