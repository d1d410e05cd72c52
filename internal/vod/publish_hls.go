package vod

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/hls"
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
// Audio belongs to the segment in which it starts; where it goes on after the
// picture, its segments are segments of their own.
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
		count-- // more audio may start before the picture ends
	}
	return count
}

// extra returns the segments of audio that start when the picture is over.
func (v variant) extra() []cmaf.Segment {
	if v.video == nil || v.audio == nil {
		return nil
	}
	first, _ := v.audioOf(len(v.video.Index.Segments))
	return v.audio.Index.Segments[first:]
}

// audioOf returns which segments of audio belong to segment n of the picture, from
// first up to end: those that start in it. Audio before the first is in the first.
func (v variant) audioOf(n int) (first, end int) {
	video, audio := v.video.Index, v.audio.Index
	before := func(t time.Duration) int {
		i, _ := slices.BinarySearchFunc(audio.Segments, t, func(s cmaf.Segment, t time.Duration) int {
			return cmp.Compare(audio.Track.Time(s.Start()), t)
		})
		return i
	}
	if count := len(video.Segments); n >= count { // audio alone
		first = before(video.Track.Time(video.End())) + n - count
		return min(first, len(audio.Segments)), min(first+1, len(audio.Segments))
	}
	if n > 0 {
		first = before(video.Track.Time(video.Segments[n].Start()))
	}
	return first, before(video.Track.Time(video.Segments[n].End()))
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
	ts, err := cmaf.RestoreTS(v.video.track(), v.audio.track(), state.TS)
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
	video, audio, err := r.fragments(ctx, v, n)
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

// fragments reads the samples of segment n of a variant.
func (r *publishing) fragments(ctx context.Context, v variant, n int) (video, audio []cmaf.Fragment, err error) {
	first, end := n, n+1
	if v.video != nil && v.audio != nil {
		first, end = v.audioOf(n)
	}
	if v.video != nil && n < len(v.video.Index.Segments) {
		if video, err = media.NewTrack(r.Work, v.video.Prefix, v.video.Index).Fragments(ctx, n); err != nil {
			return nil, nil, err
		}
	}
	if v.audio != nil {
		track := media.NewTrack(r.Work, v.audio.Prefix, v.audio.Index)
		for i := first; i < end; i++ {
			fragments, err := track.Fragments(ctx, i)
			if err != nil {
				return nil, nil, err
			}
			audio = append(audio, fragments...)
		}
	}
	return video, audio, nil
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
			return r.putText(groupCtx, r.hlsKey(v.name, "index.m3u8"), typePlaylist, r.mediaPlaylist(v).Text())
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	master := cmaf.Master{Video: hlsRenditions(r.video), Audio: hlsRenditions(r.audio), TS: r.TS}
	return r.putText(ctx, r.hlsKey("index.m3u8"), typePlaylist, master.Playlist().Text())
}

// hlsRenditions names the media playlists of streams.
func hlsRenditions(streams []Stream) []cmaf.Rendition {
	list := make([]cmaf.Rendition, len(streams))
	for i, s := range streams {
		list[i] = cmaf.Rendition{Name: s.Name, URI: s.Name + "/index.m3u8", Index: s.Index}
	}
	return list
}

// mediaPlaylist returns the playlist of a variant.
func (r *publishing) mediaPlaylist(v variant) hls.Media {
	list, index := hls.Media{Type: hls.VOD, Ended: true}, v.main().Index
	if r.TS {
		var extra []time.Duration
		for _, s := range v.extra() {
			extra = append(extra, v.audio.Index.Track.Time(s.Duration()))
		}
		list.Segments = index.Entries(func(n int) string { return strconv.Itoa(n) + ".ts" }, nil, extra...)
	} else {
		list.Segments = index.Entries(func(n int) string { return strconv.Itoa(n) + ".m4s" }, func(int) string { return "init.mp4" })
	}
	return list
}

func (s *Stream) track() *cmaf.Track {
	if s == nil {
		return nil
	}
	return &s.Index.Track
}
