package mpegts

import (
	"bytes"
	"encoding/binary"
)

// maxSection is the maximum length of a section of a table.
const maxSection = 1024

// The identifiers of tables.
const (
	tablePrograms = 0x00 // PAT
	tableTracks   = 0x02 // PMT
)

// crc32 returns the checksum of a section; with the checksum that it ends with it is 0.
func crc32(section []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range section {
		crc ^= uint32(b) << 24
		for range 8 {
			if crc&(1<<31) != 0 {
				crc = crc<<1 ^ 0x04C11DB7
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// patSection returns the program table: it names the track table of the only program.
func patSection() []byte {
	return newSection(tablePrograms, []byte{0, 1, 0xE0 | pidTables>>8, pidTables & 0xFF})
}

// pmtSection returns the track table.
func pmtSection(clockPID uint16, tracks ...*muxTrack) []byte {
	body := []byte{0xE0 | byte(clockPID>>8), byte(clockPID), 0xF0, 0}
	for _, s := range tracks {
		if s == nil {
			continue
		}
		body = append(body, s.streamType, 0xE0|byte(s.pid>>8), byte(s.pid))
		body = append(body, 0xF0, byte(len(s.descriptors)))
		body = append(body, s.descriptors...)
	}
	return newSection(tableTracks, body)
}

// newSection returns a table as the payload of one packet, stuffed to its end.
func newSection(id byte, body []byte) []byte {
	length := 5 + len(body) + 4
	s := make([]byte, 0, payloadSize)
	s = append(s, 0, id, 0xB0|byte(length>>8), byte(length), 0, 1, 0xC1, 0, 0)
	s = append(s, body...)
	s = binary.BigEndian.AppendUint32(s, crc32(s[1:]))
	return append(s, bytes.Repeat([]byte{0xFF}, payloadSize-len(s))...)
}

// sectionReader collects the sections of a table from the packets that carry it.
type sectionReader struct {
	pid     uint16
	counter int // of its packets, modulo 16; -1 = not known
	data    []byte
	begun   bool
}

func (r *sectionReader) reset() { r.data, r.begun, r.counter = r.data[:0], false, -1 }

// add takes the payload of a packet and gives each complete section to take.
func (r *sectionReader) add(payload []byte, starts bool, counter int, take func(section []byte)) {
	if counter == r.counter {
		return // a duplicate
	}
	if r.counter >= 0 && counter != (r.counter+1)&15 {
		r.data, r.begun = r.data[:0], false
	}
	r.counter = counter
	if starts {
		before := int(payload[0])
		if payload = payload[1:]; before > len(payload) {
			r.data, r.begun = r.data[:0], false
			return
		}
		if r.begun {
			r.data = append(r.data, payload[:before]...)
			r.takeSections(take)
		}
		r.data, r.begun, payload = r.data[:0], true, payload[before:]
	}
	if !r.begun {
		return
	}
	r.data = append(r.data, payload...)
	r.takeSections(take)
}

func (r *sectionReader) takeSections(take func(section []byte)) {
	const stuffing = 0xFF
	rest := r.data
	for r.begun && len(rest) >= 3 {
		size := 3 + int(binary.BigEndian.Uint16(rest[1:])&0xFFF)
		if rest[0] == stuffing || size > maxSection {
			r.begun = false
			break
		}
		if len(rest) < size {
			break
		}
		// A section that announces the next version is not used yet.
		if s := rest[:size]; size >= 12 && s[1]&0x80 != 0 && s[5]&1 != 0 && crc32(s) == 0 {
			take(s)
		}
		rest = rest[size:]
	}
	if !r.begun {
		rest = nil
	}
	r.data = append(r.data[:0], rest...)
}
