package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/Eyevinn/mp4ff/av1"
)

// Types of OBUs, the units of AV1.
const (
	obuSequence  = 1
	obuDelimiter = 2
	obuHeader    = 3 // of a frame
	obuFrame     = 6
	obuPadding   = 15
)

// av1Decoder is the decoder of AV1.
type av1Decoder struct {
	change
	sequence []byte // the OBU that describes the track, with its size
}

func (d *av1Decoder) Configure(record []byte) error {
	if len(record) < av1Fixed {
		return errShortRecord
	}
	for o, err := range obus(record[av1Fixed:]) {
		if err != nil {
			return err
		}
		if o.kind == obuSequence {
			d.set(o)
		}
	}
	return nil
}

func (d *av1Decoder) set(o obu) {
	if whole := o.sized(); !bytes.Equal(whole, d.sequence) {
		d.sequence, d.changed = whole, true
	}
}

func (d *av1Decoder) Sample(frame []byte) (Sample, error) {
	var kept [][]byte
	var shown, key, described bool
	asItIs := true
	for o, err := range obus(frame) {
		if err != nil {
			return Sample{}, err
		}
		switch o.kind {
		case obuDelimiter, obuPadding:
			asItIs = false
			continue
		case obuSequence:
			d.set(o)
			described = true
		case obuHeader, obuFrame:
			if !shown {
				shown, key = true, d.key(o)
			}
		}
		kept = append(kept, o.whole)
	}
	if !shown {
		return Sample{}, nil
	}
	if key && !described {
		kept, asItIs = slices.Insert(kept, 0, d.sequence), false
	}
	if asItIs {
		return Sample{Data: frame, Sync: key}, nil
	}
	return Sample{Data: slices.Concat(kept...), Sync: key}, nil
}

// key reports whether a frame is a key frame that is shown.
func (d *av1Decoder) key(o obu) bool {
	const stillPicture = 0x08 // reduced_still_picture_header: all frames are key frames
	s, err := nextOBU(d.sequence)
	if err == nil && len(s.payload) > 0 && s.payload[0]&stillPicture != 0 {
		return true
	}
	// show_existing_frame 0, frame_type 0 (two bits), show_frame 1
	return len(o.payload) > 0 && o.payload[0]>>4 == 1
}

func (d *av1Decoder) Config() (c Config, ok bool, err error) {
	if d.sequence == nil {
		return c, false, nil
	}
	c, err = AV1Config(d.sequence)
	return c, err == nil, err
}

// av1Fixed is how many bytes of an av1C record come before its OBUs.
const av1Fixed = 4

// obu is a unit of AV1.
type obu struct {
	kind    byte
	header  []byte
	payload []byte
	whole   []byte
}

var errCutOBU = errors.New("an OBU is truncated")

// obus returns the OBUs of a sample or a record. Damaged data ends with an error.
func obus(data []byte) iter.Seq2[obu, error] {
	return func(yield func(obu, error) bool) {
		for rest := data; len(rest) > 0; {
			o, err := nextOBU(rest)
			if !yield(o, err) || err != nil {
				return
			}
			rest = rest[len(o.whole):]
		}
	}
}

// nextOBU returns the first OBU of some.
func nextOBU(data []byte) (obu, error) {
	if len(data) == 0 {
		return obu{}, errCutOBU
	}
	header := 1 + int(data[0]>>2&1)
	if len(data) < header {
		return obu{}, errCutOBU
	}
	o := obu{kind: data[0] >> 3 & 15, header: data[:header], payload: data[header:], whole: data}
	if data[0]&2 == 0 { // without a size: the last one
		return o, nil
	}
	size, n := binary.Uvarint(o.payload)
	if n <= 0 || size > uint64(len(o.payload)-n) {
		return obu{}, errCutOBU
	}
	end := header + n + int(size)
	o.payload, o.whole = data[header+n:end], data[:end]
	return o, nil
}

// sized returns the OBU with its size, as a copy.
func (o obu) sized() []byte {
	all := bytes.Clone(o.header)
	all[0] |= 2
	return append(binary.AppendUvarint(all, uint64(len(o.payload))), o.payload...)
}

// parseSequenceHeader finds the sequence header among OBUs.
func parseSequenceHeader(data []byte) (obu, *av1.SequenceHeader, error) {
	for o, err := range obus(data) {
		if err != nil {
			return obu{}, nil, err
		}
		if o.kind != obuSequence {
			continue
		}
		s, err := av1.ParseSequenceHeader(o.payload)
		if err != nil {
			err = fmt.Errorf("the sequence header can't be read: %w", err)
		}
		return o, s, err
	}
	return obu{}, nil, errors.New("there is no sequence header")
}
