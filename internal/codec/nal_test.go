package codec

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParameterSets(t *testing.T) {
	vps, sps265, pps265, sei265 := []byte{32 << 1, 1, 1}, []byte{33 << 1, 1, 2}, []byte{34 << 1, 1, 0x80}, []byte{39 << 1, 1, 5}
	short := bytes.Clone(avcC(sps, pps))
	short[4] = 0xFD // lengths of two bytes
	for _, tt := range []struct {
		name   string
		parse  func([]byte) (ParameterSets, error)
		record []byte
		want   ParameterSets
		annexB []byte
		prefix []byte
	}{
		{
			"H.264", ParseAVCC, avcC(sps, pps, pps1),
			ParameterSets{4, [][]byte{sps, pps, pps1}},
			join([]byte(StartCode), sps, []byte(StartCode), pps, []byte(StartCode), pps1), lengths(4, sps, pps, pps1),
		},
		{
			"short lengths", ParseAVCC, short,
			ParameterSets{2, [][]byte{sps, pps}},
			join([]byte(StartCode), sps, []byte(StartCode), pps), lengths(2, sps, pps),
		},
		{
			"H.265", ParseHVCC, hvcC(vps, sps265, pps265, sei265),
			ParameterSets{4, [][]byte{vps, sps265, pps265}},
			join([]byte(StartCode), vps, []byte(StartCode), sps265, []byte(StartCode), pps265), lengths(4, vps, sps265, pps265),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.parse(tt.record)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff(tt.annexB, got.AnnexB()); diff != "" {
				t.Errorf("Annex B (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.prefix, got.Prefixed()); diff != "" {
				t.Errorf("with lengths (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(lengths(4, got.Units...), FromAnnexB(tt.annexB)); diff != "" {
				t.Errorf("from Annex B (-want +got):\n%s", diff)
			}
			for n := range tt.record {
				if _, err := tt.parse(tt.record[:n]); err == nil {
					t.Errorf("a record that ends after %d bytes is taken", n)
				}
			}
		})
	}
	for _, name := range []string{AV1, AAC, Opus, ""} {
		if _, err := (Config{Codec: name, Record: avcC(sps, pps)}).ParameterSets(); err == nil {
			t.Errorf("%q has parameter sets", name)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		size   int
		sample []byte
		want   [][]byte
		ok     bool
	}{
		{"four bytes", 4, lengths(4, key, nil, slice), [][]byte{key, {}, slice}, true},
		{"three bytes", 3, lengths(3, key), [][]byte{key}, true},
		{"one byte", 1, lengths(1, key, slice), [][]byte{key, slice}, true},
		{"nothing", 4, nil, nil, true},
		{"half a length", 4, join(lengths(4, key), 0, 0), [][]byte{key}, false},
		{"half a unit", 4, lengths(4, key, slice)[:13], [][]byte{key}, false},
		{"no length at all", 0, key, nil, false},
	} {
		var got [][]byte
		var failed error
		for unit, err := range Units(tt.sample, tt.size) {
			if failed = err; err == nil {
				got = append(got, unit)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || (failed == nil) != tt.ok {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, failed, diff)
		}
		for range Units(tt.sample, tt.size) {
			break // must not panic
		}
	}
}

// Start codes have three bytes or four, and zeros may stand behind a unit.
func TestFromAnnexB(t *testing.T) {
	for _, tt := range []struct{ stream, want []byte }{
		{nil, nil},
		{[]byte{9, 9, 0, 0}, nil},
		{join([]byte{0, 0, 1}, key, []byte{0, 0, 0, 1}, slice), lengths(4, key, slice)},
		{join([]byte{7, 0, 0, 0, 1}, key, []byte{0, 0, 0, 0, 0, 1, 0, 0, 1}, slice, []byte{0, 0}), lengths(4, key, slice)},
		{[]byte{0, 0, 1}, []byte{}},
	} {
		if diff := cmp.Diff(tt.want, FromAnnexB(tt.stream)); diff != "" {
			t.Errorf("% x (-want +got):\n%s", tt.stream, diff)
		}
	}
}

func TestNAL(t *testing.T) {
	for first, want := range map[byte]NAL{
		0x41: NALSlice, 0x62: NALPartition, 0x65: NALKeySlice, 0x06: NALOther, 0x67: NALSPS, 0x68: NALPPS, 0x09: NALDelimiter, 0x0C: NALFiller,
	} {
		if got := H264NAL([]byte{first, 1}); got != want {
			t.Errorf("H.264 %#x: %d, want %d", first, got, want)
		}
	}
	for number, want := range map[byte]NAL{
		1: NALSlice, 9: NALSlice, 16: NALKeySlice, 19: NALKeySlice, 21: NALKeySlice, 24: NALSlice,
		32: NALVPS, 33: NALSPS, 34: NALPPS, 35: NALDelimiter, 38: NALFiller, 39: NALOther,
	} {
		if got := H265NAL([]byte{number << 1, 1}); got != want {
			t.Errorf("H.265 %d: %d, want %d", number, got, want)
		}
	}
	if H264NAL(nil) != NALOther || H265NAL(nil) != NALOther {
		t.Error("an empty unit is something")
	}
}

// FuzzParameterSets reads records that may be anything: what comes out can be written.
func FuzzParameterSets(f *testing.F) {
	f.Add(avcC(sps, pps, pps1))
	f.Add(hvcC([]byte{32 << 1, 1, 1}, []byte{33 << 1, 1, 2}, []byte{34 << 1, 1, 0x80}))
	f.Fuzz(func(t *testing.T, record []byte) {
		for _, parse := range []func([]byte) (ParameterSets, error){ParseAVCC, ParseHVCC} {
			sets, err := parse(record)
			if err != nil {
				continue
			}
			var again [][]byte
			for unit, err := range Units(sets.Prefixed(), sets.LengthSize) {
				if err != nil && sets.LengthSize > 1 { // one byte may be too short
					t.Fatal(err)
				}
				again = append(again, unit)
			}
			if len(again) != len(sets.Units) && sets.LengthSize > 1 {
				t.Errorf("%d parameter sets, %d when they are written", len(sets.Units), len(again))
			}
		}
	})
}
