package cmaf

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/Eyevinn/mp4ff/mp4"

	"weir/internal/codec"
	"weir/internal/weir"
)

// liveTimescale counts the time of video that encoders send live: the protocols have
// milliseconds or ticks of 90 kHz.
const liveTimescale = 90000

// NewTrack returns a track of what encoders send live, with this configuration.
func NewTrack(c codec.Config) (Track, error) {
	w := new(boxWriter)
	switch c.Codec {
	case codec.H264:
		w.videoEntry("avc1", "avcC", c)
	case codec.H265:
		w.videoEntry("hvc1", "hvcC", c)
	case codec.AV1:
		w.videoEntry("av01", "av1C", c)
	case codec.AAC:
		w.audioEntry("mp4a", c, func() { w.box(mp4.CreateEsdsBox(c.Record)) })
	case codec.Opus:
		w.audioEntry("Opus", c, func() { w.record("dOps", fromOpusHead(c.Record)) })
	default:
		return Track{}, weir.Errorf(weir.Internal, "a track of %q can't be made of its configuration", c.Codec)
	}
	t := Track{
		Kind: c.Kind, Codec: c.RFC6381, Timescale: liveTimescale, Entry: w.data,
		Width: c.Width, Height: c.Height, Channels: c.Channels, SampleRate: c.SampleRate,
	}
	if c.Kind == Audio {
		t.Timescale, t.Default = uint32(c.SampleRate), true
	}
	return t, nil
}

// videoEntry writes a sample entry of video with its configuration in a box.
func (w *boxWriter) videoEntry(name, box string, c codec.Config) {
	w.container(name, func() {
		const resolution = 72 << 16 // dots per inch, in fixed point
		w.u64(1)                    // reserved; data reference
		w.u64(0)                    // reserved
		w.u64(0)                    // reserved
		w.u32(uint32(c.Width)<<16 | uint32(c.Height))
		w.u32(resolution)
		w.u32(resolution)
		w.u32(0)                                     // reserved
		w.data = append(w.data, 0, 1)                // frames in a sample
		w.data = append(w.data, make([]byte, 32)...) // name of the compressor
		w.u32(24<<16 | 0xffff)                       // bits of a pixel; reserved
		w.record(box, c.Record)
		if c.PixelWidth > 0 {
			w.container("pasp", func() {
				w.u32(uint32(c.PixelWidth))
				w.u32(uint32(c.PixelHeight))
			})
		}
	})
}

// audioEntry writes a sample entry of audio with a box that config writes.
func (w *boxWriter) audioEntry(name string, c codec.Config, config func()) {
	w.container(name, func() {
		w.u64(1)                           // reserved; data reference
		w.u64(0)                           // reserved
		w.u32(uint32(c.Channels)<<16 | 16) // bits of a sample
		w.u32(0)                           // reserved
		if c.SampleRate > math.MaxUint16 {
			w.u32(0) // the configuration says it
		} else {
			w.u32(uint32(c.SampleRate) << 16)
		}
		config()
	})
}

func (w *boxWriter) record(box string, record []byte) {
	w.container(box, func() { w.data = append(w.data, record...) })
}

// Config returns what the sample entry says of the coding.
func (t Track) Config() codec.Config {
	c := codec.Config{
		Kind: t.Kind, RFC6381: t.Codec,
		Width: t.Width, Height: t.Height, Channels: t.Channels, SampleRate: t.SampleRate,
	}
	entry, _, ok := nextBox(t.Entry)
	if !ok {
		return c
	}
	boxes := entryBoxes(t.Kind, entry.body)
	if pasp := child(boxes, "pasp"); len(pasp) == 8 && !bytes.Equal(pasp[:4], pasp[4:]) {
		c.PixelWidth, c.PixelHeight = int(binary.BigEndian.Uint32(pasp)), int(binary.BigEndian.Uint32(pasp[4:]))
	}
	box := configOf(entry.name, boxes)
	switch entry.name {
	case "avc1", "avc3":
		c.Codec, c.Record = codec.H264, box
	case "hvc1", "hev1":
		c.Codec, c.Record = codec.H265, box
	case "av01":
		c.Codec, c.Record = codec.AV1, box
	case "mp4a":
		switch object, specific := codec.ParseESDS(box); object {
		case 0x40, 0x66, 0x67, 0x68: // of MPEG-4 and MPEG-2
			c.Codec, c.Record = codec.AAC, specific
		case 0x69, 0x6b: // of MPEG-2, with half the sample rate, and MPEG-1
			c.Codec = codec.MP3
		}
	case "Opus":
		c.Codec, c.Record = codec.Opus, toOpusHead(box)
	case "ac-3":
		c.Codec = codec.AC3
	case "ec-3":
		c.Codec = codec.EAC3
	}
	return c
}

// opusMagic stands before the fields of an OpusHead. A dOps box has the same fields without
// it, in the other byte order.
const opusMagic = "OpusHead"

func fromOpusHead(head []byte) []byte {
	return swapOpus(0, head[len(opusMagic):])
}

func toOpusHead(dops []byte) []byte {
	if len(dops) < 11 {
		return nil
	}
	return append([]byte(opusMagic), swapOpus(1, dops)...)
}

// swapOpus returns the fields of a head of Opus in the other byte order; a number before
// them is the version of the form.
func swapOpus(version byte, fields []byte) []byte {
	swapped := slices.Clone(fields)
	swapped[0] = version
	slices.Reverse(swapped[2:4])  // pre-skip
	slices.Reverse(swapped[4:8])  // sample rate of the input
	slices.Reverse(swapped[8:10]) // gain
	return swapped
}
