package cmaf

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"

	"weir/internal/codec"
)

// readMoov reads the tracks that a moov box describes.
func (r *Reader) readMoov(h boxHead) error {
	body, err := r.body(h, maxMoov)
	if err != nil {
		return err
	}
	inner := make(map[uint32]*innerTrack)
	scale := movieTimescale(body)
	for rest := body; len(rest) > 0; {
		b, after, ok := nextBox(rest)
		if !ok {
			return refused("damaged moov box at byte %d", h.at)
		}
		rest = after
		if b.name != "trak" {
			continue
		}
		id, track, err := readTrak(b.body)
		if err != nil {
			return err
		}
		if inner[id] != nil {
			return refused("two tracks have the id %d", id)
		}
		in := &innerTrack{position: -1}
		inner[id] = in
		if track.Kind == "" {
			continue
		}
		if in.shift, err = readEdits(child(b.body, "edts", "elst"), scale, track.Timescale); err != nil {
			return err
		}
		in.position = len(r.tracks)
		r.tracks = append(r.tracks, track)
	}
	for rest := child(body, "mvex"); len(rest) > 0; {
		b, after, ok := nextBox(rest)
		if !ok {
			return refused("damaged mvex box")
		}
		rest = after
		if b.name != "trex" {
			continue
		}
		in := bytesReader{data: b.body}
		in.full()
		if t := inner[in.u32()]; t != nil {
			in.u32() // the sample description, 1
			t.defaults = sampleDefaults{duration: in.u32(), size: in.u32(), flags: in.u32()}
		}
	}
	r.inner = inner
	return nil
}

func movieTimescale(moov []byte) uint32 {
	in := bytesReader{data: child(moov, "mvhd")}
	version, _ := in.full()
	in.number(version > 0)
	in.number(version > 0)
	return in.u32()
}

// readTrak reads a trak box. A track that is neither video nor audio has no kind.
func readTrak(body []byte) (id uint32, t Track, err error) {
	in := bytesReader{data: child(body, "tkhd")}
	version, flags := in.full()
	in.number(version > 0)
	in.number(version > 0)
	id = in.u32()
	if in.short {
		return 0, t, refused("a track has no header")
	}
	in = bytesReader{data: child(body, "mdia", "hdlr")}
	in.take(8)
	switch string(in.take(4)) {
	case "vide":
		t.Kind = Video
	case "soun":
		t.Kind = Audio
		t.Default = flags&1 != 0
	default:
		return id, t, nil
	}
	in.take(12)
	t.Name = handlerName(in.data)

	in = bytesReader{data: child(body, "mdia", "mdhd")}
	version, _ = in.full()
	in.number(version > 0)
	in.number(version > 0)
	t.Timescale = in.u32()
	in.number(version > 0)
	t.Language = language(in.u16())
	if in.short || t.Timescale == 0 {
		return id, t, refused("track %d has no valid timescale", id)
	}

	in = bytesReader{data: child(body, "mdia", "minf", "stbl", "stsd")}
	in.take(8)
	entry, _, ok := nextBox(in.data)
	if !ok {
		return id, t, refused("track %d has no sample entry", id)
	}
	t.Entry = slices.Clone(entry.whole)
	t.describe(entry)
	return id, t, nil
}

// handlerName returns the name of a track; "" if it is one that writers give to tracks without a
// name.
func handlerName(b []byte) string {
	if len(b) > 0 && int(b[0]) == len(b)-1 { // QuickTime writes the length first
		b = b[1:]
	}
	name, _, _ := strings.Cut(strings.ToValidUTF8(string(b), ""), "\x00")
	switch name {
	case noVideoName, noAudioName, "Core Media Video", "Core Media Audio":
		return ""
	}
	return name
}

// language unpacks an ISO 639-2 code; "" = undetermined.
func language(packed uint16) string {
	b := []byte{byte(packed >> 10 & 31), byte(packed >> 5 & 31), byte(packed & 31)}
	for i := range b {
		if b[i] == 0 || b[i] > 26 {
			return ""
		}
		b[i] += 'a' - 1
	}
	if string(b) == "und" {
		return ""
	}
	return string(b)
}

// readEdits returns how many ticks the edit list adds to the times of the track. An edit list may
// delay a track and skip its start; one that cuts the track in several places, or changes its speed, is refused.
func readEdits(elst []byte, movieScale, scale uint32) (int64, error) {
	if elst == nil {
		return 0, nil
	}
	in := bytesReader{data: elst}
	version, _ := in.full()
	var late uint64 // ticks of the movie
	var skipped int64
	media := 0
	for range in.u32() {
		duration := in.number(version > 0)
		var from int64
		if version > 0 {
			from = int64(in.u64())
		} else {
			from = int64(int32(in.u32()))
		}
		rate := in.u32()
		switch {
		case in.short:
			return 0, refused("damaged edit list")
		case from < 0 && media == 0 && duration < maxTime && late < maxTime:
			late += duration
		case from >= 0 && from < maxTime && media == 0 && rate == 1<<16:
			skipped = from
			media++
		default:
			return 0, refused("the edit list has several edits or changes the speed of the track")
		}
	}
	if late == 0 {
		return -skipped, nil
	}
	high, low := bits.Mul64(late, uint64(scale))
	low, carry := bits.Add64(low, uint64(movieScale)/2, 0)
	if high += carry; uint64(movieScale) <= high {
		return 0, refused("the edit list has an invalid start time of the track")
	}
	delay, _ := bits.Div64(high, low, uint64(movieScale))
	if delay > maxTime {
		return 0, refused("the edit list has an invalid start time of the track")
	}
	return int64(delay) - skipped, nil
}

// describe sets the fields that the sample entry has.
func (t *Track) describe(entry foreignBox) {
	in := bytesReader{data: entry.body}
	in.take(8) // reserved, data reference
	if t.Kind == Video {
		in.take(16)
		t.Width, t.Height = int(in.u16()), int(in.u16())
	} else {
		in.take(8)
		t.Channels = int(in.u16())
		in.take(6)
		t.SampleRate = int(in.u32() >> 16)
	}
	boxes := entryBoxes(t.Kind, entry.body)
	config, _ := codecOf(entry.name)
	t.Codec = codec.RFC6381(entry.name, child(boxes, config))
	if t.Kind == Audio {
		t.describeAudio(boxes)
		if t.SampleRate == 0 {
			t.SampleRate = int(t.Timescale)
		}
	}
}

// entryBoxes returns the boxes in the body of a sample entry.
func entryBoxes(kind Kind, body []byte) []byte {
	in := bytesReader{data: body}
	if kind == Video {
		in.take(78)
		return in.data
	}
	in.take(8)
	version := in.u16()
	in.take(18)
	switch version { // QuickTime adds fields
	case 1:
		in.take(16)
	case 2:
		in.take(36)
	}
	return in.data
}

// describeAudio corrects the fixed fields of an audio entry, where writers put 2 channels and 16
// bits of the sample rate whatever the audio has.
func (t *Track) describeAudio(boxes []byte) {
	if object, specific := codec.ParseESDS(child(boxes, "esds")); object == 0x40 {
		if c, ok := codec.ParseAudioConfig(specific); ok {
			t.SampleRate = c.SampleRate
			if c.Channels > 0 {
				t.Channels = c.Channels
			}
		}
	}
	if dops := child(boxes, "dOps"); len(dops) >= 11 {
		t.Channels, t.SampleRate = int(dops[1]), codec.OpusRate
	}
	if dac3 := child(boxes, "dac3"); len(dac3) >= 3 {
		v := uint32(dac3[0])<<16 | uint32(dac3[1])<<8 | uint32(dac3[2])
		t.Channels = acChannels(v>>11&7, v>>10&1)
	}
	if dec3 := child(boxes, "dec3"); len(dec3) >= 5 {
		v := uint32(dec3[2])<<16 | uint32(dec3[3])<<8 | uint32(dec3[4])
		t.Channels = acChannels(v>>9&7, v>>8&1)
	}
	if flac := child(boxes, "dfLa"); len(flac) >= 4+4+18 {
		v := binary.BigEndian.Uint32(flac[4+4+10:])
		t.SampleRate, t.Channels = int(v>>12), int(v>>9&7)+1
	}
}

// acChannels returns the number of channels of an AC-3 mode, with or without low frequencies.
func acChannels(mode, low uint32) int {
	return []int{2, 1, 2, 3, 3, 4, 4, 5}[mode] + int(low)
}
