package cmaf

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

// madeFilm returns media of random bytes, the same each time: segments of one second, of
// several fragments each, as a live stream has them. Video has B-frames.
func madeFilm(video, audio *Track, lengthSize, segments int) clip {
	random := rand.New(rand.NewPCG(1, 2))
	data := func(size int) []byte {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	c := clip{video: video, audio: audio, segments: make([]tsSegment, segments)}
	var at int64 // of audio
	for n := range c.segments {
		s := &c.segments[n]
		for i := 0; video != nil && i < 25; i++ {
			frame := int64(video.Timescale) / 25
			if i%10 == 0 {
				s.video = append(s.video, Fragment{Start: int64(25*n+i) * frame})
			}
			f := &s.video[len(s.video)-1]
			size := len(f.Data)
			for k := range 1 + i%3 {
				unit := data(20 + random.IntN(700))
				unit[0] = []byte{0x65, 0x41, 0x09}[k] // the last is a delimiter, which is replaced
				length := binary.BigEndian.AppendUint32(nil, uint32(len(unit)))
				f.Data = append(append(f.Data, length[4-lengthSize:]...), unit...)
			}
			f.Samples = append(f.Samples, Sample{
				Duration: uint32(frame), Offset: int32(frame) * []int32{0, 2, -1, -1, 0}[i%5], Size: uint32(len(f.Data) - size), Sync: i == 0,
			})
		}
		for i := 0; audio != nil && at < int64(n+1)*int64(audio.Timescale); i++ {
			if i%20 == 0 {
				if n == 1 {
					at += 3000 // a hole
				}
				s.audio = append(s.audio, Fragment{Start: at})
			}
			f := &s.audio[len(s.audio)-1]
			unit := data(100 + random.IntN(300))
			f.Data = append(f.Data, unit...)
			f.Samples = append(f.Samples, Sample{Duration: 1024, Size: uint32(len(unit)), Sync: true})
			at += 1024
		}
	}
	return c
}

// TestTSBytes holds the bytes of transport streams: what was published in part is completed
// by another version of weir.
func TestTSBytes(t *testing.T) {
	h264 := &Track{Kind: Video, Timescale: 12800, Delay: 512, Entry: testEntry("avc1", "avcC", avcConfig)}
	short := &Track{Kind: Video, Timescale: 90000, Entry: testEntry("avc3", "avcC", avcConfig[:4]+"\xfd"+avcConfig[5:])}
	hevc := &Track{Kind: Video, Timescale: 90000, Entry: testEntry("hvc1", "hvcC", hevcConfig)}
	audioTrack := func(name, box, body, language string) *Track {
		return &Track{Kind: Audio, Timescale: 44100, Entry: testEntry(name, box, body), Language: language}
	}
	aac := audioTrack("mp4a", "esds", aacConfig("\x12\x10"), "deu")
	mp3 := audioTrack("mp4a", "esds", "\x00\x00\x00\x00\x04\x0d\x6b\x15\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "und")
	var got bytes.Buffer
	for _, tt := range []struct {
		name         string
		video, audio *Track
		length       int
		alone        bool
	}{
		{"h264-aac", h264, aac, 4, false},
		{"h264-aac-alone", h264, aac, 4, true},
		{"h264", short, nil, 2, false},
		{"hevc-he-aac", hevc, audioTrack("mp4a", "esds", aacConfig("\x2b\x92\x08\x00"), ""), 4, false},
		{"aac", nil, aac, 0, false},
		{"aac-alone", nil, aac, 0, true},
		{"h264-ac-3", h264, audioTrack("ac-3", "dac3", "", ""), 4, false},
		{"h264-ec-3", h264, audioTrack("ec-3", "dec3", "", "eng"), 4, false},
		{"mp3", nil, mp3, 0, false},
	} {
		c := madeFilm(tt.video, tt.audio, tt.length, 4)
		segments := c.transport(t)
		if tt.alone {
			state := TSAlone(c.index(map[bool]Kind{true: Video, false: Audio}[tt.video != nil]))
			for n, s := range c.segments {
				ts, err := NewTS(c.video, c.audio, state)
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				if err := ts.Segment(&out, s.video, s.audio); err != nil {
					t.Fatal(err)
				}
				segments[n] = out.Bytes()
			}
		}
		checkPackets(t, segments[:1])
		for n, s := range segments {
			fmt.Fprintf(&got, "%s/%d.ts %d %x\n", tt.name, n, len(s), sha256.Sum256(s))
		}
		if tt.video != nil {
			size := tsSize(*tt.video)
			for n, s := range c.index(Video).Segments {
				fmt.Fprintf(&got, "%s/%d.ts has about %d bytes of video\n", tt.name, n, size(s))
			}
		}
		if tt.audio != nil {
			size := tsSize(*tt.audio)
			for n, s := range c.index(Audio).Segments {
				fmt.Fprintf(&got, "%s/%d.ts has about %d bytes of audio\n", tt.name, n, size(s))
			}
		}
	}
	checkGolden(t, "ts.txt", func(w io.Writer) error {
		_, err := got.WriteTo(w)
		return err
	})
}
