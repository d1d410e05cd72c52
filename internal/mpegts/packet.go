package mpegts

import "io"

// parsePayload returns the payload of a packet. jumps says that its counter does not continue that
// of the packet before it.
func parsePayload(p []byte) (payload []byte, jumps, ok bool) {
	const hasPayload, hasField = 0x10, 0x20
	payload = p[headerSize:]
	if p[3]&hasField != 0 {
		size := int(p[4])
		if 1+size > len(payload) {
			return nil, false, false
		}
		jumps = size > 0 && p[5]&fieldJump != 0
		payload = payload[1+size:]
	}
	return payload, jumps, p[3]&hasPayload != 0 && len(payload) > 0
}

// packetWriter cuts PES packets and tables into transport packets.
type packetWriter struct {
	w   io.Writer
	buf []byte
	err error // of w; after it nothing is written
}

// field is an adaptation field, without its length.
type field struct {
	data [7]byte
	size int
}

func (f *field) bytes() []byte { return f.data[:f.size] }

// Flags of adaptation fields.
const (
	fieldJump  = 0x80 // the counter and the clock start again
	fieldSync  = 0x40
	fieldClock = 0x10
)

func (p *packetWriter) reset(w io.Writer) {
	if p.buf == nil {
		p.buf = make([]byte, 0, 512*PacketSize)
	}
	p.w, p.buf, p.err = w, p.buf[:0], nil
}

func (p *packetWriter) flush() error {
	if p.err == nil && len(p.buf) > 0 {
		_, p.err = p.w.Write(p.buf)
	}
	p.buf = p.buf[:0]
	return p.err
}

// next appends a packet and returns the bytes behind its header. adaptation is the size of the
// adaptation field, its length byte included; the field is filled with stuffing.
func (p *packetWriter) next(pid uint16, start bool, counter uint8, adaptation int) []byte {
	if len(p.buf) == cap(p.buf) {
		_ = p.flush() // p.err keeps the error
	}
	n := len(p.buf)
	p.buf = p.buf[:n+PacketSize]
	packet := p.buf[n:]
	packet[0], packet[1], packet[2], packet[3] = syncByte, byte(pid>>8), byte(pid), counter&15
	if start {
		packet[1] |= 0x40
	}
	if adaptation < payloadSize {
		packet[3] |= 0x10
	}
	if adaptation > 0 {
		packet[3] |= 0x20
		packet[4] = byte(adaptation - 1)
		if adaptation > 1 {
			packet[5] = 0
			stuffing := packet[6 : headerSize+adaptation]
			for i := range stuffing {
				stuffing[i] = 0xFF
			}
		}
	}
	return packet[headerSize:]
}

// packets writes data with these adaptation fields: the first one in the first packet, the others
// spread evenly. The last packet is stuffed.
func (p *packetWriter) packets(pid uint16, counter *uint8, data []byte, fields []field) {
	written, size := 0, len(data)
	for start := true; start || len(data) > 0; start = false {
		var f []byte
		if written < len(fields) && (size-len(data))*len(fields) >= written*size {
			f = fields[written].bytes()
			written++
		}
		adaptation := max(0, payloadSize-len(data))
		if f != nil {
			adaptation = max(adaptation, 1+len(f))
		}
		packet := p.next(pid, start, *counter, adaptation)
		*counter = (*counter + 1) & 15
		copy(packet[min(1, adaptation):], f)
		n := copy(packet[adaptation:], data)
		data = data[n:]
	}
}

// clockField returns an adaptation field with the clock value of a frame that is decoded at due.
func clockField(due int64, sync, jump bool) field {
	flags := byte(fieldClock)
	if jump {
		flags |= fieldJump
	}
	if sync {
		flags |= fieldSync
	}
	base := (due - clockLead) & (1<<stampBits - 1)
	return field{[7]byte{
		flags, byte(base >> 25), byte(base >> 17), byte(base >> 9), byte(base >> 1), byte(base<<7) | 0x7E, 0,
	}, 7}
}

// jumpField returns the adaptation field of the first packet of a track.
func jumpField() field { return field{[7]byte{fieldJump}, 1} }

// clock writes a packet that has only a clock value. It has no payload, so it repeats the counter
// of the packet before it.
func (p *packetWriter) clock(pid uint16, counter uint8, due int64, jump bool) {
	packet := p.next(pid, false, counter-1, payloadSize)
	f := clockField(due, false, jump)
	copy(packet[1:], f.bytes())
}
