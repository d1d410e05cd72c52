package rtc

import (
	"slices"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
)

const (
	h264Rate = 90000
	opusRate = 48000

	// maxDrift is the maximum difference between the times of a track and their arrival. A larger
	// one counts as a jump of the times.
	maxDrift = 2 * time.Second
	// A difference between audio and video of stepAt or more is corrected at once, a smaller one by
	// maxStep per frame, which is not visible.
	stepAt  = 250 * time.Millisecond
	maxStep = time.Millisecond
	// maxReports is the number of reports of a track that count. Browsers report the time at which
	// they sent audio. A busy machine sends some of it late, so the median counts.
	maxReports = 5
)

// clock puts the tracks of a peer on one timeline. RTP times of a track start at a random value,
// and only sender reports relate audio to video. Until they arrive, the clock uses arrival times.
// Then it corrects the video, because a correction of the audio can be heard.
type clock struct {
	mu           sync.Mutex
	origin       time.Time // when the first packet arrived; zero = none has
	video, audio trackClock
	shift        time.Duration // correction of the video so far
	shifted      bool
}

// trackClock is the timeline of a track.
type trackClock struct {
	rate  int64
	set   bool
	last  uint32        // RTP time
	ticks int64         // of last, without overflow
	first int64         // ticks
	base  time.Duration // time of first

	// ahead holds, for the last reports, how far the sender's clock is ahead of the ticks.
	ahead []time.Duration
}

func newClock() *clock {
	return &clock{video: trackClock{rate: h264Rate}, audio: trackClock{rate: opusRate}}
}

func (c *clock) track(kind cmaf.Kind) *trackClock {
	if kind == cmaf.Audio {
		return &c.audio
	}
	return &c.video
}

// report takes a sender report: the RTP time stamp of a track is ntp on the sender's clock.
func (c *clock) report(kind cmaf.Kind, stamp uint32, ntp uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.track(kind)
	if !l.set || ntp == 0 {
		return
	}
	seconds, fraction := time.Duration(ntp>>32), ntp&(1<<32-1)
	wall := seconds*time.Second + time.Duration(fraction*uint64(time.Second)>>32)
	ahead := wall - codec.Duration(l.ticks+int64(int32(stamp-l.last)), l.rate)
	if len(l.ahead) > 0 && (ahead-median(l.ahead)).Abs() > stepAt {
		l.ahead = nil // its clock was set
	}
	l.ahead = append(l.ahead, ahead)
	l.ahead = l.ahead[max(len(l.ahead)-maxReports, 0):]
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}

// at returns the presentation time of a frame that arrived now.
func (c *clock) at(kind cmaf.Kind, stamp uint32, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.origin.IsZero() {
		c.origin = now
	}
	l := c.track(kind)
	at := l.at(stamp, now.Sub(c.origin))
	if kind == cmaf.Audio {
		return at
	}
	if len(c.video.ahead) == 0 || len(c.audio.ahead) == 0 {
		return at + c.shift
	}
	// The presentation time of the audio that was captured together with this frame.
	wall := codec.Duration(c.video.ticks, h264Rate) + median(c.video.ahead)
	together := c.audio.base + wall - median(c.audio.ahead) - codec.Duration(c.audio.first, opusRate)
	off := together - (at + c.shift)
	if c.shifted && off.Abs() < stepAt {
		off = min(max(off, -maxStep), maxStep)
	}
	c.shift, c.shifted = c.shift+off, true
	return at + c.shift
}

// at returns the time of an RTP time stamp; elapsed is the time since the first packet of the peer.
func (l *trackClock) at(stamp uint32, elapsed time.Duration) time.Duration {
	if !l.set {
		l.set, l.last, l.base = true, stamp, elapsed
	}
	step := int64(int32(stamp - l.last))
	l.ticks += step
	l.last = stamp
	at := l.base + codec.Duration(l.ticks-l.first, l.rate)
	if (at - elapsed).Abs() > maxDrift {
		l.first, l.base, at = l.ticks, elapsed, elapsed
		if codec.Duration(step, l.rate).Abs() > maxDrift {
			l.ahead = nil // the reports are older than the jump
		}
	}
	return at
}
