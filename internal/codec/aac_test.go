package codec

import (
	"bytes"
	"testing"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestAudioConfig(t *testing.T) {
	for _, tt := range []struct {
		config []byte
		want   AudioConfig
	}{
		{[]byte{0x12, 0x10}, AudioConfig{ObjectType: 2, SampleRate: 44100, Channels: 2}},
		{[]byte{0x12, 0x14}, AudioConfig{ObjectType: 2, SampleRate: 44100, Channels: 2, FrameSamples: 960}},
		{[]byte{0x11, 0xb8}, AudioConfig{ObjectType: 2, SampleRate: 48000, Channels: 8}},
		{[]byte{0x11, 0x80}, AudioConfig{ObjectType: 2, SampleRate: 48000}},
		{[]byte{0x2b, 0x92, 0x08}, AudioConfig{ObjectType: 5, SampleRate: 44100, Channels: 2, CoreType: 2, CoreRate: 22050}},
		{[]byte{0xeb, 0x8a, 0x08}, AudioConfig{ObjectType: 29, SampleRate: 44100, Channels: 2, CoreType: 2, CoreRate: 22050}},
		{[]byte{0x17, 0x80, 0x5d, 0xc0, 0x10}, AudioConfig{ObjectType: 2, SampleRate: 48000, Channels: 2}},
	} {
		if tt.want.CoreType == 0 {
			tt.want.CoreType, tt.want.CoreRate = tt.want.ObjectType, tt.want.SampleRate
		}
		if tt.want.FrameSamples == 0 {
			tt.want.FrameSamples = 1024
		}
		got, ok := ParseAudioConfig(tt.config)
		if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(AudioConfig{})); diff != "" || !ok {
			t.Errorf("% x: %v (-want +got):\n%s", tt.config, ok, diff)
		}
	}
}

// Whatever AACConfig takes, another reader takes too, and reads the same.
func FuzzAudioConfig(f *testing.F) {
	for _, config := range [][]byte{{0x12, 0x10}, {0x11, 0x80}, {0x2b, 0x92, 0x08, 0}, {0xeb, 0x8a, 0x08, 0}, {0x17, 0x80, 0x5d, 0xc0, 0x10}, {0x12, 0x14}} {
		f.Add(config)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		c, err := AACConfig(record)
		var want mpeg4audio.AudioSpecificConfig
		if wantErr := want.Unmarshal(record); err != nil {
			rate := max(want.SampleRate, want.ExtensionSampleRate)
			if wantErr == nil && want.SampleRate > 0 && rate >= 7350 && rate <= 192000 && len(record) <= 512 && want.ExtensionType == 0 {
				t.Errorf("% x is refused: %v", record, err)
			}
			return
		} else if wantErr != nil {
			t.Fatalf("% x is taken, but %v", record, wantErr)
		}
		got, _ := ParseAudioConfig(record)
		samples := 1024
		if want.FrameLengthFlag {
			samples = 960
		}
		if got.CoreRate != want.SampleRate || got.CoreType != int(want.Type) || got.FrameSamples != samples || got.layout != uint32(want.ChannelConfig) || c.SampleRate != got.SampleRate {
			t.Errorf("% x: %+v, want %+v", record, got, want)
		}
	})
}

// Frames in ADTS are those that another writer makes, and can be read again.
func TestADTS(t *testing.T) {
	frame := bytes.Repeat([]byte{1, 2, 3}, 100)
	for _, config := range [][]byte{
		{0x12, 0x10}, {0x11, 0xb8}, {0x11, 0x80}, {0x2b, 0x92, 0x08, 0}, {0xeb, 0x8a, 0x08, 0}, {0x17, 0x80, 0x5d, 0xc0, 0x10},
	} {
		audio, _ := ParseAudioConfig(config)
		header, err := audio.ADTSHeader()
		if err != nil {
			t.Fatalf("% x: %v", config, err)
		}
		got, err := AppendADTS([]byte("before"), header, frame)
		if err != nil {
			t.Fatal(err)
		}
		var c mpeg4audio.AudioSpecificConfig
		if err := c.Unmarshal(config); err != nil {
			t.Fatal(err)
		}
		want, err := mpeg4audio.ADTSPackets{{Type: c.Type, SampleRate: c.SampleRate, ChannelConfig: c.ChannelConfig, AU: frame}}.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append([]byte("before"), want...), got); diff != "" {
			t.Errorf("% x (-want +got):\n%s", config, diff)
		}
		f, ok := ParseADTS(want)
		again, _ := ParseAudioConfig(f.Config[:])
		if !ok || f.Size != len(want) || f.Header != ADTSHeaderSize || f.Blocks != 1 || f.SampleRate != audio.CoreRate || again.CoreRate != audio.CoreRate || again.layout != audio.layout || again.ObjectType != 2 {
			t.Errorf("% x is read as %+v, %v", config, f, ok)
		}
	}
	for name, config := range map[string][]byte{"another coding": {0xf9, 0x46, 0x40}, "an odd rate": {0x17, 0x80, 0x00, 0x80, 0x10}, "an odd layout": {0x12, 0x40}} {
		if c, _ := ParseAudioConfig(config); true {
			if header, err := c.ADTSHeader(); err == nil {
				t.Errorf("%s: header % x", name, header)
			}
		}
	}
	if _, err := AppendADTS(nil, make([]byte, 7), make([]byte, 8185)); err == nil {
		t.Error("a frame of 8185 bytes has no length")
	}
}

func TestParseADTS(t *testing.T) {
	good := []byte{0xff, 0xf1, 0x4c, 0x80, 0x01, 0x1f, 0xfc, 9}
	for _, tt := range []struct {
		name   string
		change func(b []byte) []byte
		want   ADTSFrame
		ok     bool
	}{
		{"good", func(b []byte) []byte { return b }, ADTSFrame{[2]byte{0x11, 0x90}, 48000, 7, 8, 1}, true},
		{"checksum", func(b []byte) []byte { b[1], b[4] = 0xf0, 2; return b }, ADTSFrame{[2]byte{0x11, 0x90}, 48000, 9, 16, 1}, true},
		{"several blocks", func(b []byte) []byte { b[6] |= 2; return b }, ADTSFrame{[2]byte{0x11, 0x90}, 48000, 7, 8, 3}, true},
		{"short", func(b []byte) []byte { return b[:6] }, ADTSFrame{}, false},
		{"nothing", func([]byte) []byte { return nil }, ADTSFrame{}, false},
		{"no start", func(b []byte) []byte { return b[1:] }, ADTSFrame{}, false},
		{"shorter than its header", func(b []byte) []byte { b[4], b[5] = 0, 0; return b }, ADTSFrame{}, false},
		{"no rate", func(b []byte) []byte { b[2] = 0x7c; return b }, ADTSFrame{}, false},
	} {
		got, ok := ParseADTS(tt.change(append([]byte{}, good...)))
		if diff := cmp.Diff(tt.want, got); ok != tt.ok || ok && diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, ok, diff)
		}
	}
}

// LATM that another writer made is read: the configuration stays until another one comes.
func TestLATM(t *testing.T) {
	mux := &mpeg4audio.StreamMuxConfig{Programs: []*mpeg4audio.StreamMuxConfigProgram{{
		Layers: []*mpeg4audio.StreamMuxConfigLayer{{
			AudioSpecificConfig: &mpeg4audio.AudioSpecificConfig{Type: 2, SampleRate: 48000, ChannelConfig: 2}, LatmBufferFullness: 255,
		}},
	}}}
	element := func(same bool, frame string) []byte {
		e := mpeg4audio.AudioMuxElement{
			MuxConfigPresent: true, UseSameStreamMux: same, StreamMuxConfig: mux, Payloads: [][][][]byte{{{[]byte(frame)}}},
		}
		data, err := e.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var l LATM
	if _, _, err := l.Read(element(true, "early")); err == nil {
		t.Error("a frame without a configuration is taken")
	}
	for i, tt := range []struct {
		same  bool
		frame string
	}{{false, "first"}, {true, "second"}} {
		config, frames, err := l.Read(element(tt.same, tt.frame))
		if err != nil || !bytes.Equal(config, []byte{0x11, 0x90}) || len(frames) != 1 || string(frames[0]) != tt.frame {
			t.Errorf("element %d: % x, %q, %v", i, config, frames, err)
		}
	}
	if _, _, err := l.Read(nil); err == nil {
		t.Error("empty data counts as LATM")
	}
}
