package ingest

import (
	"encoding/binary"
	"slices"

	"weir/internal/cmaf"
	"weir/internal/codec"
)

const (
	// noPID is the number of packets that carry nothing.
	noPID = 0x1FFF
	// maxTable is how long a table may be.
	maxTable = 1024
)

// table puts a table of a transport stream together: which programs there are, or
// which tracks a program has.
type table struct {
	pid   uint16
	count int // of its packets, modulo 16; -1 = not known
	data  []byte
	begun bool
}

// forget lets go of what has come so far.
func (t *table) forget() { t.data, t.begun, t.count = t.data[:0], false, -1 }

// add takes a piece and hands each table that is whole to take.
func (t *table) add(piece []byte, starts bool, count int, take func(table []byte)) {
	if count == t.count {
		return // sent twice
	}
	if t.count >= 0 && count != (t.count+1)&15 {
		t.data, t.begun = t.data[:0], false
	}
	t.count = count
	if starts {
		before := int(piece[0])
		if piece = piece[1:]; before > len(piece) {
			t.data, t.begun = t.data[:0], false
			return
		}
		if t.begun {
			t.data = append(t.data, piece[:before]...)
			t.finish(take)
		}
		t.data, t.begun, piece = t.data[:0], true, piece[before:]
	}
	if !t.begun {
		return
	}
	t.data = append(t.data, piece...)
	t.finish(take)
}

// finish hands on the tables that are whole.
func (t *table) finish(take func(table []byte)) {
	const stuffing = 0xFF
	rest := t.data
	for t.begun && len(rest) >= 3 {
		size := 3 + int(binary.BigEndian.Uint16(rest[1:])&0xFFF)
		if rest[0] == stuffing || size > maxTable {
			t.begun = false
			break
		}
		if len(rest) < size {
			break
		}
		// A table that is said to be the next one does not count yet.
		if whole := rest[:size]; size >= 12 && whole[1]&0x80 != 0 && whole[5]&1 != 0 && tsSum(whole) == 0 {
			take(whole)
		}
		rest = rest[size:]
	}
	if !t.begun {
		rest = nil
	}
	t.data = append(t.data[:0], rest...)
}

// tsSum returns the checksum of a table; with the sum that it carries it is 0.
func tsSum(b []byte) uint32 {
	sum := ^uint32(0)
	for _, c := range b {
		sum ^= uint32(c) << 24
		for range 8 {
			if sum&(1<<31) != 0 {
				sum = sum<<1 ^ 0x04C11DB7
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}

// tables takes a piece of a table.
func (r *tsReader) tables(pid uint16, piece []byte, starts bool, count int) {
	if pid == r.programs.pid {
		r.programs.add(piece, starts, count, r.readPrograms)
		return
	}
	r.tracks.add(piece, starts, count, r.readTracks)
}

// readPrograms reads the table of programs. The first one counts, for as long as it is
// there.
func (r *tsReader) readPrograms(b []byte) {
	const id = 0
	if b[0] != id {
		return
	}
	var program, pid uint16
	for list := b[8 : len(b)-4]; len(list) >= 4; list = list[4:] {
		p := binary.BigEndian.Uint16(list)
		if p != 0 && (program == 0 || p == r.program) {
			program, pid = p, binary.BigEndian.Uint16(list[2:])&noPID
		}
	}
	one := b[7] == 0 // the table is not in several pieces
	if program == 0 || program != r.program && r.program != 0 && !one || pid == r.programs.pid {
		return
	}
	if program != r.program || pid != r.tracks.pid {
		r.program, r.tracks = program, table{pid: pid, count: -1}
	}
}

// tsStream is a track, as the table of tracks tells of it.
type tsStream struct {
	pid       uint16
	kind      cmaf.Kind
	codec     string // one of a feed's, or for people
	form      byte   // how audio is wrapped
	channels  byte   // of Opus
	supported bool
}

// How audio is wrapped.
const (
	formADTS = 1 + iota
	formLATM
	formOpus
)

// readTracks reads the table of the tracks of the program.
func (r *tsReader) readTracks(b []byte) {
	const id = 2
	if b[0] != id || binary.BigEndian.Uint16(b[3:]) != r.program || len(b) < 16 {
		return
	}
	list := b[12 : len(b)-4]
	about := int(binary.BigEndian.Uint16(b[10:]) & 0xFFF)
	if about > len(list) {
		return
	}
	var video, audio []tsStream
	for list = list[about:]; len(list) >= 5; {
		size := 5 + int(binary.BigEndian.Uint16(list[3:])&0xFFF)
		if size > len(list) {
			return
		}
		s := readStream(list[0], binary.BigEndian.Uint16(list[1:])&noPID, list[5:size])
		list = list[size:]
		switch {
		case s.pid == r.programs.pid || s.pid == r.tracks.pid || s.pid == noPID:
		case s.kind == cmaf.Video:
			video = append(video, s)
		case s.kind == cmaf.Audio:
			audio = append(audio, s)
		}
	}
	r.video, r.audio = r.choose(r.video, video), r.choose(r.audio, audio)
	r.promise(r.video != nil, r.audio != nil)
}

// choose returns the track that counts: the one that did before, or the first that
// weir can take, or, so that its codec can be named, the first.
func (r *tsReader) choose(was *tsTrack, streams []tsStream) *tsTrack {
	if was != nil && slices.Contains(streams, was.tsStream) {
		return was
	}
	if len(streams) == 0 {
		return nil
	}
	if len(streams) > 1 {
		r.log.Info("more than one track of a kind; the first that can be taken counts", "kind", streams[0].kind, "count", len(streams))
	}
	i := max(slices.IndexFunc(streams, func(s tsStream) bool { return s.supported }), 0)
	return &tsTrack{tsStream: streams[i], count: -1}
}

// readStream reads what the table says of a track.
func readStream(kind byte, pid uint16, about []byte) tsStream {
	video := func(codec string, supported bool) tsStream {
		return tsStream{pid: pid, kind: cmaf.Video, codec: codec, supported: supported}
	}
	audio := func(codec string, form byte) tsStream {
		return tsStream{pid: pid, kind: cmaf.Audio, codec: codec, form: form, supported: form != 0}
	}
	switch kind {
	case 0x1B:
		return video(codec.H264, true)
	case 0x24:
		return video(codec.H265, true)
	case 0x01, 0x02:
		return video("MPEG-2", false)
	case 0x10:
		return video("MPEG-4 part 2", false)
	case 0x33:
		return video("VVC", false)
	case 0x0F:
		return audio(codec.AAC, formADTS)
	case 0x11:
		return audio(codec.AAC, formLATM)
	case 0x03, 0x04:
		return audio("MP3 or MP2", 0)
	case 0x81:
		return audio("AC-3", 0)
	case 0x87:
		return audio("E-AC-3", 0)
	case 0x06: // anything: its description tells
		return privateStream(pid, about)
	}
	return tsStream{pid: pid}
}

// privateStream reads the description of a track of the kind that other standards than
// MPEG's use.
func privateStream(pid uint16, about []byte) tsStream {
	const (
		registration = 0x05
		ac3          = 0x6A
		eac3         = 0x7A
		extension    = 0x7F
		opusChannels = 0x80
	)
	s := tsStream{pid: pid}
	for len(about) >= 2 && len(about) >= 2+int(about[1]) {
		tag, d := about[0], about[2:2+int(about[1])]
		about = about[2+len(d):]
		switch {
		case tag == registration && string(d) == "Opus":
			s.kind, s.codec = cmaf.Audio, codec.Opus
		case tag == registration && string(d) == "HEVC":
			s.kind, s.codec, s.supported = cmaf.Video, codec.H265, true
		case tag == registration && string(d) == "AV01":
			s.kind, s.codec = cmaf.Video, "AV1 over MPEG-TS"
		case tag == registration && string(d) == "AC-3", tag == ac3:
			s.kind, s.codec = cmaf.Audio, "AC-3"
		case tag == registration && string(d) == "EAC3", tag == eac3:
			s.kind, s.codec = cmaf.Audio, "E-AC-3"
		case tag == extension && len(d) >= 2 && d[0] == opusChannels:
			s.channels = d[1]
		}
	}
	switch {
	case s.codec != codec.Opus:
		s.channels = 0
	case s.channels == 1 || s.channels == 2:
		s.form, s.supported = formOpus, true
	default:
		s.codec = "Opus with more than two channels"
	}
	return s
}
