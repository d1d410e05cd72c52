package vod

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/media"
)

// HLSState is how far the HLS output of a stream is.
type HLSState struct {
	Segments int          `json:"segments"` // put so far, from the first on
	TS       cmaf.TSState `json:"ts"`       // after the last of them
	Init     bool         `json:"init,omitempty"`
}

func (p *Publisher) hlsKey(names ...string) string { return destKey(p.Outputs.HLS.Path, names...) }

// variant is what becomes a media playlist of HLS and its segments: with MPEG-TS
// a rendition and the audio that belongs to it, with CMAF a track.
type variant struct {
	name         string
	video, audio *Stream // one may be nil
}

// main returns the stream that says where segments start.
func (v variant) main() *Stream {
	if v.video != nil {
		return v.video
	}
	return v.audio
}

// segments returns how many segments can be rendered: nothing will be added to them.
// [cmaf.TSAudio] says which audio they have.
func (v variant) segments() int {
	index := v.main().Index
	if v.video == nil || v.audio == nil {
		return len(index.Segments)
	}
	if v.audio.Complete {
		if v.video.Complete {
			return len(index.Segments) + len(v.extra())
		}
		return len(index.Segments)
	}
	known := v.audio.Index.Track.Time(v.audio.Index.End())
	count := 0
	for count < len(index.Segments) && index.Track.Time(index.Segments[count].End()) <= known {
		count++
	}
	if count == len(index.Segments) && v.video.Complete && count > 0 {
		count-- // more audio may start before the video ends
	}
	return count
}

// extra returns the durations of the segments in which there is only audio.
func (v variant) extra() []time.Duration {
	if v.video == nil || v.audio == nil {
		return nil
	}
	return cmaf.TSExtra(v.video.Index, v.audio.Index)
}

// variants returns the variants of the HLS output: first those of the video, then
// those of the audio that has segments of its own.
func (r *publishing) variants() (video, audio []variant) {
	muxed := r.TS && len(r.video) > 0 && len(r.audio) > 0
	for i := range r.video {
		v := variant{name: r.video[i].Name, video: &r.video[i]}
		if muxed {
			v.audio = &r.audio[0]
		}
		video = append(video, v)
	}
	for i := range r.audio {
		if i > 0 || !muxed {
			audio = append(audio, variant{name: r.audio[i].Name, audio: &r.audio[i]})
		}
	}
	return video, audio
}

// hlsJobs returns what puts the segments that are new.
func (r *publishing) hlsJobs() (jobs []publishJob) {
	if r.Outputs.HLS == nil {
		return nil
	}
	video, audio := r.variants()
	for _, v := range append(video, audio...) {
		if r.state.HLS[v.name] == nil {
			r.state.HLS[v.name] = &HLSState{}
		}
		state := r.state.HLS[v.name]
		if v.segments() <= state.Segments {
			continue
		}
		jobs = append(jobs, func(ctx context.Context) error {
			if r.TS {
				return r.putTransport(ctx, v, state)
			}
			return r.putTrack(ctx, v, state)
		})
	}
	return jobs
}

// putTransport renders segments as MPEG-TS, one after the other since each goes on
// where the one before it ended, and puts several of them at the same time.
func (r *publishing) putTransport(ctx context.Context, v variant, state *HLSState) error {
	ts, err := cmaf.NewTS(v.video.track(), v.audio.track(), state.TS)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	done := ledgerOf[cmaf.TSState]{next: state.Segments}
	for n := state.Segments; n < v.segments(); n++ {
		if err := r.takeSlot(groupCtx); err != nil {
			break
		}
		file, err := r.renderTS(groupCtx, ts, v, n)
		if err != nil {
			<-r.slots
			return errors.Join(err, group.Wait())
		}
		after := ts.State()
		group.Go(func() error {
			defer func() { <-r.slots }()
			defer file.Close()
			if err := r.putSpool(groupCtx, r.hlsKey(v.name, strconv.Itoa(n)+".ts"), file); err != nil {
				return err
			}
			r.change(func() {
				done.add(n, after, func(after cmaf.TSState) { state.Segments, state.TS = state.Segments+1, after })
			})
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// ledgerOf notes what is done out of order, and tells of it in order.
type ledgerOf[T any] struct {
	next int
	done map[int]T
}

func (l *ledgerOf[T]) add(n int, value T, tell func(T)) {
	if l.done == nil {
		l.done = map[int]T{}
	}
	l.done[n] = value
	for {
		value, ok := l.done[l.next]
		if !ok {
			return
		}
		delete(l.done, l.next)
		l.next++
		tell(value)
	}
}

// renderTS renders a segment into a file without a name.
func (r *publishing) renderTS(ctx context.Context, ts *cmaf.TS, v variant, n int) (*os.File, error) {
	r.rendering.Lock()
	defer r.rendering.Unlock()
	muxed := media.Muxed{Video: v.video.stored(r.Work), Audio: v.audio.stored(r.Work)}
	video, audio, err := muxed.Fragments(ctx, n)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(r.Dir, "segment-*.ts")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Remove(file.Name()), ts.Segment(file, video, audio)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// putSpool puts what was written to a file.
func (r *publishing) putSpool(ctx context.Context, key string, file *os.File) error {
	size, err := file.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return r.Dest.Put(ctx, key, file, size, blob.PutOptions{ContentType: typeTS})
}

// putTrack puts the init segment and the segments of a track as they are.
func (r *publishing) putTrack(ctx context.Context, v variant, state *HLSState) error {
	stream := v.main()
	track := media.NewTrack(r.Work, stream.Prefix, stream.Index)
	if !state.Init {
		init := track.Init()
		if err := r.Dest.Put(ctx, r.hlsKey(v.name, "init.mp4"), bytes.NewReader(init), int64(len(init)), blob.PutOptions{ContentType: typeMP4}); err != nil {
			return err
		}
		r.change(func() { state.Init = true })
	}
	group, groupCtx := errgroup.WithContext(ctx)
	done := ledgerOf[struct{}]{next: state.Segments}
	for n := state.Segments; n < v.segments(); n++ {
		if err := r.takeSlot(groupCtx); err != nil {
			break
		}
		group.Go(func() error {
			defer func() { <-r.slots }()
			body, size, err := track.Segment(groupCtx, n)
			if err != nil {
				return err
			}
			defer body.Close()
			if err := r.Dest.Put(groupCtx, r.hlsKey(v.name, strconv.Itoa(n)+".m4s"), body, size, blob.PutOptions{ContentType: typeMP4}); err != nil {
				return err
			}
			r.change(func() { done.add(n, struct{}{}, func(struct{}) { state.Segments++ }) })
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// finishHLS puts the media playlists and then the master playlist.
func (r *publishing) finishHLS(ctx context.Context) error {
	video, audio := r.variants()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(uploads)
	for _, v := range append(video, audio...) {
		group.Go(func() error {
			return r.putText(groupCtx, r.hlsKey(v.name, "index.m3u8"), typePlaylist, func(w io.Writer) error {
				return r.mediaPlaylist(w, v)
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return r.putText(ctx, r.hlsKey("index.m3u8"), typePlaylist, func(w io.Writer) error {
		return cmaf.MasterPlaylist(w, cmaf.Master{Video: hlsRenditions(r.video), Audio: hlsRenditions(r.audio), TS: r.TS})
	})
}

// hlsRenditions names the media playlists of streams.
func hlsRenditions(streams []Stream) []cmaf.Rendition {
	list := make([]cmaf.Rendition, len(streams))
	for i, s := range streams {
		list[i] = cmaf.Rendition{Name: s.Name, URI: s.Name + "/index.m3u8", Index: s.Index}
	}
	return list
}

// mediaPlaylist writes the playlist of a variant.
func (r *publishing) mediaPlaylist(w io.Writer, v variant) error {
	o := cmaf.PlaylistOptions{
		Type: cmaf.VOD, Ended: true,
		Name: func(n int64) string { return strconv.FormatInt(n, 10) + ".ts" },
	}
	if !r.TS {
		o.Name = func(n int64) string { return strconv.FormatInt(n, 10) + ".m4s" }
		o.Init = func(int64) string { return "init.mp4" }
	}
	o.Extra = v.extra()
	return cmaf.MediaPlaylist(w, o, v.main().Index.Segments, v.main().Index.Track)
}

func (s *Stream) track() *cmaf.Track {
	if s == nil {
		return nil
	}
	return &s.Index.Track
}

func (s *Stream) stored(work blob.Store) *media.Track {
	if s == nil {
		return nil
	}
	return media.NewTrack(work, s.Prefix, s.Index)
}
