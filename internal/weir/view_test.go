package weir

import (
	"testing"
	"time"
)

func TestTimeStepStart(t *testing.T) {
	moment := time.Date(2024, 2, 29, 13, 45, 10, 5, time.UTC) // a Thursday
	for step, want := range map[TimeStep]string{
		StepHour: "2024-02-29T13:00:00Z", StepDay: "2024-02-29T00:00:00Z", StepWeek: "2024-02-26T00:00:00Z",
		StepMonth: "2024-02-01T00:00:00Z", StepYear: "2024-01-01T00:00:00Z",
	} {
		if got := step.Start(At(moment)).Time().Format(time.RFC3339); got != want {
			t.Errorf("%s of %s starts at %s, want %s", step, moment, got, want)
		}
	}
	for day, want := range map[string]string{"2024-01-01": "2024-01-01", "2023-01-01": "2022-12-26", "2024-03-03": "2024-02-26"} {
		d, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		if got := StepWeek.Start(At(d)).Time().Format(time.DateOnly); got != want {
			t.Errorf("the week of %s starts on %s, want %s", day, got, want)
		}
	}
}

func TestParseMoment(t *testing.T) {
	for text, want := range map[string]Millis{
		"0": 0, "1718000000000": 1718000000000, "2024-06-10T06:13:20Z": 1718000000000,
		"2024-06-10T08:13:20.5+02:00": 1718000000500, "1970-01-01T00:00:00.000Z": 0,
	} {
		if got, err := ParseMoment(text); err != nil || got != want {
			t.Errorf("ParseMoment(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "-1", "1e3", "99999999999999999999", "9223372036854775807", "2024-06-10", "1969-12-31T23:59:59Z"} {
		if got, err := ParseMoment(text); err == nil {
			t.Errorf("ParseMoment(%q) = %d, want an error", text, got)
		}
	}
}

func TestViewSums(t *testing.T) {
	var s ViewSums
	if s.TTFF() != 0 || s.ExitRate() != 0 {
		t.Errorf("figures of no views: %+v", s)
	}
	s = ViewSums{Views: 4, PlaytimeMs: 290_000, RebufferMs: 10_000, TTFFMs: 900, TTFFViews: 3, Errors: 1, Exits: 1}
	if got, want := [4]float64{float64(s.Watched()), s.PlaytimeMins(), s.TTFF(), s.ExitRate()}, [4]float64{3, 290.0 / 60, 300, 0.25}; got != want {
		t.Errorf("figures = %v, want %v", got, want)
	}
}
