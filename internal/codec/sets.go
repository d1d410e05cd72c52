package codec

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/Eyevinn/mp4ff/hevc"
)

// A track has one configuration record, but its samples may use several parameter sets, if these have
// distinct ids. A clip is such a track: its edges are encoded, and the frames between them are copied.

// setKey identifies a parameter set within a record.
type setKey struct {
	kind NAL
	id   uint32
}

// setKey returns the kind and the id of a parameter set; ok is false if it can't be read.
func (c Config) setKey(unit []byte) (key setKey, ok bool) {
	b := bitReader{data: unescape(unit[:min(len(unit), 128)])}
	switch {
	case c.Codec == H264:
		key.kind, b.at = H264NAL(unit), 8
		if key.kind == NALSPS {
			b.at += 24 // profile, constraints, level
		}
	case c.Codec == H265:
		key.kind, b.at = H265NAL(unit), 16
		if key.kind == NALVPS {
			key.id = b.take(4)
			return key, !b.short
		}
		if key.kind == NALSPS {
			sps, err := hevc.ParseSPSNALUnit(unit)
			if err != nil {
				return key, false
			}
			key.id = uint32(sps.SpsID)
			return key, true
		}
	}
	key.id = b.golomb()
	return key, key.kind.ParameterSet() && !b.short
}

// Merge returns the record of a track whose samples use the parameter sets of several configurations. ok
// is false if they can't be in one record, because sets with the same id differ.
func Merge(configs ...Config) (record []byte, ok bool) {
	sets := map[NAL][][]byte{}
	known := map[setKey][]byte{}
	for _, c := range configs {
		if c.Codec != configs[0].Codec {
			return nil, false
		}
		parsed, err := c.ParameterSets()
		if err != nil || parsed.LengthSize != 4 {
			return nil, false
		}
		for _, unit := range parsed.Units {
			key, ok := c.setKey(unit)
			if !ok {
				return nil, false
			}
			switch before, found := known[key]; {
			case !found:
				known[key], sets[key.kind] = unit, append(sets[key.kind], unit)
			case !bytes.Equal(before, unit):
				return nil, false
			}
		}
	}
	if configs[0].Codec == H265 {
		return mergeHVCC(configs, sets)
	}
	return mergeAVCC(configs, sets)
}

// mergeAVCC writes an avcC record. Its profile and level are those that a decoder of all samples needs.
func mergeAVCC(configs []Config, sets map[NAL][][]byte) ([]byte, bool) {
	if len(sets[NALSPS]) > 31 || len(sets[NALPPS]) > math.MaxUint8 {
		return nil, false
	}
	record := bytes.Clone(configs[0].Record[:5])
	for _, c := range configs {
		record[1] = max(record[1], c.Record[1])
		record[2] &= c.Record[2]
		record[3] = max(record[3], c.Record[3])
	}
	record = appendSets(append(record, 0xe0|byte(len(sets[NALSPS]))), sets[NALSPS])
	record = appendSets(append(record, byte(len(sets[NALPPS]))), sets[NALPPS])
	var first ParameterSets
	rest, err := first.readUnits(configs[0].Record[6:], int(configs[0].Record[5]&31), H264NAL)
	if err == nil && len(rest) > 0 {
		rest, err = first.readUnits(rest[1:], int(rest[0]), H264NAL)
	}
	return append(record, rest...), err == nil // with the chroma format and the bit depth
}

// mergeHVCC writes an hvcC record.
func mergeHVCC(configs []Config, sets map[NAL][][]byte) ([]byte, bool) {
	const level = 12
	record := bytes.Clone(configs[0].Record[:22])
	for _, c := range configs {
		record[level] = max(record[level], c.Record[level])
	}
	kinds := []NAL{NALVPS, NALSPS, NALPPS}
	record = append(record, byte(len(kinds)))
	for _, kind := range kinds {
		if len(sets[kind]) == 0 {
			return nil, false
		}
		const complete = 0x80 // samples have no such sets
		record = append(record, complete|sets[kind][0][0]>>1&63)
		record = binary.BigEndian.AppendUint16(record, uint16(len(sets[kind])))
		record = appendSets(record, sets[kind])
	}
	return record, true
}

// appendSets adds NAL units with lengths of two bytes.
func appendSets(dst []byte, units [][]byte) []byte {
	for _, unit := range units {
		dst = append(binary.BigEndian.AppendUint16(dst, uint16(len(unit))), unit...)
	}
	return dst
}

// FreeSetID returns the largest id that a sequence parameter set may have and that no parameter set of the
// configurations has. Encoders count from 0, also those sets that are only in samples.
func FreeSetID(configs ...Config) uint32 {
	used := map[uint32]bool{}
	id := uint32(31)
	for _, c := range configs {
		if c.Codec == H265 {
			id = 15
		}
		parsed, _ := c.ParameterSets()
		for _, unit := range parsed.Units {
			if key, ok := c.setKey(unit); ok {
				used[key.id] = true
			}
		}
	}
	for used[id] && id > 0 {
		id--
	}
	return id
}

// unescape removes the bytes of a NAL unit that only keep it from having a start code.
func unescape(unit []byte) []byte {
	if !bytes.Contains(unit, []byte{0, 0, 3}) {
		return unit
	}
	plain := make([]byte, 0, len(unit))
	zeros := 0
	for _, b := range unit {
		if zeros >= 2 && b == 3 {
			zeros = 0
			continue
		}
		if b == 0 {
			zeros++
		} else {
			zeros = 0
		}
		plain = append(plain, b)
	}
	return plain
}

// escape is the reverse of unescape.
func escape(plain []byte) []byte {
	unit := make([]byte, 0, len(plain)+len(plain)/64)
	zeros := 0
	for _, b := range plain {
		if zeros >= 2 && b <= 3 {
			unit, zeros = append(unit, 3), 0
		}
		if b == 0 {
			zeros++
		} else {
			zeros = 0
		}
		unit = append(unit, b)
	}
	return unit
}
