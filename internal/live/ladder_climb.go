package live

import "time"

// A ladder that is encoded with a cheaper plan goes one plan up when the current plan has kept up for
// long enough and there has been CPU for the better one for a while. Each time that a plan is too slow
// after all, the next try waits twice as long.
const (
	minClimbWait = 30 * time.Second
	maxClimbWait = 15 * time.Minute
	freeTime     = 5 * time.Second
	// maxBehindClimb is how far the rungs may be behind the source: ones that hardly keep up do not
	// get more work.
	maxBehindClimb = time.Second
)

// climb decides when a ladder goes one plan up.
type climb struct {
	wait     time.Duration // how long the current plan must have kept up
	freeTime time.Duration // how long there must have been CPU for the better one

	cost  int       // of the step, in thousandths of a core; 0 = there is none
	since time.Time // when the current plan began, or was behind
	free  time.Time // since when there is CPU; zero = there is none
	asked time.Time // when that was checked
}

func newClimb() climb { return climb{wait: minClimbWait, freeTime: freeTime} }

// setPlan notes that another plan is used, from which a step up costs so much.
func (c *climb) setPlan(cost int, now time.Time) {
	c.cost, c.since, c.free, c.asked = cost, now, time.Time{}, time.Time{}
}

// fellBehind notes that a plan was too slow.
func (c *climb) fellBehind() { c.wait = min(2*c.wait, maxClimbWait) }

// due reports whether it is time for the step.
func (c *climb) due(behind time.Duration, now time.Time, fits func(cost int) bool) bool {
	if behind > maxBehindClimb {
		c.since = now
	}
	if c.cost <= 0 || now.Sub(c.since) < c.wait {
		c.free = time.Time{}
		return false
	}
	if now.Sub(c.asked) < c.freeTime/5 {
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
	return now.Sub(c.free) >= c.freeTime
}
