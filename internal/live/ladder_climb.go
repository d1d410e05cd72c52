package live

import "time"

// When a ladder that is made in a cheaper way than it could be is made better again, by one
// step: the present way has held for long enough, and there has been room for a while. Each
// time that a way is too slow after all, the next try waits twice as long.
const (
	firstClimb = 30 * time.Second
	lastClimb  = 15 * time.Minute
	roomHeld   = 5 * time.Second
	// maxBehindClimb is how far the rungs may be behind the source: one that has no time to
	// spare does not get more to do.
	maxBehindClimb = time.Second
)

// climb decides when a ladder goes one step up.
type climb struct {
	held time.Duration // that the present way must have held
	room time.Duration // for which there must have been room

	cost  int       // of the step, in thousandths of a core; 0 = there is none
	since time.Time // when the present way began, or last was behind
	free  time.Time // since when there is room; zero = there is none
	asked time.Time // when it was looked for room
}

func newClimb() climb { return climb{held: firstClimb, room: roomHeld} }

// begin notes that the ladder is made in another way, from which a step up costs so much.
func (c *climb) begin(cost int, now time.Time) {
	c.cost, c.since, c.free, c.asked = cost, now, time.Time{}, time.Time{}
}

// fell notes that a way was too slow.
func (c *climb) fell() { c.held = min(2*c.held, lastClimb) }

// due reports whether it is time for the step.
func (c *climb) due(behind time.Duration, now time.Time, fits func(cost int) bool) bool {
	if behind > maxBehindClimb {
		c.since = now
	}
	if c.cost <= 0 || now.Sub(c.since) < c.held {
		c.free = time.Time{}
		return false
	}
	if now.Sub(c.asked) < c.room/5 {
		return false
	}
	c.asked = now
	if !fits(c.cost) {
		c.free = time.Time{}
		return false
	}
	if c.free.IsZero() {
		c.free = now
	}
	return now.Sub(c.free) >= c.room
}
