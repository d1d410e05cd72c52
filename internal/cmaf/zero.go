package cmaf

import (
	"encoding/binary"

	"github.com/Eyevinn/mp4ff/mp4"
)

// Files for download start at 0, because players show the times of a file that is opened by
// itself. So their decode times differ from the stored ones. They can't be negative, but B-frames
// need decode times before the first presentation time, and samples may be before 0. Such a track
// is moved so that its first decode time is 0, and a CMAF edit list moves its presentation times
// back.

// hidden returns how many ticks the edit list of a track that starts at 0 skips.
func (t TrackIndex) hidden() int64 { return max(0, t.Track.Delay-t.Start()) }

// ZeroShift returns the ticks to add to the decode times of the stored segments of a track so that
// it starts at 0; see ShiftPart and ZeroInit.
func (t TrackIndex) ZeroShift() int64 { return t.hidden() - t.Track.Ticks(Lead) }

// ZeroInit returns the init segment of a track that starts at 0. The track must have its first
// segment.
func ZeroInit(t TrackIndex) []byte {
	var edits []mp4.ElstEntry
	if skipped := t.hidden(); skipped > 0 {
		edits = append(edits, mp4.ElstEntry{MediaTime: skipped, MediaRateInteger: 1}) // to the end
	}
	return initSegment(t.Track, edits)
}

// ShiftPart adds ticks to the decode time in the head of a stored part.
func ShiftPart(head []byte, ticks int64) error {
	tfdt := child(head, "moof", "traf", "tfdt")
	if len(tfdt) != 12 || tfdt[0] != 1 {
		return refused("a stored part has no decode time")
	}
	at := tfdt[4:]
	binary.BigEndian.PutUint64(at, uint64(int64(binary.BigEndian.Uint64(at))+ticks))
	return nil
}
