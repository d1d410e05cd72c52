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
	// sampleEvery is the time between samples of the health, over which rates are measured.
	sampleEvery = 10 * time.Second
	// healthWindow is the time that "usual" and "in the last minute" refer to.
	healthWindow = time.Minute
	// maxSamples is how many samples wait while the store can't be written.
	maxSamples = 60
)

// The limits of a healthy stream.
const (
	maxKeyFrames    = 4200 * time.Millisecond // longer segments make a slow start and long delays
	maxSilence      = 5 * time.Second         // of one track, or of all
	minGap          = time.Second             // between two frames of a track
	maxDrift        = time.Second             // between audio and video of the same time
	maxDriftApart   = 200 * time.Millisecond  // since the encoder connected
	minCompared     = 20                      // video frames, to measure drift
	minBitrate      = 0.25                    // of the usual one
	minFrameRate    = 0.5                     // of the usual one
	minPace         = 0.9                     // seconds of media in a second
	maxConnections  = 3                       // in a minute
	minUsualTime    = 15 * time.Second        // to measure what is usual
	minUsualBitrate = 100_000                 // bits a second; the bitrate of less is not judged
)

// meter measures how an encoder does. A frame costs it a few additions; rates are computed on
// demand, from the difference to older sums.
type meter struct {
	hasVideo, hasAudio bool        // what the encoder announced
	since              time.Time   // when it did
	connections        []time.Time // in the last minute

	sums     sums
	video    newestFrame
	audio    newestFrame
	lastKey  time.Duration // time of the newest key frame, on the timeline
	hasKey   bool
	interval time.Duration // between the last two key frames

	marks      []mark         // the oldest first
	firstDrift *time.Duration // of audio before video, when the encoder connected
	sampled    time.Time
	unsaved    []weir.HealthSample // the store may not have them yet
}

// newestFrame is the newest frame of a track.
type newestFrame struct {
	at       time.Duration // on the timeline
	received time.Time
	any      bool
}

// sums only ever grow.
type sums struct {
	bytes, frames, gaps, jumps, lost int64         // frames are those of video
	media                            time.Duration // how far the timeline is
	ahead                            time.Duration // of audio before video, summed over compared
	compared                         int64
}

// mark holds the sums at a time.
type mark struct {
	at time.Time
	sums
}

// connected notes that an encoder has connected, or has changed its tracks. What was usual before
// does not apply to it.
func (m *meter) connected(tracks []cmaf.Track, connects bool, now time.Time) {
	if connects {
		m.connections = append(m.connections, now)
	}
	m.hasVideo, m.hasAudio, m.since = false, false, now
	for _, t := range tracks {
		m.hasVideo = m.hasVideo || t.Kind == cmaf.Video
		m.hasAudio = m.hasAudio || t.Kind == cmaf.Audio
	}
	m.video, m.audio, m.hasKey, m.interval, m.firstDrift = newestFrame{}, newestFrame{}, false, 0, nil
	m.marks = append(m.marks[:0], mark{now, m.sums})
	m.sampled = now
}

// frame counts one, at its time on the timeline.
func (m *meter) frame(audio, key, jumped bool, dts time.Duration, size int, now time.Time) {
	m.sums.bytes += int64(size)
	newest := &m.video
	if audio {
		newest = &m.audio
	}
	switch {
	case jumped:
		m.sums.jumps++
		m.hasKey, m.firstDrift = false, nil
	case newest.any && dts-newest.at > minGap:
		m.sums.gaps++
	}
	*newest = newestFrame{dts, now, true}
	if !audio || !m.hasVideo {
		m.sums.media = max(m.sums.media, dts)
	}
	if audio {
		return
	}
	m.sums.frames++
	if m.audio.any && now.Sub(m.audio.received) < minGap { // otherwise there is no audio to compare with
		m.sums.ahead += m.audio.at - dts
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
	return max(m.interval, m.video.at-m.lastKey)
}

// measure notes the sums, and takes a sample when one is due.
func (m *meter) measure(lag time.Duration, lost int64, now time.Time) {
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
	m.connections = slices.DeleteFunc(m.connections, func(at time.Time) bool { return now.Sub(at) > healthWindow })
	if now.Sub(m.sampled) < sampleEvery-beatEvery/2 { // beats come a little early or late
		return
	}
	r := m.over(m.sampled, now)
	if m.firstDrift == nil && r.compared > minCompared && r.jumps == 0 {
		m.firstDrift = &r.drift
	}
	m.sampled = now
	m.unsaved = append(m.unsaved, weir.HealthSample{
		Time: weir.At(now), Bitrate: math.Round(r.bitrate), FPS: round(r.fps), Pace: round(r.pace), KeyFrameInterval: round(m.keyFrames().Seconds()),
		Gaps: r.gaps, Jumps: r.jumps, Drift: round(r.drift.Seconds()), RungLag: round(lag.Seconds()), LostFrames: r.lost,
	})
	if n := len(m.unsaved); n > maxSamples {
		m.unsaved = slices.Delete(m.unsaved, 0, n-maxSamples)
	}
}

// saved notes that the store has the samples from before a time.
func (m *meter) saved(before weir.Millis) {
	m.unsaved = slices.DeleteFunc(m.unsaved, func(s weir.HealthSample) bool { return s.Time < before })
}

// round keeps thousandths.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// rates are how the sums changed between two marks.
type rates struct {
	span              time.Duration
	bitrate, fps      float64
	pace              float64
	gaps, jumps, lost int64
	compared          int64 // video frames that drift is the mean of
	drift             time.Duration
}

// over returns the rates between the marks that are nearest before two times.
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
		r.bitrate, r.fps, r.pace = float64(b.bytes-a.bytes)*8/s, float64(b.frames-a.frames)/s, (b.media-a.media).Seconds()/s
	}
	return r
}

// issues returns what is wrong, in sentences that the owner of the stream can act on.
func (m *meter) issues(now time.Time) []string {
	if len(m.marks) == 0 {
		return nil
	}
	var issues []string
	say := func(format string, args ...any) { issues = append(issues, fmt.Sprintf(format, args...)) }
	if n := len(m.connections); n >= maxConnections {
		say("the encoder connected %d times in the last minute; check its network connection", n)
	}
	silent := func(f newestFrame) time.Duration {
		if !f.any {
			return now.Sub(m.since)
		}
		return now.Sub(f.received)
	}
	noVideo, noAudio := m.hasVideo && silent(m.video) > maxSilence, m.hasAudio && silent(m.audio) > maxSilence
	switch {
	case noVideo && (noAudio || !m.hasAudio) || noAudio && !m.hasVideo:
		silence := silent(m.audio)
		if m.hasVideo {
			silence = silent(m.video)
		}
		say("the encoder is connected but has sent nothing for %.0f s; check its network connection", silence.Seconds())
		return issues // nothing else can be measured
	case noVideo:
		say("no video for %.0f s; check the video source of the encoder", silent(m.video).Seconds())
	case noAudio:
		say("no audio for %.0f s; check the audio source of the encoder", silent(m.audio).Seconds())
	}
	if k := m.keyFrames(); k > maxKeyFrames {
		say("key frames every %.1f s; set the encoder's key-frame interval to 2 s", k.Seconds())
	}
	return append(issues, m.rateIssues(now)...)
}

// rateIssues returns what became worse, and what fails repeatedly.
func (m *meter) rateIssues(now time.Time) []string {
	var issues []string
	say := func(format string, args ...any) { issues = append(issues, fmt.Sprintf(format, args...)) }
	minute := m.over(m.marks[0].at, now)
	recent := m.over(now.Add(-sampleEvery), now)
	usual := m.over(m.marks[0].at, now.Add(-sampleEvery))
	if usual.span >= minUsualTime {
		if recent.bitrate < minBitrate*usual.bitrate && usual.bitrate >= minUsualBitrate {
			say("the bitrate fell from %.1f to %.1f Mbit/s; check the encoder's network connection, or lower its bitrate", usual.bitrate/1e6, recent.bitrate/1e6)
		}
		if m.hasVideo && recent.fps < minFrameRate*usual.fps {
			say("the frame rate fell from %.0f to %.0f a second; the encoder drops frames: its machine or its network is too slow", usual.fps, recent.fps)
		} else if minute.pace < minPace && recent.pace < minPace {
			say("the encoder sends only %.1f s of media a second; its machine or its network is too slow", recent.pace)
		}
	}
	switch {
	case recent.compared < minCompared || now.Sub(m.audio.received) > maxSilence:
	case recent.drift > maxDrift:
		say("the video is %.1f s behind the audio; lower the video delay of the encoder", recent.drift.Seconds())
	case recent.drift < -maxDrift:
		say("the audio is %.1f s behind the video; lower the audio delay of the encoder", -recent.drift.Seconds())
	case m.firstDrift != nil && (recent.drift-*m.firstDrift).Abs() > maxDriftApart:
		say("audio and video have drifted apart by %d ms since the encoder connected; use one clock for both", (recent.drift - *m.firstDrift).Abs().Milliseconds())
	}
	if minute.gaps > 0 {
		say("%s without frames in the last minute; check the encoder's network connection and the load of its machine", count(minute.gaps, "gap"))
	}
	if minute.jumps > 0 {
		say("%s of the encoder's timestamps in the last minute; viewers see a cut", count(minute.jumps, "jump"))
	}
	return issues
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// throughput measures how much comes in and is transcoded, in bytes a second.
type throughput struct {
	at             time.Time
	bytes, encoded int64 // until then
	in, out        float64
}

// update returns the rates, measured again unless the last time was a moment ago.
func (t *throughput) update(bytes, encoded int64, now time.Time) (in, out float64) {
	if span := now.Sub(t.at).Seconds(); span > 0.5 {
		*t = throughput{now, bytes, encoded, float64(bytes-t.bytes) / span, float64(encoded-t.encoded) / span}
	}
	return t.in, t.out
}

// health is how a session does. The session's lock guards it.
type health struct {
	meter
	throughput throughput
	targets    func(sessionID string) ([]weir.TargetHealth, []string)
	hasIssues  bool // there were issues at the last beat
}

func newHealth(targets func(string) ([]weir.TargetHealth, []string), c weir.Counters) health {
	return health{targets: targets, throughput: throughput{at: time.Now(), encoded: c.TranscodedBytes, in: c.IngestRate, out: c.OutgoingRate}}
}

// issues returns what is wrong with the session; failing is what is wrong with its multistream
// targets. The caller holds mu.
func (s *session) issues(now time.Time, failing []string) []string {
	p := s.conn.publisher
	switch {
	case p == nil && s.conn.offAir.After(now) && !s.conn.lastFrame.IsZero():
		return []string{fmt.Sprintf("the connection of the encoder was lost %.0f s ago; reconnect it", now.Sub(s.conn.lastFrame).Seconds())}
	case p == nil:
		return nil
	}
	s.health.measure(s.ladder.lag(), s.taps.lostFrames(), now)
	if s.conn.dropping { // what is dropped is not measured
		return append(failing, s.renditions.issues(true)...)
	}
	issues := slices.Concat(s.health.issues(now), failing, s.ladder.issues())
	if p.issue != "" {
		issues = append(issues, p.issue)
	} else {
		issues = append(issues, s.audio.issues()...)
	}
	if s.uploads.failed.Load() {
		issues = append(issues, waiting)
	}
	return append(issues, s.renditions.issues(false)...)
}
