package caption

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

const signature = "WEBVTT"

// readWebVTT reads WebVTT. Styles and regions are left out: they are for the page of another player.
func readWebVTT(text string) ([]Cue, error) {
	head, rest, _ := strings.Cut(text, "\n")
	if after := strings.TrimPrefix(head, signature); after != "" && after[0] != ' ' && after[0] != '\t' {
		return nil, invalidAt(1, "the first line of WebVTT is WEBVTT, and no letter follows it")
	}
	var l list
	all := strings.Split(rest, "\n")
	line := func(i int) int { return i + 2 } // the number of a line in the file
	i := 0
	for i < len(all) && all[i] != "" && !strings.Contains(all[i], arrow) {
		i++ // the header
	}
	for i < len(all) {
		if all[i] == "" {
			i++
			continue
		}
		c, at := Cue{}, line(i)
		if !strings.Contains(all[i], arrow) {
			if i+1 == len(all) || !strings.Contains(all[i+1], arrow) {
				for i < len(all) && all[i] != "" {
					i++ // a comment, a style or a region
				}
				continue
			}
			c.ID = identifier(all[i])
			i, at = i+1, line(i+1)
		}
		var settings string
		var err error
		if c.Start, c.End, settings, err = readTiming(at, all[i]); err != nil {
			return nil, err
		}
		c.Settings = readSettings(settings)
		first := i + 1
		for i = first; i < len(all) && all[i] != "" && !strings.Contains(all[i], arrow); i++ {
		}
		c.Text = markup(tokens(strings.Join(all[first:i], "\n")), c.Start, c.End)
		if empty(c.Text) {
			c.Text = ""
		}
		if err := l.add(at, c); err != nil {
			return nil, err
		}
	}
	return l.cues, nil
}

// identifier returns the identifier of a cue: a line of text. One with an arrow, which control
// characters may have hidden, would be read as times, so it is left out.
func identifier(text string) string {
	id := strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text))
	if strings.Contains(id, arrow) {
		return ""
	}
	return id
}

// readSettings returns the settings of a cue that are valid, in a fixed order.
func readSettings(text string) string {
	valid := map[string]string{}
	for field := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(field, ":")
		position, align, aligned := strings.Cut(value, ",")
		ok := false
		switch name {
		case "vertical":
			ok = value == "rl" || value == "lr"
		case "line":
			ok = (isPercentage(position) || isInteger(position)) && (!aligned || slices.Contains([]string{"start", "center", "end"}, align))
		case "position":
			ok = isPercentage(position) && (!aligned || slices.Contains([]string{"line-left", "center", "line-right"}, align))
		case "size":
			ok = isPercentage(value)
		case "align":
			ok = slices.Contains([]string{"start", "center", "end", "left", "right"}, value)
		}
		if ok {
			valid[name] = value
		}
	}
	var list []string
	for _, name := range []string{"vertical", "line", "position", "size", "align"} {
		if value, ok := valid[name]; ok {
			list = append(list, name+":"+value)
		}
	}
	return strings.Join(list, " ")
}

func isPercentage(text string) bool {
	digits, ok := strings.CutSuffix(text, "%")
	value, err := strconv.ParseFloat(digits, 64)
	return ok && err == nil && value >= 0 && value <= 100 && strings.Trim(digits, "0123456789.") == "" && len(digits) <= 10
}

func isInteger(text string) bool {
	_, err := number(strings.TrimPrefix(text, "-"))
	return err == nil
}

// WebVTT writes cues as a file.
func WebVTT(cues []Cue) []byte {
	w := append([]byte(signature), "\n\n"...)
	for _, c := range cues {
		w = appendCue(w, c)
	}
	return w
}

func appendCue(w []byte, c Cue) []byte {
	if c.ID != "" {
		w = append(append(w, c.ID...), '\n')
	}
	w = append(w, clock(c.Start)+" "+arrow+" "+clock(c.End)...)
	if c.Settings != "" {
		w = append(append(w, ' '), c.Settings...)
	}
	w = append(append(append(w, '\n'), c.Text...), '\n')
	return append(w, '\n')
}

// Segment writes the cues that are shown during a part of the time as a segment of HLS. A cue that
// is shown longer is in all segments, with the same times: players drop repetitions by them. The
// time local of cues is the time media, from 0 on, of the clock of the media. Without cues the
// segment has its header, because players take an empty one for an error.
func Segment(cues []Cue, from, to, local, media time.Duration) []byte {
	const ticks, wrap = 90_000, 1 << 33
	at := media / time.Second * ticks
	at += media % time.Second * ticks / time.Second
	w := append([]byte(signature), "\nX-TIMESTAMP-MAP=MPEGTS:"...)
	w = strconv.AppendInt(w, int64(at%wrap), 10)
	w = append(append(append(w, ",LOCAL:"...), clock(local)...), "\n\n"...)
	for _, c := range cues {
		if c.Start >= to {
			break
		}
		if c.End > from {
			w = appendCue(w, c)
		}
	}
	return w
}
