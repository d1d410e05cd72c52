package codec

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// join puts bytes and slices of them one after the other.
func join(parts ...any) (all []byte) {
	for _, part := range parts {
		switch p := part.(type) {
		case int:
			all = append(all, byte(p))
		case []byte:
			all = append(all, p...)
		}
	}
	return all
}

// lengths puts NAL units one after the other, with lengths of so many bytes.
func lengths(size int, nals ...[]byte) (all []byte) {
	for _, nal := range nals {
		length := binary.BigEndian.AppendUint32(nil, uint32(len(nal)))
		all = append(append(all, length[4-size:]...), nal...)
	}
	return all
}

// avcC returns the record of a sequence parameter set and some picture parameter sets.
func avcC(sps []byte, pps ...[]byte) []byte {
	record := append([]byte{1, 100, 0, 10, 0xFF, 0xE1}, lengths(2, sps)...)
	return append(append(record, byte(len(pps))), lengths(2, pps...)...)
}

// hvcC is the same of H.265.
func hvcC(sets ...[]byte) []byte {
	record := append(make([]byte, 21), 3, byte(len(sets)))
	for _, set := range sets {
		record = append(append(record, set[0]>>1, 0, 1), lengths(2, set)...)
	}
	return record
}

// NAL units of H.264. The number of a picture parameter set is 0 when its first bit is
// set, and 1 when it starts with 010.
var (
	sps   = []byte{0x67, 1, 2, 3}
	pps   = []byte{0x68, 0x80, 1}
	pps1  = []byte{0x68, 0x40, 1}
	key   = []byte{0x65, 1, 2}
	slice = []byte{0x41, 1, 2}
	sei   = []byte{0x06, 1, 2}
	aud   = []byte{0x09, 0x10}
	fill  = []byte{0x0C, 0xFF}
)

func TestNALSamples(t *testing.T) {
	newPPS, newSPS, newPPS1 := []byte{0x68, 0x80, 2}, []byte{0x67, 9}, []byte{0x68, 0x40, 2}
	for _, tt := range []struct {
		name    string
		config  []byte
		frames  [][]byte
		want    []Sample
		changed []bool
	}{
		{
			"as it is", avcC(sps, pps),
			[][]byte{lengths(4, sei, key), lengths(4, slice)},
			[]Sample{{Data: lengths(4, sei, key), Sync: true}, {Data: lengths(4, slice)}},
			[]bool{false, false},
		},
		{"left out", avcC(sps, pps), [][]byte{lengths(4, aud, sps, pps, sei, key, fill)}, []Sample{{Data: lengths(4, sei, key), Sync: true}}, []bool{false}},
		{"empty NAL units", avcC(sps, pps), [][]byte{lengths(4, nil, key, nil, slice)}, []Sample{{Data: lengths(4, key, slice), Sync: true}}, []bool{false}},
		{"no frame", avcC(sps, pps), [][]byte{lengths(4, aud, sei)}, []Sample{{}}, []bool{false}},
		{"nothing", avcC(sps, pps), [][]byte{nil}, []Sample{{}}, []bool{false}},
		{
			"without a config", nil,
			[][]byte{lengths(4, slice), lengths(4, sps, pps, key)},
			[]Sample{{Data: lengths(4, slice)}, {Data: lengths(4, key), Sync: true}},
			[]bool{false, true},
		},
		{
			"another PPS", avcC(sps, pps),
			[][]byte{lengths(4, newPPS, slice), lengths(4, newPPS, slice)},
			[]Sample{{Data: lengths(4, slice)}, {Data: lengths(4, slice)}},
			[]bool{true, false},
		},
		{
			"another sequence", avcC(sps, pps),
			[][]byte{lengths(4, newSPS, pps, key), lengths(4, key)},
			[]Sample{{Data: lengths(4, key), Sync: true}, {Data: lengths(4, key), Sync: true}},
			[]bool{true, false},
		},
		{
			"two PPS", avcC(sps, pps, pps1),
			[][]byte{lengths(4, slice), lengths(4, key), lengths(4, slice), lengths(4, key)},
			[]Sample{
				{Data: lengths(4, pps1, slice)},
				{Data: lengths(4, pps1, key), Sync: true},
				{Data: lengths(4, slice)},
				{Data: lengths(4, pps1, key), Sync: true},
			},
			[]bool{false, false, false, false},
		},
		{
			"the second PPS changes", avcC(sps, pps, pps1),
			[][]byte{lengths(4, key), lengths(4, newPPS1), lengths(4, slice), lengths(4, slice)},
			[]Sample{{Data: lengths(4, pps1, key), Sync: true}, {}, {Data: lengths(4, newPPS1, slice)}, {Data: lengths(4, slice)}},
			[]bool{false, false, false, false},
		},
		{
			"as much comes in as goes out", avcC(sps, pps, pps1),
			[][]byte{lengths(4, []byte{0x09, 0x10, 0}, key)},
			[]Sample{{Data: lengths(4, pps1, key), Sync: true}},
			[]bool{false},
		},
		{"short lengths", append([]byte{1, 100, 0, 10, 0xFD}, avcC(sps, pps)[5:]...), [][]byte{lengths(2, aud, key)}, []Sample{{Data: lengths(4, key), Sync: true}}, []bool{false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := NewDecoder(H264)
			if tt.config != nil {
				if err := d.Configure(tt.config); err != nil {
					t.Fatal(err)
				}
				if !d.Changed() || d.Changed() {
					t.Error("a first config must count as a change, once")
				}
			}
			for i, frame := range tt.frames {
				got, err := d.Sample(frame)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want[i], got); diff != "" {
					t.Errorf("sample %d (-want +got):\n%s", i, diff)
				}
				if changed := d.Changed(); changed != tt.changed[i] {
					t.Errorf("sample %d: changed %v, want %v", i, changed, tt.changed[i])
				}
			}
		})
	}
}

func TestH265Samples(t *testing.T) {
	vps, sps, pps := []byte{32 << 1, 1, 1}, []byte{33 << 1, 1, 2}, []byte{34 << 1, 1, 0x80}
	cra, trail, aud := []byte{21 << 1, 1, 9}, []byte{1 << 1, 1, 8}, []byte{35 << 1, 1, 0x50}
	d := NewDecoder(H265)
	if err := d.Configure(hvcC(vps, sps, pps)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		frame []byte
		want  Sample
	}{
		{lengths(4, aud, vps, sps, pps, cra), Sample{Data: lengths(4, cra), Sync: true}},
		{lengths(4, aud, trail), Sample{Data: lengths(4, trail)}},
		{lengths(4, []byte{34 << 1, 1, 0x40}, trail), Sample{Data: lengths(4, []byte{34 << 1, 1, 0x40}, trail)}},
		{lengths(4, cra), Sample{Data: lengths(4, []byte{34 << 1, 1, 0x40}, cra), Sync: true}},
	} {
		got, err := d.Sample(tt.frame)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("error %v; sample (-want +got):\n%s", err, diff)
		}
	}
}

func TestBadFrames(t *testing.T) {
	good := avcC(sps, pps)
	for _, tt := range []struct {
		name   string
		codec  string
		config []byte
		frame  []byte
	}{
		{"cut config", H264, avcC(sps, pps)[:9], nil},
		{"empty config", H264, nil, nil},
		{"cut config of H.265", H265, hvcC([]byte{32 << 1, 1, 1})[:26], nil},
		{"cut length", H264, good, []byte{0, 0, 1}},
		{"long length", H264, good, []byte{0, 0, 0, 5, 0x65}},
		{"too large PPS", H264, good, lengths(4, append([]byte{0x68, 0x40}, make([]byte, 20<<10)...))},
		{"cut config of AV1", AV1, []byte{0x81, 0}, nil},
		{"cut OBU", AV1, []byte{0x81, 0, 0, 0}, []byte{0x0A, 9, 0}},
		{"endless size", AV1, []byte{0x81, 0, 0, 0}, bytes.Repeat([]byte{0x0A, 0xFF}, 20)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := NewDecoder(tt.codec)
			err := d.Configure(tt.config)
			if tt.frame == nil {
				if err == nil {
					t.Error("a bad config was taken")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Sample(tt.frame); err == nil {
				t.Error("a bad frame was taken")
			}
		})
	}
}

func TestAV1Samples(t *testing.T) {
	delimiter, padding := []byte{0x12, 0}, []byte{0x7A, 1, 0}
	sequence, other := []byte{0x0A, 2, 0, 0}, []byte{0x0A, 2, 0, 1}
	keyFrame, interFrame := []byte{0x32, 2, 0x10, 9}, []byte{0x32, 2, 0x30, 9}
	hidden, again := []byte{0x32, 2, 0x00, 9}, []byte{0x1A, 1, 0x80}
	unsized := []byte{0x30, 0x30, 9}
	d := NewDecoder(AV1)
	if err := d.Configure(join(0x81, 0, 0, 0, sequence)); err != nil {
		t.Fatal(err)
	}
	d.Changed()
	for _, tt := range []struct {
		name    string
		frame   []byte
		want    Sample
		changed bool
	}{
		{"key", join(delimiter, sequence, keyFrame, padding), Sample{Data: join(sequence, keyFrame), Sync: true}, false},
		{"key without a sequence", join(delimiter, keyFrame), Sample{Data: join(sequence, keyFrame), Sync: true}, false},
		{"inter", join(delimiter, interFrame), Sample{Data: interFrame}, false},
		{"key that is not shown", join(delimiter, hidden), Sample{Data: hidden}, false},
		{"shown again", join(delimiter, again), Sample{Data: again}, false},
		{"without a size", join(delimiter, unsized), Sample{Data: unsized}, false},
		{"nothing shown", join(delimiter, sequence), Sample{}, false},
		{"another sequence", join(delimiter, other, keyFrame), Sample{Data: join(other, keyFrame), Sync: true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := d.Sample(tt.frame)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("error %v; sample (-want +got):\n%s", err, diff)
			}
			if changed := d.Changed(); changed != tt.changed {
				t.Errorf("changed %v, want %v", changed, tt.changed)
			}
		})
	}
}

func TestPPSID(t *testing.T) {
	d := &nalDecoder{}
	for want, bits := range map[uint32]uint32{0: 0x8000_0000, 1: 0x4000_0000, 2: 0x6000_0000, 3: 0x2000_0000, 255: 0x0080_0000, 63: 0x0200_0000} {
		if got := d.ppsID(binary.BigEndian.AppendUint32([]byte{0x68}, bits)); got != want {
			t.Errorf("number %d, want %d", got, want)
		}
	}
	d.ppsID([]byte{0x68}) // must not panic
}

// FuzzSamples makes samples of any bytes: what comes out is well formed.
func FuzzSamples(f *testing.F) {
	f.Add(0, avcC(sps, pps, pps1), lengths(4, aud, sps, pps, key), lengths(4, slice))
	f.Add(1, hvcC([]byte{32 << 1, 1, 1}, []byte{33 << 1, 1, 2}, []byte{34 << 1, 1, 0x80}), lengths(4, []byte{21 << 1, 1, 9}), lengths(4, []byte{34 << 1, 1, 0x40}, []byte{2, 1}))
	f.Add(2, join(0x81, 0, 0, 0, 0x0A, 2, 0, 0), join(0x12, 0, 0x32, 2, 0x10, 9), join(0x12, 0, 0x30, 0x30))
	f.Fuzz(func(t *testing.T, which int, config, first, second []byte) {
		name := []string{H264, H265, AV1}[uint(which)%3]
		d := NewDecoder(name)
		_ = d.Configure(config)
		for _, frame := range [][]byte{first, second, first} {
			u, err := d.Sample(bytes.Clone(frame))
			if err != nil || len(u.Data) == 0 {
				continue
			}
			if name == AV1 {
				for rest := u.Data; len(rest) > 0; {
					o, err := nextOBU(rest)
					if err != nil || o.kind == obuDelimiter {
						t.Fatalf("OBU of kind %d in a sample: %v", o.kind, err)
					}
					rest = rest[len(o.whole):]
				}
				continue
			}
			for rest := u.Data; len(rest) > 0; {
				if len(rest) < 4 || int(binary.BigEndian.Uint32(rest)) > len(rest)-4 {
					t.Fatal("a sample with lengths that are wrong")
				}
				rest = rest[4+binary.BigEndian.Uint32(rest):]
			}
		}
		if config, ok, err := d.Config(); ok && (err != nil || config.Kind != Video) {
			t.Errorf("configuration %+v, %v", config, err)
		}
	})
}

// One sample comes per frame and stream, so samples must not cost memory.
func TestSampleAllocations(t *testing.T) {
	record := join(0x81, 0, 0, 0, 0x0A, 2, 0, 0)
	for _, tt := range []struct {
		name, codec   string
		record, frame []byte
		most          float64
	}{
		{"as it is", H264, avcC(sps, pps), lengths(4, sei, slice), 0},
		{"units left out", H264, avcC(sps, pps), lengths(4, aud, sps, pps, sei, key), 1},
		{"several PPS", H264, avcC(sps, pps, pps1), lengths(4, key), 2},
		{"AV1 as it is", AV1, record, []byte{0x32, 2, 0x30, 9}, 1},
		{"AV1 with a delimiter", AV1, record, []byte{0x12, 0, 0x32, 2, 0x30, 9}, 2},
		{"AV1 key frame", AV1, record, []byte{0x12, 0, 0x0A, 2, 0, 0, 0x32, 2, 0x10, 9}, 5},
		{"AAC", AAC, []byte{0x11, 0x90}, []byte{1, 2, 3}, 0},
		{"Opus", Opus, OpusHead(2), []byte{0xFC, 2, 3}, 0},
	} {
		d := NewDecoder(tt.codec)
		if err := d.Configure(tt.record); err != nil {
			t.Fatal(err)
		}
		got := testing.AllocsPerRun(100, func() {
			if s, err := d.Sample(tt.frame); err != nil || len(s.Data) == 0 {
				t.Fatalf("%s: %v", tt.name, err)
			}
			d.Changed()
		})
		if got > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, got, tt.most)
		}
	}
}
