package cmaf

import (
	"cmp"
	"io"
	"slices"

	"weir/internal/weir"
)

// The clock of MPEG-TS.
const (
	tsClock = 90000 // ticks of a second

	// tsOrigin is where the timeline's 0 lies in MPEG-TS. It leaves room for decode
	// times before 0, and is the same for everything, so that all renditions and
	// alternate audio tracks of a presentation stay in step.
	tsOrigin = 10 * tsClock

	tsMaxDelay = 5 * tsClock  // between decoding and showing; see decodeTimes
	tsLead     = tsClock / 10 // how long before it is decoded a frame arrives
	tsMaxPCR   = tsClock / 10 // between two clock values; the standard allows no more
	tsMaxGap   = 10 * tsClock // a longer silence starts a new clock
	tsGroup    = tsClock / 5  // of audio in one PES packet
	tsMaxPES   = 0xffff - 8   // of payload, when its length must be told
	tsWrap     = 1<<33 - 1    // time stamps have 33 bits
)

// The packet identifiers.
const (
	tsPIDTables = 0x1000
	tsPIDVideo  = 0x100
	tsPIDAudio  = 0x101
)

// TS writes MPEG-TS segments of a video track, an audio track, or one of each.
// The segments of one rendition follow one another without a seam: what must go on
// from one to the next is in the state.
type TS struct {
	video, audio *tsStream
	pat, pmt     []byte // payloads of their packets
	state        TSState

	units []tsUnit // reused by every segment
	pes   []byte   // reused by every PES packet
	out   tsPackets
}

// TSState is what a TS knows after a segment, and needs for the next one. Its
// zero value is the start of a rendition; see also TSAlone.
type TSState struct {
	PAT   uint8 `json:"pat"` // the next continuity counters
	PMT   uint8 `json:"pmt"`
	Video uint8 `json:"video"`
	Audio uint8 `json:"audio"`

	Delay   int64 `json:"delay"`   // how far video is decoded ahead of its sorted presentation times
	Started bool  `json:"started"` // there was a segment
	Decoded int64 `json:"decoded"` // the last decode time of video
	Clock   int64 `json:"clock"`   // when the last unit was due
}

// tsStream is a track on its way into MPEG-TS.
type tsStream struct {
	pid       uint16
	timescale int64
	delay     int64 // of the track, on the clock
	codec     tsCodec
}

// tsUnit is what becomes one PES packet: a frame of video, or some of audio.
type tsUnit struct {
	stream   *tsStream
	due      int64 // orders the units, on the clock
	pts, dts int64
	length   int64 // of audio
	sync     bool
	data     []byte   // the frames, one after the other
	samples  []Sample // their sizes
}

// NewTS returns a TS at the start of a rendition. Either track may be nil. The
// error says which codec has no place in MPEG-TS.
func NewTS(video, audio *Track) (*TS, error) {
	return RestoreTS(video, audio, TSState{})
}

// RestoreTS returns a TS that goes on where the one with that state stopped.
func RestoreTS(video, audio *Track, state TSState) (*TS, error) {
	t := &TS{state: state}
	var err error
	if t.video, err = newTSStream(video, Video, tsPIDVideo); err != nil {
		return nil, err
	}
	if t.audio, err = newTSStream(audio, Audio, tsPIDAudio); err != nil {
		return nil, err
	}
	if t.video == nil && t.audio == nil {
		return nil, weir.Errorf(weir.Invalid, "a transport stream needs a track")
	}
	t.pat = patSection()
	t.pmt = pmtSection(t.clockPID(), t.video, t.audio)
	return t, nil
}

func newTSStream(t *Track, kind Kind, pid uint16) (*tsStream, error) {
	if t == nil {
		return nil, nil
	}
	if t.Kind != kind || t.Timescale == 0 {
		return nil, weir.Errorf(weir.Invalid, "a track of kind %q with timescale %d can't be the %s of a transport stream", t.Kind, t.Timescale, kind)
	}
	codec, err := newTSCodec(*t)
	if err != nil {
		return nil, err
	}
	scale := int64(t.Timescale)
	return &tsStream{pid: pid, timescale: scale, delay: rescale(t.Delay, scale, tsClock), codec: codec}, nil
}

// TSAlone returns the state from which any segment of a track can be written
// without those before it. The segment says of itself that its counters do not go on.
func TSAlone(t TrackIndex) TSState {
	delay := t.Track.Delay
	for _, s := range t.Segments {
		for _, p := range s.Parts {
			for _, sample := range p.Samples {
				delay = max(delay, -int64(sample.Offset))
			}
		}
	}
	scale := max(1, int64(t.Track.Timescale))
	return TSState{Delay: min(tsMaxDelay, rescale(delay, scale, tsClock)+1)}
}

// State returns what RestoreTS needs to go on after the last segment.
func (t *TS) State() TSState { return t.state }

func (t *TS) clockPID() uint16 {
	if t.video != nil {
		return t.video.pid
	}
	return t.audio.pid
}

// Segment writes a segment of these fragments, which are in order of time and, if
// there is video, start with a sync sample. After an error the state is what it was
// before.
func (t *TS) Segment(w io.Writer, video, audio []Fragment) error {
	state := t.state
	t.units = t.units[:0]
	if err := t.addVideo(&state, video); err != nil {
		return err
	}
	if err := t.addAudio(&state, audio); err != nil {
		return err
	}
	slices.SortStableFunc(t.units, func(a, b tsUnit) int { return cmp.Compare(a.due, b.due) })
	if len(t.units) > 0 {
		state.Started = true
	}

	t.out.reset(w)
	var fields []tsField
	tables := tsPayload
	if !t.state.Started {
		fields = []tsField{freshField()}
		tables -= 1 + len(fields[0].bytes())
	}
	t.out.packets(0, &state.PAT, t.pat[:tables], fields)
	t.out.packets(tsPIDTables, &state.PMT, t.pmt[:tables], fields)
	if err := t.writeUnits(&state); err != nil {
		return err
	}
	if err := t.out.flush(); err != nil {
		return err
	}
	t.state = state
	clear(t.units) // lets go of the caller's bytes
	return nil
}

// addVideo makes a unit of each frame.
func (t *TS) addVideo(state *TSState, fragments []Fragment) error {
	if len(fragments) > 0 && t.video == nil {
		return weir.Errorf(weir.Internal, "video for a transport stream without video")
	}
	for _, f := range fragments {
		data, start := f.Data, f.Start
		for i, s := range f.Samples {
			if int64(s.Size) > int64(len(data)) {
				return weir.Errorf(weir.Invalid, "fragment at %d: its samples are longer than its data", f.Start)
			}
			t.units = append(t.units, tsUnit{
				stream: t.video, sync: s.Sync, data: data[:s.Size], samples: f.Samples[i : i+1],
				dts: t.video.ticks(start), pts: t.video.ticks(start + int64(s.Offset)),
			})
			data = data[s.Size:]
			start += int64(s.Duration)
		}
	}
	if len(t.units) == 0 {
		return nil
	}
	if !state.Started && state.Delay == 0 {
		state.Delay = reorderDelay(t.units, t.video.delay)
	}
	decodeTimes(t.units, state)
	return nil
}

// reorderDelay returns how much earlier than the sorted presentation times frames
// must be decoded so that none is decoded after it should be shown: as much as the
// track says, or as the frames at hand need.
func reorderDelay(units []tsUnit, delay int64) int64 {
	for _, u := range units {
		delay = max(delay, u.dts-u.pts)
	}
	return min(delay, tsMaxDelay)
}

// decodeTimes moves the decode times, which are the sorted presentation times,
// ahead by the delay of the rendition. Where that is not enough, since frames may
// come to lie further apart than they did in the first segment, it moves them as
// far as they need: they always rise, and none is after its presentation time.
func decodeTimes(units []tsUnit, state *TSState) {
	limit := int64(1) << 62
	for i := len(units) - 1; i >= 0; i-- {
		u := &units[i]
		u.dts = min(u.dts-state.Delay, u.pts, limit-1)
		limit = u.dts
	}
	last := state.Decoded
	if !state.Started || units[0].pts <= last { // the timeline may start over
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

// addAudio makes units of frames that follow one another. One of a single frame
// would waste half a packet on each.
func (t *TS) addAudio(state *TSState, fragments []Fragment) error {
	if len(fragments) > 0 && t.audio == nil {
		return weir.Errorf(weir.Internal, "audio for a transport stream without audio")
	}
	for _, f := range fragments {
		data, start := f.Data, f.Start
		for len(f.Samples) > 0 {
			u := tsUnit{stream: t.audio, pts: t.audio.ticks(start), sync: true}
			n, size, payload := 0, 0, 0
			for n < len(f.Samples) {
				s := f.Samples[n]
				payload += int(s.Size) + len(t.audio.codec.adts)
				end := start + int64(s.Duration)
				if n > 0 && (payload > tsMaxPES || t.audio.ticks(end)-u.pts > tsGroup) {
					break
				}
				n, size, start = n+1, size+int(s.Size), end
			}
			if size > len(data) {
				return weir.Errorf(weir.Invalid, "fragment at %d: its samples are longer than its data", f.Start)
			}
			u.length = t.audio.ticks(start) - u.pts
			u.data, u.samples = data[:size], f.Samples[:n]
			data, f.Samples = data[size:], f.Samples[n:]
			// Beside video, audio arrives as early as the video that is shown with it:
			// so a segment ends where the clock of the next one begins.
			u.dts, u.due = u.pts, u.pts-state.Delay
			t.units = append(t.units, u)
		}
	}
	return nil
}

// writeUnits writes the PES packets, with the clock at least as often as the
// standard asks.
func (t *TS) writeUnits(state *TSState) error {
	clockPID := t.clockPID()
	fresh := !t.state.Started
	counter := map[uint16]*uint8{tsPIDVideo: &state.Video, tsPIDAudio: &state.Audio}
	for i, u := range t.units {
		jump := i == 0 && (!t.state.Started || u.due < t.state.Clock || u.due > t.state.Clock+tsMaxGap)
		ownClock := u.stream.pid == clockPID
		if i == 0 && !ownClock {
			t.out.clock(clockPID, *counter[clockPID], u.due, jump)
			state.Clock = u.due
		}
		if i > 0 && u.due-state.Clock <= tsMaxGap {
			for u.due-state.Clock > tsMaxPCR {
				state.Clock += tsMaxPCR
				t.out.clock(clockPID, *counter[clockPID], state.Clock, false)
			}
		}

		var err error
		if t.pes, err = u.appendPES(t.pes[:0]); err != nil {
			return err
		}
		var fields [2]tsField
		n := 0
		if ownClock {
			fields[0], n = clockField(u.due, u.sync, jump), 1
			state.Clock = u.due
			if half := u.length / 2; u.length > tsMaxPCR {
				fields[1], n = clockField(u.due+half, false, false), 2
				state.Clock += half
			}
		} else if fresh {
			fields[0], n, fresh = freshField(), 1, false
		}
		t.out.packets(u.stream.pid, counter[u.stream.pid], t.pes, fields[:n])
		if t.out.err != nil {
			return t.out.err
		}
	}
	return nil
}

// appendPES appends the PES packet of a unit.
func (u *tsUnit) appendPES(dst []byte) ([]byte, error) {
	codec := &u.stream.codec
	const aligned = 0x84 // the payload starts with a frame
	stamps, length := byte(0x80), byte(5)
	if u.pts != u.dts {
		stamps, length = 0xc0, 10
	}
	dst = append(dst, 0, 0, 1, codec.streamID, 0, 0, aligned, stamps, length)
	dst = appendStamp(dst, stamps>>2, u.pts)
	if u.pts != u.dts {
		dst = appendStamp(dst, 0x10, u.dts)
	}

	var err error
	data := u.data
	for _, s := range u.samples {
		if dst, err = codec.appendFrame(dst, data[:s.Size], u.sync); err != nil {
			return nil, err
		}
		data = data[s.Size:]
	}
	if n := len(dst) - 6; n <= 0xffff { // longer video tells no length
		dst[4], dst[5] = byte(n>>8), byte(n)
	}
	return dst, nil
}

// appendStamp appends a time stamp of 33 bits behind a prefix of four.
func appendStamp(dst []byte, prefix byte, t int64) []byte {
	t &= tsWrap
	return append(
		dst,
		prefix|byte(t>>29)&0x0e|1,
		byte(t>>22), byte(t>>14)|1,
		byte(t>>7), byte(t<<1)|1,
	)
}

// ticks turns a time of the track into one of the transport stream.
func (s *tsStream) ticks(t int64) int64 { return rescale(t, s.timescale, tsClock) + tsOrigin }

// rescale turns ticks of one timescale into ticks of another, rounded down.
func rescale(t, from, to int64) int64 {
	seconds, rest := t/from, t%from
	if rest < 0 {
		seconds, rest = seconds-1, rest+from
	}
	return seconds*to + rest*to/from
}
