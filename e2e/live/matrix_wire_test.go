//go:build soak

package live

import (
	"bytes"
	endian "encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weir/internal/codec"
	"weir/internal/rtc/rtctest"
)

// watchWire watches over WebRTC without a browser. It returns what tells by how much beeps
// come after flashes as weir sends them: by the times of the packets, which weir's reports
// put on one clock.
func watchWire(t *testing.T, url string) (offsets func() []float64) {
	t.Helper()
	p := rtctest.New(t)
	p.Keep = true
	p.Post(url, p.OfferToWatch())
	p.Connected()
	return func() []float64 {
		file := filepath.Join(t.TempDir(), "wire.mkv")
		if err := os.WriteFile(file, matroska(t, p.Kept("video"), p.Kept("audio")), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ffmpegBeats(t.Context(), func(mark) {}, "-i", file)
		if err != nil {
			t.Fatal(err)
		}
		return got.offsets()
	}
}

// matroska puts frames of H.264 and packets of Opus into a file with their times, to a
// tenth of a millisecond.
func matroska(t *testing.T, video, audio []rtctest.Kept) []byte {
	t.Helper()
	if len(video) == 0 || len(audio) == 0 {
		t.Fatalf("%d pictures and %d packets of sound came over WebRTC, with reports of their times", len(video), len(audio))
	}
	const tick = 100 * time.Microsecond
	opus := append([]byte("OpusHead\x01\x02\x00\x00"), 0x80, 0xBB, 0, 0, 0, 0, 0) // two channels, nothing to skip
	file := slices.Concat(
		element(0x1A45DFA3, element(0x4282, []byte("matroska"))),
		[]byte{0x18, 0x53, 0x80, 0x67, 0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, // a segment, however long
		element(0x1549A966, element(0x2AD7B1, endian.BigEndian.AppendUint32(nil, uint32(tick)))),
		element(0x1654AE6B,
			element(0xAE, element(0xD7, []byte{1}), element(0x73C5, []byte{1}), element(0x83, []byte{1}), element(0x86, []byte("V_MPEG4/ISO/AVC")), element(0x63A2, avcConfig(t, video[0].Data))),
			element(0xAE, element(0xD7, []byte{2}), element(0x73C5, []byte{2}), element(0x83, []byte{2}), element(0x86, []byte("A_OPUS")), element(0x63A2, opus),
				element(0xE1, element(0xB5, endian.BigEndian.AppendUint64(nil, math.Float64bits(48000))), element(0x9F, []byte{2})))),
	)
	begin := min(video[0].At, audio[0].At)
	add := func(track byte, k rtctest.Kept) {
		at := endian.BigEndian.AppendUint64(nil, uint64((k.At-begin)/tick))
		file = append(file, element(0x1F43B675, element(0xE7, at), element(0xA3, []byte{0x80 | track, 0, 0, 0x80}, k.Data))...)
	}
	for _, picture := range video {
		for len(audio) > 0 && audio[0].At <= picture.At {
			add(2, audio[0])
			audio = audio[1:]
		}
		add(1, picture)
	}
	return file
}

// element is one of EBML.
func element(id uint32, data ...[]byte) []byte {
	inside := slices.Concat(data...)
	head := bytes.TrimLeft(endian.BigEndian.AppendUint32(nil, id), "\x00")
	return slices.Concat(head, endian.BigEndian.AppendUint64(nil, 1<<56|uint64(len(inside))), inside)
}

// avcConfig returns how decoders of H.264 are set up for what begins with a frame.
func avcConfig(t *testing.T, unit []byte) []byte {
	t.Helper()
	d := codec.NewDecoder(codec.H264)
	if _, err := d.Sample(unit); err != nil {
		t.Fatal(err)
	}
	config, ok, err := d.Config()
	if err != nil || !ok {
		t.Fatalf("what weir sends over WebRTC does not begin with parameter sets: %v", err)
	}
	return config.Record
}
