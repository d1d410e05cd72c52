package vod

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/weir"
)

// audioImport writes an audio track of a source to the store: AAC as a track, other codecs as
// Matroska, which can hold any codec.
type audioImport struct {
	Engine
	source *SourceAudio
	key    string
	from   time.Duration // see Source
	writer media.Writer
}

// longHole is the maximum time without packets, in seconds. Longer gaps are filled with silence,
// which players handle better.
const longHole = 0.5

// audioKey returns the key of an audio track of the source: a track, or a file.
func (s *Source) audioKey(k int) string { return s.Prefix + "/" + s.Audio[k].Dir }

func (a *audioImport) read(ctx context.Context, r io.Reader) error {
	if !a.source.AsTrack {
		return a.Store.Put(ctx, a.key, r, -1, blob.PutOptions{ContentType: "audio/x-matroska"})
	}
	const seconds = 10
	a.writer = media.Writer{Store: a.Store, Prefix: a.key}
	hole, err := readAudio(r, a.from, func(track cmaf.Track) {
		a.writer.Begin(track, seconds*time.Second, func(open cmaf.Contents, at int64, _ cmaf.Sample) bool {
			return at-open.Start >= seconds*int64(track.Timescale)
		})
	}, func(f cmaf.Fragment) error { return a.writer.Add(ctx, f) })
	if err != nil {
		return err
	}
	if err := a.writer.Finish(ctx); err != nil {
		return err
	}
	a.source.Copy = hole <= longHole
	return media.Seal(ctx, a.Store, a.key, a.writer.Index())
}

// empty reports whether a track has no packets.
func (a *audioImport) empty() bool { return a.source.AsTrack && len(a.writer.Index().Segments) == 0 }

func (a *audioImport) end() time.Duration { return a.writer.Track().Time(a.writer.Index().End()) }

// readAudio reads AAC from ffmpeg and adds it in weir's form: without packets before 0 (the priming
// of decoders, which is not audible), and with exact times where the container rounded them.
//
// hole is the longest time without packets after from, in seconds; a stream without packets is no error.
func readAudio(r io.Reader, from time.Duration, begin func(cmaf.Track), add func(cmaf.Fragment) error) (hole float64, err error) {
	reader, track, err := openTrack(r, cmaf.Audio)
	if err != nil || reader == nil {
		return 0, err
	}
	begin(track)
	smoother := smoother{snap: int64(track.Timescale) / 50, end: track.Ticks(from)}
	err = fragments(reader, track, func(f cmaf.Fragment) error { return add(smoother.smooth(f)) })
	if err != nil {
		return 0, err
	}
	return float64(smoother.hole) / float64(track.Timescale), add(smoother.held)
}

// openTrack reads the description of the track that ffmpeg writes to a pipe. The reader is nil when
// ffmpeg wrote nothing, because there was no packet.
func openTrack(r io.Reader, kind cmaf.Kind) (*cmaf.Reader, cmaf.Track, error) {
	buffered := bufio.NewReader(r)
	if _, err := buffered.Peek(1); errors.Is(err, io.EOF) {
		return nil, cmaf.Track{}, nil
	}
	reader := cmaf.NewReader(buffered)
	tracks, err := reader.Tracks()
	if err != nil {
		return nil, cmaf.Track{}, err
	}
	if len(tracks) != 1 || tracks[0].Kind != kind {
		return nil, cmaf.Track{}, fmt.Errorf("ffmpeg wrote %d tracks, want one track of %s", len(tracks), kind)
	}
	return reader, tracks[0], nil
}

// smoother gives audio packets times without jitter. A packet starts at the end of the one before
// it, unless the difference is larger than jitter: then there is a gap, and the packet before it
// has a longer duration.
type smoother struct {
	snap int64
	held cmaf.Fragment // the last packet, whose duration depends on the next one
	end  int64         // of the held packet, or the start
	hole int64         // the longest
}

func (s *smoother) smooth(f cmaf.Fragment) cmaf.Fragment {
	var out cmaf.Fragment
	at, data := f.Start, f.Data
	for _, sample := range f.Samples {
		packet, start := data[:sample.Size], at
		data = data[sample.Size:]
		at += int64(sample.Duration)
		if start < 0 {
			continue
		}
		s.hole = max(s.hole, start-s.end)
		sample.Offset = 0
		if len(s.held.Samples) > 0 {
			if start < s.end+s.snap {
				start = s.end
			}
			s.held.Samples[0].Duration = uint32(start - s.held.Start)
			out = join(out, s.held)
		}
		s.held = cmaf.Fragment{Start: start, Samples: []cmaf.Sample{sample}, Data: packet}
		s.end = start + int64(sample.Duration)
	}
	return out
}

// join appends a fragment to one that ends where it starts.
func join(a, b cmaf.Fragment) cmaf.Fragment {
	if len(a.Samples) == 0 {
		a.Start = b.Start
	}
	a.Samples = append(a.Samples, b.Samples...)
	a.Data = append(a.Data, b.Data...)
	return a
}

// EncodeAudio makes audio track k of a plan: one continuous AAC track with the segments of the
// video. If it is AAC already, it is only cut. The track is sealed. progress may be nil.
func (e Engine) EncodeAudio(ctx context.Context, plan Plan, k int, progress func(share float64)) (RenditionResult, error) {
	if k < 0 || k >= len(plan.Audio) {
		return RenditionResult{}, fmt.Errorf("the plan has no audio track %d", k)
	}
	w := &media.Writer{Store: e.Store, Prefix: plan.Prefix + "/" + plan.Audio[k].Name}
	begin := func(track cmaf.Track) {
		track.Language, track.Name, track.Default = plan.Audio[k].Language, plan.Audio[k].Title, plan.Audio[k].Default
		w.Begin(track, 2*time.Second, plan.audioCut(track))
	}
	var err error
	var damage ffmpeg.Damage
	if plan.Source.Audio[k].Copy {
		err = e.recut(ctx, plan, k, begin, w)
	} else {
		damage, err = e.encodeAudio(ctx, plan, k, progress, begin, w)
	}
	if err != nil {
		return RenditionResult{}, err
	}
	if err := w.Finish(ctx); err != nil {
		return RenditionResult{}, err
	}
	if err := checkAudio(plan, k, w.Track().Time(w.Index().End())); err != nil {
		return RenditionResult{}, err
	}
	if err := media.Seal(ctx, e.Store, w.Prefix, w.Index()); err != nil {
		return RenditionResult{}, err
	}
	result := resultOf(w, plan.Audio[k].Name)
	result.Damage = damage
	return result, nil
}

// recut copies the packets of a track into other segments.
func (e Engine) recut(ctx context.Context, plan Plan, k int, begin func(cmaf.Track), w *media.Writer) error {
	source, err := media.Open(ctx, e.Store, plan.Source.audioKey(k))
	if err != nil {
		return err
	}
	begin(source.Index().Track)
	for n := range source.Index().Segments {
		fragments, err := source.Fragments(ctx, n)
		if err != nil {
			return err
		}
		for _, f := range fragments {
			if err := w.Add(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e Engine) encodeAudio(
	ctx context.Context, plan Plan, k int, progress func(float64), begin func(cmaf.Track), w *media.Writer,
) (damage ffmpeg.Damage, err error) {
	source := plan.Source.Audio[k]
	audio := ffmpeg.Audio{
		Lead: cmaf.Lead, Format: "matroska",
		Channels: source.Track.Channels, SampleRate: source.Track.SampleRate, First: plan.Source.From,
	}
	command := ffmpeg.Command{Priority: ffmpeg.Interactive, Damage: &damage, Progress: shareOf(plan.Source.Duration-plan.Source.From.Seconds(), progress)}
	if source.AsTrack {
		track, err := media.Open(ctx, e.Store, plan.Source.audioKey(k))
		if err != nil {
			return damage, err
		}
		audio.Format, command.Stdin = "mp4", newTrackReader(ctx, track, allParts(track.Index()))
	} else {
		body, _, err := e.Store.Get(ctx, plan.Source.audioKey(k), 0, -1)
		if err != nil {
			return damage, err
		}
		defer body.Close()
		command.Stdin = body
	}
	command.Args = audio.Args()
	consume := func(ctx context.Context, r io.Reader) error {
		_, err := readAudio(r, plan.Source.From, begin, e.limits(plan.SegmentSeconds).decoded(w.Track, func(f cmaf.Fragment) error { return w.Add(ctx, f) }))
		return err
	}
	err = runPipes(ctx, e.FFmpeg, command, []func(context.Context, io.Reader) error{consume})
	return damage, err
}

// checkAudio compares the end of an encoded audio track with the duration in the header of the
// file.
func checkAudio(plan Plan, k int, end time.Duration) error {
	src := plan.Source
	if end == 0 {
		return weir.Errorf(weir.Invalid, "%s: audio track %d is empty", badSource, k)
	}
	if err := src.checkLength("audio", src.Audio[k].Track, end); err != nil {
		return err
	}
	if len(src.Audio) > 1 || src.Sequential != "" {
		return nil // another track may be longer
	}
	if src.Video != nil {
		end = max(end, time.Duration(float64(src.Video.End)/float64(src.Video.Timescale)*float64(time.Second)))
	}
	return src.checkEnd(end)
}

// audioCut returns the rule for segments of audio: they start with the first packet at or after the
// start of each segment of the video; without video, or after its end, they have the target
// duration.
func (p Plan) audioCut(track cmaf.Track) media.Cut {
	length := int64(p.SegmentSeconds * float64(track.Timescale))
	starts := make([]int64, 0, len(p.Starts))
	for _, start := range p.Starts {
		starts = append(starts, cmaf.RescaleUp(start, p.Timescale, int64(track.Timescale)))
	}
	next := 1 // the next segment
	return func(_ cmaf.Contents, at int64, _ cmaf.Sample) bool {
		due := false
		for at >= startOf(starts, length, next) {
			next++
			due = true
		}
		return due
	}
}

// startOf returns the start of segment n: from the list, and after its end at multiples of length.
func startOf(starts []int64, length int64, n int) int64 {
	if n < len(starts) {
		return starts[n]
	}
	if len(starts) == 0 {
		return int64(n) * length
	}
	return starts[len(starts)-1] + int64(n-len(starts)+1)*length
}
