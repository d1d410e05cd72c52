package mpegts

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"slices"
	"time"

	"weir/internal/codec"
)

const (
	// maxPES is the maximum size of a PES packet.
	maxPES = codec.MaxFrame
	// keptPES is the maximum size of a buffer that is reused for the next PES packet.
	keptPES = 1 << 20
	// maxComposition is the maximum time from decoding to presentation.
	maxComposition = 10 * time.Second
	// logEvery is the minimum interval of log lines about damage.
	logEvery = 10 * time.Second
)

// Demuxer makes packets of a transport stream. It uses the first program, and one video track and
// one audio track of it.
//
// It accepts any bytes: after loss or damage it drops data up to the next complete frame. Its
// errors are those of take.
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

	dropped int // frames, or places without a packet, since the last log line
	logged  time.Time
}

// demuxTrack is the state of a track.
type demuxTrack struct {
	trackInfo
	counter int    // of its packets, modulo 16; -1 = not known
	pes     []byte // the unfinished PES packet
	begun   bool   // there is one

	// The time of the next frame if it has no time stamp: video continues in the step of the frames
	// before it, audio at their end.
	next  time.Duration
	step  time.Duration
	timed bool

	audio audioFrames
}

// NewDemuxer returns a demuxer that gives packets to take, with their decode times. The data of a
// packet belongs to take. announce gets the kinds of tracks whenever a table lists them. Damage is
// logged.
func NewDemuxer(take func(p codec.Packet, at time.Duration) error, announce func(video, audio bool), log *slog.Logger) *Demuxer {
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

// Lost notes that bytes are missing before those that are written next.
func (d *Demuxer) Lost() {
	d.carry = d.carry[:0]
	d.programs.reset()
	d.tracks.reset()
	for _, t := range d.used() {
		d.damage(t)
		t.counter = -1
	}
}

func (d *Demuxer) used() []*demuxTrack {
	return slices.DeleteFunc([]*demuxTrack{d.video, d.audio}, func(t *demuxTrack) bool { return t == nil })
}

// drop counts and logs that something was dropped.
func (d *Demuxer) drop() {
	d.dropped++
	if now := time.Now(); now.Sub(d.logged) > logEvery {
		d.log.Warn("the transport stream is damaged; frames were dropped", "count", d.dropped)
		d.dropped, d.logged = 0, now
	}
}

// damage drops the unfinished frame.
func (d *Demuxer) damage(t *demuxTrack) {
	if t.begun || len(t.audio.rest) > 0 {
		d.drop()
	}
	t.begun, t.pes, t.audio.rest = false, t.pes[:0], nil
}

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

// payload takes the next bytes of a PES packet.
func (d *Demuxer) payload(t *demuxTrack, payload []byte, starts bool) error {
	if starts {
		if err := d.endPES(t); err != nil {
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
	// A PES packet with a length is complete before the next one starts.
	if size, ok := pesSize(t.pes); ok && len(t.pes) >= size {
		t.pes = t.pes[:size]
		return d.endPES(t)
	}
	return nil
}

// Flush passes on the last frames, which no other frame completes.
func (d *Demuxer) Flush() error {
	for _, t := range d.used() {
		if err := d.endPES(t); err != nil {
			return err
		}
	}
	return nil
}

// endPES passes on the frames of a PES packet, if it is complete.
func (d *Demuxer) endPES(t *demuxTrack) error {
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

// stampClock unwraps time stamps, which wrap every 26.5 hours. All tracks share it, so that none is
// a day ahead.
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
	if composition = codec.Duration(pts-dts, ClockRate); composition < 0 || composition > maxComposition {
		composition = 0
	}
	return codec.Duration(dts, ClockRate), composition
}

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
	data := bytes.Clone(p.data)
	if t.supported {
		if data = codec.FromAnnexB(p.data); len(data) == 0 {
			d.drop()
			return nil
		}
	}
	return d.take(codec.Packet{Kind: codec.Video, Codec: t.codec, Composition: composition, Data: data}, at)
}
