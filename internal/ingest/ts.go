package ingest

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
)

const (
	tsSize = 188
	tsSync = 0x47
	// tsRate is how many ticks the clock of a transport stream has in a second.
	tsRate = 90000
	// maxPES is how long a frame may be.
	maxPES = maxMessage
	// keptPES is how much room for frames is kept from one to the next.
	keptPES = 1 << 20
	// maxShown is how long after being decoded a picture may be shown.
	maxShown = 10 * time.Second
)

// tsReader makes packets of an MPEG transport stream. It takes the first program in it,
// and of that one track of pictures and one of audio.
//
// Whatever it is given, it goes on: what was lost on the way or makes no sense is left
// out, up to the next frame that came whole. An error is always that of take.
type tsReader struct {
	// take gets a packet and when it is decoded. The data is the taker's.
	take func(p codec.Packet, at time.Duration) error
	// promise is told which kinds of tracks there are.
	promise func(video, audio bool)
	log     *slog.Logger

	carry    []byte // the beginning of a packet whose end has not come yet
	programs table
	tracks   table
	program  uint16 // 0 = not known
	video    *tsTrack
	audio    *tsTrack
	clock    tsClock

	dropped int // frames, or places where bytes make no sense, since the log told of it
	told    time.Time
}

// tsTrack is a track that is read.
type tsTrack struct {
	tsStream
	count int    // of its packets, modulo 16; -1 = not known
	pes   []byte // the frame that comes in
	begun bool   // there is one

	// Where the next frame is that comes without a time: pictures follow in the steps of
	// those before them, audio at its end.
	next  time.Duration
	step  time.Duration
	timed bool

	audio tsAudio
}

func newTSReader(take func(codec.Packet, time.Duration) error, promise func(video, audio bool), log *slog.Logger) *tsReader {
	r := &tsReader{take: take, promise: promise, log: log}
	r.programs = table{pid: 0, count: -1}
	r.tracks = table{pid: noPID, count: -1}
	return r
}

// write takes the next bytes of the stream.
func (r *tsReader) write(data []byte) error {
	if len(r.carry) > 0 {
		data = append(r.carry, data...)
	}
	for len(data) >= tsSize {
		if data[0] != tsSync {
			data = data[r.resync(data):]
			continue
		}
		if err := r.packet(data[:tsSize]); err != nil {
			return err
		}
		data = data[tsSize:]
	}
	r.carry = append(r.carry[:0], data...)
	return nil
}

// resync returns how many bytes to leave out until a packet may begin.
func (r *tsReader) resync(data []byte) int {
	r.drop()
	for i := 1; i < len(data); i++ {
		if data[i] == tsSync && (i+tsSize >= len(data) || data[i+tsSize] == tsSync) {
			return i
		}
	}
	return len(data)
}

// lost says that something is missing before what is written next.
func (r *tsReader) lost() {
	r.carry = r.carry[:0]
	r.programs.forget()
	r.tracks.forget()
	for _, t := range []*tsTrack{r.video, r.audio} {
		if t != nil {
			r.damage(t)
			t.count = -1
		}
	}
}

// drop notes that something was left out.
func (r *tsReader) drop() {
	r.dropped++
	if now := time.Now(); now.Sub(r.told) > tellEvery {
		r.log.Warn("what came in is damaged; frames were left out", "count", r.dropped)
		r.dropped, r.told = 0, now
	}
}

// damage leaves out the frame that comes in.
func (r *tsReader) damage(t *tsTrack) {
	if t.begun || len(t.audio.rest) > 0 {
		r.drop()
	}
	t.begun, t.pes, t.audio.rest = false, t.pes[:0], nil
}

// packet takes a packet of the stream.
func (r *tsReader) packet(p []byte) error {
	pid := binary.BigEndian.Uint16(p[1:]) & noPID
	payload, jumps, ok := tsPayload(p)
	if !ok || pid == noPID {
		return nil
	}
	bad, starts, count := p[1]&0x80 != 0 || p[3]&0xC0 != 0, p[1]&0x40 != 0, int(p[3]&15)
	switch pid {
	case r.programs.pid, r.tracks.pid:
		if !bad {
			r.tables(pid, payload, starts, count)
		}
		return nil
	}
	t := r.track(pid)
	if t == nil {
		return nil
	}
	if count == t.count && !jumps {
		return nil // sent twice
	}
	if bad || t.count >= 0 && count != (t.count+1)&15 && !jumps {
		r.damage(t)
	}
	t.count = count
	if bad { // damaged on the way, or encrypted
		return nil
	}
	return r.frame(t, payload, starts)
}

// tsPayload returns what a packet carries, and whether it says that it does not go on
// where the one before it ended.
func tsPayload(p []byte) (payload []byte, jumps, ok bool) {
	const hasPayload, hasMore = 0x10, 0x20
	payload = p[4:]
	if p[3]&hasMore != 0 {
		size := int(p[4])
		if 1+size > len(payload) {
			return nil, false, false
		}
		jumps = size > 0 && p[5]&0x80 != 0
		payload = payload[1+size:]
	}
	return payload, jumps, p[3]&hasPayload != 0 && len(payload) > 0
}

func (r *tsReader) track(pid uint16) *tsTrack {
	for _, t := range []*tsTrack{r.video, r.audio} {
		if t != nil && t.pid == pid {
			return t
		}
	}
	return nil
}

// frame takes a piece of a frame.
func (r *tsReader) frame(t *tsTrack, payload []byte, starts bool) error {
	if starts {
		if err := r.finish(t); err != nil {
			return err
		}
		t.begun = true
	}
	if !t.begun {
		return nil
	}
	if len(t.pes)+len(payload) > maxPES {
		r.damage(t)
		return nil
	}
	t.pes = append(t.pes, payload...)
	// Audio tells its length, so it need not wait for what comes next.
	if len(t.pes) >= 6 {
		if size := int(binary.BigEndian.Uint16(t.pes[4:])); size > 0 && len(t.pes) >= 6+size {
			t.pes = t.pes[:6+size]
			return r.finish(t)
		}
	}
	return nil
}

// end takes the frames whose end only the next one would have told.
func (r *tsReader) end() error {
	for _, t := range []*tsTrack{r.video, r.audio} {
		if t == nil {
			continue
		}
		if err := r.finish(t); err != nil {
			return err
		}
	}
	return nil
}

// finish hands on the frame that came in, if it is whole.
func (r *tsReader) finish(t *tsTrack) error {
	if !t.begun {
		return nil
	}
	pes := t.pes
	t.begun, t.pes = false, t.pes[:0]
	if cap(t.pes) > keptPES {
		t.pes = nil
	}
	if len(pes) >= 6 {
		// A frame with a length that ends early has lost its end.
		if size := int(binary.BigEndian.Uint16(pes[4:])); size > 0 && len(pes) < 6+size {
			r.drop()
			return nil
		}
	}
	f, ok := readPES(pes)
	if !ok {
		r.drop()
		return nil
	}
	if t.kind == cmaf.Audio {
		return r.audios(t, f)
	}
	return r.picture(t, f)
}

// pes is what a packet of a track says: a frame, or some.
type pes struct {
	pts, dts uint64 // in ticks, running over
	timed    bool   // there are times
	data     []byte
}

// readPES reads a packet of a track.
func readPES(b []byte) (f pes, ok bool) {
	if len(b) < 9 || b[0] != 0 || b[1] != 0 || b[2] != 1 || b[6]&0xC0 != 0x80 {
		return f, false
	}
	if encrypted := b[6]&0x30 != 0; encrypted {
		return f, false
	}
	size := 9 + int(b[8])
	if len(b) < size {
		return f, false
	}
	switch times := b[7] >> 6; {
	case times == 2 && size >= 14:
		f.pts = tsTime(b[9:])
		f.dts, f.timed = f.pts, true
	case times == 3 && size >= 19:
		f.pts, f.dts, f.timed = tsTime(b[9:]), tsTime(b[14:]), true
	}
	f.data = b[size:]
	return f, true
}

// tsTime reads 33 bits out of five bytes.
func tsTime(b []byte) uint64 {
	return uint64(b[0]>>1&7)<<30 | uint64(b[1])<<22 | uint64(b[2]>>1)<<15 | uint64(b[3])<<7 | uint64(b[4]>>1)
}

// tsClock makes times that run over, every 26.5 hours, into ones that do not. All tracks
// share it, so that none is a day ahead.
type tsClock struct {
	last int64
	set  bool
}

const tsTimeBits = 33

// at returns the time nearest to the last one that was given.
func (c *tsClock) at(ticks uint64) int64 {
	if !c.set {
		c.last, c.set = int64(ticks), true
	}
	ahead := int64((ticks-uint64(c.last))<<(64-tsTimeBits)) >> (64 - tsTimeBits)
	return c.last + ahead
}

// times returns when a frame is decoded, and how long after that it is shown.
func (c *tsClock) times(f pes) (at, shown time.Duration) {
	c.last = c.at(f.dts)
	dts, pts := c.last, c.at(f.pts)
	if shown = duration(pts-dts, tsRate); shown < 0 || shown > maxShown {
		shown = 0
	}
	return duration(dts, tsRate), shown
}

// picture hands on a picture.
func (r *tsReader) picture(t *tsTrack, f pes) error {
	at, shown := t.next, time.Duration(0)
	switch {
	case f.timed:
		at, shown = r.clock.times(f)
		if before := t.next - t.step; t.timed && at > before && at < before+time.Second {
			t.next, t.step = at, at-before
		}
	case !t.timed:
		return nil
	}
	t.next, t.timed = at+t.step, true
	p := codec.Packet{Kind: cmaf.Video, Codec: t.codec, Composition: shown, Data: f.data}
	if !t.supported {
		return r.take(p, at)
	}
	if p.Data = lengthPrefixed(f.data); len(p.Data) == 0 {
		r.drop()
		return nil
	}
	return r.take(p, at)
}

// lengthPrefixed returns NAL units with their lengths in front, where they were sent
// with start codes between them.
func lengthPrefixed(stream []byte) []byte {
	startCode := []byte{0, 0, 1}
	at := bytes.Index(stream, startCode)
	if at < 0 {
		return nil
	}
	units := make([]byte, 0, len(stream)+16)
	for rest := stream[at+3:]; ; {
		end := bytes.Index(rest, startCode)
		nal := rest
		if end >= 0 {
			nal = rest[:end]
		}
		if nal = bytes.TrimRight(nal, "\x00"); len(nal) > 0 {
			units = binary.BigEndian.AppendUint32(units, uint32(len(nal)))
			units = append(units, nal...)
		}
		if end < 0 {
			return units
		}
		rest = rest[end+3:]
	}
}
