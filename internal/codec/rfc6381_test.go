package codec

import "testing"

func TestRFC6381(t *testing.T) {
	record := func(bytes ...byte) []byte { return bytes }
	// descriptors makes the body of an esds box of a coding and what its decoder must know.
	descriptors := func(object byte, specific ...byte) []byte {
		decoder := append([]byte{4, byte(15 + len(specific)), object, 0x15}, make([]byte, 11)...)
		decoder = append(decoder, 5, byte(len(specific)))
		decoder = append(decoder, specific...)
		stream := append([]byte{0, 0, 0, 0, 3, 0x80, 0x80, 0x80, byte(3 + len(decoder)), 0, 1, 0}, decoder...)
		return append(stream, 6, 1, 2)
	}
	for _, tt := range []struct {
		entry string
		box   []byte
		want  string
	}{
		{"avc1", record(1, 0x4d, 0x40, 0x1f), "avc1.4d401f"},
		{"avc3", record(1, 0x42, 0xc0, 0x0d), "avc3.42c00d"},
		{"avc1", record(1), "avc1"},
		{"avc1", nil, "avc1"},
		{"hvc1", record(1, 0x02, 0x20, 0, 0, 0, 0xb0, 0, 0, 0, 0, 0, 93), "hvc1.2.4.L93.B0"},
		{"hev1", record(1, 0x21, 0x60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 150), "hev1.1.6.H150"},
		{"hvc1", record(1, 0x41, 0x60, 0, 0, 0, 0x90, 0, 0x01, 0, 0, 0, 63), "hvc1.A1.6.L63.90.0.1"},
		{"vp09", record(1, 0, 0, 0, 0, 31, 0x82, 2, 2, 2, 0, 0), "vp09.00.31.08"},
		{"vp09", record(1, 0, 0, 0, 2, 51, 0xa2, 9, 16, 9, 0, 0), "vp09.02.51.10.01.09.16.09.00"},
		{"av01", record(0x81, 0x05, 0x0c, 0), "av01.0.05M.08"},
		{"av01", record(0x81, 0x0d, 0xcc, 0), "av01.0.13H.10"},
		{"av01", record(0x81, 0x4d, 0x60, 0), "av01.2.13M.12"},
		{"mp4a", descriptors(0x40, 0x12, 0x10), "mp4a.40.2"},
		{"mp4a", descriptors(0x40, 0x2b, 0x92, 0x08), "mp4a.40.5"},
		{"mp4a", descriptors(0x40, 0xeb, 0x8a, 0x08), "mp4a.40.29"},
		{"mp4a", descriptors(0x40, 0xf9, 0x46, 0x40), "mp4a.40.42"},
		{"mp4a", descriptors(0x40), "mp4a.40.2"},
		{"mp4a", descriptors(0x69), "mp4a.69"},
		{"mp4a", descriptors(0x6b), "mp4a.6B"},
		{"mp4a", nil, "mp4a"},
		{"mp4v", descriptors(0x20, 0, 0, 1, 0xb0, 3), "mp4v.20.3"},
		{"mp4v", descriptors(0x61), "mp4v.61"},
		{"Opus", nil, "opus"},
		{"ac-3", nil, "ac-3"},
		{"ec-3", nil, "ec-3"},
		{".mp3", nil, "mp4a.6B"},
		{"apcn", nil, "apcn"},
		{"a\",\x00", nil, "a"},
	} {
		if got := RFC6381(tt.entry, tt.box); got != tt.want {
			t.Errorf("codec of %q with % x = %q, want %q", tt.entry, tt.box, got, tt.want)
		}
	}
}
