package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestHealth(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, now := t.Context(), time.Now()
		stream, other := liveStream(t, st, false), liveStream(t, st, false)
		_, air := goOnAir(t, st, stream, now)
		_, otherAir := goOnAir(t, st, other, now)
		at := func(seconds int) weir.HealthSample {
			return weir.HealthSample{Time: weir.At(now.Add(time.Duration(seconds) * time.Second)), Bitrate: float64(seconds), FPS: 29.97, Drift: -0.04, Gaps: 2}
		}
		beat := beatOf(air, now, 1)
		beat.Issues, beat.Samples = []string{"no sound for 12 s"}, []weir.HealthSample{at(0), at(10)}
		checkLost(t, st, now, beat, "")
		changed := at(10)
		changed.Bitrate = 99
		beat.Samples = []weir.HealthSample{changed, at(20)} // what is written stays
		others := beatOf(otherAir, now, 1)
		others.Samples = []weir.HealthSample{at(0)}
		if lost, err := renew(ctx, st, now, beat, others); err != nil || len(lost) > 0 {
			t.Fatalf("RenewOnAir = %v, %v", lost, err)
		}
		stale := beatOf(air, now, 1)
		stale.Epoch--
		stale.Samples = []weir.HealthSample{at(30)}
		checkLost(t, st, now, stale, "") // from before an encoder came back: it writes nothing

		check := func(streamID string, from, to weir.Millis, want ...weir.HealthSample) {
			t.Helper()
			got, err := st.HealthSamples(ctx, streamID, from, to)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("samples from %d to %d (-want +got), %v:\n%s", from, to, err, diff)
			}
		}
		check(stream.ID, 0, 0, at(0), at(10), at(20))
		check(stream.ID, at(10).Time, at(20).Time, at(10))
		check(other.ID, 0, 0, at(0))
		if s := streamNow(t, st, stream.ID); s.IsHealthy == nil || *s.IsHealthy {
			t.Errorf("healthy %v with issues", s.IsHealthy)
		}

		if err := st.Prune(ctx, Retention{Events: time.Hour, Credentials: time.Hour, Health: -15 * time.Second}); err != nil {
			t.Fatal(err)
		}
		check(stream.ID, 0, 0, at(20))
		check(other.ID, 0, 0)
	})
}
