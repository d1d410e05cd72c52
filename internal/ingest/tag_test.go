package ingest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
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
		p.Kind = cmaf.Video
		return p
	}
	audio := func(p codec.Packet) codec.Packet {
		p.Kind = cmaf.Audio
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
		{"Sorenson", videoTag, join(0x12, 1, 0, 0, 0, "data"), []codec.Packet{video(codec.Packet{Codec: "FLV picture codec 2", Data: []byte("data")})}, false},
		{"command frame", videoTag, join(0x57, 1), nil, false},
		{"AAC ahead", audioTag, join(0xAF, 0, "conf"), []codec.Packet{audio(codec.Packet{Codec: codec.AAC, Config: true, Data: []byte("conf")})}, false},
		{"AAC", audioTag, join(0xAF, 1, "data"), []codec.Packet{audio(codec.Packet{Codec: codec.AAC, Data: []byte("data")})}, false},
		{"MP3", audioTag, join(0x2F, "data"), []codec.Packet{audio(codec.Packet{Codec: "FLV sound codec 2", Data: []byte("data")})}, false},

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

		{"empty picture", videoTag, nil, nil, true},
		{"empty sound", audioTag, nil, nil, true},
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
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(codec.Packet{})); diff != "" || (err != nil) != tt.bad {
				t.Errorf("error %v; packets (-want +got):\n%s", err, diff)
			}
		})
	}
}

// FuzzTags feeds tags to a feed, as a connection does.
func FuzzTags(f *testing.F) {
	f.Add(join(0x17, 0, 0, 0, 0, someAVCC), join(0x17, 1, 0, 0, 0, 0, 0, 0, 2, 0x65, 1), true)
	f.Add(join(0x96, 0x20, "avc1", 0, 0, 0, 1, "a", "hvc1", 1, 0, 0, 2, "bc"), join(0x90, "av01", 0x81, 0, 0, 0, 0x0A, 1, 0), true)
	f.Add(join(0x95, 0x11, "Opus", 0, 0, 0, 1, "a", 1, 0, 0, 2, "bc"), join(0x97, 255, 1, 0, make([]byte, 257), 0xF1, "Opusdata"), false)
	f.Add(join(0xAF, 0, 0x11, 0x90), join(0xAF, 1, 0x21, 0x10), false)
	f.Fuzz(func(t *testing.T, first, second []byte, pictures bool) {
		hub := newTestHub()
		p, err := hub.publish(t.Context(), goodKey, source)
		if err != nil {
			t.Fatal(err)
		}
		feed := newFeed(p, (&logBook{}).logger())
		tag := audioTag
		if pictures {
			tag = videoTag
		}
		for i, body := range slices.Concat([][]byte{first, second}, [][]byte{first, second}) {
			err := tag(slices.Clone(body), func(p codec.Packet) error { return feed.add(t.Context(), p, time.Duration(i)*time.Second) })
			if err != nil {
				return
			}
		}
		for _, f := range hub.publishers[0].frames {
			if len(f.Data) == 0 {
				t.Error("a frame without data")
			}
		}
	})
}
