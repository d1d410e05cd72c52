package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestStreamProfiles(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want *[]weir.Profile
		fail bool
	}{
		{name: "usual"},
		{name: "none", args: []string{"none"}, want: &[]weir.Profile{}},
		{name: "one", args: []string{"720p:3M"}, want: &[]weir.Profile{{Name: "720p", Width: 1280, Height: 720, Bitrate: 3_000_000, FPS: new(0)}}},
		{name: "none and one", args: []string{"none", "720p"}, fail: true},
		{name: "no size", args: []string{"large"}, fail: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := streamCreateCmd{Profile: tt.args}.profiles()
			if (err != nil) != tt.fail {
				t.Fatalf("error %v, want one: %t", err, tt.fail)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" && !tt.fail {
				t.Errorf("profiles (-want +got):\n%s", diff)
			}
		})
	}
}
