package weir

import "testing"

func TestMayName(t *testing.T) {
	stream := Stream{UserID: "u", ProjectID: "p"}.Owner()
	for _, tt := range []struct {
		name  string
		other Owner
		had   bool
		want  bool
	}{
		{"same project", Owner{"u", "p", false}, false, true},
		{"another project", Owner{"u", "q", false}, false, false},
		{"another project, from before", Owner{"u", "q", false}, true, true},
		{"no project", Owner{"u", "", false}, false, true},
		{"another account", Owner{"v", "p", false}, false, false},
		{"another account, from before", Owner{"v", "p", false}, true, false},
		{"deleted", Owner{"u", "p", true}, true, false},
	} {
		if got := stream.MayName(tt.other, tt.had); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
