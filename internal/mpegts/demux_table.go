package mpegts

import (
	"encoding/binary"
	"slices"

	"weir/internal/codec"
)

// readPrograms reads the table of programs. The first program is used for as long as it is listed.
func (d *Demuxer) readPrograms(b []byte) {
	if b[0] != tablePrograms {
		return
	}
	var program, pid uint16
	for list := b[8 : len(b)-4]; len(list) >= 4; list = list[4:] {
		p := binary.BigEndian.Uint16(list)
		if p != 0 && (program == 0 || p == d.program) {
			program, pid = p, binary.BigEndian.Uint16(list[2:])&nullPID
		}
	}
	single := b[7] == 0 // the table has one section
	if program == 0 || program != d.program && d.program != 0 && !single || pid == d.programs.pid {
		return
	}
	if program != d.program || pid != d.tracks.pid {
		d.program, d.tracks = program, sectionReader{pid: pid, counter: -1}
	}
}

// trackInfo is an entry of the table of tracks.
type trackInfo struct {
	pid       uint16
	kind      codec.Kind
	codec     string  // one of package codec, or a name for people
	framing   framing // of audio
	channels  byte    // of Opus
	supported bool
}

// framing is the format of audio frames in PES packets.
type framing byte

const (
	framingADTS framing = 1 + iota
	framingLATM
	framingOpus
)

// readTracks reads the table of the tracks of the program.
func (d *Demuxer) readTracks(b []byte) {
	if b[0] != tableTracks || binary.BigEndian.Uint16(b[3:]) != d.program || len(b) < 16 {
		return
	}
	list := b[12 : len(b)-4]
	descriptors := int(binary.BigEndian.Uint16(b[10:]) & 0xFFF)
	if descriptors > len(list) {
		return
	}
	var video, audio []trackInfo
	for list = list[descriptors:]; len(list) >= 5; {
		size := 5 + int(binary.BigEndian.Uint16(list[3:])&0xFFF)
		if size > len(list) {
			return
		}
		info := parseTrack(list[0], binary.BigEndian.Uint16(list[1:])&nullPID, list[5:size])
		list = list[size:]
		switch {
		case info.pid == d.programs.pid || info.pid == d.tracks.pid || info.pid == nullPID:
		case info.kind == codec.Video:
			video = append(video, info)
		case info.kind == codec.Audio:
			audio = append(audio, info)
		}
	}
	d.video, d.audio = d.choose(d.video, video), d.choose(d.audio, audio)
	d.announce(d.video != nil, d.audio != nil)
}

// choose returns the track that is used: the same as before, else the first one with a supported
// codec. If there is none, it returns the first one, so that an error can name its codec.
func (d *Demuxer) choose(before *demuxTrack, tracks []trackInfo) *demuxTrack {
	if before != nil && slices.Contains(tracks, before.trackInfo) {
		return before
	}
	if len(tracks) == 0 {
		return nil
	}
	if len(tracks) > 1 {
		d.log.Info("the transport stream has several tracks of a kind; the first supported one is used",
			"kind", tracks[0].kind, "count", len(tracks))
	}
	i := max(slices.IndexFunc(tracks, func(t trackInfo) bool { return t.supported }), 0)
	return &demuxTrack{trackInfo: tracks[i], counter: -1}
}

func parseTrack(streamType byte, pid uint16, descriptors []byte) trackInfo {
	video := func(name string, supported bool) trackInfo {
		return trackInfo{pid: pid, kind: codec.Video, codec: name, supported: supported}
	}
	audio := func(name string, f framing) trackInfo {
		return trackInfo{pid: pid, kind: codec.Audio, codec: name, framing: f, supported: f != 0}
	}
	switch streamType {
	case typeH264:
		return video(codec.H264, true)
	case typeH265:
		return video(codec.H265, true)
	case typeMPEG1Video, typeMPEG2Video:
		return video("MPEG-2", false)
	case typeMPEG4Video:
		return video("MPEG-4 part 2", false)
	case typeVVC:
		return video("VVC", false)
	case typeAAC:
		return audio(codec.AAC, framingADTS)
	case typeLATM:
		return audio(codec.AAC, framingLATM)
	case typeMPEG1Audio, typeMPEG2Audio:
		return audio("MP3 or MP2", 0)
	case typeAC3:
		return audio("AC-3", 0)
	case typeEAC3:
		return audio("E-AC-3", 0)
	case typePrivate:
		return parsePrivate(pid, descriptors)
	}
	return trackInfo{pid: pid}
}

// parsePrivate reads the descriptors of a private stream, as standards other than MPEG's define
// them.
func parsePrivate(pid uint16, descriptors []byte) trackInfo {
	const opusChannels = 0x80
	t := trackInfo{pid: pid}
	for b := descriptors; len(b) >= 2 && len(b) >= 2+int(b[1]); {
		tag, d := b[0], b[2:2+int(b[1])]
		b = b[2+len(d):]
		switch {
		case tag == tagRegistration && string(d) == "Opus":
			t.kind, t.codec = codec.Audio, codec.Opus
		case tag == tagRegistration && string(d) == "HEVC":
			t.kind, t.codec, t.supported = codec.Video, codec.H265, true
		case tag == tagRegistration && string(d) == "AV01":
			t.kind, t.codec = codec.Video, "AV1 over MPEG-TS"
		case tag == tagRegistration && string(d) == "AC-3", tag == tagAC3:
			t.kind, t.codec = codec.Audio, "AC-3"
		case tag == tagRegistration && string(d) == "EAC3", tag == tagEAC3:
			t.kind, t.codec = codec.Audio, "E-AC-3"
		case tag == tagExtension && len(d) >= 2 && d[0] == opusChannels:
			t.channels = d[1]
		}
	}
	switch {
	case t.codec != codec.Opus:
		t.channels = 0
	case t.channels == 1 || t.channels == 2:
		t.framing, t.supported = framingOpus, true
	default:
		t.codec = "Opus with more than two channels"
	}
	return t
}
