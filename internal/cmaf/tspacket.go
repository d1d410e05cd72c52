package cmaf

import "io"

const (
	tsPacket  = 188
	tsPayload = tsPacket - 4
)

// tsPackets cuts PES packets and tables into transport packets.
type tsPackets struct {
	w   io.Writer
	buf []byte
	err error // of w; after it nothing is written
}

// tsField is an adaptation field, without its length.
type tsField struct {
	data [7]byte
	size int
}

func (f *tsField) bytes() []byte { return f.data[:f.size] }

// Flags of adaptation fields.
const (
	fieldJump  = 0x80 // counters and clock do not go on
	fieldSync  = 0x40
	fieldClock = 0x10
)

func (p *tsPackets) reset(w io.Writer) {
	if p.buf == nil {
		p.buf = make([]byte, 0, 512*tsPacket)
	}
	p.w, p.buf, p.err = w, p.buf[:0], nil
}

func (p *tsPackets) flush() error {
	if p.err == nil && len(p.buf) > 0 {
		_, p.err = p.w.Write(p.buf)
	}
	p.buf = p.buf[:0]
	return p.err
}

// next returns the room for a packet, with its header. adaptation is the number of
// bytes of the adaptation field, its length included.
func (p *tsPackets) next(pid uint16, start bool, counter uint8, adaptation int) []byte {
	if len(p.buf) == cap(p.buf) {
		_ = p.flush() // the error is kept
	}
	n := len(p.buf)
	p.buf = p.buf[:n+tsPacket]
	packet := p.buf[n:]
	packet[0], packet[1], packet[2], packet[3] = 0x47, byte(pid>>8), byte(pid), counter&15
	if start {
		packet[1] |= 0x40
	}
	if adaptation < tsPayload {
		packet[3] |= 0x10
	}
	if adaptation > 0 {
		packet[3] |= 0x20
		packet[4] = byte(adaptation - 1)
		if adaptation > 1 {
			packet[5] = 0
			stuffing := packet[6 : 4+adaptation]
			for i := range stuffing {
				stuffing[i] = 0xff
			}
		}
	}
	return packet[4:]
}

// packets writes data with these adaptation fields, the first in the first packet
// and the others spread evenly. The last packet is filled up.
func (p *tsPackets) packets(pid uint16, counter *uint8, data []byte, fields []tsField) {
	told, size := 0, len(data)
	for start := true; start || len(data) > 0; start = false {
		var field []byte
		if told < len(fields) && (size-len(data))*len(fields) >= told*size {
			field = fields[told].bytes()
			told++
		}
		adaptation := 0
		if field != nil {
			adaptation = 1 + len(field)
		}
		adaptation = max(adaptation, tsPayload-len(data))
		packet := p.next(pid, start, *counter, adaptation)
		*counter = (*counter + 1) & 15
		copy(packet[min(1, adaptation):], field)
		n := copy(packet[adaptation:], data)
		data = data[n:]
	}
}

// clockField returns the adaptation field of what is decoded at that time.
func clockField(due int64, sync, jump bool) tsField {
	flags := byte(fieldClock)
	if jump {
		flags |= fieldJump
	}
	if sync {
		flags |= fieldSync
	}
	base := (due - tsLead) & tsWrap
	return tsField{[7]byte{flags, byte(base >> 25), byte(base >> 17), byte(base >> 9), byte(base >> 1), byte(base<<7) | 0x7e, 0}, 7}
}

// freshField returns the adaptation field of a packet that follows nothing.
func freshField() tsField { return tsField{[7]byte{fieldJump}, 1} }

// clock writes a packet with nothing but the clock. Such a packet is not counted:
// it repeats the counter of the one before it.
func (p *tsPackets) clock(pid uint16, counter uint8, due int64, jump bool) {
	packet := p.next(pid, false, counter-1, tsPayload)
	field := clockField(due, false, jump)
	copy(packet[1:], field.bytes())
}

// patSection returns the table that says where the table of the only program is.
func patSection() []byte {
	return tsSection(0x00, []byte{0, 1, 0xe0 | tsPIDTables>>8, tsPIDTables & 0xff})
}

// pmtSection returns the table that says which streams there are.
func pmtSection(clockPID uint16, streams ...*tsStream) []byte {
	body := []byte{0xe0 | byte(clockPID>>8), byte(clockPID), 0xf0, 0}
	for _, s := range streams {
		if s == nil {
			continue
		}
		d := s.codec.descriptors
		body = append(body, s.codec.streamType, 0xe0|byte(s.pid>>8), byte(s.pid), 0xf0, byte(len(d)))
		body = append(body, d...)
	}
	return tsSection(0x02, body)
}

// tsSection returns a table, ready to be the payload of one packet, which it fills
// to the end.
func tsSection(id byte, body []byte) []byte {
	length := 5 + len(body) + 4
	s := []byte{0, id, 0xb0 | byte(length>>8), byte(length), 0, 1, 0xc1, 0, 0}
	s = append(s, body...)
	crc := uint32(0xffffffff)
	for _, b := range s[1:] {
		crc ^= uint32(b) << 24
		for range 8 {
			if crc&(1<<31) != 0 {
				crc = crc<<1 ^ 0x04c11db7
			} else {
				crc <<= 1
			}
		}
	}
	s = append(s, byte(crc>>24), byte(crc>>16), byte(crc>>8), byte(crc))
	for len(s) < tsPayload {
		s = append(s, 0xff)
	}
	return s
}

// tsSize returns a function that reckons how big a segment of the track becomes in
// MPEG-TS.
func tsSize(t Track) func(Segment) int64 {
	codec, _ := newTSCodec(t) // what has no place in MPEG-TS has no overhead there
	packets := func(bytes int) int64 { return int64(bytes+tsPayload-1) / tsPayload }
	const pes, clock = 19, 8
	return func(s Segment) int64 {
		count := int64(2) // the tables
		if t.Kind == Audio {
			bytes := int(s.Frames()) * len(codec.adts)
			for _, p := range s.Parts {
				bytes += int(Bytes(p.Samples))
			}
			units := int(t.Time(s.Duration()).Seconds()*tsClock/tsGroup) + 1
			return tsPacket * (packets(bytes+units*pes) + int64(units))
		}
		for _, p := range s.Parts {
			for _, sample := range p.Samples {
				bytes := int(sample.Size) + pes + clock
				if codec.nal != nil {
					bytes += len(codec.nal.delimiter)
					if sample.Sync {
						bytes += len(codec.nal.parameters)
					}
				}
				count += packets(bytes)
			}
		}
		return tsPacket * count
	}
}
