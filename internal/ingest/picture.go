package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
)

// decoder knows a codec well enough to make samples of what encoders send.
type decoder interface {
	// configure takes what is sent ahead of the frames.
	configure(config []byte) error
	// sample makes a sample of a frame, which is the decoder's from here on. A sample
	// without data is none.
	sample(frame []byte) (unit, error)
	// changed reports whether the track is another one than at the call before.
	changed() bool
	// track describes the track; ok is false as long as too little is known.
	track() (t cmaf.Track, ok bool, err error)
}

// unit is a sample.
type unit struct {
	data  []byte
	sync  bool // decoding can start here
	count int64
	rate  int64 // it lasts count/rate seconds; 0 = only the next one will tell
}

// newDecoder returns the decoder of a codec, nil if there is none.
func newDecoder(name string) decoder {
	switch name {
	case codec.H264:
		return &nalDecoder{lengthSize: 4}
	case codec.H265:
		return &nalDecoder{lengthSize: 4, h265: true}
	case codec.AV1:
		return &av1Decoder{}
	case codec.AAC:
		return &aacDecoder{}
	case codec.Opus:
		return &opusDecoder{}
	}
	return nil
}

// What a NAL unit is.
type nalKind int

const (
	nalOther nalKind = iota
	nalPicture
	nalKey     // a picture with which decoding can start
	nalLeftOut // means nothing in a file
	nalVPS
	nalSPS
	nalPPS
)

// maxSets is how many bytes of parameter sets beside those of the track are kept.
const maxSets = 16 << 10

// nalDecoder is the decoder of H.264 and H.265, whose frames are NAL units with their
// lengths in front.
//
// Parameter sets belong to the track. Encoders repeat them in the stream, where they are
// left out, or change them there, which makes it another track. The track has one of
// each; encoders that use several picture parameter sets get the others put in front of
// each key frame.
type nalDecoder struct {
	h265          bool
	lengthSize    int
	vps, sps, pps []byte
	others        []pictureSet
	insert        bool // others changed, so they must be in front of the next picture
	isChanged     bool
}

type pictureSet struct {
	id  uint32
	nal []byte
}

func (d *nalDecoder) configure(config []byte) error {
	lengthSize, nals, err := parameterSets(config, d.h265)
	if err != nil {
		return err
	}
	d.lengthSize = lengthSize
	for _, nal := range nals {
		if err := d.set(nal); err != nil {
			return err
		}
	}
	return nil
}

var errShortConfig = errors.New("what is sent ahead of the pictures ends too early")

// parameterSets returns what an avcC or hvcC record says.
func parameterSets(config []byte, h265 bool) (lengthSize int, nals [][]byte, err error) {
	fixed, lengthAt := 6, 4
	if h265 {
		fixed, lengthAt = 23, 21
	}
	if len(config) < fixed {
		return 0, nil, errShortConfig
	}
	lengthSize = int(config[lengthAt]&3) + 1
	b := reader{config[fixed:]}
	take := func(count int) error {
		for range count {
			size, err := b.take(2)
			if err != nil {
				return errShortConfig
			}
			nal, err := b.take(int(binary.BigEndian.Uint16(size)))
			if err != nil {
				return errShortConfig
			}
			nals = append(nals, nal)
		}
		return nil
	}
	if !h265 {
		if err := take(int(config[5] & 31)); err != nil {
			return 0, nil, err
		}
		count, err := b.byte()
		if err != nil {
			return 0, nil, errShortConfig
		}
		return lengthSize, nals, take(int(count))
	}
	for range int(config[22]) {
		array, err := b.take(3)
		if err != nil {
			return 0, nil, errShortConfig
		}
		if err := take(int(binary.BigEndian.Uint16(array[1:]))); err != nil {
			return 0, nil, err
		}
	}
	return lengthSize, nals, nil
}

func (d *nalDecoder) sample(frame []byte) (unit, error) {
	var nals [16][]byte
	kept := nals[:0]
	var size int
	var picture, key bool
	asItIs := d.lengthSize == 4
	for rest := frame; len(rest) > 0; {
		if len(rest) < d.lengthSize {
			return unit{}, errors.New("the length of a NAL unit is cut off")
		}
		var length int
		for _, b := range rest[:d.lengthSize] {
			length = length<<8 | int(b)
		}
		rest = rest[d.lengthSize:]
		if length > len(rest) {
			return unit{}, fmt.Errorf("a NAL unit of %d bytes where %d are left", length, len(rest))
		}
		nal := rest[:length]
		rest = rest[length:]
		switch kind := d.kind(nal); kind {
		case nalLeftOut:
			asItIs = false
			continue
		case nalVPS, nalSPS, nalPPS:
			if err := d.set(nal); err != nil {
				return unit{}, err
			}
			asItIs = false
			continue
		case nalPicture, nalKey:
			picture, key = true, key || kind == nalKey
		}
		kept, size = append(kept, nal), size+4+length
	}
	if !picture {
		return unit{}, nil
	}
	if len(d.others) > 0 && (key || d.insert) {
		sets := make([][]byte, 0, len(d.others)+len(kept))
		for _, other := range d.others {
			sets, size = append(sets, other.nal), size+4+len(other.nal)
		}
		kept, asItIs = append(sets, kept...), false
	}
	d.insert = false
	if asItIs {
		return unit{data: frame, sync: key}, nil
	}
	data := make([]byte, 0, size)
	for _, nal := range kept {
		data = binary.BigEndian.AppendUint32(data, uint32(len(nal)))
		data = append(data, nal...)
	}
	return unit{data: data, sync: key}, nil
}

func (d *nalDecoder) kind(nal []byte) nalKind {
	if len(nal) < 2 {
		return nalLeftOut
	}
	if d.h265 {
		switch t := nal[0] >> 1 & 0x3F; {
		case t >= 16 && t <= 23:
			return nalKey
		case t < 32:
			return nalPicture
		case t == 32:
			return nalVPS
		case t == 33:
			return nalSPS
		case t == 34:
			return nalPPS
		case t == 35 || t == 38: // delimiter, filler
			return nalLeftOut
		}
		return nalOther
	}
	switch t := nal[0] & 0x1F; {
	case t == 5:
		return nalKey
	case t >= 1 && t < 5:
		return nalPicture
	case t == 7:
		return nalSPS
	case t == 8:
		return nalPPS
	case t == 9 || t == 12: // delimiter, filler
		return nalLeftOut
	}
	return nalOther
}

// set takes a parameter set.
func (d *nalDecoder) set(nal []byte) error {
	var slot *[]byte
	switch d.kind(nal) {
	case nalVPS:
		slot = &d.vps
	case nalSPS:
		slot = &d.sps
	case nalPPS:
		if slot = &d.pps; d.pps != nil && d.pictureSetID(nal) != d.pictureSetID(d.pps) {
			return d.setOther(nal)
		}
	default:
		return nil
	}
	if bytes.Equal(*slot, nal) {
		return nil
	}
	if slot == &d.sps {
		// The picture parameter sets were of the old one.
		d.pps, d.others = nil, nil
	}
	*slot, d.isChanged = bytes.Clone(nal), true
	return nil
}

// setOther takes a picture parameter set that is not the track's.
func (d *nalDecoder) setOther(nal []byte) error {
	id, total := d.pictureSetID(nal), len(nal)
	for i, other := range d.others {
		if other.id != id {
			total += len(other.nal)
			continue
		}
		if bytes.Equal(other.nal, nal) {
			return nil
		}
		d.others = slices.Delete(d.others, i, i+1)
		return d.setOther(nal)
	}
	if total > maxSets {
		return fmt.Errorf("more than %d bytes of parameter sets", maxSets)
	}
	d.others, d.insert = append(d.others, pictureSet{id, bytes.Clone(nal)}), true
	return nil
}

// pictureSetID returns the number of a picture parameter set: the first that stands in
// it, in Exp-Golomb code.
func (d *nalDecoder) pictureSetID(nal []byte) uint32 {
	header := 1
	if d.h265 {
		header = 2
	}
	var bits uint64 // the numbers that exist have at most 15 bits
	for i := range 4 {
		bits <<= 8
		if header+i < len(nal) {
			bits |= uint64(nal[header+i])
		}
	}
	zeros := 0
	for zeros < 15 && bits>>(31-zeros)&1 == 0 {
		zeros++
	}
	return uint32(bits>>(31-2*zeros)&(1<<(zeros+1)-1)) - 1
}

func (d *nalDecoder) changed() bool {
	was := d.isChanged
	d.isChanged = false
	return was
}

func (d *nalDecoder) track() (t cmaf.Track, ok bool, err error) {
	switch {
	case d.sps == nil || d.pps == nil || d.h265 && d.vps == nil:
		return t, false, nil
	case d.h265:
		t, err = cmaf.H265Track(d.vps, d.sps, d.pps)
	default:
		t, err = cmaf.H264Track(d.sps, d.pps)
	}
	return t, err == nil, err
}

// Kinds of OBUs, the units of AV1.
const (
	obuSequence  = 1
	obuDelimiter = 2
	obuHeader    = 3 // of a frame
	obuFrame     = 6
	obuPadding   = 15
)

// av1Decoder is the decoder of AV1.
type av1Decoder struct {
	sequence  []byte // the OBU that describes the track, with its size
	isChanged bool
}

func (d *av1Decoder) configure(config []byte) error {
	if len(config) < 4 {
		return errShortConfig
	}
	for rest := config[4:]; len(rest) > 0; {
		o, err := nextOBU(rest)
		if err != nil {
			return err
		}
		rest = rest[len(o.whole):]
		if o.kind == obuSequence {
			d.set(o)
		}
	}
	return nil
}

func (d *av1Decoder) set(o obu) {
	if whole := o.sized(); !bytes.Equal(whole, d.sequence) {
		d.sequence, d.isChanged = whole, true
	}
}

func (d *av1Decoder) sample(frame []byte) (unit, error) {
	var kept [][]byte
	var picture, key, described bool
	asItIs := true
	for rest := frame; len(rest) > 0; {
		o, err := nextOBU(rest)
		if err != nil {
			return unit{}, err
		}
		rest = rest[len(o.whole):]
		switch o.kind {
		case obuDelimiter, obuPadding:
			asItIs = false
			continue
		case obuSequence:
			d.set(o)
			described = true
		case obuHeader, obuFrame:
			if !picture {
				picture, key = true, d.key(o)
			}
		}
		kept = append(kept, o.whole)
	}
	if !picture {
		return unit{}, nil
	}
	if key && !described {
		kept, asItIs = slices.Insert(kept, 0, d.sequence), false
	}
	if asItIs {
		return unit{data: frame, sync: key}, nil
	}
	return unit{data: slices.Concat(kept...), sync: key}, nil
}

// key reports whether a frame is a key frame that is shown.
func (d *av1Decoder) key(o obu) bool {
	const stillPicture = 0x08 // reduced_still_picture_header: all frames are key frames
	if s, err := nextOBU(d.sequence); err == nil && len(s.payload) > 0 && s.payload[0]&stillPicture != 0 {
		return true
	}
	// show_existing_frame 0, frame_type 0 (two bits), show_frame 1
	return len(o.payload) > 0 && o.payload[0]>>4 == 1
}

func (d *av1Decoder) changed() bool {
	was := d.isChanged
	d.isChanged = false
	return was
}

func (d *av1Decoder) track() (t cmaf.Track, ok bool, err error) {
	if d.sequence == nil {
		return t, false, nil
	}
	t, err = cmaf.AV1Track(d.sequence)
	return t, err == nil, err
}

// obu is a unit of AV1.
type obu struct {
	kind    byte
	header  []byte
	payload []byte
	whole   []byte
}

// nextOBU returns the first OBU of some.
func nextOBU(data []byte) (obu, error) {
	errShort := errors.New("an OBU is cut off")
	if len(data) == 0 {
		return obu{}, errShort
	}
	header := 1 + int(data[0]>>2&1)
	if len(data) < header {
		return obu{}, errShort
	}
	o := obu{kind: data[0] >> 3 & 15, header: data[:header], payload: data[header:], whole: data}
	if data[0]&2 == 0 { // without a size: the last one
		return o, nil
	}
	size, n := binary.Uvarint(o.payload)
	if n <= 0 || size > uint64(len(o.payload)-n) {
		return obu{}, errShort
	}
	end := header + n + int(size)
	o.payload, o.whole = data[header+n:end], data[:end]
	return o, nil
}

// sized returns the OBU with its size, as a copy.
func (o obu) sized() []byte {
	if o.header[0]&2 != 0 {
		return bytes.Clone(o.whole)
	}
	all := bytes.Clone(o.header)
	all[0] |= 2
	return append(binary.AppendUvarint(all, uint64(len(o.payload))), o.payload...)
}

// duration returns how long n of so many a second last.
func duration(n, rate int64) time.Duration {
	whole := n / rate * int64(time.Second)
	return time.Duration(whole + n%rate*int64(time.Second)/rate)
}

// reader reads the bytes of a configuration record.
type reader struct{ rest []byte }

func (b *reader) take(n int) ([]byte, error) {
	if len(b.rest) < n {
		return nil, errShortRecord
	}
	taken := b.rest[:n:n]
	b.rest = b.rest[n:]
	return taken, nil
}

func (b *reader) byte() (byte, error) {
	taken, err := b.take(1)
	if err != nil {
		return 0, err
	}
	return taken[0], nil
}

var errShortRecord = errors.New("a configuration record ends too early")
