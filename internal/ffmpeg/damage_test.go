package ffmpeg

import (
	"strings"
	"testing"
)

// ffmpeg's messages about damage in a source are counted by their kind.
func TestDamage(t *testing.T) {
	said := tail{levels: true}
	said.read(strings.NewReader(strings.Join([]string{
		"[libx264 @ 0x1] [info] kb/s:1200.5",
		"[h264 @ 0x1] [error] error while decoding MB 31 11, bytestream 3559",
		"[warning] file:/w/in: corrupt decoded frame in stream 0",
		"[warning] file:/w/in: corrupt decoded frame in stream 0",
		"[vist#0:0/h264 @ 0x1] [warning] corrupt decoded frame",
		"[mp4 @ 0x1] [warning] Non-monotonous DTS",
		"[error] Error while decoding stream #0:0: Invalid data found when processing input",
		"[vist#0:0/h264 @ 0x1] [dec:h264 @ 0x2] [error] Error submitting packet to decoder: Invalid data found when processing input",
		"[hevc @ 0x1] [error] Could not find ref with POC 122",
		"[h264 @ 0x1] [error] reference picture missing during reorder",
	}, "\n")))
	if want := (Damage{Frames: 3, Packets: 2, Errors: 1}); said.damage != want {
		t.Errorf("damage = %+v, want %+v", said.damage, want)
	}
	if len(said.lines()) != 5 || strings.Contains(said.String(), "[error]") {
		t.Errorf("errors are %q", said.lines())
	}
}
