package rtmp

import (
	"bufio"
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/codec"
)

func join(parts ...any) (all []byte) {
	for _, part := range parts {
		switch p := part.(type) {
		case string:
			all = append(all, p...)
		case int:
			all = append(all, byte(p))
		case []byte:
			all = append(all, p...)
		}
	}
	return all
}

func TestTags(t *testing.T) {
	video := func(p codec.Packet) codec.Packet {
		p.Kind = codec.Video
		return p
	}
	audio := func(p codec.Packet) codec.Packet {
		p.Kind = codec.Audio
		return p
	}
	for _, tt := range []struct {
		name string
		tag  func([]byte, func(codec.Packet) error) error
		body []byte
		want []codec.Packet
		bad  bool
	}{
		{"H.264 ahead", videoTag, join(0x17, 0, 0, 0, 0, "conf"), []codec.Packet{video(codec.Packet{Codec: codec.H264, Config: true, Data: []byte("conf")})}, false},
		{"H.264", videoTag, join(0x27, 1, 0, 0, 80, "data"), []codec.Packet{video(codec.Packet{Codec: codec.H264, Composition: 80 * time.Millisecond, Data: []byte("data")})}, false},
		{"shown before it is decoded", videoTag, join(0x27, 1, 0xFF, 0xFF, 0xD8, "data"), []codec.Packet{video(codec.Packet{Codec: codec.H264, Composition: -40 * time.Millisecond, Data: []byte("data")})}, false},
		{"end of H.264", videoTag, join(0x17, 2, 0, 0, 0), nil, false},
		{"H.265 before the rule", videoTag, join(0x1C, 1, 0, 0, 0, "data"), []codec.Packet{video(codec.Packet{Codec: codec.H265, Data: []byte("data")})}, false},
		{"Sorenson", videoTag, join(0x12, 1, 0, 0, 0, "data"), []codec.Packet{video(codec.Packet{Codec: "FLV video codec 2", Data: []byte("data")})}, false},
		{"command frame", videoTag, join(0x57, 1), nil, false},
		{"AAC ahead", audioTag, join(0xAF, 0, "conf"), []codec.Packet{audio(codec.Packet{Codec: codec.AAC, Config: true, Data: []byte("conf")})}, false},
		{"AAC", audioTag, join(0xAF, 1, "data"), []codec.Packet{audio(codec.Packet{Codec: codec.AAC, Data: []byte("data")})}, false},
		{"MP3", audioTag, join(0x2F, "data"), []codec.Packet{audio(codec.Packet{Codec: "FLV audio codec 2", Data: []byte("data")})}, false},

		{"HEVC ahead", videoTag, join(0x90, "hvc1conf"), []codec.Packet{video(codec.Packet{Codec: codec.H265, Config: true, Data: []byte("conf")})}, false},
		{"HEVC", videoTag, join(0xA1, "hvc1", 0, 0, 80, "data"), []codec.Packet{video(codec.Packet{Codec: codec.H265, Composition: 80 * time.Millisecond, Data: []byte("data")})}, false},
		{"HEVC at once", videoTag, join(0xA3, "hvc1data"), []codec.Packet{video(codec.Packet{Codec: codec.H265, Data: []byte("data")})}, false},
		{"AV1", videoTag, join(0xA1, "av01data"), []codec.Packet{video(codec.Packet{Codec: codec.AV1, Data: []byte("data")})}, false},
		{"VP9", videoTag, join(0xA1, "vp09data"), []codec.Packet{video(codec.Packet{Codec: `"vp09"`, Data: []byte("data")})}, false},
		{"metadata", videoTag, join(0x94, "hvc1data"), nil, false},
		{"Opus ahead", audioTag, join(0x90, "Opusconf"), []codec.Packet{audio(codec.Packet{Codec: codec.Opus, Config: true, Data: []byte("conf")})}, false},
		{"Opus", audioTag, join(0x91, "Opusdata"), []codec.Packet{audio(codec.Packet{Codec: codec.Opus, Data: []byte("data")})}, false},
		{"channels", audioTag, join(0x94, "Opus", 0, 2), nil, false},

		{"one of several tracks", videoTag, join(0x96, 0x01, "avc1", 3, 0, 0, 80, "data"), []codec.Packet{video(codec.Packet{Codec: codec.H264, Track: 3, Composition: 80 * time.Millisecond, Data: []byte("data")})}, false},
		{"tracks of a codec", audioTag, join(0x95, 0x11, "Opus", 0, 0, 0, 1, "a", 1, 0, 0, 2, "bc"), []codec.Packet{
			audio(codec.Packet{Codec: codec.Opus, Data: []byte("a")}), audio(codec.Packet{Codec: codec.Opus, Track: 1, Data: []byte("bc")}),
		}, false},
		{"tracks of codecs", videoTag, join(0x96, 0x20, "avc1", 0, 0, 0, 1, "a", "hvc1", 1, 0, 0, 2, "bc"), []codec.Packet{
			video(codec.Packet{Codec: codec.H264, Config: true, Data: []byte("a")}), video(codec.Packet{Codec: codec.H265, Track: 1, Config: true, Data: []byte("bc")}),
		}, false},
		{"finer times", videoTag, join(0xA7, 2, 0, 0x03, 0xE8, 0x03, "hvc1data"), []codec.Packet{video(codec.Packet{Codec: codec.H265, Offset: 1000, Data: []byte("data")})}, false},
		{"long modifier", audioTag, join(0x97, 255, 1, 0, make([]byte, 257), 0xF1, "Opusdata"), []codec.Packet{audio(codec.Packet{Codec: codec.Opus, Data: []byte("data")})}, false},

		{"empty video tag", videoTag, nil, nil, true},
		{"empty audio tag", audioTag, nil, nil, true},
		{"cut time", videoTag, join(0x17, 1, 0, 0), nil, true},
		{"cut letters", videoTag, join(0x90, "hv"), nil, true},
		{"cut extended time", videoTag, join(0x91, "hvc1", 0), nil, true},
		{"cut track", audioTag, join(0x95, 0x11, "Opus", 0, 0, 0, 9, "a"), nil, true},
		{"unknown form of tracks", audioTag, join(0x95, 0x31, "Opus"), nil, true},
		{"cut modifier", audioTag, join(0x97, 5, 1), nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []codec.Packet
			err := tt.tag(tt.body, func(p codec.Packet) error {
				got = append(got, p)
				return nil
			})
			if diff := cmp.Diff(tt.want, got); diff != "" || (err != nil) != tt.bad {
				t.Errorf("error %v; packets (-want +got):\n%s", err, diff)
			}
		})
	}
}

// FuzzTags reads tags that may be anything.
func FuzzTags(f *testing.F) {
	f.Add(join(0x17, 0, 0, 0, 0, "avcC"), true)
	f.Add(join(0x17, 1, 0, 0, 0, 0, 0, 0, 2, 0x65, 1), true)
	f.Add(join(0x96, 0x20, "avc1", 0, 0, 0, 1, "a", "hvc1", 1, 0, 0, 2, "bc"), true)
	f.Add(join(0x90, "av01", 0x81, 0, 0, 0, 0x0A, 1, 0), true)
	f.Add(join(0x95, 0x11, "Opus", 0, 0, 0, 1, "a", 1, 0, 0, 2, "bc"), false)
	f.Add(join(0x97, 255, 1, 0, make([]byte, 257), 0xF1, "Opusdata"), false)
	f.Add(join(0xAF, 0, 0x11, 0x90), false)
	f.Fuzz(func(t *testing.T, body []byte, video bool) {
		kind, want := byte(messageAudio), codec.Audio
		if video {
			kind, want = messageVideo, codec.Video
		}
		total := 0
		_ = readTag(kind, body, func(p codec.Packet) error {
			if total += len(p.Data); p.Kind != want || p.Codec == "" || p.Offset < 0 {
				t.Errorf("packet %+v", p)
			}
			return nil
		})
		if total > len(body) {
			t.Errorf("%d bytes of packets in a tag of %d", total, len(body))
		}
	})
}

// Tags are the same after writing and reading.
func TestTagsBothWays(t *testing.T) {
	const offset = 80 * time.Millisecond
	for _, p := range []codec.Packet{
		{Kind: codec.Video, Codec: codec.H264, Config: true},
		{Kind: codec.Video, Codec: codec.H264},
		{Kind: codec.Video, Codec: codec.H264, Composition: offset},
		{Kind: codec.Video, Codec: codec.H264, Composition: -offset},
		{Kind: codec.Video, Codec: codec.H265, Config: true},
		{Kind: codec.Video, Codec: codec.H265},
		{Kind: codec.Video, Codec: codec.H265, Composition: offset},
		{Kind: codec.Video, Codec: codec.AV1, Config: true},
		{Kind: codec.Video, Codec: codec.AV1},
		{Kind: codec.Audio, Codec: codec.AAC, Config: true},
		{Kind: codec.Audio, Codec: codec.AAC},
		{Kind: codec.Audio, Codec: codec.Opus, Config: true},
		{Kind: codec.Audio, Codec: codec.Opus},
	} {
		p.Data = []byte("data")
		kind := byte(messageVideo)
		if p.Kind == codec.Audio {
			kind = messageAudio
		}
		for _, key := range []bool{true, false} {
			tag, err := appendTagHeader(nil, p, key)
			if err != nil {
				t.Fatal(err)
			}
			if p.Kind == codec.Video && (tag[0]>>4&7 == 1) != (key || p.Config) {
				t.Errorf("%+v: the first byte %#x, key frame %v", p, tag[0], key)
			}
			var got []codec.Packet
			err = readTag(kind, append(tag, p.Data...), func(p codec.Packet) error {
				got = append(got, p)
				return nil
			})
			if diff := cmp.Diff([]codec.Packet{p}, got); diff != "" || err != nil {
				t.Errorf("error %v; packets (-written +read):\n%s", err, diff)
			}
		}
	}
	if _, err := appendTagHeader(nil, codec.Packet{Codec: "vp8"}, true); err == nil {
		t.Error("a codec without a tag is written")
	}
}

// Metadata names codecs by the numbers of FLV, or by letters. The configurations follow it.
func TestWriteTracks(t *testing.T) {
	video := codec.Config{Kind: codec.Video, Width: 160, Height: 90, Record: []byte("record")}
	h264, h265 := video, video
	h264.Codec, h265.Codec = codec.H264, codec.H265
	aac := codec.Config{Kind: codec.Audio, Codec: codec.AAC, SampleRate: 48000, Channels: 2, Record: []byte("aac")}
	for _, tt := range []struct {
		tracks []codec.Config
		want   object
		tags   []string
	}{
		{nil, object{{"encoder", "weir"}}, nil},
		{
			[]codec.Config{h264, aac},
			object{
				{"encoder", "weir"},
				{"width", 160.0},
				{"height", 90.0},
				{"videocodecid", 7.0},
				{"audiocodecid", 10.0},
				{"audiosamplerate", 48000.0},
				{"audiosamplesize", 16.0},
				{"stereo", true},
			},
			[]string{"\x17\x00\x00\x00\x00record", "\xAF\x00aac"},
		},
		{
			[]codec.Config{h265},
			object{
				{"encoder", "weir"},
				{"width", 160.0},
				{"height", 90.0},
				{"videocodecid", float64('h'<<24 | 'v'<<16 | 'c'<<8 | '1')},
			},
			[]string{"\x90hvc1record"},
		},
	} {
		var sent bytes.Buffer
		c := newClient(said{}, address{})
		c.out.to = &sent
		if err := c.WriteTracks(20*time.Millisecond, tt.tracks...); err != nil {
			t.Fatal(err)
		}
		r := newChunkReader(bufio.NewReader(&sent), maxCommand)
		m, err := r.next()
		if err != nil || m.kind != messageData || m.time != 20 {
			t.Errorf("message %+v, %v", m, err)
		}
		got, err := readAMF(m.body)
		want := []any{"@setDataFrame", "onMetaData", tt.want}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(property{})); diff != "" || err != nil {
			t.Errorf("error %v; metadata (-want +got):\n%s", err, diff)
		}
		var tags []string
		for m, err = r.next(); err == nil; m, err = r.next() {
			tags = append(tags, string(m.body))
		}
		if diff := cmp.Diff(tt.tags, tags); diff != "" {
			t.Errorf("tags (-want +got):\n%s", diff)
		}
	}
}
