package live

import (
	"fmt"
	"math"
	"slices"
	"time"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

const (
	// sampleEvery is how much time a sample of the health tells of, and over which rates
	// are measured.
	sampleEvery = 10 * time.Second
	// healthWindow is what "usual" and "in the last minute" look back on.
	healthWindow = time.Minute
	// maxSamples is how many samples wait for a store that can't be written.
	maxSamples = 60
)

// What a healthy stream keeps to.
const (
	maxKeyFrames      = 4200 * time.Millisecond // longer segments make a slow start and long delays
	maxSilence        = 5 * time.Second         // of one track, or of all
	shortestHole      = time.Second             // between two frames of a track
	maxDrift          = time.Second             // between audio and video of the same time
	maxDriftApart     = 200 * time.Millisecond  // since the encoder connected
	fewestCompared    = 20                      // pictures, before anything is said of drift
	fewestOfUsual     = 0.25                    // of the bits
	fewestFrames      = 0.5                     // of the pictures
	slowestPace       = 0.9                     // seconds of media in a second
	maxConnections    = 3                       // in a minute
	untilUsual        = 15 * time.Second        // measured, until there is something usual
	smallestUsualRate = 100_000                 // bits a second below which nothing is said of the bitrate
)

// meter measures how an encoder does. A frame costs it a few additions; everything else
// is worked out when somebody asks, from what the sums were a while ago.
type meter struct {
	video, audio bool      // what the encoder announced
	since        time.Time // when it did
	arrivals     []time.Time

	sums     sums
	pictures heard
	audios   heard
	lastKey  time.Duration // when the newest key frame is, on the timeline
	hasKey   bool
	interval time.Duration // between the last two key frames

	marks   []mark         // the oldest first
	first   *time.Duration // by how much audio was before the picture at first
	sampled time.Time
	waiting []weir.HealthSample // that the store may not have yet
}

// heard is what came last of a track.
type heard struct {
	at    time.Duration // on the timeline
	since time.Time
	any   bool
}

// sums only ever grow.
type sums struct {
	bytes, pictures, gaps, jumps, lost int64
	media                              time.Duration // how far the timeline is
	ahead                              time.Duration // of audio before the picture, summed over compared
	compared                           int64
}

// mark is what the sums were at a moment.
type mark struct {
	at time.Time
	sums
}

// connected notes that an encoder has come, or sends something else now. What was usual
// before says nothing of it.
func (m *meter) connected(tracks []cmaf.Track, comes bool, now time.Time) {
	if comes {
		m.arrivals = append(m.arrivals, now)
	}
	m.video, m.audio, m.since = false, false, now
	for _, t := range tracks {
		m.video = m.video || t.Kind == cmaf.Video
		m.audio = m.audio || t.Kind == cmaf.Audio
	}
	m.pictures, m.audios, m.hasKey, m.interval, m.first = heard{}, heard{}, false, 0, nil
	m.marks = append(m.marks[:0], mark{now, m.sums})
	m.sampled = now
}

// frame counts one, at its time on the timeline.
func (m *meter) frame(audio, key, jumped bool, dts time.Duration, size int, now time.Time) {
	m.sums.bytes += int64(size)
	of := &m.pictures
	if audio {
		of = &m.audios
	}
	switch {
	case jumped:
		m.sums.jumps++
		m.hasKey, m.first = false, nil
	case of.any && dts-of.at > shortestHole:
		m.sums.gaps++
	}
	of.at, of.since, of.any = dts, now, true
	if audio {
		if !m.video {
			m.sums.media = max(m.sums.media, dts)
		}
		return
	}
	m.sums.pictures++
	m.sums.media = max(m.sums.media, dts)
	if m.audios.any && now.Sub(m.audios.since) < shortestHole { // otherwise there is no audio to compare with
		m.sums.ahead += m.audios.at - dts
		m.sums.compared++
	}
	if !key {
		return
	}
	if m.hasKey {
		m.interval = dts - m.lastKey
	}
	m.lastKey, m.hasKey = dts, true
}

// keyFrames returns the time between key frames: that of the last two, or more when the
// next one is overdue.
func (m *meter) keyFrames() time.Duration {
	if !m.hasKey {
		return m.interval
	}
	return max(m.interval, m.pictures.at-m.lastKey)
}

// look takes down where the sums are, and a sample when one is due.
func (m *meter) look(lag time.Duration, lost int64, now time.Time) {
	m.sums.lost = max(m.sums.lost, lost)
	if n := len(m.marks); n > 0 && now.Sub(m.marks[n-1].at) < time.Second {
		return
	}
	m.marks = append(m.marks, mark{now, m.sums})
	old := 0
	for old < len(m.marks)-1 && now.Sub(m.marks[old+1].at) >= healthWindow {
		old++
	}
	m.marks = slices.Delete(m.marks, 0, old)
	m.arrivals = slices.DeleteFunc(m.arrivals, func(at time.Time) bool { return now.Sub(at) > healthWindow })
	if now.Sub(m.sampled) < sampleEvery-beatEvery/2 { // whoever looks comes a little early or late
		return
	}
	r := m.over(m.sampled, now)
	if m.first == nil && r.compared > fewestCompared && r.jumps == 0 {
		m.first = &r.drift
	}
	m.sampled = now
	m.waiting = append(m.waiting, weir.HealthSample{
		Time: weir.At(now), Bitrate: math.Round(r.bitrate), FPS: round(r.fps), Pace: round(r.pace), KeyFrameInterval: round(m.keyFrames().Seconds()),
		Gaps: r.gaps, Jumps: r.jumps, Drift: round(r.drift.Seconds()), RungLag: round(lag.Seconds()), LostFrames: r.lost,
	})
	if n := len(m.waiting); n > maxSamples {
		m.waiting = slices.Delete(m.waiting, 0, n-maxSamples)
	}
}

// written notes that the store has the samples of before a moment.
func (m *meter) written(before weir.Millis) {
	m.waiting = slices.DeleteFunc(m.waiting, func(s weir.HealthSample) bool { return s.Time < before })
}

// round keeps thousandths.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// rates are what the sums did between two moments.
type rates struct {
	span              time.Duration
	bitrate, fps      float64
	pace              float64
	gaps, jumps, lost int64
	compared          int64 // pictures that drift is the mean of
	drift             time.Duration
}

// over returns the rates between the marks that are nearest before two moments.
func (m *meter) over(from, to time.Time) rates {
	return m.before(to).since(m.before(from))
}

func (m *meter) before(at time.Time) mark {
	found := m.marks[0]
	for _, mark := range m.marks {
		if mark.at.After(at) {
			break
		}
		found = mark
	}
	return found
}

func (b mark) since(a mark) rates {
	r := rates{span: b.at.Sub(a.at), gaps: b.gaps - a.gaps, jumps: b.jumps - a.jumps, lost: b.lost - a.lost, compared: b.compared - a.compared}
	if r.compared > 0 {
		r.drift = (b.ahead - a.ahead) / time.Duration(r.compared)
	}
	if s := r.span.Seconds(); s > 0 {
		r.bitrate, r.fps, r.pace = float64(b.bytes-a.bytes)*8/s, float64(b.pictures-a.pictures)/s, (b.media-a.media).Seconds()/s
	}
	return r
}

// issues says what is not well, in sentences that somebody can act on.
func (m *meter) issues(now time.Time) []string {
	if len(m.marks) == 0 {
		return nil
	}
	var issues []string
	say := func(format string, args ...any) { issues = append(issues, fmt.Sprintf(format, args...)) }
	if n := len(m.arrivals); n >= maxConnections {
		say("the encoder connected %d times in the last minute; check its line to this server", n)
	}
	quiet := func(h heard) time.Duration {
		if !h.any {
			return now.Sub(m.since)
		}
		return now.Sub(h.since)
	}
	noPicture, noAudio := m.video && quiet(m.pictures) > maxSilence, m.audio && quiet(m.audios) > maxSilence
	switch {
	case noPicture && (noAudio || !m.audio) || noAudio && !m.video:
		silence := quiet(m.audios)
		if m.video {
			silence = quiet(m.pictures)
		}
		say("nothing has come from the encoder for %.0f s, though it is connected; check its line to this server", silence.Seconds())
		return issues // of what does not come, nothing else can be said
	case noPicture:
		say("no picture for %.0f s; check the video source of the encoder", quiet(m.pictures).Seconds())
	case noAudio:
		say("no sound for %.0f s; check the audio source of the encoder", quiet(m.audios).Seconds())
	}
	if k := m.keyFrames(); k > maxKeyFrames {
		say("key frames every %.1f s; set the encoder's key-frame interval to 2 s", k.Seconds())
	}
	return append(issues, m.rateIssues(now)...)
}

// rateIssues says what changed for the worse, and what goes wrong again and again.
func (m *meter) rateIssues(now time.Time) []string {
	var issues []string
	say := func(format string, args ...any) { issues = append(issues, fmt.Sprintf(format, args...)) }
	minute := m.over(m.marks[0].at, now)
	recent := m.over(now.Add(-sampleEvery), now)
	usual := m.over(m.marks[0].at, now.Add(-sampleEvery))
	if usual.span >= untilUsual {
		if recent.bitrate < fewestOfUsual*usual.bitrate && usual.bitrate >= smallestUsualRate {
			say("the bitrate fell to %.1f Mb/s, from %.1f; check the encoder's line, or lower its bitrate", recent.bitrate/1e6, usual.bitrate/1e6)
		}
		if m.video && recent.fps < fewestFrames*usual.fps {
			say("only %.0f frames a second, after %.0f; the encoder drops frames: its machine or its line is too slow", recent.fps, usual.fps)
		} else if minute.pace < slowestPace && recent.pace < slowestPace {
			say("the encoder sends only %.1f s of media in a second; its machine or its line is too slow", recent.pace)
		}
	}
	switch {
	case recent.compared < fewestCompared || now.Sub(m.audios.since) > maxSilence:
	case recent.drift > maxDrift:
		say("the picture comes %.1f s later than its sound; lower the video delay of the encoder", recent.drift.Seconds())
	case recent.drift < -maxDrift:
		say("the sound comes %.1f s later than its picture; lower the audio delay of the encoder", -recent.drift.Seconds())
	case m.first != nil && (recent.drift-*m.first).Abs() > maxDriftApart:
		say("sound and picture have drifted apart by %d ms since the encoder connected; set both to one clock", (recent.drift - *m.first).Abs().Milliseconds())
	}
	if minute.gaps > 0 {
		say("%s in the last minute in which frames are missing; check the encoder's line and the load of its machine", count(minute.gaps, "hole"))
	}
	if minute.jumps > 0 {
		say("the clock of the encoder jumped in the last minute, %s; viewers see a cut", count(minute.jumps, "time"))
	}
	return issues
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// measure brings the meter up to date and returns what is not well; failing is that of
// the multistream targets. The caller holds mu.
func (s *session) measure(now time.Time, failing []string) []string {
	issues := s.issues(now, failing)
	s.unwell = len(issues) > 0
	return issues
}

func (s *session) issues(now time.Time, failing []string) []string {
	switch {
	case s.publisher != nil:
		s.health.look(s.ladder.lag(), s.lostFrames(), now)
		return slices.Concat(s.health.issues(now), failing, s.ladder.issues(), s.audioIssues(), s.recordingIssues())
	case s.offAir.After(now) && !s.seen.IsZero():
		return []string{fmt.Sprintf("the connection of the encoder was lost %.0f s ago; it must connect again", now.Sub(s.seen).Seconds())}
	}
	return nil
}

// lostFrames returns how many frames readers beside the packager were too slow for.
func (s *session) lostFrames() int64 {
	n := s.lost
	for _, t := range s.taps {
		n += t.Lost()
	}
	return n
}
