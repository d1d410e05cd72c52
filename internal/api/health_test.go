package api

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
	"weir/internal/weir"
)

// TestStreamHealthOnAir holds the response for a stream on air against the contract.
func TestStreamHealthOnAir(t *testing.T) {
	t.Parallel()
	f, ctx, now := newFixture(t), t.Context(), time.Now()
	stream, err := f.store.Stream(ctx, f.vars["stream"])
	if err != nil {
		t.Fatal(err)
	}
	sample := func(ago time.Duration) weir.HealthSample {
		return weir.HealthSample{Time: weir.At(now.Add(-ago)), Bitrate: 300_000, FPS: 30, Pace: 1, KeyFrameInterval: 8.3, Gaps: 1, Drift: -0.12}
	}
	err = f.store.Tx(ctx, func(tx *store.Tx) error {
		_, air, err := tx.GoOnAir(ctx, stream, time.Minute, now)
		if err != nil {
			return err
		}
		_, err = tx.RenewOnAir(ctx, []store.Beat{{
			StreamID: stream.ID, Epoch: air.Epoch, SeenAt: weir.At(now), Issues: []string{"key frames every 8.3 s; set the encoder's key-frame interval to 2 s"},
			Samples: []weir.HealthSample{sample(2 * time.Hour), sample(10 * time.Second), sample(0)},
		}}, now)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `200
{
  "isHealthy": false,
  "issues": [
    "key frames every 8.3 s; set the encoder's key-frame interval to 2 s"
  ],
  "multistream": [],
  "samples": [
    {
      "time": <time>,
      "bitrate": 300000,
      "fps": 30,
      "pace": 1,
      "keyFrameInterval": 8.3,
      "gaps": 1,
      "jumps": 0,
      "drift": -0.12,
      "rungLag": 0,
      "lostFrames": 0
    },
    {
      "time": <time>,
      "bitrate": 300000,
      "fps": 30,
      "pace": 1,
      "keyFrameInterval": 8.3,
      "gaps": 1,
      "jumps": 0,
      "drift": -0.12,
      "rungLag": 0,
      "lostFrames": 0
    }
  ]
}`
	if diff := cmp.Diff(want, f.play(t, 1, "GET /api/stream/${stream}/health")); diff != "" {
		t.Errorf("the last hour (-want +got):\n%s", diff)
	}
}
