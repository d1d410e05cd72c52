package codec

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// RFC6381 returns the name of a coding in playlists and manifests, as RFC 6381 defines it,
// from the four letters of the sample entry in an MP4 file and the body of the box in it that
// has the configuration: avcC, hvcC, vpcC, av1C or esds. A coding that it does not know has
// the four letters as its name.
func RFC6381(entry string, box []byte) string {
	known := ""
	switch entry {
	case "avc1", "avc2", "avc3", "avc4":
		known = avcString(entry, box)
	case "hvc1", "hev1":
		known = hevcString(entry, box)
	case "vp08", "vp09":
		known = vpString(entry, box)
	case "av01":
		known = av1String(box)
	case "mp4a", "mp4v":
		object, specific := ParseESDS(box)
		known = mpeg4String(entry, object, specific)
	case "Opus":
		known = opusString
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
	}, entry)
}

func avcString(name string, config []byte) string {
	if len(config) < 4 {
		return ""
	}
	return fmt.Sprintf("%s.%02x%02x%02x", name, config[1], config[2], config[3])
}

func hevcString(name string, config []byte) string {
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

func vpString(name string, config []byte) string {
	if len(config) < 10 {
		return ""
	}
	profile, level, depth := config[4], config[5], config[6]>>4
	chroma, full := config[6]>>1&7, config[6]&1
	primaries, transfer, matrix := config[7], config[8], config[9]
	if level == 0 {
		level = 10 // unknown: the lowest, because the string must have one
	}
	s := fmt.Sprintf("%s.%02d.%02d.%02d", name, profile, level, depth)
	plain := chroma <= 1 && full == 0 && primaries <= 2 && transfer <= 2 && matrix <= 2
	if !plain {
		s += fmt.Sprintf(".%02d.%02d.%02d.%02d.%02d", chroma, primaries, transfer, matrix, full)
	}
	return s
}

func av1String(config []byte) string {
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

func mpeg4String(entry string, object byte, specific []byte) string {
	switch {
	case object == 0:
		return ""
	case object == mpeg4Audio:
		audio := 2
		if c, ok := ParseAudioConfig(specific); ok {
			audio = c.ObjectType
		}
		return fmt.Sprintf("%s.40.%d", entry, audio)
	case object == 0x20 && len(specific) >= 5 && binary.BigEndian.Uint32(specific) == 0x1b0:
		return fmt.Sprintf("%s.20.%d", entry, specific[4])
	}
	return fmt.Sprintf("%s.%02X", entry, object)
}

// opusString is the name that browsers accept; some refuse the name of the sample entry, Opus.
const opusString = "opus"
