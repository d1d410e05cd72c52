package mpegts

import (
	"bytes"
	"time"

	"weir/internal/codec"
)

// audioFrames is the state of an audio track between PES packets.
type audioFrames struct {
	rest   []byte // the start of a frame whose end is in the next PES packet
	config []byte // the last configuration that was passed on
	latm   codec.LATM
}

const (
	// adtsSamples is the number of samples of a frame in ADTS.
	adtsSamples = 1024
	// maxAudioRest is the maximum length of a frame, in ADTS and LATM: both have 13 bits for it.
	maxAudioRest = 1<<13 + 8
)

// audioPES passes on the frames of audio in a PES packet. Its time is that of the first frame that
// starts in it.
func (d *Demuxer) audioPES(t *demuxTrack, p pes) error {
	var at time.Duration
	if p.timed {
		at, _ = d.clock.times(p)
	}
	if !t.supported {
		return d.take(t.audioPacket(p.data, false), at)
	}
	split := d.adts
	switch t.framing {
	case framingLATM:
		split = d.latm
	case framingOpus:
		split = d.opus
	}
	data, begun := p.data, len(t.audio.rest)
	if begun > 0 {
		data = append(t.audio.rest, data...)
		t.audio.rest = nil
	}
	pending := p.timed
	for pos := 0; pos < len(data); {
		if pending && pos >= begun {
			t.next, t.timed, pending = at, true, false
		}
		n, err := split(t, data[pos:])
		if err != nil {
			return err
		}
		if n == 0 { // the rest of the frame is still to come
			if rest := data[pos:]; len(rest) <= maxAudioRest {
				t.audio.rest = bytes.Clone(rest)
			}
			break
		}
		pos += n
	}
	return nil
}

func (d *Demuxer) emit(t *demuxTrack, config, frame []byte, samples, rate int64) error {
	if !t.timed {
		return nil
	}
	if !bytes.Equal(config, t.audio.config) {
		t.audio.config = bytes.Clone(config)
		if err := d.take(t.audioPacket(config, true), t.next); err != nil {
			return err
		}
	}
	at := t.next
	t.next += codec.Duration(samples, rate)
	return d.take(t.audioPacket(frame, false), at)
}

// audioPacket returns a packet with a copy of data.
func (t *demuxTrack) audioPacket(data []byte, config bool) codec.Packet {
	return codec.Packet{Kind: codec.Audio, Codec: t.codec, Config: config, Data: bytes.Clone(data)}
}

// skip returns how many bytes to drop until a frame may start.
func (d *Demuxer) skip(data []byte, starts func([]byte) bool) int {
	d.drop()
	for i := 1; i < len(data); i++ {
		if starts(data[i:]) {
			return i
		}
	}
	return len(data)
}

// adts passes on the first frame in ADTS and returns its length; 0 = its end is missing.
func (d *Demuxer) adts(t *demuxTrack, b []byte) (int, error) {
	if codec.StartsADTS(b) && len(b) < codec.ADTSHeaderSize {
		return 0, nil
	}
	f, ok := codec.ParseADTS(b)
	switch {
	case !ok:
		return d.skip(b, codec.StartsADTS), nil
	case len(b) < f.Size:
		return 0, nil
	case f.Blocks > 1:
		const name = "AAC with several blocks in a frame"
		return f.Size, d.take(codec.Packet{Kind: codec.Audio, Codec: name, Data: []byte{0}}, t.next)
	}
	return f.Size, d.emit(t, f.Config[:], b[f.Header:f.Size], adtsSamples, int64(f.SampleRate))
}

// latm passes on the first element in LOAS and returns its length; 0 = its end is missing.
func (d *Demuxer) latm(t *demuxTrack, b []byte) (int, error) {
	starts := func(b []byte) bool { return b[0] == 0x56 && (len(b) < 2 || b[1]&0xE0 == 0xE0) }
	if !starts(b) {
		return d.skip(b, starts), nil
	}
	if len(b) < 3 {
		return 0, nil
	}
	size := 3 + (int(b[1]&0x1F)<<8 | int(b[2]))
	if len(b) < size {
		return 0, nil
	}
	config, frames, err := t.audio.latm.Read(b[3:size])
	about, ok := codec.ParseAudioConfig(config)
	if err != nil || !ok {
		d.drop() // also until a configuration has arrived
		return size, nil
	}
	samples, rate := int64(about.FrameSamples), int64(about.CoreRate)
	for _, frame := range frames {
		if err := d.emit(t, config, frame, samples, rate); err != nil {
			return size, err
		}
	}
	return size, nil
}

// opus passes on the first frame of Opus and returns its length with its header.
func (d *Demuxer) opus(t *demuxTrack, b []byte) (int, error) {
	frame, size, ok := opusUnit(b)
	if !ok {
		d.drop()
		return len(b), nil // no frame continues in the next PES packet
	}
	head := t.audio.config
	if head == nil {
		head = codec.OpusHead(int(t.channels))
	}
	return size, d.emit(t, head, frame, codec.OpusSamples(frame), codec.OpusRate)
}

// opusUnit returns the first frame in b, and its length with its header.
func opusUnit(b []byte) (frame []byte, size int, ok bool) {
	if len(b) < 3 || b[0] != 0x7F || b[1]&0xE0 != 0xE0 {
		return nil, 0, false
	}
	const trimStart, trimEnd, extension = 0x10, 0x08, 0x04
	flags, pos, length := b[1], 2, 0
	for {
		if pos == len(b) {
			return nil, 0, false
		}
		n := int(b[pos])
		pos, length = pos+1, length+n
		if n < 255 {
			break
		}
	}
	for _, trim := range []byte{trimStart, trimEnd} {
		if flags&trim != 0 {
			pos += 2
		}
	}
	if flags&extension != 0 {
		if pos >= len(b) {
			return nil, 0, false
		}
		pos += 1 + int(b[pos])
	}
	if length == 0 || pos+length > len(b) {
		return nil, 0, false
	}
	return b[pos : pos+length], pos + length, true
}
