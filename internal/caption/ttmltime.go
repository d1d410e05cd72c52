package caption

import (
	"encoding/xml"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ttmlClock is how a document of TTML counts time: the parameters of its first element.
type ttmlClock struct {
	frameRate    float64 // frames that a second of a time code has
	speed        float64 // seconds of a time code in a second: 1000/1001 for NTSC
	subFrameRate float64
	tickRate     float64
	smpte        bool // times are time codes, which count frames
	dropMode     string
}

// readClock reads the parameters of a document.
func readClock(line int, t xml.StartElement) (c ttmlClock, err error) {
	if attr(t, "timeBase") == "clock" {
		return c, invalidAt(line, "the document has times of the day (ttp:timeBase clock): write it with ttp:timeBase media, where 0 is the start of the video")
	}
	c = ttmlClock{frameRate: 30, speed: 1, subFrameRate: 1, tickRate: 1}
	c.smpte, c.dropMode = attr(t, "timeBase") == "smpte", attr(t, "dropMode")
	for _, p := range []struct {
		name string
		rate *float64
	}{{"frameRate", &c.frameRate}, {"subFrameRate", &c.subFrameRate}, {"tickRate", &c.tickRate}} {
		text := attr(t, p.name)
		if text == "" {
			continue
		}
		n, err := number(text)
		if err != nil || n == 0 {
			return c, invalidAt(line, "ttp:%s=%q is not a whole number above 0", p.name, text)
		}
		*p.rate = float64(n)
	}
	if text := attr(t, "frameRateMultiplier"); text != "" {
		if c.speed = ratio(text); c.speed == 0 {
			return c, invalidAt(line, `ttp:frameRateMultiplier=%q is not two whole numbers above 0, such as "1000 1001"`, text)
		}
	}
	if attr(t, "frameRate") != "" && attr(t, "tickRate") == "" {
		c.tickRate = c.frameRate * c.subFrameRate
	}
	return c, nil
}

// ratio reads "1000 1001", which old documents write with a colon; 0 = it is none.
func ratio(text string) float64 {
	fields := strings.Fields(strings.Replace(text, ":", " ", 1))
	if len(fields) != 2 {
		return 0
	}
	of, err1 := number(fields[0])
	by, err2 := number(fields[1])
	if err1 != nil || err2 != nil || by == 0 {
		return 0
	}
	return float64(of) / float64(by)
}

var (
	clockTime  = regexp.MustCompile(`^(\d{1,4}):([0-5]\d):([0-5]\d(?:\.\d{1,20})?)(?::(\d{2,4})(?:\.(\d{1,4}))?)?$`)
	offsetTime = regexp.MustCompile(`^(\d{1,15}(?:\.\d{1,20})?)(h|ms|m|s|f|t)$`)
)

// read reads a time: of a clock, also with frames, or a number with its unit.
func (c ttmlClock) read(text string) (t time.Duration, ok bool) {
	if found := offsetTime.FindStringSubmatch(text); found != nil {
		return seconds(decimal(found[1]) * c.unit(found[2])), true
	}
	found := clockTime.FindStringSubmatch(text)
	if found == nil {
		return 0, false
	}
	hours, minutes := decimal(found[1]), decimal(found[2])
	frames := decimal(found[4]) + decimal(found[5])/c.subFrameRate
	if frames >= c.frameRate {
		return 0, false
	}
	whole := hours*3600 + minutes*60 + decimal(found[3])
	if !c.smpte {
		return seconds(whole + frames/(c.frameRate*c.speed)), true
	}
	frames += whole*c.frameRate - c.dropped(hours*60+minutes)
	return seconds(frames / (c.frameRate * c.speed)), true
}

// unit returns the seconds of a unit.
func (c ttmlClock) unit(name string) float64 {
	switch name {
	case "h":
		return 3600
	case "m":
		return 60
	case "ms":
		return 0.001
	case "f":
		return 1 / (c.frameRate * c.speed)
	case "t":
		return 1 / c.tickRate
	}
	return 1
}

// dropped returns how many numbers of frames time codes leave out until a minute.
func (c ttmlClock) dropped(minute float64) float64 {
	switch c.dropMode {
	case "dropNTSC": // two each minute, but not each tenth
		return 2 * (minute - math.Floor(minute/10))
	case "dropPAL": // four each second minute, but not each twentieth
		return 4 * (math.Floor(minute/2) - math.Floor(minute/20))
	}
	return 0
}

// decimal reads what a pattern has found to be a number; 0 = nothing was found.
func decimal(digits string) float64 {
	n, _ := strconv.ParseFloat(digits, 64)
	return n
}

// seconds returns a time, at most one that is too late for a cue, so that sums don't overflow.
func seconds(n float64) time.Duration {
	const tooLate = 2 * MaxTime
	return time.Duration(math.Round(min(n, tooLate.Seconds()) * float64(time.Second)))
}
