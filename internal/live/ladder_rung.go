package live

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/weir"
)

// rung is a rendition that is encoded from the source. Its segments start where those of the source
// do and have the same numbers. Segments that could not be encoded are gaps, so that players switch to
// another rendition and come back.
type rung struct {
	profile weir.Profile
	ladder  *ladder
	out     *rendition // nil = nothing was encoded so far

	// Guarded by the session.
	tracks   []cmaf.Track // for taps; nil = nothing was encoded so far
	position int          // of its video

	newest atomic.Int64 // how far it is on the timeline, in nanoseconds

	// What was encoded since the session was opened here.
	segments, nanoseconds, bytes atomic.Int64
}

// maxLate is by how much the first frame of a segment may be later than that of the source: less than
// players notice.
const maxLate = 100 * time.Millisecond

// read packs what ffmpeg encodes of the rung with a frame rate, until it ends.
func (r *rung) read(ctx context.Context, in *ladderInput, rate float64, pipe io.Reader) error {
	reader := cmaf.NewReader(pipe)
	var w *rungWriter
	for {
		f, err := reader.Next()
		if errors.Is(err, io.EOF) || w == nil && err != nil && ctx.Err() != nil {
			break
		}
		if err != nil {
			return errors.Join(err, w.end(ctx, in))
		}
		if w == nil {
			tracks, err := reader.Tracks()
			if err == nil {
				w, err = r.open(tracks[f.Track], rate, f)
			}
			if err != nil {
				return err
			}
			r.announce(in.tracks, in.position, w.track)
		}
		if err := w.packFragment(ctx, f); err != nil {
			return errors.Join(err, w.end(ctx, in))
		}
	}
	return w.end(ctx, in)
}

// open prepares the rendition for the output of an ffmpeg.
func (r *rung) open(track cmaf.Track, rate float64, first cmaf.Fragment) (*rungWriter, error) {
	track.Delay = max(int64(first.Samples[0].Offset), 0)
	if r.out == nil {
		recorder, err := media.Record(filepath.Join(r.ladder.renditions.dir, r.profile.Name), track)
		if err != nil {
			return nil, err
		}
		if r.out, err = r.ladder.renditions.addRung(r.profile, recorder); err != nil {
			return nil, errors.Join(err, recorder.Close())
		}
	}
	if err := errors.Join(r.out.EndSegment(), r.out.change(track)); err != nil { // one is open if the disk was full
		return nil, err
	}
	r.out.setRate(rate)
	return &rungWriter{rung: r, track: track, retimer: retimer{track: track}, pack: newPacker(r.out.track, r.out), number: -1}, nil
}

// fill adds gaps for the missing segments before a number. Those that are not in the window any more
// are skipped: ffmpeg may have been away for days.
func (r *rung) fill(before int64) error {
	if err := r.out.EndSegment(); err != nil { // one is open if the disk was full
		return err
	}
	source := r.ladder.renditions.sourceVideo()
	next := r.out.recorder.Next()
	first, breaks, missing := source.since(next, before)
	if first > next {
		if err := r.out.skip(first, breaks); err != nil {
			return err
		}
	}
	for _, s := range missing {
		if err := r.out.addGap(source.time(s.Start()), source.time(s.Duration()), s.Discontinuity); err != nil {
			return err
		}
	}
	return nil
}

// announce announces the tracks of the rung to its taps: those of the source, with its own video.
func (r *rung) announce(source []cmaf.Track, position int, video cmaf.Track) {
	taps := r.ladder.taps
	taps.mu.Lock()
	defer taps.mu.Unlock()
	r.tracks, r.position = slices.Clone(source), position
	r.tracks[position] = video
	for _, t := range taps.all {
		if t.rung == r {
			t.announce(r.tracks)
		}
	}
}

// share gives a frame of the rung to its taps, after the audio that comes before it.
func (r *rung) share(track cmaf.Track, f sample) {
	at := track.Time(f.at)
	taps := r.ladder.taps
	taps.mu.Lock()
	defer taps.mu.Unlock()
	for _, t := range taps.all {
		if t.rung == r {
			t.audio = t.addUntil(t.audio, at)
			t.enqueue(TapItem{Track: r.position, PTS: track.Time(f.at + int64(f.Offset)), DTS: at, Sync: f.Sync, Data: f.data})
		}
	}
}

// rungWriter packs the output of one ffmpeg for a rung.
type rungWriter struct {
	*rung
	track   cmaf.Track
	retimer retimer
	pack    *packer
	number  int64 // of the open segment; -1 = none
}

// packFragment packs the frames of a fragment.
func (w *rungWriter) packFragment(ctx context.Context, f cmaf.Fragment) error {
	at, data := f.Start-w.track.Ticks(cmaf.Lead), f.Data
	for _, s := range f.Samples {
		dts := w.track.Time(at)
		settled, ok := w.retimer.add(dts, w.track.Time(at+int64(s.Offset)), s.Sync, data[:s.Size:s.Size])
		at, data = at+int64(s.Duration), data[s.Size:]
		if !ok {
			continue
		}
		if err := w.packFrame(ctx, settled); err != nil {
			return err
		}
	}
	return nil
}

// packFrame packs a frame into the segment that the source has it in.
func (w *rungWriter) packFrame(ctx context.Context, s sample) error {
	in, ok, err := w.ladder.timeline.segment(ctx, w.track.Time(s.at+int64(s.Duration)/2))
	if err != nil || !ok {
		return err
	}
	w.share(w.track, s)
	w.newest.Store(int64(w.track.Time(s.at + int64(s.Duration))))
	if in.number != w.number {
		if err := w.cut(); err != nil {
			return err
		}
		// A segment must start with a key frame, at the start of the source's; otherwise it is a gap.
		late := w.track.Time(s.at)-in.at > maxLate
		if !s.Sync || late || in.number < w.out.recorder.Next() {
			return nil
		}
		if err := w.fill(in.number); err != nil || in.number < w.out.recorder.Next() {
			return err
		}
		w.out.setDiscontinuity(in.discontinuity)
		w.number = in.number
	}
	w.bytes.Add(int64(s.Size))
	w.nanoseconds.Add(int64(w.track.Time(int64(s.Duration))))
	return w.pack.addSample(s)
}

func (w *rungWriter) cut() error {
	if w.number < 0 {
		return nil
	}
	w.number = -1
	w.segments.Add(1)
	return w.pack.endSegment()
}

// end packs the pending frame, unless ffmpeg was broken off.
func (w *rungWriter) end(ctx context.Context, from *ladderInput) error {
	if w == nil {
		return nil
	}
	lasts := w.pack.lastDuration()
	if w.retimer.holding {
		// The last frame ends where that of the source does.
		at := w.track.Time(w.retimer.decoded)
		if next := time.Duration(from.divided.Load()); next > at {
			lasts = next - at // the next ffmpeg continues there
		} else if in, found, err := w.ladder.timeline.segment(ctx, at); err == nil && found && in.end > at {
			lasts = in.end - at
		}
	}
	if s, ok := w.retimer.finish(lasts); ok && ctx.Err() == nil {
		if err := w.packFrame(ctx, s); err != nil {
			return errors.Join(err, w.cut())
		}
	}
	return w.cut()
}
