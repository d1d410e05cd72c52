package codec

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// Real parameter sets, as short as they come.
var (
	someSPS = []byte("\x67\x42\xc0\x0a\xdd\x28\x32\x26\xc0\x44\x00\x00\x03\x00\x04\x00\x00\x03\x00\xca\x3c\x48\x9e\x00")
	somePPS = []byte("\x68\xce\x0f\xc8")
)

// h264Size makes a parameter set of frames of so many macroblocks less one.
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

func TestBadConfiguration(t *testing.T) {
	sets := [][]byte{
		[]byte("\x40\x01\x0c\x01\xff\xff\x01\x60\x00\x00\x03\x00\x90\x00\x00\x03\x00\x00\x03\x00\x1e\x95\x94\x09"),
		[]byte("\x42\x01\x01\x01\x60\x00\x00\x03\x00\x90\x00\x00\x03\x00\x00\x03\x00\x1e\xa0\x14\x20\x61\xf2\x65\x95\x95\x29\x30\xbc\x05\xa0\x20\x00\x00\x03\x00\x20\x00\x00\x03\x03\x21"),
		[]byte("\x44\x01\xc0\x73\xc1\x89"),
	}
	if c, err := H265Config(sets[0], sets[1], sets[2]); err != nil || c.Width != 160 || c.Height != 90 {
		t.Fatalf("good parameter sets: %+v, %v", c, err)
	}
	h264 := func(sps, pps []byte) func() (Config, error) {
		return func() (Config, error) { return H264Config(sps, pps) }
	}
	h265 := func(vps, sps, pps []byte) func() (Config, error) {
		return func() (Config, error) { return H265Config(vps, sps, pps) }
	}
	av1 := func(header ...byte) func() (Config, error) {
		return func() (Config, error) { return AV1Config(header) }
	}
	aac := func(config ...byte) func() (Config, error) {
		return func() (Config, error) { return AACConfig(config) }
	}
	opus := func(channels int) func() (Config, error) {
		return func() (Config, error) { return OpusConfig(channels) }
	}
	for _, tt := range []struct {
		name string
		make func() (Config, error)
		want string
	}{
		{"H.264 without anything", h264(nil, nil), "missing"},
		{"H.264 without PPS", h264(someSPS, nil), "missing"},
		{"H.264 of zeros", h264(make([]byte, 9), somePPS), "missing"},
		{"H.264 in the wrong order", h264(somePPS, someSPS), "begins with 0x68"},
		{"H.264 cut off", h264(someSPS[:6], somePPS), "can't be read"},
		{"H.264 too long", h264(append(bytes.Clone(someSPS), bytes.Repeat([]byte{1}, 1<<16)...), somePPS), "bytes"},
		{"H.264 too wide", h264(h264Size(1100, 10), somePPS), "17616 x 176"},
		{"H.264 too high", h264(h264Size(10, 65535), somePPS), "176 x 1048576"},
		{"HEVC without VPS", h265(nil, sets[1], sets[2]), "missing"},
		{"HEVC with H.264", h265(sets[0], someSPS, sets[2]), "begins with 0x67"},
		{"HEVC cut off", h265(sets[0], sets[1][:12], sets[2]), "can't be read"},
		{"AV1 without anything", av1(), "no sequence header"},
		{"AV1 with a delimiter", av1(0x12, 0), "no sequence header"},
		{"AV1 cut off", av1(0x0a, 4, 0, 0), "is truncated"},
		{"AV1 too short", av1(0x0a, 2, 0, 0), "can't be read"},
		{"AAC without anything", aac(), "can't be read"},
		{"AAC without a rate", aac(0x16, 0x90), "can't be read"},
		{"AAC of no kind", aac(0xf9, 0x46, 0x40), "object type 42"},
		{"AAC Main", aac(0x0a, 0x10), "object type 1"},
		{"HE-AAC around something else", aac(0x2b, 0x92, 0x04, 0x00), "can't be read"},
		{"HE-AAC cut off", aac(0x2b, 0x92, 0x08), "can't be read"},
		{"AAC with an extension", aac(0x12, 0x11), "can't be read"},
		{"AAC with many channels", aac(0x12, 0x60), "layout"},
		{"AAC with a layout that is reserved", aac(0x12, 0x40), "layout"},
		{"AAC of a possible rate", aac(0x17, 0x80, 0, 0, 0x90), "1 Hz"},
		{"Opus without channels", opus(0), "channels"},
		{"Opus with many channels", opus(9), "channels"},
		{"Opus with a wrapped number of channels", opus(258), "channels"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config, err := tt.make()
			if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("configuration %+v, error = %v; want one of kind invalid about %q", config, err, tt.want)
			}
		})
	}
	if c, err := H264Config(h264Size(9, 8), somePPS); err != nil || c.Width != 160 || c.Height != 144 {
		t.Errorf("a frame of 10 x 9 macroblocks: %+v, %v", c, err)
	}
	// Zeros after a parameter set are no part of it.
	plain, err := H264Config(someSPS, somePPS)
	if err != nil {
		t.Fatal(err)
	}
	padded, err := H264Config(append(bytes.Clone(someSPS), 0, 0), append(bytes.Clone(somePPS), 0))
	if diff := cmp.Diff(plain, padded); diff != "" || err != nil {
		t.Errorf("%v (-plain +padded):\n%s", err, diff)
	}
}

// A configuration does not change when the caller uses its buffers again.
func TestConfigOwnsItsBytes(t *testing.T) {
	sps, pps := bytes.Clone(someSPS), bytes.Clone(somePPS)
	config, err := H264Config(sps, pps)
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(config.Record)
	clear(sps)
	clear(pps)
	if !bytes.Equal(before, config.Record) {
		t.Error("the record changed with the buffers of the caller")
	}
	audio := []byte{0x11, 0x90}
	if config, err = AACConfig(audio); err != nil {
		t.Fatal(err)
	}
	clear(audio)
	if config.Record[0] != 0x11 {
		t.Error("the AudioSpecificConfig changed with the buffer of the caller")
	}
}
