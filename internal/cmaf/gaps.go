package cmaf

import "time"

// Gap is a range of the timeline in which no track has a segment.
type Gap struct{ From, To time.Duration }

// Gaps returns the gaps of a presentation, between connections of its encoder. Players leave them out.
func Gaps(tracks []TrackIndex) (gaps []Gap) {
	all, _ := stretches(tracks)
	var reached time.Duration
	for i, s := range all {
		if i > 0 && s.from > reached {
			gaps = append(gaps, Gap{reached, s.from})
		}
		if i == 0 || s.to > reached {
			reached = s.to
		}
	}
	return gaps
}
