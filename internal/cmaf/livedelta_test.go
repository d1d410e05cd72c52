package cmaf

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestLiveDelta leaves out of the text of a playlist what LivePlaylist leaves out itself.
func TestLiveDelta(t *testing.T) {
	for name, s := range shows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.segments == 0 {
				s.segments = 20
			}
			s.partTarget, s.window = 210*time.Millisecond, 25*time.Second
			deltas := 0
			for w := range s.states() {
				text := func(o LiveOptions) string {
					t.Helper()
					var b strings.Builder
					if err := LivePlaylist(&b, w, o); err != nil {
						t.Fatal(err)
					}
					return b.String()
				}
				whole, plain := text(LiveOptions{Low: true}), text(LiveOptions{})
				want := text(LiveOptions{Low: true, Skip: true})
				if got := string(LiveDelta([]byte(whole), math.MaxInt64)); got != want {
					t.Fatalf("another update (-want +got):\n%s", cmp.Diff(want, got))
				}
				if got := string(LiveDelta([]byte(plain), math.MaxInt64)); got != plain {
					t.Fatalf("something is left out of a playlist that does not allow it:\n%s", got)
				}
				_, after, found := strings.Cut(want, "SKIPPED-SEGMENTS=")
				if !found {
					continue
				}
				deltas++
				skipped, _, _ := strings.Cut(after, "\n")
				next := w.First + int64(seconds(t, skipped))
				if got := string(LiveDelta([]byte(whole), next)); got != want {
					t.Fatalf("a player that has what is left out gets\n%s", got)
				}
				if got := string(LiveDelta([]byte(whole), next-1)); got != whole {
					t.Fatalf("segment %d is left out for a player that does not have it:\n%s", next-1, got)
				}
			}
			if deltas < 20 && s.gop != 500 && s.gop != 4 {
				t.Errorf("%d playlists have something that can be left out: too few to show anything", deltas)
			}
		})
	}
}

// FuzzLiveDelta takes texts that are no playlists.
func FuzzLiveDelta(f *testing.F) {
	f.Add([]byte("#EXT-X-SERVER-CONTROL:CAN-SKIP-UNTIL=1.0\n#EXT-X-MEDIA-SEQUENCE:3\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXTINF:2.0,\n3.m4s\n#EXTINF:2.0,\n4.m4s\n"), int64(9))
	f.Fuzz(func(_ *testing.T, text []byte, has int64) { LiveDelta(text, has) })
}
