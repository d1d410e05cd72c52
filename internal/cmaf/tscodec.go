package cmaf

import (
	"encoding/binary"

	"weir/internal/codec"
	"weir/internal/weir"
)

// tsCodec says how the samples of a codec become the frames of a transport
// stream.
type tsCodec struct {
	streamType  byte
	streamID    byte
	descriptors []byte

	nal  *nalForm // of H.264 and HEVC
	adts []byte   // of AAC: the header of a frame, without its length
}

// nalForm is how the NAL units of a codec are told apart.
type nalForm struct {
	lengthSize int
	hevc       bool
	delimiter  []byte // starts every access unit
	parameters []byte // stand before every sync sample; with start codes
}

// newTSCodec reads the sample entry of a track.
func newTSCodec(t Track) (tsCodec, error) {
	if len(t.Entry) < 8 {
		return tsCodec{}, weir.Errorf(weir.Invalid, "the track has no sample entry")
	}
	switch name := string(t.Entry[4:8]); name {
	case "avc1", "avc3", "hvc1", "hev1":
		return newTSVideo(t.Entry, name[0] == 'h')
	case "mp4a":
		c, err := newTSAudio(t.Entry)
		c.describeLanguage(t.Language)
		return c, err
	case "ac-3", "ec-3":
		c := tsCodec{streamType: 0x81, streamID: 0xbd, descriptors: []byte("\x05\x04AC-3")}
		if name == "ec-3" {
			c.streamType, c.descriptors = 0x87, []byte("\x05\x04EAC3")
		}
		c.describeLanguage(t.Language)
		return c, nil
	default:
		return tsCodec{}, weir.Errorf(weir.Invalid, "%s has no place in MPEG-TS; use CMAF segments for it", t.Codec)
	}
}

func (c *tsCodec) describeLanguage(language string) {
	if len(language) == 3 && language != "und" {
		c.descriptors = append(append(c.descriptors, 0x0a, 4), language...)
		c.descriptors = append(c.descriptors, 0)
	}
}

// appendFrame appends a sample in the form that it has in a transport stream.
func (c *tsCodec) appendFrame(dst, sample []byte, sync bool) ([]byte, error) {
	switch {
	case c.nal != nil:
		return c.nal.appendAccessUnit(dst, sample, sync)
	case c.adts != nil:
		return appendADTS(dst, c.adts, sample)
	}
	return append(dst, sample...), nil
}

// Where the boxes inside a sample entry start.
const (
	visualEntry = 86
	audioEntry  = 36
)

// entryBox returns the body of a box inside a sample entry, nil if it has none.
// skip is the number of bytes before the first box.
func entryBox(entry []byte, skip int, name string) []byte {
	if len(entry) < skip {
		return nil
	}
	return child(entry[skip:], name)
}

func newTSVideo(entry []byte, hevc bool) (tsCodec, error) {
	n := &nalForm{hevc: hevc, delimiter: []byte{0, 0, 0, 1, avcDelimiter, 0xf0}}
	c := tsCodec{streamType: 0x1b, streamID: 0xe0, nal: n}
	box, read := "avcC", n.readAVC
	if hevc {
		n.delimiter = []byte{0, 0, 0, 1, hevcDelimiter << 1, 1, 0x50}
		c.streamType, c.descriptors = 0x24, []byte("\x05\x04HEVC")
		box, read = "hvcC", n.readHEVC
	}
	if !read(entryBox(entry, visualEntry, box)) {
		return tsCodec{}, weir.Errorf(weir.Invalid, "the %s box of the video track can't be read", box)
	}
	return c, nil
}

// The types of NAL units that matter here.
const (
	avcSPS       = 7
	avcPPS       = 8
	avcDelimiter = 9

	hevcVPS       = 32
	hevcSPS       = 33
	hevcPPS       = 34
	hevcDelimiter = 35
)

func hevcType(first byte) byte { return first >> 1 & 63 }

// readAVC reads an avcC box.
func (n *nalForm) readAVC(box []byte) bool {
	if len(box) < 6 || box[0] != 1 {
		return false
	}
	n.lengthSize = int(box[4]&3) + 1
	in := &bytesReader{data: box[5:]}
	n.readSets(in, int(in.u8()&31)) // sequence parameter sets
	n.readSets(in, int(in.u8()))    // picture parameter sets
	return !in.short && n.lengthSize != 3
}

// readHEVC reads an hvcC box.
func (n *nalForm) readHEVC(box []byte) bool {
	if len(box) < 23 || box[0] != 1 {
		return false
	}
	n.lengthSize = int(box[21]&3) + 1
	in := &bytesReader{data: box[22:]}
	for range in.u8() {
		in.u8()
		n.readSets(in, int(in.u16()))
	}
	return !in.short && n.lengthSize != 3
}

// readSets reads NAL units and keeps the parameter sets.
func (n *nalForm) readSets(in *bytesReader, count int) {
	for range count {
		unit := in.take(int(in.u16()))
		if in.short || len(unit) == 0 {
			in.short = true
			return
		}
		if _, parameter := n.kind(unit[0]); parameter {
			n.parameters = append(append(n.parameters, 0, 0, 0, 1), unit...)
		}
	}
}

// kind says whether a NAL unit, told by its first byte, is a delimiter of access
// units or a parameter set.
func (n *nalForm) kind(first byte) (delimiter, parameter bool) {
	if n.hevc {
		t := hevcType(first)
		return t == hevcDelimiter, t == hevcVPS || t == hevcSPS || t == hevcPPS
	}
	t := first & 31
	return t == avcDelimiter, t == avcSPS || t == avcPPS
}

// appendAccessUnit appends a sample, whose NAL units have their lengths before
// them, with start codes before them instead.
func (n *nalForm) appendAccessUnit(dst, sample []byte, sync bool) ([]byte, error) {
	dst = append(dst, n.delimiter...)
	if sync {
		dst = append(dst, n.parameters...)
	}
	for rest := sample; len(rest) > 0; {
		var unit []byte
		var ok bool
		if unit, rest, ok = CutUnit(rest, n.lengthSize); !ok {
			return nil, errNAL()
		}
		if len(unit) == 0 {
			continue
		}
		if delimiter, _ := n.kind(unit[0]); !delimiter {
			dst = append(dst, 0, 0, 0, 1)
			dst = append(dst, unit...)
		}
	}
	return dst, nil
}

// CutUnit takes the first NAL unit off a sample, in which each has its length before it in
// so many bytes; false = the sample is damaged. A unit may be empty.
func CutUnit(sample []byte, lengthSize int) (unit, rest []byte, ok bool) {
	if len(sample) < lengthSize {
		return nil, nil, false
	}
	size := uint64(0)
	for _, b := range sample[:lengthSize] {
		size = size<<8 | uint64(b)
	}
	rest = sample[lengthSize:]
	if size > uint64(len(rest)) {
		return nil, nil, false
	}
	return rest[:size], rest[size:], true
}

func errNAL() error {
	return weir.Errorf(weir.Invalid, "a video sample is damaged: the lengths of its NAL units don't add up")
}

// newTSAudio reads the esds box of AAC or MP3.
func newTSAudio(entry []byte) (tsCodec, error) {
	var object byte
	var specific []byte
	if len(entry) >= audioEntry {
		version := binary.BigEndian.Uint16(entry[16:])
		object, specific = codec.ParseESDS(child(audioBoxes(entry[audioEntry:], version), "esds"))
	}
	switch object {
	case 0x40, 0x66, 0x67, 0x68: // AAC of MPEG-4 and MPEG-2
		adts, err := adtsHeader(specific)
		return tsCodec{streamType: 0x0f, streamID: 0xc0, adts: adts}, err
	case 0x6b: // MP3
		return tsCodec{streamType: 0x03, streamID: 0xc0}, nil
	case 0x69: // MP3 with half the sample rate
		return tsCodec{streamType: 0x04, streamID: 0xc0}, nil
	}
	return tsCodec{}, weir.Errorf(weir.Invalid, "the audio track names no codec that MPEG-TS knows (%#x)", object)
}

// adtsHeader returns the header of AAC frames with this AudioSpecificConfig.
// HE-AAC is announced as the AAC-LC that it is built on; decoders find the rest.
func adtsHeader(config []byte) ([]byte, error) {
	if len(config) < 2 {
		return nil, weir.Errorf(weir.Invalid, "the audio track has no AudioSpecificConfig")
	}
	object, frequency, channels := config[0]>>3, config[0]&7<<1|config[1]>>7, config[1]>>3&15
	if object == 5 || object == 29 { // HE-AAC
		object = 2
	}
	switch {
	case object < 1 || object > 4:
		return nil, weir.Errorf(weir.Invalid, "AAC of object type %d has no place in MPEG-TS", object)
	case frequency > 12:
		return nil, weir.Errorf(weir.Invalid, "AAC with an odd sample rate has no place in MPEG-TS")
	case channels < 1 || channels > 7:
		return nil, weir.Errorf(weir.Invalid, "AAC with an odd layout of channels has no place in MPEG-TS")
	}
	return []byte{0xff, 0xf1, (object-1)<<6 | frequency<<2 | channels>>2, channels << 6, 0, 0x1f, 0xfc}, nil
}

// appendADTS appends a frame of AAC behind a header with its length.
func appendADTS(dst, header, frame []byte) ([]byte, error) {
	size := len(header) + len(frame)
	if size > 1<<13-1 {
		return nil, weir.Errorf(weir.Invalid, "an AAC frame of %d bytes is too long for MPEG-TS", len(frame))
	}
	n := len(dst)
	dst = append(append(dst, header...), frame...)
	dst[n+3] |= byte(size >> 11)
	dst[n+4] = byte(size >> 3)
	dst[n+5] |= byte(size << 5)
	return dst, nil
}
