package live

import (
	"testing"
	"testing/synctest"
	"time"
)

// A ladder goes up a step when it has held for long enough and there is room, and waits
// longer each time that this was too much.
func TestClimb(t *testing.T) {
	const tick = 300 * time.Millisecond
	room := false
	fits := func(cost int) bool {
		if cost != 200 {
			t.Errorf("room for %d is asked for, want 200", cost)
		}
		return room
	}
	synctest.Test(t, func(t *testing.T) {
		c := newClimb()
		c.setPlan(200, time.Now())
		after := func(behind, limit time.Duration) (d time.Duration, ok bool) {
			for began := time.Now(); time.Since(began) < limit; time.Sleep(tick) {
				if c.due(behind, time.Now(), fits) {
					return time.Since(began), true
				}
			}
			return 0, false
		}
		if d, ok := after(0, time.Hour); ok {
			t.Errorf("there is no room, and it goes up after %v", d)
		}
		room = true
		if d, ok := after(0, time.Minute); !ok || d < freeTime {
			t.Errorf("with room it goes up after %v (%v), want %v", d, ok, freeTime)
		}
		c.setPlan(200, time.Now())
		if d, ok := after(2*maxBehindClimb, time.Hour); ok {
			t.Errorf("it is behind, and goes up after %v", d)
		}
		if d, ok := after(0, time.Hour); !ok || d < minClimbWait || d > 2*minClimbWait {
			t.Errorf("it goes up after %v (%v), want %v", d, ok, minClimbWait)
		}
		c.fellBehind()
		c.fellBehind()
		c.setPlan(200, time.Now())
		if d, ok := after(0, time.Hour); !ok || d < 4*minClimbWait || d > 5*minClimbWait {
			t.Errorf("after it was too much twice, it goes up after %v (%v), want %v", d, ok, 4*minClimbWait)
		}
		c.setPlan(0, time.Now())
		if d, ok := after(0, time.Hour); ok {
			t.Errorf("there is nothing better, and it goes up after %v", d)
		}
	})
}
