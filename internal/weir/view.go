package weir

import (
	"fmt"
	"strconv"
	"time"
)

// View is one viewer of one stream or asset, from the first request to the last.
type View struct {
	ID            string
	PlaybackID    string
	UserID        string // owner of the content
	ProjectID     string
	AssetID       string
	StreamID      string
	CreatorID     string
	ViewerID      string
	StartedAt     Millis
	LastSeen      Millis
	PlaytimeMs    int64
	TTFFMs        int64 // time to the first frame; 0 = unknown
	RebufferMs    int64
	Errors        int
	ExitedEarly   bool // the viewer left before the first frame
	DeviceType    string
	Device        string
	CPU           string
	OS            string
	Browser       string
	BrowserEngine string
	Continent     string
	Country       string
	Subdivision   string
	Timezone      string
	Geohash       string
}

// ViewSums are sums over views.
type ViewSums struct {
	Views      int64 // all, also without media
	PlaytimeMs int64
	RebufferMs int64
	TTFFMs     int64 // over the views for which it is known
	TTFFViews  int64 // how many those are
	Errors     int64 // views with at least one
	Exits      int64 // views without media
}

// Add adds a view.
func (s *ViewSums) Add(v *View) {
	s.Views++
	s.PlaytimeMs += v.PlaytimeMs
	s.RebufferMs += v.RebufferMs
	s.TTFFMs += v.TTFFMs
	if v.TTFFMs > 0 {
		s.TTFFViews++
	}
	if v.Errors > 0 {
		s.Errors++
	}
	if v.ExitedEarly {
		s.Exits++
	}
}

// Watched returns the number of views with media: who only read a playlist has seen nothing.
func (s ViewSums) Watched() int64 { return s.Views - s.Exits }

// PlaytimeMins returns the playtime in minutes.
func (s ViewSums) PlaytimeMins() float64 { return Minutes(s.PlaytimeMs) }

// TTFF returns the mean time to the first frame in milliseconds.
func (s ViewSums) TTFF() float64 { return share(s.TTFFMs, s.TTFFViews) }

// ExitRate returns the share of all views that ended before the first frame.
func (s ViewSums) ExitRate() float64 { return share(s.Exits, s.Views) }

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// Minutes returns milliseconds as minutes.
func Minutes(ms int64) float64 { return float64(ms) / 60_000 }

// TimeStep is an interval of time for which figures are added up.
type TimeStep string

// The steps.
const (
	StepHour  TimeStep = "hour"
	StepDay   TimeStep = "day"
	StepWeek  TimeStep = "week"
	StepMonth TimeStep = "month"
	StepYear  TimeStep = "year"
)

// Start returns the start of the step that contains a time, in UTC. A week starts on Monday.
func (s TimeStep) Start(m Millis) Millis {
	t := m.Time()
	year, month, day := t.Date()
	switch s {
	case StepHour:
		return At(t.Truncate(time.Hour))
	case StepWeek:
		day -= (int(t.Weekday()) + 6) % 7
	case StepMonth:
		day = 1
	case StepYear:
		month, day = time.January, 1
	}
	return At(time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
}

// ParseMoment reads a time: RFC 3339 or Unix milliseconds.
func ParseMoment(text string) (Millis, error) {
	const maxMillis = 253402300799999 // the last of the year 9999
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 && ms <= maxMillis {
		return Millis(ms), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1970 {
		return 0, fmt.Errorf("write it as 2006-01-02T15:04:05Z or as Unix milliseconds")
	}
	return At(t), nil
}

// Usage is what one account used in one hour, or in a longer step of time.
type Usage struct {
	UserID     string
	CreatorID  string
	Hour       Millis // its start
	DeliveryMs int64
	TotalMs    int64 // encoded
	StorageMs  int64
}
