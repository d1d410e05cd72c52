package caption

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/internal/weir"
)

// clock writes a time as WebVTT does, always with hours.
func clock(t time.Duration) string {
	ms := t.Round(time.Millisecond).Milliseconds()
	sign := ""
	if ms < 0 {
		sign, ms = "-", -ms
	}
	return fmt.Sprintf("%s%02d:%02d:%02d.%03d", sign, ms/3_600_000, ms/60_000%60, ms/1000%60, ms%1000)
}

var errTime = errors.New("not a time")

// readTime reads a time as WebVTT and SubRip have it: [hours:]minutes:seconds.milliseconds, also with
// a comma.
func readTime(text string) (time.Duration, error) {
	whole, fraction, ok := strings.Cut(strings.Replace(text, ",", ".", 1), ".")
	fields := strings.Split(whole, ":")
	if !ok || len(fraction) != 3 || len(fields) < 2 || len(fields) > 3 {
		return 0, errTime
	}
	if len(fields) == 2 {
		fields = append([]string{"0"}, fields...)
	}
	units := []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond}
	var t time.Duration
	for i, digits := range append(fields, fraction) {
		n, err := number(digits)
		if err != nil || i > 0 && i < 3 && (n > 59 || len(digits) > 2) || n > 9999 {
			return 0, errTime
		}
		t += time.Duration(n) * units[i]
	}
	return t, nil
}

// number reads a number of digits only.
func number(digits string) (n int, err error) {
	if digits == "" || len(digits) > 9 {
		return 0, errTime
	}
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, errTime
		}
		n = 10*n + int(c-'0')
	}
	return n, nil
}

const arrow = "-->"

// readTiming reads the line of a cue that has its times. rest is what follows them.
func readTiming(line int, text string) (start, end time.Duration, rest string, err error) {
	before, after, _ := strings.Cut(text, arrow)
	before = strings.TrimSpace(before)
	after, rest, _ = strings.Cut(strings.TrimSpace(strings.ReplaceAll(after, "\t", " ")), " ")
	if start, err = readTime(before); err != nil {
		return 0, 0, "", invalidAt(line, "%q is not a time; it should look like 00:01:02.500", weir.Shorten(before, 50))
	}
	if end, err = readTime(after); err != nil {
		return 0, 0, "", invalidAt(line, "%q is not a time; it should look like 00:01:02.500", weir.Shorten(after, 50))
	}
	return start, end, rest, nil
}
