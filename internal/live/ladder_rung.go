package live

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync/atomic"
	"time"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/weir"
)

// rung is a rendition that is encoded from the source. Its segments start when those of
// the source do and have the same numbers; those that it could not be made of, because
// its encoder was away, are gaps, so that players look elsewhere and come back.
type rung struct {
	profile weir.Profile
	session *session
	out     *rendition // nil = nothing has come out so far

	// What readers are told of its frames; guarded by the session.
	tracks   []cmaf.Track // nil = nothing has come out so far
	position int          // of its picture

	newest atomic.Int64 // how far it is on the timeline, in nanoseconds

	// What it has carried since the session was opened here.
	segments, nanoseconds, bytes atomic.Int64
}

// latest is by how much the first frame of a segment may be behind that of the source's:
// less than players notice.
const latest = 100 * time.Millisecond

// read takes what the encoder of a rung, which was told a frame rate, writes until it ends.
func (r *rung) read(ctx context.Context, in *feed, rate float64, pipe io.Reader) error {
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
		if err := w.take(ctx, f); err != nil {
			return errors.Join(err, w.end(ctx, in))
		}
	}
	return w.end(ctx, in)
}

// open makes the rendition ready for what an encoder makes.
func (r *rung) open(track cmaf.Track, rate float64, first cmaf.Fragment) (*rungWriter, error) {
	s := r.session
	track.Delay = max(int64(first.Samples[0].Offset), 0)
	if r.out == nil {
		recorder, err := media.Record(filepath.Join(s.dir, r.profile.Name), track)
		if err != nil {
			return nil, err
		}
		if err := s.addRung(r, recorder); err != nil {
			return nil, errors.Join(err, recorder.Close())
		}
	}
	if err := r.out.change(track); err != nil {
		return nil, err
	}
	r.out.aim(rate)
	return &rungWriter{rung: r, track: track, order: order{track: track}, pack: newPacker(r.out.track, r.out), number: -1}, nil
}

// fill makes gaps of the segments that the rung does not have, before a number. Those that
// are not shown any more are skipped: an encoder may have been away for days.
func (r *rung) fill(before int64) error {
	source := r.session.source()
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

// rungWriter packs what one run of the encoder makes of a rung.
type rungWriter struct {
	*rung
	track  cmaf.Track
	order  order
	pack   *packer
	number int64 // of the segment in hand; -1 = none
}

// take packs frames as they come from the encoder.
func (w *rungWriter) take(ctx context.Context, f cmaf.Fragment) error {
	at, data := f.Start-w.track.Ticks(cmaf.Lead), f.Data
	for _, s := range f.Samples {
		dts := w.track.Time(at)
		settled, ok := w.order.add(dts, w.track.Time(at+int64(s.Offset)), s.Sync, data[:s.Size:s.Size])
		at, data = at+int64(s.Duration), data[s.Size:]
		if !ok {
			continue
		}
		if err := w.put(ctx, settled); err != nil {
			return err
		}
	}
	return nil
}

// put packs a frame into the segment that the source has it in.
func (w *rungWriter) put(ctx context.Context, s sample) error {
	in, ok, err := w.session.line.segment(ctx, w.track.Time(s.at+int64(s.Duration)/2))
	if err != nil || !ok {
		return err
	}
	w.share(w.track, s)
	w.newest.Store(int64(w.track.Time(s.at + int64(s.Duration))))
	if in.number != w.number {
		if err := w.cut(); err != nil {
			return err
		}
		// A segment starts with a key frame, at the start; else it is a gap from there on.
		late := w.track.Time(s.at)-in.at > latest
		if !s.Sync || late || in.number < w.out.recorder.Next() {
			return nil
		}
		if err := w.fill(in.number); err != nil || in.number < w.out.recorder.Next() {
			return err
		}
		w.out.begin(in.broken)
		w.number = in.number
	}
	w.bytes.Add(int64(s.Size))
	w.nanoseconds.Add(int64(w.track.Time(int64(s.Duration))))
	return w.pack.add(s)
}

func (w *rungWriter) cut() error {
	if w.number < 0 {
		return nil
	}
	w.number = -1
	w.segments.Add(1)
	return w.pack.endSegment()
}

// end packs what is left. What was held back of a run that failed is in time too: it was
// decided before, or it is left out.
func (w *rungWriter) end(ctx context.Context, from *feed) error {
	if w == nil {
		return nil
	}
	lasts := w.pack.lastDuration()
	if w.order.holding {
		// The last frame of all ends when that of the source does.
		at := w.track.Time(w.order.decoded)
		if next := time.Duration(from.divided.Load()); next > at {
			lasts = next - at // the next encoder goes on there
		} else if in, found, err := w.session.line.segment(ctx, at); err == nil && found && in.end > at {
			lasts = in.end - at
		}
	}
	if s, ok := w.order.finish(lasts); ok && ctx.Err() == nil {
		if err := w.put(ctx, s); err != nil {
			return errors.Join(err, w.cut())
		}
	}
	return w.cut()
}
