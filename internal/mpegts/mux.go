package mpegts

import (
	"cmp"
	"io"
	"slices"

	"weir/internal/weir"
)

// Times of a muxer, in ticks.
const (
	// origin is the time stamp of time 0. It allows decode times before 0. It is the same for every
	// stream, so all renditions and alternate audio tracks of a presentation stay in sync.
	origin = 10 * ClockRate

	maxDelay    = 5 * ClockRate  // between decode and presentation time; see decodeTimes
	clockLead   = ClockRate / 10 // how long before its decode time a frame arrives
	maxClockGap = ClockRate / 10 // between two clock values; the standard allows no more
	maxSilence  = 10 * ClockRate // a longer gap starts a new clock
	maxAudioRun = ClockRate / 5  // of audio in one PES packet
	maxAudioPES = 0xFFFF - 8     // bytes of audio in one PES packet: it must have a length
)

// The packet identifiers of a muxer.
const (
	pidTables = 0x1000
	pidVideo  = 0x100
	pidAudio  = 0x101
)

// Unit is a frame of video or of audio. Times are in ticks of ClockRate.
//
// Decode times may be the sorted presentation times, and so later than the presentation time of a
// frame: the muxer moves them all ahead by the delay that the frames need.
type Unit struct {
	PTS      int64
	DTS      int64 // of video
	Duration int64 // of audio; 0 = not known
	Sync     bool  // of video: decoding can start here
	Data     []byte
}

// Muxer writes the segments of a video track, an audio track, or one of each. Each segment
// continues the one before it seamlessly: the state has what they share.
type Muxer struct {
	video, audio *muxTrack
	pat, pmt     []byte // payloads of their packets
	state        State

	// The current segment. The memory is reused.
	videoUnits, audioUnits []pesUnit
	frames                 [][]byte

	pes []byte // reused by every PES packet
	out packetWriter
}

// State is the state of a muxer between two segments. Its zero value is the start of a rendition.
// It is stored as JSON.
type State struct {
	PAT   uint8 `json:"pat"` // the next continuity counters
	PMT   uint8 `json:"pmt"`
	Video uint8 `json:"video"`
	Audio uint8 `json:"audio"`

	Delay   int64 `json:"delay"`   // from the decode times of the stream to those of the units
	Started bool  `json:"started"` // there was a segment
	Decoded int64 `json:"decoded"` // the last decode time of video
	Clock   int64 `json:"clock"`   // the last clock value
}

// pesUnit becomes one PES packet: a frame of video, or some frames of audio.
type pesUnit struct {
	track      *muxTrack
	due        int64 // orders the units: when the first frame is decoded
	pts, dts   int64
	duration   int64 // of audio
	sync       bool
	first, end int // its frames
}

// NewMuxer returns a muxer that continues after the segment with this state. Either track may be
// nil. The error says which codec a transport stream can't carry.
func NewMuxer(video, audio *Track, state State) (*Muxer, error) {
	m := &Muxer{state: state}
	var err error
	if video != nil {
		if m.video, err = newMuxTrack(*video, pidVideo); err != nil {
			return nil, err
		}
	}
	if audio != nil {
		if m.audio, err = newMuxTrack(*audio, pidAudio); err != nil {
			return nil, err
		}
	}
	if m.video == nil && m.audio == nil {
		return nil, weir.Errorf(weir.Invalid, "a transport stream needs a track")
	}
	m.pat = patSection()
	m.pmt = pmtSection(m.clockPID(), m.video, m.audio)
	return m, nil
}

// StateAlone returns a state from which any segment of a rendition can be written without those
// before it. delay is the maximum of DTS-PTS in the rendition. The segment says that its counters
// do not continue others.
func StateAlone(delay int64) State { return State{Delay: min(maxDelay, delay+1)} }

// State returns what NewMuxer needs to continue after the last segment.
func (m *Muxer) State() State { return m.state }

func (m *Muxer) clockPID() uint16 {
	if m.video != nil {
		return m.video.pid
	}
	return m.audio.pid
}

// AddVideo adds frames to the current segment, in decode order. The data must not change until the
// segment is written. The first frame of a segment is a sync sample.
func (m *Muxer) AddVideo(units ...Unit) {
	m.frames = slices.Grow(m.frames, len(units))
	m.videoUnits = slices.Grow(m.videoUnits, len(units))
	for _, u := range units {
		m.frames = append(m.frames, u.Data)
		m.videoUnits = append(m.videoUnits, pesUnit{
			track: m.video, pts: u.PTS + origin, dts: u.DTS + origin, sync: u.Sync,
			first: len(m.frames) - 1, end: len(m.frames),
		})
	}
}

// AddAudio adds frames to the current segment, each of which starts where the one before it ends.
// Several share a PES packet: a packet for each would waste half a transport packet. The data must
// not change until the segment is written.
func (m *Muxer) AddAudio(run ...Unit) {
	header := 0
	if m.audio != nil {
		header = len(m.audio.adts)
	}
	m.frames = slices.Grow(m.frames, len(run))
	for len(run) > 0 {
		n, payload := 0, 0
		end := run[0].PTS
		for n < len(run) {
			payload += len(run[n].Data) + header
			next := run[n].PTS + run[n].Duration
			if n > 0 && (payload > maxAudioPES || next-run[0].PTS > maxAudioRun) {
				break
			}
			m.frames = append(m.frames, run[n].Data)
			n, end = n+1, next
		}
		pts := run[0].PTS + origin
		m.audioUnits = append(m.audioUnits, pesUnit{
			track: m.audio, pts: pts, dts: pts, duration: end - run[0].PTS, sync: true,
			first: len(m.frames) - n, end: len(m.frames),
		})
		run = run[n:]
	}
}

// WriteSegment writes the current segment. After an error the state is what it was before, and the
// segment is dropped.
func (m *Muxer) WriteSegment(w io.Writer) error {
	defer func() {
		clear(m.frames) // they are the caller's
		m.frames, m.videoUnits, m.audioUnits = m.frames[:0], m.videoUnits[:0], m.audioUnits[:0]
	}()
	if len(m.videoUnits) > 0 && m.video == nil || len(m.audioUnits) > 0 && m.audio == nil {
		return weir.Errorf(weir.Internal, "media for a track that is not in the transport stream")
	}
	state := m.state
	units := m.schedule(&state)
	m.out.reset(w)
	var fields []field
	tables := payloadSize
	if !m.state.Started {
		fields = []field{jumpField()}
		tables -= 1 + len(fields[0].bytes())
	}
	m.out.packets(0, &state.PAT, m.pat[:tables], fields)
	m.out.packets(pidTables, &state.PMT, m.pmt[:tables], fields)
	if err := m.writeUnits(&state, units); err != nil {
		return err
	}
	if err := m.out.flush(); err != nil {
		return err
	}
	m.state = state
	return nil
}

// schedule returns the units of the current segment in the order in which they are written.
func (m *Muxer) schedule(state *State) []pesUnit {
	if len(m.videoUnits) > 0 {
		if !state.Started && state.Delay == 0 {
			state.Delay = reorderDelay(m.videoUnits, m.video.delay)
		}
		decodeTimes(m.videoUnits, state)
	}
	for i := range m.audioUnits {
		// Audio arrives as early as the video of its presentation time, so a segment ends where the
		// clock of the next one begins.
		m.audioUnits[i].due = m.audioUnits[i].pts - state.Delay
	}
	m.videoUnits = append(m.videoUnits, m.audioUnits...)
	units := m.videoUnits
	slices.SortStableFunc(units, func(a, b pesUnit) int { return cmp.Compare(a.due, b.due) })
	state.Started = state.Started || len(units) > 0
	return units
}

// reorderDelay returns how far ahead of the units' decode times frames must be decoded, so that
// none is decoded after its presentation time; delay is the minimum.
func reorderDelay(units []pesUnit, delay int64) int64 {
	for _, u := range units {
		delay = max(delay, u.dts-u.pts)
	}
	return min(delay, maxDelay)
}

// decodeTimes moves the decode times ahead by the delay of the rendition, or further if frames are
// reordered more than in the first segment. The decode times always rise, and none is after its
// presentation time.
func decodeTimes(units []pesUnit, state *State) {
	limit := int64(1) << 62
	for i := len(units) - 1; i >= 0; i-- {
		u := &units[i]
		u.dts = min(u.dts-state.Delay, u.pts, limit-1)
		limit = u.dts
	}
	last := state.Decoded
	if !state.Started || units[0].pts <= last { // the timeline may start again
		last = units[0].dts - 1
	}
	for i := range units {
		u := &units[i]
		u.dts = min(max(u.dts, last+1), u.pts)
		last = u.dts
		u.due = u.dts
	}
	state.Decoded = last
}

func (s *State) counter(pid uint16) *uint8 {
	if pid == pidVideo {
		return &s.Video
	}
	return &s.Audio
}

// writeUnits writes the PES packets, with clock values as often as the standard demands.
func (m *Muxer) writeUnits(state *State, units []pesUnit) error {
	clockPID := m.clockPID()
	first := !m.state.Started
	for i := range units {
		u := &units[i]
		ownClock := u.track.pid == clockPID
		// In a live stream, audio may be a little behind the clock of video.
		late, maxLate := state.Clock-u.due, int64(clockLead)
		if ownClock {
			maxLate = 0
		}
		jump := i == 0 && (!m.state.Started || late > maxLate || -late > maxSilence)
		if i == 0 && !ownClock && (jump || late <= 0) {
			m.out.clock(clockPID, *state.counter(clockPID), u.due, jump)
			state.Clock = u.due
		}
		if i > 0 && u.due-state.Clock <= maxSilence {
			for u.due-state.Clock > maxClockGap {
				state.Clock += maxClockGap
				m.out.clock(clockPID, *state.counter(clockPID), state.Clock, false)
			}
		}

		if err := m.buildPES(u); err != nil {
			return err
		}
		var fields [2]field
		n := 0
		if ownClock {
			fields[0], n = clockField(u.due, u.sync, jump), 1
			state.Clock = u.due
			if half := u.duration / 2; u.duration > maxClockGap {
				fields[1], n = clockField(u.due+half, false, false), 2
				state.Clock += half
			}
		} else if first {
			fields[0], n, first = jumpField(), 1, false
		}
		m.out.packets(u.track.pid, state.counter(u.track.pid), m.pes, fields[:n])
		if m.out.err != nil {
			return m.out.err
		}
	}
	return nil
}

func (m *Muxer) buildPES(u *pesUnit) (err error) {
	m.pes = appendPESHeader(m.pes[:0], u.track.streamID, u.pts, u.dts)
	for _, frame := range m.frames[u.first:u.end] {
		if m.pes, err = u.track.appendFrame(m.pes, frame, u.sync); err != nil {
			return err
		}
	}
	finishPES(m.pes)
	return nil
}
