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

// liveTimescale is the timescale of live video. Protocols count milliseconds or ticks of 90 kHz.
const liveTimescale = 90000

// NewTrack returns the track of a live stream with this codec configuration.
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
		w.audioEntry("mp4a", c, mp4.CreateEsdsBox(c.Record))
	case codec.Opus:
		head := bytes.TrimPrefix(c.Record, []byte(opusMagic))
		w.audioEntry("Opus", c, rawBox("dOps", swapOpus(0, head)))
	default:
		return Track{}, weir.Errorf(weir.Internal, "there is no sample entry of %q", c.Codec)
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
	config := rawBox(box, c.Record)
	entry := mp4.CreateVisualSampleEntryBox(name, uint16(c.Width), uint16(c.Height), config)
	entry.CompressorName = ""
	if c.PixelWidth > 0 {
		w, h := uint32(c.PixelWidth), uint32(c.PixelHeight)
		entry.AddChild(&mp4.PaspBox{HSpacing: w, VSpacing: h})
	}
	w.box(entry)
}

// audioEntry writes a sample entry of audio with a box that has its configuration.
func (w *boxWriter) audioEntry(name string, c codec.Config, box mp4.Box) {
	rate := c.SampleRate
	if rate > math.MaxUint16 {
		rate = 0 // the configuration has it
	}
	entry := mp4.CreateAudioSampleEntryBox(name, uint16(c.Channels), 16, uint16(rate), nil)
	entry.Children = append(entry.Children, box)
	w.box(entry)
}

func rawBox(name string, body []byte) mp4.Box {
	return mp4.CreateUnknownBox(name, uint64(8+len(body)), body)
}

// SilenceTrack returns the track of codec.SilenceFrame.
func SilenceTrack() (Track, error) {
	config, err := codec.AACConfig([]byte(codec.SilenceConfig))
	if err != nil {
		return Track{}, err
	}
	return NewTrack(config)
}

// IsAAC reports whether the track is AAC whose configuration is known.
func (t Track) IsAAC() bool {
	c := t.Config()
	return c.Codec == codec.AAC && c.Record != nil
}

// Config returns the codec configuration in the sample entry.
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
		c.PixelWidth = int(binary.BigEndian.Uint32(pasp))
		c.PixelHeight = int(binary.BigEndian.Uint32(pasp[4:]))
	}
	box, name := codecOf(entry.name)
	c.Codec, c.Record = name, child(boxes, box)
	switch {
	case name == codec.Opus:
		if c.Record = swapOpus(1, c.Record); c.Record != nil {
			c.Record = append([]byte(opusMagic), c.Record...)
		}
	case entry.name == "mp4a":
		var object byte
		switch object, c.Record = codec.ParseESDS(c.Record); object {
		case 0x40, 0x66, 0x67, 0x68: // of MPEG-4 and MPEG-2
			c.Codec = codec.AAC
		case 0x69, 0x6b: // of MPEG-2, with half the sample rate, and MPEG-1
			c.Codec = codec.MP3
		}
	case name == "":
		c.Record = nil
	}
	return c
}

// codecOf returns the name of the box in a sample entry that has the configuration, and the codec.
// "" = not known, or not known without the box.
func codecOf(entry string) (box, name string) {
	switch entry {
	case "avc1", "avc3":
		return "avcC", codec.H264
	case "avc2", "avc4":
		return "avcC", ""
	case "hvc1", "hev1":
		return "hvcC", codec.H265
	case "av01":
		return "av1C", codec.AV1
	case "vp08", "vp09":
		return "vpcC", ""
	case "mp4a", "mp4v":
		return "esds", ""
	case "Opus":
		return "dOps", codec.Opus
	case "ac-3":
		return "", codec.AC3
	case "ec-3":
		return "", codec.EAC3
	}
	return "", ""
}

// opusMagic precedes the fields of an OpusHead. A dOps box has the same fields without it, in the
// other byte order.
const opusMagic = "OpusHead"

// swapOpus returns the fields of an OpusHead or a dOps box in the other byte order and with the
// given version; nil if they are incomplete.
func swapOpus(version byte, fields []byte) []byte {
	if len(fields) < 11 {
		return nil
	}
	swapped := slices.Clone(fields)
	swapped[0] = version
	slices.Reverse(swapped[2:4])  // pre-skip
	slices.Reverse(swapped[4:8])  // sample rate of the input
	slices.Reverse(swapped[8:10]) // gain
	return swapped
}
