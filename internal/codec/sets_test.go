package codec

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Records that x264 and x265 made: of a film, and of frames beside it with other ids.
const (
	filmAVCC   = "0164000dffe1001a6764000dacd941419f9f0110000003001000000303c0f142996001000468ef8fcbfdf8f800"
	edgeAVCC   = "0164000dffe100196764000d040b2d02833f3e0220000003002000000781e285540100066804" + "0082f3cbfdf8f800"
	mergedAVCC = "0164000dffe200196764000d040b2d02833f3e0220000003002000000781e28554001a6764000dacd941419f9f0110000003001000000303c0f142996002000668040082f3cb000468ef8fcbfdf8f800"

	filmHVCC = "0101600000009000000000003cf000fcfdf8f800000f03a00001001840010c01ffff01600000030090000003000003003c959409a10001002b" +
		"42010101600000030090000003000003003ca00a080c1f3e595952930bc05a020000030002000003007810a2000100064401c073c189"
)

func config(t testing.TB, codec, record string) Config {
	t.Helper()
	data, err := hex.DecodeString(record)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Kind: Video, Codec: codec, Record: data}
}

func TestMerge(t *testing.T) {
	film, edge := config(t, H264, filmAVCC), config(t, H264, edgeAVCC)
	merged, ok := Merge(edge, film, edge)
	if diff := cmp.Diff(mergedAVCC, hex.EncodeToString(merged)); !ok || diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if id := FreeSetID(film); id != 31 {
		t.Errorf("the free id is %d", id)
	}
	if id := FreeSetID(film, edge); id != 30 {
		t.Errorf("beside the edge, the free id is %d", id)
	}
	other := config(t, H264, filmAVCC)
	other.Record[20] ^= 1 // in the set with the same id
	if _, ok := Merge(film, other); ok {
		t.Error("two different sets have the same id")
	}
	if _, ok := Merge(film, config(t, H265, filmHVCC)); ok {
		t.Error("H.264 and H.265 are merged")
	}
}

func TestRenumbering(t *testing.T) {
	film := config(t, H265, filmHVCC)
	id := FreeSetID(film)
	_, edge, err := NewRenumbering(film, id)
	if err != nil {
		t.Fatal(err)
	}
	sets, err := edge.ParameterSets()
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range sets.Units {
		if key, ok := edge.setKey(unit); !ok || key.id != id {
			t.Errorf("set %x has the id %d, want %d", unit, key.id, id)
		}
	}
	merged, ok := Merge(edge, film)
	if !ok {
		t.Fatal("sets with other ids can't be merged")
	}
	film.Record = merged
	if sets, err = film.ParameterSets(); err != nil || len(sets.Units) != 6 {
		t.Errorf("the merged record has %d sets, error %v", len(sets.Units), err)
	}
	// Back again, everything is as it was.
	_, back, err := NewRenumbering(edge, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filmHVCC, hex.EncodeToString(back.Record)); diff != "" {
		t.Errorf("renumbered twice (-want +got):\n%s", diff)
	}
}

func FuzzRenumbering(f *testing.F) {
	film := config(f, H265, filmHVCC)
	f.Add(film.Record, []byte{0, 0, 0, 4, 0x26, 1, 0xaf, 0x10})
	f.Fuzz(func(_ *testing.T, record, sample []byte) {
		r, _, err := NewRenumbering(Config{Kind: Video, Codec: H265, Record: record}, 3)
		if err == nil {
			_, _ = r.Sample(sample)
		}
	})
}

func FuzzMerge(f *testing.F) {
	f.Add(config(f, H264, filmAVCC).Record, config(f, H264, edgeAVCC).Record, false)
	f.Add(config(f, H265, filmHVCC).Record, config(f, H265, filmHVCC).Record, true)
	f.Fuzz(func(t *testing.T, one, two []byte, h265 bool) {
		codec := H264
		if h265 {
			codec = H265
		}
		a, b := Config{Kind: Video, Codec: codec, Record: one}, Config{Kind: Video, Codec: codec, Record: two}
		record, ok := Merge(a, b)
		if !ok {
			return
		}
		a.Record = record
		if _, err := a.ParameterSets(); err != nil {
			t.Errorf("the merged record can't be read: %v", err)
		}
		a.Form()
		a.StartsDecoding(one, 4)
	})
}

func TestEscape(t *testing.T) {
	plain := []byte{1, 0, 0, 0, 0, 0, 3, 0, 0, 1, 0, 0, 2, 5}
	unit := escape(plain)
	if diff := cmp.Diff([]byte{1, 0, 0, 3, 0, 0, 0, 3, 0, 3, 0, 0, 3, 1, 0, 0, 3, 2, 5}, unit); diff != "" {
		t.Logf("%x", unit)
	}
	if diff := cmp.Diff(plain, unescape(unit)); diff != "" {
		t.Errorf("unescaped (-want +got):\n%s", diff)
	}
}
