package weir

import "testing"

func TestPartDuration(t *testing.T) {
	for seconds, want := range map[float64]bool{0: true, 0.2: true, 0.5: true, 1: true, -1: false, 0.1: false, 1.1: false} {
		s := Stream{PartDuration: &seconds}
		if err := s.validate(); (err == nil) != want {
			t.Errorf("%g s: %v", seconds, err)
		}
	}
}
