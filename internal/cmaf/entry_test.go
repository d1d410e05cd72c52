package cmaf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/internal/codec"
	"weir/internal/weir"
)

// sent returns the configuration that the sample entry of a track has, as encoders send
// it.
func sent(t testing.TB, track Track) [][]byte {
	t.Helper()
	config := track.Config()
	switch config.Codec {
	case codec.H264, codec.H265:
		sets, err := config.ParameterSets()
		if err != nil {
			t.Fatal(err)
		}
		return firstOfEach(sets.Units)
	case codec.AV1:
		return [][]byte{config.Record[4:]}
	case codec.AAC:
		return [][]byte{config.Record}
	default:
		return [][]byte{{byte(config.Channels)}}
	}
}

// firstOfEach returns the first parameter set of each type.
func firstOfEach(units [][]byte) (first [][]byte) {
	seen := map[byte]bool{}
	for _, unit := range units {
		if !seen[unit[0]] {
			first = append(first, unit)
		}
		seen[unit[0]] = true
	}
	return first
}

// boxOf returns the body of a box in the sample entry of a track, nil if it has none.
func boxOf(t Track, name string) []byte { return child(entryBoxes(t.Kind, t.Entry[8:]), name) }

// received makes a track of what an encoder sends.
func received(name string, units [][]byte) (Track, error) {
	var config codec.Config
	var err error
	switch name {
	case codec.H264:
		config, err = codec.H264Config(units[0], units[1])
	case codec.H265:
		config, err = codec.H265Config(units[0], units[1], units[2])
	case codec.AV1:
		config, err = codec.AV1Config(units[0])
	case codec.AAC:
		config, err = codec.AACConfig(units[0])
	default:
		config, err = codec.OpusConfig(int(units[0][0]))
	}
	if err != nil {
		return Track{}, err
	}
	return NewTrack(config)
}

// rebuild makes a track again, as if an encoder had sent it.
func rebuild(t testing.TB, track Track) (Track, error) {
	return received(track.Config().Codec, sent(t, track))
}

// The bytes of sample entries never change: what is stored has them, and players take two
// tracks with different ones for different. -update writes the tracks again, not the units.
func TestNewTrack(t *testing.T) {
	type golden struct {
		Name  string   `json:"name"`
		Codec string   `json:"codec"`
		Units []string `json:"units"` // what an encoder sends
		Track Track    `json:"track"`
	}
	const file = "testdata/tracks.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for i, tt := range all {
		var units [][]byte
		for _, unit := range tt.Units {
			b, err := hex.DecodeString(unit)
			if err != nil {
				t.Fatal(err)
			}
			units = append(units, b)
		}
		got, err := received(tt.Codec, units)
		if err != nil {
			t.Fatalf("%s: %v", tt.Name, err)
		}
		if *update {
			all[i].Track = got
			continue
		}
		if diff := cmp.Diff(tt.Track, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.Name, diff)
		}
		for n := range got.Entry {
			Track{Kind: got.Kind, Entry: got.Entry[:n]}.Config() // must not panic
		}
		// A track is its configuration.
		again, err := NewTrack(got.Config())
		if diff := cmp.Diff(got, again); diff != "" || err != nil {
			t.Errorf("%s: %v; made of its own configuration (-want +got):\n%s", tt.Name, err, diff)
		}
	}
	if *update {
		text, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var encoders = []struct{ name, options string }{
	{"H.264 with B-frames", videoInput + " -c:v libx264 -preset veryfast -bf 3 -g 25 -pix_fmt yuv420p"},
	{"H.264 baseline", videoInput + " -t 1 -c:v libx264 -preset ultrafast -profile:v baseline -pix_fmt yuv420p"},
	{"H.264 4:2:2 of 10 bits", videoInput + " -t 1 -c:v libx264 -preset ultrafast -pix_fmt yuv422p10le"},
	{"H.264 4:4:4", videoInput + " -t 1 -c:v libx264 -preset ultrafast -pix_fmt yuv444p"},
	{"H.264 gray", videoInput + " -t 1 -c:v libx264 -preset ultrafast -pix_fmt gray"},
	{"H.264 interlaced", "-f lavfi -i testsrc2=s=176x144:r=25:d=1 -c:v libx264 -preset ultrafast -pix_fmt yuv420p -flags +ilme+ildct -x264-params tff=1"},
	{"H.264 with wide pixels", "-f lavfi -i testsrc2=s=144x90:r=25:d=0.4,setsar=4/3 -c:v libx264 -preset ultrafast -pix_fmt yuv420p"},
	{"H.264 with HRD", videoInput + " -t 1 -c:v libx264 -preset ultrafast -pix_fmt yuv420p -x264-params nal-hrd=cbr:vbv-maxrate=500:vbv-bufsize=500"},
	{"HEVC", videoInput + " -c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=25:bframes=3 -pix_fmt yuv420p -tag:v hvc1"},
	{"HEVC of 10 bits with wide pixels", "-f lavfi -i testsrc2=s=144x90:r=25:d=0.4,setsar=4/3 -c:v libx265 -preset ultrafast -x265-params log-level=none -pix_fmt yuv420p10le -tag:v hvc1"},
	{"HEVC with layers and HRD", videoInput + " -t 1 -c:v libx265 -preset ultrafast -x265-params log-level=none:temporal-layers=1:bframes=3:b-adapt=0:hrd=1:vbv-maxrate=500:vbv-bufsize=500 -pix_fmt yuv420p -tag:v hvc1"},
	{"AV1", videoInput + " -t 1 -c:v libaom-av1 -usage realtime -cpu-used 8 -g 25 -pix_fmt yuv420p"},
	{"AV1 of 10 bits", videoInput + " -t 0.2 -c:v libaom-av1 -usage realtime -cpu-used 8 -pix_fmt yuv420p10le"},
	{"AAC", audio + " -c:a aac"},
	{"AAC 5.1", audio + " -t 1 -c:a aac -ac 6 -ar 48000"},
	{"AAC of 96 kHz", audio + " -t 1 -c:a aac -ar 96000"},
	{"Opus", audio + " -c:a libopus -ac 2"},
	{"Opus 5.1", audio + " -t 1 -c:a libopus -ac 6 -mapping_family 1"},
}

// A track made of what an encoder sends must be as good as the one that a muxer made of
// the same stream: it says the same, and the same frames come out of a decoder.
func TestTrackOfEncoder(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, tt := range encoders {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			data := generate(t, tt.options)
			kept := store(t, data)[0]
			got, err := rebuild(t, kept.Track)
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
				want, have := essence(box, boxOf(kept.Track, box)), essence(box, boxOf(got, box))
				if diff := cmp.Diff(want, have); diff != "" {
					t.Errorf("%s box (-muxer +encoder):\n%s", box, diff)
				}
			}

			if rate := binary.BigEndian.Uint16(got.Entry[32:]); got.SampleRate > 1<<16 && rate != 0 {
				t.Errorf("the sample entry says %d Hz, want nothing, because %d does not fit", rate, got.SampleRate)
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
	got, err := rebuild(t, kept.Track)
	if err != nil {
		t.Fatal(err)
	}
	want, have := boxOf(kept.Track, "hvcC"), boxOf(got, "hvcC")
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
		track, err := received(codec.Opus, [][]byte{{byte(channels)}})
		if err != nil || track.Channels != channels || track.SampleRate != 48000 || track.Codec != "opus" {
			t.Errorf("%d channels: %+v, %v", channels, track, err)
		}
		dops := boxOf(track, "dOps")
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
				units := slices.Clone(sent(t, kept))
				for range 1 + rnd.IntN(3) {
					n := rnd.IntN(len(units))
					units[n] = bytes.Clone(units[n])
					units[n][rnd.IntN(len(units[n]))] ^= 1 << rnd.IntN(8)
				}
				track, err := received(kept.Config().Codec, units)
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
		units := append(sent(f, track), nil, nil)
		f.Add(track.Config().Codec, units[0], units[1], units[2])
	}
	f.Add(codec.AAC, []byte{0x2b, 0x92, 0x08, 0}, []byte(nil), []byte(nil))
	f.Add(codec.AAC, []byte{0xeb, 0x8a, 0x08, 0}, []byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, name string, one, two, three []byte) {
		if name == codec.Opus && len(one) == 0 {
			return
		}
		switch name {
		case codec.H264, codec.H265, codec.AV1, codec.AAC, codec.Opus:
			track, err := received(name, [][]byte{one, two, three})
			checkTrack(t, track, err)
		}
	})
}
