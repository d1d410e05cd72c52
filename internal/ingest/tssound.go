package ingest

import (
	"bytes"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/opus"

	"weir/internal/cmaf"
	"weir/internal/codec"
)

// tsAudio is what is kept of a track of audio from one packet to the next.
type tsAudio struct {
	rest   []byte // the beginning of a frame whose end comes in the next packet
	config []byte // that was told last
	mux    *mpeg4audio.StreamMuxConfig
}

// maxAudioRest is the longest frame, in ADTS and LATM: both have 13 bits for its length.
const maxAudioRest = 1<<13 + 8

// audio hands on the frames of audio in a packet. The time is that of the first one
// that begins in it.
func (r *tsReader) audios(t *tsTrack, f pes) error {
	var at time.Duration
	if f.timed {
		at, _ = r.clock.times(f)
	}
	if !t.supported {
		return r.take(codec.Packet{Kind: cmaf.Audio, Codec: t.codec, Data: bytes.Clone(f.data)}, at)
	}
	split := r.adts
	switch t.form {
	case formLATM:
		split = r.latm
	case formOpus:
		split = r.opus
	}
	data, begun := f.data, len(t.audio.rest)
	if begun > 0 {
		data = append(t.audio.rest, data...)
		t.audio.rest = nil
	}
	pending := f.timed
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

// emit hands on a frame of audio that lasts so many samples.
func (r *tsReader) emit(t *tsTrack, config, frame []byte, samples, rate int64) error {
	if !t.timed {
		return nil
	}
	if !bytes.Equal(config, t.audio.config) {
		t.audio.config = bytes.Clone(config)
		if err := r.take(codec.Packet{Kind: cmaf.Audio, Codec: t.codec, Config: true, Data: config}, t.next); err != nil {
			return err
		}
	}
	at := t.next
	t.next += duration(samples, rate)
	return r.take(codec.Packet{Kind: cmaf.Audio, Codec: t.codec, Data: bytes.Clone(frame)}, at)
}

// skip leaves out bytes up to where a frame may begin.
func (r *tsReader) skip(data []byte, begins func([]byte) bool) int {
	r.drop()
	for i := 1; i < len(data); i++ {
		if begins(data[i:]) {
			return i
		}
	}
	return len(data)
}

// adts takes the first frame of some in ADTS and returns how long it is; 0 = longer
// than what there is.
func (r *tsReader) adts(t *tsTrack, b []byte) (int, error) {
	begins := func(b []byte) bool { return b[0] == 0xFF && (len(b) < 2 || b[1]&0xF6 == 0xF0) }
	if !begins(b) {
		return r.skip(b, begins), nil
	}
	const short, long = 7, 9
	if len(b) < short {
		return 0, nil
	}
	header := long
	if b[1]&1 != 0 {
		header = short
	}
	object, frequency, channels := b[2]>>6+1, b[2]>>2&15, b[2]&1<<2|b[3]>>6
	size := int(b[3]&3)<<11 | int(b[4])<<3 | int(b[5])>>5
	if size < header || int(frequency) >= len(adtsRates) {
		return r.skip(b, begins), nil
	}
	if len(b) < size {
		return 0, nil
	}
	if several := b[6]&3 != 0; several {
		return size, r.take(codec.Packet{Kind: cmaf.Audio, Codec: "AAC with several blocks in a frame", Data: []byte{0}}, t.next)
	}
	config := []byte{object<<3 | frequency>>1, frequency<<7 | channels<<3}
	return size, r.emit(t, config, b[header:size], 1024, adtsRates[frequency])
}

// adtsRates are the rates that ADTS has numbers for.
var adtsRates = [...]int64{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}

// latm takes the first element of some in LATM and returns how long it is; 0 = longer
// than what there is.
func (r *tsReader) latm(t *tsTrack, b []byte) (int, error) {
	begins := func(b []byte) bool { return b[0] == 0x56 && (len(b) < 2 || b[1]&0xE0 == 0xE0) }
	if !begins(b) {
		return r.skip(b, begins), nil
	}
	if len(b) < 3 {
		return 0, nil
	}
	size := 3 + (int(b[1]&0x1F)<<8 | int(b[2]))
	if len(b) < size {
		return 0, nil
	}
	element := mpeg4audio.AudioMuxElement{MuxConfigPresent: true, StreamMuxConfig: t.audio.mux}
	if err := element.Unmarshal(b[3:size]); err != nil {
		r.drop() // also as long as no configuration has come
		return size, nil
	}
	t.audio.mux = element.StreamMuxConfig
	about := t.audio.mux.Programs[0].Layers[0].AudioSpecificConfig
	config, err := about.Marshal()
	if err != nil || about.SampleRate <= 0 {
		r.drop()
		return size, nil
	}
	samples := int64(1024)
	if about.FrameLengthFlag {
		samples = 960
	}
	for _, frame := range element.Payloads {
		if err := r.emit(t, config, frame[0][0], samples, int64(about.SampleRate)); err != nil {
			return size, err
		}
	}
	return size, nil
}

// opus takes the first frame of some in Opus and returns how long it is, with what is
// in front of it.
func (r *tsReader) opus(t *tsTrack, b []byte) (int, error) {
	frame, size, ok := opusUnit(b)
	if !ok {
		r.drop()
		return len(b), nil // they do not go over from one packet to the next
	}
	head := append([]byte("OpusHead\x01"), t.channels, 0, 0, 0x80, 0xBB, 0, 0, 0, 0, 0)
	return size, r.emit(t, head, frame, opus.PacketDuration2(frame), 48000)
}

// opusUnit returns the first frame in b, and how many bytes it has with its header.
func opusUnit(b []byte) (frame []byte, size int, ok bool) {
	if len(b) < 3 || b[0] != 0x7F || b[1]&0xE0 != 0xE0 {
		return nil, 0, false
	}
	const trimStart, trimEnd, more = 0x10, 0x08, 0x04
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
	if flags&more != 0 {
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
