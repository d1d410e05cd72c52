package publish

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/hls"
	"weir/internal/media"
	"weir/internal/weir"
)

// hlsOutput is a master playlist, and for each variant a playlist and segments.
type hlsOutput struct {
	folder
	ts bool // the segments are MPEG-TS, else CMAF
}

const (
	hlsPlaylist = "index.m3u8"
	hlsInit     = "init.mp4"
)

func (o hlsOutput) name() string { return "hls" }

func (o hlsOutput) segment(n int) string {
	if o.ts {
		return strconv.Itoa(n) + ".ts"
	}
	return strconv.Itoa(n) + ".m4s"
}

// variant is the source of an HLS media playlist and its segments: with MPEG-TS a rendition and its audio,
// with CMAF a track.
type variant struct {
	name         string
	video, audio *Track // one may be nil
}

// main returns the track whose segments determine those of the variant.
func (v variant) main() *Track {
	if v.video != nil {
		return v.video
	}
	return v.audio
}

// segments returns how many segments can be rendered, because they will not change any more. [cmaf.TSAudio]
// returns their audio.
func (v variant) segments() int {
	index := v.main().Index
	if v.video == nil || v.audio == nil || v.audio.Complete {
		if v.main().Complete {
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

// extra returns the durations of additional segments with only audio.
func (v variant) extra() []time.Duration {
	if v.video == nil || v.audio == nil {
		return nil
	}
	return cmaf.TSExtra(v.video.Index, v.audio.Index)
}

// variants returns first the variants of the video, then those of audio with segments of its own.
func (o hlsOutput) variants(video, audio []Track) (list []variant) {
	muxed := o.ts && len(video) > 0 && len(audio) > 0
	for i := range video {
		v := variant{name: video[i].Name, video: &video[i]}
		if muxed {
			v.audio = &audio[0]
		}
		list = append(list, v)
	}
	for i := range audio {
		if i > 0 || !muxed {
			list = append(list, variant{name: audio[i].Name, audio: &audio[i]})
		}
	}
	return list
}

func (o hlsOutput) jobs(r *run) (jobs []job) {
	form := formZero
	if o.ts {
		form = ""
	}
	for i, v := range o.variants(r.video, r.audio) {
		state := r.state.item(o.name(), v.name, form)
		if state.Form != form {
			*state = itemState{Form: form}
		}
		if v.segments() > state.Segments && r.Sign != nil {
			jobs = append(jobs, func(ctx context.Context) error {
				return o.putSigned(ctx, r, v, i+1, &state.segmentState)
			})
		} else if v.segments() > state.Segments {
			jobs = append(jobs, func(ctx context.Context) error {
				return o.putSegments(ctx, r, v, &state.segmentState)
			})
		}
	}
	return jobs
}

// segmentRenderer renders segment n of a variant. The returned state is for the segment after it.
type segmentRenderer func(ctx context.Context, n int) (outgoing, cmaf.TSState, error)

// putSegments renders segments one after the other, and puts several of them at the same time.
func (o hlsOutput) putSegments(ctx context.Context, r *run, v variant, state *segmentState) error {
	render, err := o.renderer(ctx, r, v, state)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	type sent struct {
		after cmaf.TSState
		size  int64
	}
	done := map[int]sent{} // the segments that were put
	for n := state.Segments; n < v.segments(); n++ {
		if err := r.slots.Acquire(groupCtx, 1); err != nil {
			break
		}
		segment, after, err := render(groupCtx, n)
		if err != nil {
			r.slots.Release(1)
			return errors.Join(err, group.Wait())
		}
		group.Go(func() error {
			defer r.slots.Release(1)
			segment.key = o.key(v.name, o.segment(n))
			if err := r.send(groupCtx, segment); err != nil {
				return err
			}
			r.change(func() {
				done[n] = sent{after, segment.size}
				for next, ok := done[state.Segments]; ok; next, ok = done[state.Segments] {
					state.Segments, state.TS = state.Segments+1, next.after
					state.Bytes += next.size
				}
			})
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// renderer returns the function that renders the next segments: as MPEG-TS, where each continues the one
// before it, or as they are stored, after an init segment.
func (o hlsOutput) renderer(ctx context.Context, r *run, v variant, state *segmentState) (segmentRenderer, error) {
	if o.ts {
		ts, err := cmaf.NewTS(v.video.track(), v.audio.track(), state.TS)
		return func(ctx context.Context, n int) (outgoing, cmaf.TSState, error) {
			segment, err := r.renderTS(ctx, ts, v, n)
			return segment, ts.State(), err
		}, err
	}
	track := r.track(*v.main())
	if !state.Init {
		init := track.Init()
		if err := r.sendBytes(ctx, o.key(v.name, hlsInit), typeMP4, init); err != nil {
			return nil, err
		}
		r.change(func() { state.Init, state.Bytes = true, state.Bytes+int64(len(init)) })
	}
	return func(_ context.Context, n int) (outgoing, cmaf.TSState, error) {
		file := track.SegmentFile(n)
		return outgoing{contentType: typeMP4, size: file.Size(), open: file.Reader}, cmaf.TSState{}, nil
	}, nil
}

// renderTS renders a segment into a file without a name.
func (r *run) renderTS(ctx context.Context, ts *cmaf.TS, v variant, n int) (segment outgoing, err error) {
	r.rendering.Lock()
	defer r.rendering.Unlock()
	muxed := media.Muxed{Video: v.video.stored(r.Store), Audio: v.audio.stored(r.Store)}
	video, audio, err := muxed.Fragments(ctx, n)
	if err != nil {
		return segment, err
	}
	file, err := os.CreateTemp(r.Dir, "segment-*.ts")
	if err != nil {
		return segment, err
	}
	err = errors.Join(os.Remove(file.Name()), ts.Segment(file, video, audio))
	if err == nil {
		segment.size, err = file.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return segment, errors.Join(err, file.Close())
	}
	segment.contentType = typeTS
	segment.open = func(context.Context) io.ReadSeekCloser { return file }
	return segment, nil
}

// finish puts the media playlists and then the master playlist.
func (o hlsOutput) finish(ctx context.Context, r *run) error {
	if r.Sign != nil {
		if err := o.putInits(ctx, r); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(uploads)
	for _, v := range o.variants(r.video, r.audio) {
		group.Go(func() error {
			text := o.mediaPlaylist(v).Text()
			r.change(func() { r.state.items[o.name()][v.name].Playlist = int64(len(text)) })
			return r.sendBytes(groupCtx, o.key(v.name, hlsPlaylist), typePlaylist, text)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	shift := zeroTime
	if o.ts {
		shift = storedTime
	}
	text, err := r.putText(ctx, o.folder, o.name(), shift)
	if err != nil {
		return err
	}
	master := cmaf.Master{Video: hlsRenditions(r.video), Audio: hlsRenditions(r.audio), Text: text, Captions: r.Captions, TS: o.ts}
	return r.sendBytes(ctx, o.key(hlsPlaylist), typePlaylist, master.Playlist().Text())
}

func (o hlsOutput) manifests() []string { return []string{o.key(hlsPlaylist)} }

func (o hlsOutput) keys(variant string, state *itemState) []string {
	if keys, ok := o.textKeys(variant, state); ok {
		return keys
	}
	keys := []string{o.key(variant, hlsInit), o.key(variant, hlsPlaylist)}
	// Some may exist that are not noted because one before them was missing, and without a plan their kind
	// is not known.
	ahead := uploads
	if state.Tree != nil {
		ahead = max(state.Tree.Group(), signedBatch)
	}
	for n := range state.Segments + ahead {
		for _, kind := range []hlsOutput{{ts: true}, {ts: false}} {
			keys = append(keys, o.key(variant, kind.segment(n)))
		}
	}
	return keys
}

func (o hlsOutput) report(out *weir.TranscodeOutput, state *State, _, _ []Track) {
	out.HLS = &weir.PathParam{Path: o.path(hlsPlaylist)}
	if len(out.Renditions) > 0 { // all have the same manifest
		reportSigned(out, state, o.name(), out.Renditions[0].Name, out.HLS.Path)
	}
	for i := range out.Renditions {
		r := &out.Renditions[i]
		r.Playlist = o.path(r.Name, hlsPlaylist)
		if r.MP4 == "" {
			r.Size = cmp.Or(state.size(o.name(), r.Name), r.Size)
		}
	}
}

// hlsRenditions returns the entries of tracks in a master playlist.
func hlsRenditions(tracks []Track) []cmaf.Rendition {
	list := make([]cmaf.Rendition, len(tracks))
	for i, t := range tracks {
		list[i] = cmaf.Rendition{Name: t.Name, URI: t.Name + "/" + hlsPlaylist, Index: t.Index}
	}
	return list
}

func (o hlsOutput) mediaPlaylist(v variant) hls.Media {
	var init func(int) string
	if !o.ts {
		init = func(int) string { return hlsInit }
	}
	segments := v.main().Index.Entries(o.segment, init, v.extra()...)
	return hls.Media{Type: hls.VOD, Ended: true, Segments: segments}
}

func (t *Track) track() *cmaf.Track {
	if t == nil {
		return nil
	}
	return &t.Index.Track
}

// stored returns the track of the track in the working storage.
func (t *Track) stored(work blob.Store) *media.Track {
	if t == nil {
		return nil
	}
	return media.NewTrack(work, t.Prefix, t.Index)
}
