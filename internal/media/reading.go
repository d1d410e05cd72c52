package media

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// growing has the segments of a track that is being recorded.
type growing struct {
	recorder *Recorder
	numbers  []int64 // of the segments
	kept     bool    // none of them is ever trimmed
}

// Reading returns the track as far as it is recorded: the segments that were not trimmed, the last
// one with its parts so far. The track does not grow with the recording, and reading a segment that
// was trimmed since is an error of kind weir.NotFound. kept = the recording is not trimmed. An error
// of kind weir.NotFound means that nothing was recorded.
func (r *Recorder) Reading(kept bool) (*Track, error) {
	index, numbers, err := r.soFar(math.MaxInt64)
	if err != nil {
		return nil, err
	}
	return &Track{index: index, growing: &growing{recorder: r, numbers: numbers, kept: kept}}, nil
}

// open opens length bytes (-1 = all) of segment n, whose parts have size bytes.
func (g *growing) open(n int, offset, length, size int64) (io.ReadCloser, error) {
	body, has, err := g.recorder.Open(g.numbers[n])
	if err != nil {
		return nil, err
	}
	if has < size {
		err = fmt.Errorf("segment %d of a recording has %d bytes, there were %d", g.numbers[n], has, size)
	} else {
		_, err = body.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, body.Close())
	}
	left := max(0, size-offset) // a segment that was open may have grown
	if length >= 0 {
		left = min(left, length)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, left), body}, nil
}

// immutable reports whether the file of segment n has just these bytes, and will not change. The file
// of a segment that can be trimmed may be used again for another one.
func (g *growing) immutable(n int, size int64) bool {
	r, number := g.recorder, g.numbers[n]
	r.mu.Lock()
	finished, kept := number < r.next, g.kept || number < r.protected
	r.mu.Unlock()
	info, err := os.Stat(r.path(number))
	return finished && kept && err == nil && info.Size() == size
}
