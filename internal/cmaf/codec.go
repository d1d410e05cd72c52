package cmaf

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// codecString names a coding as RFC 6381 does, from the four letters of the sample entry
// and the boxes inside it. What it does not know has its four letters.
func codecString(name string, boxes []byte) string {
	known := ""
	switch name {
	case "avc1", "avc2", "avc3", "avc4":
		known = codecAVC(name, child(boxes, "avcC"))
	case "hvc1", "hev1":
		known = codecHEVC(name, child(boxes, "hvcC"))
	case "vp08", "vp09":
		known = codecVP(name, child(boxes, "vpcC"))
	case "av01":
		known = codecAV1(child(boxes, "av1C"))
	case "mp4a", "mp4v":
		known = codecMPEG4(name, parseESDS(child(boxes, "esds")))
	case "Opus":
		known = "opus" // what browsers ask for; the letters of the entry are refused by some
	case ".mp3":
		known = "mp4a.6B"
	}
	if known != "" {
		return known
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '"' || r == ',' {
			return -1
		}
		return r
	}, name)
}

func codecAVC(name string, config []byte) string {
	if len(config) < 4 {
		return ""
	}
	return fmt.Sprintf("%s.%02x%02x%02x", name, config[1], config[2], config[3])
}

func codecHEVC(name string, config []byte) string {
	if len(config) < 13 {
		return ""
	}
	tier := 'L'
	if config[1]&0x20 != 0 {
		tier = 'H'
	}
	s := fmt.Sprintf("%s.%s%d.%X.%c%d", name,
		[]string{"", "A", "B", "C"}[config[1]>>6], config[1]&31,
		bits.Reverse32(binary.BigEndian.Uint32(config[2:])), tier, config[12])
	constraints := config[6:12]
	for len(constraints) > 0 && constraints[len(constraints)-1] == 0 {
		constraints = constraints[:len(constraints)-1]
	}
	for _, c := range constraints {
		s += fmt.Sprintf(".%X", c)
	}
	return s
}

func codecVP(name string, config []byte) string {
	if len(config) < 10 {
		return ""
	}
	profile, level, depth := config[4], config[5], config[6]>>4
	chroma, full := config[6]>>1&7, config[6]&1
	primaries, transfer, matrix := config[7], config[8], config[9]
	if level == 0 {
		level = 10 // not known: the lowest, as the letters must say one
	}
	s := fmt.Sprintf("%s.%02d.%02d.%02d", name, profile, level, depth)
	plain := chroma <= 1 && full == 0 && primaries <= 2 && transfer <= 2 && matrix <= 2
	if !plain {
		s += fmt.Sprintf(".%02d.%02d.%02d.%02d.%02d", chroma, primaries, transfer, matrix, full)
	}
	return s
}

func codecAV1(config []byte) string {
	if len(config) < 4 {
		return ""
	}
	profile, level := config[1]>>5, config[1]&31
	tier, depth := 'M', 8
	if config[2]&0x80 != 0 {
		tier = 'H'
	}
	high, twelve := config[2]&0x40 != 0, config[2]&0x20 != 0
	switch {
	case high && twelve && profile == 2:
		depth = 12
	case high:
		depth = 10
	}
	return fmt.Sprintf("av01.%d.%02d%c.%02d", profile, level, tier, depth)
}

func codecMPEG4(name string, config esds) string {
	switch {
	case config.object == 0:
		return ""
	case config.object == 0x40:
		object := 2
		if c, ok := parseAudioConfig(config.specific); ok {
			object = c.object
		}
		return fmt.Sprintf("%s.40.%d", name, object)
	case config.object == 0x20 && len(config.specific) >= 5 && binary.BigEndian.Uint32(config.specific) == 0x1b0:
		return fmt.Sprintf("%s.20.%d", name, config.specific[4])
	}
	return fmt.Sprintf("%s.%02X", name, config.object)
}

// esds is what the descriptors of an MPEG-4 elementary stream say.
type esds struct {
	object   byte // what coding
	specific []byte
}

func parseESDS(box []byte) esds {
	in := bytesReader{data: box}
	in.full()
	var found esds
	for len(in.data) > 0 {
		tag := in.u8()
		size := 0
		for range 4 {
			b := in.u8()
			size = size<<7 | int(b&0x7f)
			if b&0x80 == 0 {
				break
			}
		}
		switch tag {
		case 3: // elementary stream: go inside
			in.u16()
			flags := in.u8()
			if flags&0x80 != 0 {
				in.u16()
			}
			if flags&0x40 != 0 {
				in.take(int(in.u8()))
			}
			if flags&0x20 != 0 {
				in.u16()
			}
		case 4: // decoder: go inside
			found.object = in.u8()
			in.take(12)
		case 5:
			found.specific = in.take(size)
			return found
		default:
			in.take(size)
		}
	}
	return found
}

// audioConfig is what an MPEG-4 AudioSpecificConfig says.
type audioConfig struct {
	object   int // 2 = AAC-LC, 5 = HE-AAC, 29 = HE-AAC v2
	rate     int // of what is heard
	channels int // 0 = the stream says it itself
}

func parseAudioConfig(config []byte) (audioConfig, bool) {
	b := bitReader{data: config}
	rate := func() int {
		if i := b.take(4); i == 15 {
			return int(b.take(24))
		} else if i < 13 {
			return []int{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}[i]
		}
		return 0
	}
	object := func() int {
		if o := b.take(5); o < 31 {
			return int(o)
		}
		return 32 + int(b.take(6))
	}
	c := audioConfig{object: object()}
	c.rate = rate()
	channels := b.take(4)
	c.channels = int(channels)
	if channels == 7 {
		c.channels = 8
	}
	if c.object == 5 || c.object == 29 {
		c.rate = rate()
		if c.object == 29 {
			c.channels = 2
		}
	}
	return c, !b.short && c.rate > 0
}

// bitReader takes bits from the front of foreign bytes.
type bitReader struct {
	data  []byte
	at    int
	short bool
}

func (b *bitReader) take(n int) uint32 {
	if b.at+n > 8*len(b.data) {
		b.short, b.at = true, 8*len(b.data)
		return 0
	}
	var v uint32
	for range n {
		v = v<<1 | uint32(b.data[b.at/8]>>(7-b.at%8)&1)
		b.at++
	}
	return v
}
