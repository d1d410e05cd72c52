package rtmp

import (
	"encoding/binary"
	"fmt"
	"time"

	"weir/internal/codec"
)

// WriteTracks sends the metadata of the stream and the configurations of the tracks, one of each
// kind. Their packets follow.
func (c *Conn) WriteTracks(at time.Duration, tracks ...codec.Config) error {
	about := ecmaArray{{"encoder", "weir"}}
	for _, t := range tracks {
		if t.Kind == codec.Video {
			about = append(about, property{"width", float64(t.Width)},
				property{"height", float64(t.Height)}, property{"videocodecid", codecID(t.Codec)})
		} else {
			about = append(about, property{"audiocodecid", codecID(t.Codec)},
				property{"audiosamplerate", float64(t.SampleRate)},
				property{"audiosamplesize", float64(16)}, property{"stereo", t.Channels != 1})
		}
	}
	body := appendAMF(nil, "@setDataFrame", "onMetaData", about)
	err := c.send(audioChunks, c.stream, message{messageData, milliseconds(at), body}, nil)
	for _, t := range tracks {
		if err == nil {
			p := codec.Packet{Kind: t.Kind, Codec: t.Codec, Config: true, Data: t.Record}
			err = c.WritePacket(p, true, at)
		}
	}
	return err
}

// codecID returns the number of a codec in the metadata: that of FLV, or the FourCC.
func codecID(name string) float64 {
	switch name {
	case codec.H264:
		return videoH264
	case codec.AAC:
		return audioAAC
	}
	return float64(binary.BigEndian.Uint32([]byte(letters(name))))
}

func letters(name string) string {
	for _, c := range fourCCs {
		if c.codec == name {
			return c.letters
		}
	}
	return "none"
}

// WritePacket sends a packet: the configuration of a codec, or a frame. Its decode time is at.
func (c *Conn) WritePacket(p codec.Packet, key bool, at time.Duration) error {
	var buffer [16]byte
	head, err := appendTagHeader(buffer[:0], p, key)
	if err != nil {
		return err
	}
	chunks, kind := byte(videoChunks), byte(messageVideo)
	if p.Kind == codec.Audio {
		chunks, kind = audioChunks, messageAudio
	}
	return c.send(chunks, c.stream, message{kind, milliseconds(at), p.Data}, head)
}

func appendTagHeader(b []byte, p codec.Packet, key bool) ([]byte, error) {
	kind, frame := byte(tagFrame), byte(2)<<4
	if key || p.Config {
		frame = 1 << 4
	}
	if p.Config {
		kind = tagConfig
	}
	offset := uint32(p.Composition.Milliseconds())
	switch p.Codec {
	case codec.H264:
		return appendUint24(append(b, frame|videoH264, kind), offset), nil
	case codec.H265:
		if !p.Config && offset == 0 {
			kind = tagFrameNoOffset
		}
		b = append(append(b, videoExtra|frame|kind), letters(p.Codec)...)
		if kind == tagFrame {
			b = appendUint24(b, offset)
		}
		return b, nil
	case codec.AV1:
		return append(append(b, videoExtra|frame|kind), letters(p.Codec)...), nil
	case codec.AAC:
		const always = 0xF // 44 kHz, 16 bits, stereo, whatever the configuration says
		return append(b, audioAAC<<4|always, kind), nil
	case codec.Opus:
		return append(append(b, audioExtra<<4|kind), letters(p.Codec)...), nil
	}
	return nil, fmt.Errorf("%s can't be sent over RTMP", p.Codec)
}

func milliseconds(at time.Duration) uint32 { return uint32(at.Milliseconds()) }
