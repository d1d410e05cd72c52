package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
)

// StartCode comes before each NAL unit in an Annex B stream.
const StartCode = "\x00\x00\x00\x01"

// NAL is the kind of a NAL unit of H.264 or H.265.
type NAL byte

// The kinds of NAL units.
const (
	NALOther     NAL = iota
	NALSlice         // of a frame
	NALPartition     // of a slice of H.264
	NALKeySlice      // of a frame at which decoding can start
	NALVPS
	NALSPS
	NALPPS
	NALDelimiter // of access units
	NALFiller
)

// H264NAL returns the kind of a NAL unit of H.264 (ITU-T H.264, table 7-1).
func H264NAL(unit []byte) NAL {
	if len(unit) == 0 {
		return NALOther
	}
	switch unit[0] & 31 {
	case 1:
		return NALSlice
	case 2, 3, 4:
		return NALPartition
	case 5:
		return NALKeySlice
	case 7:
		return NALSPS
	case 8:
		return NALPPS
	case 9:
		return NALDelimiter
	case 12:
		return NALFiller
	}
	return NALOther
}

// H265NAL returns the kind of a NAL unit of H.265 (ITU-T H.265, table 7-1).
func H265NAL(unit []byte) NAL {
	if len(unit) == 0 {
		return NALOther
	}
	switch t := unit[0] >> 1 & 63; {
	case t >= 16 && t <= 23:
		return NALKeySlice
	case t < 32:
		return NALSlice
	case t == 32:
		return NALVPS
	case t == 33:
		return NALSPS
	case t == 34:
		return NALPPS
	case t == 35:
		return NALDelimiter
	case t == 38:
		return NALFiller
	}
	return NALOther
}

// ParameterSet reports whether a NAL unit is a parameter set.
func (n NAL) ParameterSet() bool { return n == NALVPS || n == NALSPS || n == NALPPS }

// Units returns the NAL units of a sample, in which each has its length before it, in
// lengthSize bytes. A unit may be empty. A damaged sample ends with an error.
func Units(sample []byte, lengthSize int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for rest := sample; len(rest) > 0; {
			var unit []byte
			var err error
			unit, rest, err = cutUnit(rest, lengthSize)
			if !yield(unit, err) || err != nil {
				return
			}
		}
	}
}

var errCutLength = errors.New("the length of a NAL unit is truncated")

func cutUnit(data []byte, lengthSize int) (unit, rest []byte, err error) {
	if len(data) < lengthSize || lengthSize < 1 {
		return nil, nil, errCutLength
	}
	var size uint64
	for _, b := range data[:lengthSize] {
		size = size<<8 | uint64(b)
	}
	rest = data[lengthSize:]
	if size > uint64(len(rest)) {
		return nil, nil, fmt.Errorf("a NAL unit of %d bytes where %d are left", size, len(rest))
	}
	return rest[:size], rest[size:], nil
}

// AppendUnit appends a NAL unit with its length before it, in four bytes.
func AppendUnit(dst, unit []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(unit))), unit...)
}

// FromAnnexB returns the NAL units of an Annex B stream as a sample has them: with their
// lengths before them, in four bytes. It returns nil where there is no start code.
func FromAnnexB(stream []byte) []byte {
	startCode := []byte(StartCode)[1:] // the first zero may be missing
	_, rest, more := bytes.Cut(stream, startCode)
	if !more {
		return nil
	}
	units := make([]byte, 0, len(stream)+16)
	for more {
		var unit []byte
		unit, rest, more = bytes.Cut(rest, startCode)
		if unit = bytes.TrimRight(unit, "\x00"); len(unit) > 0 {
			units = AppendUnit(units, unit)
		}
	}
	return units
}

// ParameterSets has the content of an avcC or hvcC record.
type ParameterSets struct {
	LengthSize int      // bytes of the length before each NAL unit of a sample
	Units      [][]byte // VPS, SPS and PPS, in the order of the record, whose bytes they are
}

var errShortRecord = errors.New("the configuration record ends too early")

// ParseAVCC reads an avcC record.
func ParseAVCC(record []byte) (ParameterSets, error) {
	if len(record) < 6 {
		return ParameterSets{}, errShortRecord
	}
	p := ParameterSets{LengthSize: int(record[4]&3) + 1}
	rest, err := p.readUnits(record[6:], int(record[5]&31), H264NAL)
	if err != nil || len(rest) == 0 {
		return ParameterSets{}, errShortRecord
	}
	_, err = p.readUnits(rest[1:], int(rest[0]), H264NAL)
	return p, err
}

// ParseHVCC reads an hvcC record.
func ParseHVCC(record []byte) (ParameterSets, error) {
	if len(record) < 23 {
		return ParameterSets{}, errShortRecord
	}
	p := ParameterSets{LengthSize: int(record[21]&3) + 1}
	rest, err := record[23:], error(nil)
	for range record[22] {
		if len(rest) < 3 {
			return ParameterSets{}, errShortRecord
		}
		count := int(binary.BigEndian.Uint16(rest[1:]))
		if rest, err = p.readUnits(rest[3:], count, H265NAL); err != nil {
			return ParameterSets{}, err
		}
	}
	return p, nil
}

// readUnits reads NAL units with lengths of two bytes, and keeps the parameter sets.
func (p *ParameterSets) readUnits(data []byte, count int, kind func([]byte) NAL) (_ []byte, err error) {
	for range count {
		var unit []byte
		if unit, data, err = cutUnit(data, 2); err != nil {
			return nil, errShortRecord
		}
		if kind(unit).ParameterSet() {
			p.Units = append(p.Units, unit)
		}
	}
	return data, nil
}

// AnnexB returns the parameter sets with start codes before them.
func (p ParameterSets) AnnexB() (stream []byte) {
	for _, unit := range p.Units {
		stream = append(append(stream, StartCode...), unit...)
	}
	return stream
}

// Prefixed returns the parameter sets as the samples of their track have NAL units: with
// their lengths before them, in LengthSize bytes.
func (p ParameterSets) Prefixed() (units []byte) {
	for _, unit := range p.Units {
		length := binary.BigEndian.AppendUint32(nil, uint32(len(unit)))
		units = append(append(units, length[4-p.LengthSize:]...), unit...)
	}
	return units
}
