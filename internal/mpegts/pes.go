package mpegts

// pes is the content of a PES packet: one frame of video, or some frames of audio.
type pes struct {
	pts, dts uint64 // of 33 bits
	timed    bool   // it has time stamps
	data     []byte
}

func parsePES(b []byte) (p pes, ok bool) {
	const scrambled = 0x30
	if len(b) < 9 || string(b[:3]) != "\x00\x00\x01" || b[6]&0xC0 != 0x80 || b[6]&scrambled != 0 {
		return p, false
	}
	header := 9 + int(b[8])
	if len(b) < header {
		return p, false
	}
	switch flags := b[7] >> 6; {
	case flags == 2 && header >= 14:
		p.pts = parseStamp(b[9:])
		p.dts, p.timed = p.pts, true
	case flags == 3 && header >= 19:
		p.pts, p.dts, p.timed = parseStamp(b[9:]), parseStamp(b[14:]), true
	}
	p.data = b[header:]
	return p, true
}

// appendPESHeader appends the header of a PES packet whose payload starts with a frame. finishPES
// sets its length.
func appendPESHeader(dst []byte, streamID byte, pts, dts int64) []byte {
	const aligned = 0x84
	if pts == dts {
		dst = append(dst, 0, 0, 1, streamID, 0, 0, aligned, 0x80, 5)
		return appendStamp(dst, 0x20, pts)
	}
	dst = append(dst, 0, 0, 1, streamID, 0, 0, aligned, 0xC0, 10)
	return appendStamp(appendStamp(dst, 0x30, pts), 0x10, dts)
}

// finishPES sets the length of a PES packet, unless it does not fit.
func finishPES(b []byte) {
	if n := len(b) - 6; n <= 0xFFFF {
		b[4], b[5] = byte(n>>8), byte(n)
	}
}

// appendStamp appends a time stamp behind a prefix of four bits.
func appendStamp(dst []byte, prefix byte, t int64) []byte {
	t &= 1<<stampBits - 1
	return append(dst, prefix|byte(t>>29)&0x0E|1, byte(t>>22), byte(t>>14)|1, byte(t>>7), byte(t<<1)|1)
}

func parseStamp(b []byte) uint64 {
	return uint64(b[0]>>1&7)<<30 |
		uint64(b[1])<<22 | uint64(b[2]>>1)<<15 |
		uint64(b[3])<<7 | uint64(b[4]>>1)
}

// pesSize returns the length of the PES packet that starts with b, if it is known.
func pesSize(b []byte) (size int, ok bool) {
	if len(b) < 6 {
		return 0, false
	}
	size = int(b[4])<<8 | int(b[5])
	return 6 + size, size > 0
}
