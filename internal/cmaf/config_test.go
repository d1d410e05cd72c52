package cmaf

import (
	"bytes"
	"testing"
)

func TestDecoderConfig(t *testing.T) {
	aac := []byte{0x11, 0x90}
	audio, err := AACTrack(aac)
	if err != nil {
		t.Fatal(err)
	}
	if got := audio.DecoderConfig(); !bytes.Equal(got, aac) {
		t.Errorf("config of AAC = %x, want %x", got, aac)
	}
	sps := []byte{0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x2f, 0xf9, 0x61, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00, 0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2e, 0x48}
	pps := []byte{0x68, 0xcb, 0x83, 0xcb, 0x20}
	picture, err := H264Track(sps, pps)
	if err != nil {
		t.Fatal(err)
	}
	// Version, profile, compatibility, level, four bytes of length, one of each set.
	want := append([]byte{1, 0x42, 0xc0, 0x1e, 0xff, 0xe1, 0, byte(len(sps))}, sps...)
	want = append(append(want, 1, 0, byte(len(pps))), pps...)
	if got := picture.DecoderConfig(); !bytes.Equal(got, want) {
		t.Errorf("config of H.264 = %x, want %x", got, want)
	}
	if opus, err := OpusTrack(2); err != nil || opus.DecoderConfig() != nil {
		t.Errorf("config of Opus = %x, %v; want none", opus.DecoderConfig(), err)
	}
	for n := range audio.Entry {
		(Track{Entry: audio.Entry[:n]}).DecoderConfig() // must not panic
	}
}
