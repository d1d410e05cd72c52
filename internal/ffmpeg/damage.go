package ffmpeg

import (
	"regexp"
	"strings"
)

// Damage counts what a run could not decode of its source. Decoders conceal errors: the run
// continues, and the output shows the damage.
type Damage struct {
	Frames  int `json:"frames,omitempty"`  // frames that were decoded with errors
	Packets int `json:"packets,omitempty"` // packets that were not decoded
	Errors  int `json:"errors,omitempty"`  // other errors of demuxers and decoders
}

// Add adds the damage of another part of the source.
func (d *Damage) Add(other Damage) {
	d.Frames, d.Packets, d.Errors = d.Frames+other.Frames, d.Packets+other.Packets, d.Errors+other.Errors
}

var (
	// The messages of ffmpeg 4 to 8 about a packet that was not decoded.
	notDecoded = regexp.MustCompile(`Error while decoding stream|Error submitting (a )?packet to (the )?decoder|Decoding error`)
	// A decoder that starts at a key frame of an open GOP lacks the references of frames that are shown
	// before it. That is no damage: those frames belong to the chunk before.
	noReference = regexp.MustCompile(`(?i)ref with POC|reference picture|reference frames|co located POCs|mmco|short failure|no frame!`)
)

// warning counts a line of the level warning.
func (d *Damage) warning(line string) {
	if strings.Contains(line, "corrupt decoded frame") {
		d.Frames++
	}
}

// error counts a line of the level error.
func (d *Damage) error(line string) {
	switch {
	case notDecoded.MatchString(line):
		d.Packets++
	case strings.HasPrefix(line, "[") && !noReference.MatchString(line):
		d.Errors++
	}
}
