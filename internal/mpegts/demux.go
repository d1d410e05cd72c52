package mpegts

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"time"

	"weir/internal/codec"
)

const (
	// maxPES is the maximum length of a PES packet, and so of a frame of video.
	maxPES = 8 << 20
	// keptPES is how much of that memory is kept from one PES packet to the next.
	keptPES = 1 << 20
	// maxComposition is the maximum time from decoding to presentation.
	maxComposition = 10 * time.Second
	// logEvery is how often the log tells of damage.
	logEvery = 10 * time.Second
)

// Demuxer makes packets of a transport stream. It takes the first program, and one video
// track and one audio track of it.
//
// It accepts any bytes: what was lost or damaged is dropped, up to the next frame that
// arrives whole. Its errors are those of take.
type Demuxer struct {
	take     func(p codec.Packet, at time.Duration) error
	announce func(video, audio bool)
	log      *slog.Logger

	carry    []byte // the start of a packet whose end has not arrived
	programs sectionReader
	tracks   sectionReader
	program  uint16 // 0 = not known
	video    *demuxTrack
	audio    *demuxTrack
	clock    stampClock

	dropped int // frames, or places without a packet, since the log told of them
	logged  time.Time
}

// demuxTrack is a track that is read.
type demuxTrack struct {
	trackInfo
	counter int    // of its packets, modulo 16; -1 = not known
	pes     []byte // the PES packet that arrives
	begun   bool   // there is one

	// The time of the next frame if it has no time stamp: video continues in the step of the
	// frames before it, audio at their end.
	next  time.Duration
	step  time.Duration
	timed bool

	audio audioFrames
}

// NewDemuxer returns a demuxer that hands packets to take, with their decode times. The data
// of a packet belongs to take. announce learns which kinds of tracks there are, each time a
// table says so. The log learns of damage.
func NewDemuxer(
	take func(p codec.Packet, at time.Duration) error,
	announce func(video, audio bool),
	log *slog.Logger,
) *Demuxer {
	return &Demuxer{
		take: take, announce: announce, log: log,
		programs: sectionReader{pid: 0, counter: -1}, tracks: sectionReader{pid: nullPID, counter: -1},
	}
}

// Write takes the next bytes of the stream.
func (d *Demuxer) Write(data []byte) error {
	if len(d.carry) > 0 {
		data = append(d.carry, data...)
	}
	for len(data) >= PacketSize {
		if data[0] != syncByte {
			data = data[d.resync(data):]
			continue
		}
		if err := d.packet(data[:PacketSize]); err != nil {
			return err
		}
		data = data[PacketSize:]
	}
	d.carry = append(d.carry[:0], data...)
	return nil
}

// resync returns how many bytes to skip until a packet may start.
func (d *Demuxer) resync(data []byte) int {
	d.drop()
	for i := 1; i < len(data); i++ {
		if data[i] == syncByte && (i+PacketSize >= len(data) || data[i+PacketSize] == syncByte) {
			return i
		}
	}
	return len(data)
}

// Lost says that bytes are missing before those that are written next.
func (d *Demuxer) Lost() {
	d.carry = d.carry[:0]
	d.programs.forget()
	d.tracks.forget()
	for _, t := range []*demuxTrack{d.video, d.audio} {
		if t != nil {
			d.damage(t)
			t.counter = -1
		}
	}
}

// drop notes that something was left out.
func (d *Demuxer) drop() {
	d.dropped++
	if now := time.Now(); now.Sub(d.logged) > logEvery {
		d.log.Warn("what came in is damaged; frames were left out", "count", d.dropped)
		d.dropped, d.logged = 0, now
	}
}

// damage drops the frame that arrives.
func (d *Demuxer) damage(t *demuxTrack) {
	if t.begun || len(t.audio.rest) > 0 {
		d.drop()
	}
	t.begun, t.pes, t.audio.rest = false, t.pes[:0], nil
}

// packet takes a transport packet.
func (d *Demuxer) packet(p []byte) error {
	pid := binary.BigEndian.Uint16(p[1:]) & nullPID
	payload, jumps, ok := parsePayload(p)
	if !ok || pid == nullPID {
		return nil
	}
	const transportError, scrambled = 0x80, 0xC0
	bad := p[1]&transportError != 0 || p[3]&scrambled != 0
	starts, counter := p[1]&0x40 != 0, int(p[3]&15)
	switch pid {
	case d.programs.pid:
		if !bad {
			d.programs.add(payload, starts, counter, d.readPrograms)
		}
		return nil
	case d.tracks.pid:
		if !bad {
			d.tracks.add(payload, starts, counter, d.readTracks)
		}
		return nil
	}
	t := d.track(pid)
	if t == nil {
		return nil
	}
	if counter == t.counter && !jumps {
		return nil // a duplicate
	}
	if bad || t.counter >= 0 && counter != (t.counter+1)&15 && !jumps {
		d.damage(t)
	}
	t.counter = counter
	if bad {
		return nil
	}
	return d.payload(t, payload, starts)
}

// track returns the track with these packets, nil if there is none.
func (d *Demuxer) track(pid uint16) *demuxTrack {
	if d.video != nil && d.video.pid == pid {
		return d.video
	}
	if d.audio != nil && d.audio.pid == pid {
		return d.audio
	}
	return nil
}

// payload takes a piece of a PES packet.
func (d *Demuxer) payload(t *demuxTrack, payload []byte, starts bool) error {
	if starts {
		if err := d.finish(t); err != nil {
			return err
		}
		t.begun = true
	}
	if !t.begun {
		return nil
	}
	if len(t.pes)+len(payload) > maxPES {
		d.damage(t)
		return nil
	}
	t.pes = append(t.pes, payload...)
	// A PES packet with a length need not wait for the next one.
	if size, ok := pesSize(t.pes); ok && len(t.pes) >= size {
		t.pes = t.pes[:size]
		return d.finish(t)
	}
	return nil
}

// Flush hands on the frames whose end only the next one would have told.
func (d *Demuxer) Flush() error {
	for _, t := range []*demuxTrack{d.video, d.audio} {
		if t == nil {
			continue
		}
		if err := d.finish(t); err != nil {
			return err
		}
	}
	return nil
}

// finish hands on the PES packet that arrived, if it is whole.
func (d *Demuxer) finish(t *demuxTrack) error {
	if !t.begun {
		return nil
	}
	data := t.pes
	t.begun, t.pes = false, t.pes[:0]
	if cap(t.pes) > keptPES {
		t.pes = nil
	}
	p, ok := parsePES(data)
	if size, sized := pesSize(data); !ok || sized && len(data) < size {
		d.drop()
		return nil
	}
	if t.kind == codec.Audio {
		return d.audioPES(t, p)
	}
	return d.videoPES(t, p)
}

// stampClock makes times of time stamps, which wrap every 26.5 hours. All tracks share it,
// so that none is a day ahead.
type stampClock struct {
	last int64
	set  bool
}

// unwrap returns the time nearest to the last one.
func (c *stampClock) unwrap(stamp uint64) int64 {
	if !c.set {
		c.last, c.set = int64(stamp), true
	}
	ahead := int64((stamp-uint64(c.last))<<(64-stampBits)) >> (64 - stampBits)
	return c.last + ahead
}

// times returns the decode time of a PES packet, and the time from that to its presentation.
func (c *stampClock) times(p pes) (at, composition time.Duration) {
	c.last = c.unwrap(p.dts)
	dts, pts := c.last, c.unwrap(p.pts)
	if composition = duration(pts-dts, ClockRate); composition < 0 || composition > maxComposition {
		composition = 0
	}
	return duration(dts, ClockRate), composition
}

// duration returns the duration of n ticks or samples at a rate.
func duration(n, rate int64) time.Duration {
	whole := n / rate * int64(time.Second)
	return time.Duration(whole + n%rate*int64(time.Second)/rate)
}

// videoPES hands on a frame of video.
func (d *Demuxer) videoPES(t *demuxTrack, p pes) error {
	at, composition := t.next, time.Duration(0)
	switch {
	case p.timed:
		at, composition = d.clock.times(p)
		if before := t.next - t.step; t.timed && at > before && at < before+time.Second {
			t.next, t.step = at, at-before
		}
	case !t.timed:
		return nil
	}
	t.next, t.timed = at+t.step, true
	packet := codec.Packet{Kind: codec.Video, Codec: t.codec, Composition: composition}
	if !t.supported {
		packet.Data = bytes.Clone(p.data)
		return d.take(packet, at)
	}
	if packet.Data = codec.FromAnnexB(p.data); len(packet.Data) == 0 {
		d.drop()
		return nil
	}
	return d.take(packet, at)
}
