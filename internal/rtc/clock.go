package rtc

import (
	"slices"
	"sync"
	"time"

	"weir/internal/cmaf"
)

const (
	h264Rate = 90000
	opusRate = 48000

	// adrift is how far the times of a track may be from the clock on the wall before
	// they count as having jumped.
	adrift = 2 * time.Second
	// stepAt is from where on audio and video are put in step at once; below that it is
	// done by maxStep a frame, which nobody sees.
	stepAt  = 250 * time.Millisecond
	maxStep = time.Millisecond
	// maxReports is how many reports of a track count. Browsers report audio by when they
	// sent it, which on a busy machine is now and then late; the middle one is not.
	maxReports = 5
)

// clock puts the tracks of a peer on one timeline. The times of each begin anywhere, and
// only the sender's reports say which audio belongs to which picture. They come late, so
// it begins with when things arrive, and corrects the picture once they are there: audio
// that is moved can be heard.
type clock struct {
	mu           sync.Mutex
	origin       time.Time // when the first packet came; zero = none did
	video, audio line
	shift        time.Duration // of the picture, so far
	shifted      bool
}

// line is the time of a track.
type line struct {
	rate  int64
	set   bool
	last  uint32
	ticks int64 // of last, without overflow
	first int64
	base  time.Duration // of first

	// ahead is by how much the sender's clock is ahead of the ticks, by its last reports.
	ahead []time.Duration
}

func newClock() *clock {
	return &clock{video: line{rate: h264Rate}, audio: line{rate: opusRate}}
}

func (c *clock) line(kind cmaf.Kind) *line {
	if kind == cmaf.Audio {
		return &c.audio
	}
	return &c.video
}

// report takes what the sender says: this time of a track is that time of its clock.
func (c *clock) report(kind cmaf.Kind, stamp uint32, ntp uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.line(kind)
	if !l.set || ntp == 0 {
		return
	}
	seconds, fraction := time.Duration(ntp>>32), ntp&(1<<32-1)
	wall := seconds*time.Second + time.Duration(fraction*uint64(time.Second)>>32)
	ahead := wall - duration(l.ticks+int64(int32(stamp-l.last)), l.rate)
	if len(l.ahead) > 0 && (ahead-middle(l.ahead)).Abs() > stepAt {
		l.ahead = nil // its clock was set
	}
	l.ahead = append(l.ahead, ahead)
	l.ahead = l.ahead[max(len(l.ahead)-maxReports, 0):]
}

// middle returns the one in the middle of some, and the lesser one of two there.
func middle(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}

// at returns when a frame is shown that came now.
func (c *clock) at(kind cmaf.Kind, stamp uint32, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.origin.IsZero() {
		c.origin = now
	}
	l := c.line(kind)
	at := l.at(stamp, now.Sub(c.origin))
	if kind == cmaf.Audio || len(c.video.ahead) == 0 || len(c.audio.ahead) == 0 {
		return at + c.shiftOf(kind)
	}
	// When the audio is heard that the sender's clock saw together with this picture.
	wall := duration(c.video.ticks, h264Rate) + middle(c.video.ahead)
	together := c.audio.base + wall - middle(c.audio.ahead) - duration(c.audio.first, opusRate)
	off := together - (at + c.shift)
	if c.shifted && off.Abs() < stepAt {
		off = min(max(off, -maxStep), maxStep)
	}
	c.shift, c.shifted = c.shift+off, true
	return at + c.shift
}

func (c *clock) shiftOf(kind cmaf.Kind) time.Duration {
	if kind == cmaf.Video {
		return c.shift
	}
	return 0
}

// at returns the time of a stamp; elapsed is what has passed since the first packet.
func (l *line) at(stamp uint32, elapsed time.Duration) time.Duration {
	if !l.set {
		l.set, l.last, l.base = true, stamp, elapsed
	}
	step := int64(int32(stamp - l.last))
	l.ticks += step
	l.last = stamp
	at := l.base + duration(l.ticks-l.first, l.rate)
	if (at - elapsed).Abs() > adrift {
		l.first, l.base, at = l.ticks, elapsed, elapsed
		if duration(step, l.rate).Abs() > adrift {
			l.ahead = nil // the reports are of the times before
		}
	}
	return at
}

// duration returns how long n of so many a second last.
func duration(n, rate int64) time.Duration {
	return time.Duration(n/rate)*time.Second + time.Duration(n%rate)*time.Second/time.Duration(rate)
}
