package vod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

const (
	// edgeSeconds is the distance of key frames in what is encoded, and the duration of its segments.
	edgeSeconds = 4
	// wholeQuality is the constant rate factor of a clip that is encoded as a whole.
	wholeQuality = 18
)

// edgeCoder encodes frames of a run.
type edgeCoder struct {
	edge  ffmpeg.Edge
	whole string // why its frames can't be beside frames that are copied; "" = they can

	stream ffmpeg.Stream // of the source, if whole is not ""
	made   *cmaf.Track   // what was encoded; nil = nothing so far
}

// newEdgeCoder returns what encodes frames of a run.
func (c *clipMaker) newEdgeCoder(ctx context.Context, r *clipRun) (*edgeCoder, error) {
	table := frames{timescale: r.table.timescale, times: r.shown(), end: r.next(r.end)}
	tick, rate := table.tick()
	coder := &edgeCoder{whole: c.source.Whole, edge: ffmpeg.Edge{
		Lead: cmaf.Lead, Timescale: r.table.timescale, Tick: tick, Rate: rate,
		Keys: max(int(rate.Float()*edgeSeconds), 1), Threads: threads(c.FFmpeg.Idle()),
	}}
	if coder.whole == "" {
		coder.whole = coder.match(r, c.video)
	}
	switch {
	case coder.whole == "":
	case c.source.Stream != nil:
		coder.stream = *c.source.Stream
	default:
		probe, err := c.probeSegment(ctx, c.source.Video, r.samples[0].segment, filepath.Join(c.o.Dir, "start.mp4"))
		if err != nil {
			return nil, err
		}
		if len(probe.Video) == 0 {
			return nil, weir.Errorf(weir.Invalid, "%s: there is no frame in the video", badSource)
		}
		coder.stream = probe.Video[0]
	}
	return coder, nil
}

// match sets the form of the frames that are encoded to that of the run; or it returns why our encoders can't
// make such frames. before has earlier runs, whose edges have sets of their own.
func (e *edgeCoder) match(r *clipRun, before cmaf.TrackIndex) string {
	config := r.track.Config()
	sets, err := config.ParameterSets()
	switch {
	case config.Codec != codec.H264 && config.Codec != codec.H265:
		return "its codec is " + r.track.Codec
	case err != nil || sets.LengthSize != 4 || !mergeable(config):
		return "its parameter sets can't be read"
	case config.Display().Interlaced:
		return "it is interlaced"
	}
	e.edge.SetID = codec.FreeSetID(append(r.index.Configs(), before.Configs()...)...)
	form := config.Form()
	e.edge.Level, e.edge.Pixels = form.Level, "yuv420p"
	if config.Display().FullRange {
		e.edge.Pixels = "yuvj420p"
	}
	switch {
	case form.Chroma != 1:
		return "its colours are not subsampled as usual"
	case config.Codec == codec.H265 && form.Profile == 1 && form.Bits == 8:
		e.edge.Codec, e.edge.Profile = ffmpeg.HEVC, "main"
	case config.Codec == codec.H265 && form.Profile == 2 && form.Bits == 10:
		e.edge.Codec, e.edge.Profile, e.edge.Pixels = ffmpeg.HEVC, "main10", "yuv420p10le"
	case config.Codec == codec.H264 && form.Bits == 8 && form.Profile == 66:
		e.edge.Codec, e.edge.Profile = ffmpeg.H264, "baseline"
	case config.Codec == codec.H264 && form.Bits == 8 && form.Profile == 77:
		e.edge.Codec, e.edge.Profile = ffmpeg.H264, "main"
	case config.Codec == codec.H264 && form.Bits == 8 && form.Profile == 100:
		e.edge.Codec, e.edge.Profile = ffmpeg.H264, "high"
	default:
		return fmt.Sprintf("its profile is %d, with %d bits", form.Profile, form.Bits)
	}
	return ""
}

// args returns the arguments of ffmpeg for frames with these times.
func (e *edgeCoder) args(times []int64, next int64) []string {
	if e.whole == "" {
		edge := e.edge
		edge.Start, edge.End = times[0], next
		return edge.Args()
	}
	encode := ffmpeg.Encode{
		Lead: e.edge.Lead, Video: e.stream.VideoFormat(), Timescale: e.edge.Timescale, Tick: e.edge.Tick, Rate: e.edge.Rate,
		Start: times[0], End: next, Threads: e.edge.Threads,
	}
	width, height := e.stream.Shown()
	// Without B-frames: then the frames are decoded in the order in which they are shown.
	r := ffmpeg.Rendition{Codec: ffmpeg.H264, Profile: "h264constrainedhigh", Width: width &^ 1, Height: height &^ 1, Quality: wholeQuality}
	for i := 0; i < len(times); i += e.edge.Keys {
		r.Keys = append(r.Keys, times[i])
	}
	encode.Renditions = []ffmpeg.Rendition{r}
	return encode.Args()
}

func mergeable(config codec.Config) bool {
	_, ok := codec.Merge(config)
	return ok
}

// briefEdge is the duration up to which the edge of a clip is encoded at once, whatever else is encoded.
const briefEdge = 15 * time.Second

// encode encodes the frames of a run with these times.
func (c *clipMaker) encode(ctx context.Context, r *clipRun, coder *edgeCoder, times []int64) error {
	if len(times) == 0 {
		return nil
	}
	next := r.next(times[len(times)-1] + 1)
	parts := r.table.needed(times[0], next)
	command := ffmpeg.Command{
		Args: coder.args(times, next), Stdin: newFeed(ctx, c.source.Video, parts), Threads: coder.edge.Threads, Priority: ffmpeg.Interactive,
		Brief:  r.track.Time(next-times[0]) < briefEdge,
		Pixels: 2 * int64(r.track.Width) * int64(r.track.Height),
	}
	err := runPipes(ctx, c.FFmpeg, command, []func(context.Context, io.Reader) error{
		func(ctx context.Context, pipe io.Reader) error {
			return c.readEdge(ctx, r, coder, pipe, times, next)
		},
	})
	if err != nil {
		return fmt.Errorf("frames from %v on: %w", r.track.Time(times[0]).Round(time.Millisecond), err)
	}
	c.encoded += len(times)
	return nil
}

// readEdge reads encoded frames and stores them.
func (c *clipMaker) readEdge(ctx context.Context, r *clipRun, coder *edgeCoder, pipe io.Reader, times []int64, next int64) error {
	reader, made, err := openTrack(pipe, cmaf.Video)
	if err == nil && reader == nil {
		err = errors.New("no frame came out")
	}
	if err != nil {
		return err
	}
	track, renumber, err := coder.track(r.track, made)
	if err != nil {
		return err
	}
	if coder.made != nil && !sameCoding(*coder.made, track) {
		return errors.New("the encoder made other parameter sets for the end than for the start")
	}
	coder.made = &track
	source := sampleReader{reader: reader, lead: made.Ticks(cmaf.Lead)}
	for len(times) > 0 {
		count := min(coder.edge.Keys, len(times))
		until := next
		if count < len(times) {
			until = times[count]
		}
		f, err := source.take(count)
		if err == nil {
			err = settle(&f, times[:count], until, int64(track.Timescale))
		}
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errMissing) {
			return weir.Wrap(weir.Invalid, err, "%s: the video is damaged: not all frames can be decoded", badSource)
		}
		if err == nil && renumber != nil {
			f, err = renumbered(renumber, f)
		}
		if err != nil {
			return err
		}
		w := c.segmentWriter(ctx, r, track)
		if err := errors.Join(w.add(f), w.finish()); err != nil {
			return err
		}
		r.made, times = append(r.made, w.segments...), times[count:]
		c.report(track.Time(f.End()))
	}
	return nil
}

// track describes encoded frames like those of the source, but with parameter sets of their own.
func (e *edgeCoder) track(source, made cmaf.Track) (cmaf.Track, *codec.Renumbering, error) {
	if e.whole != "" {
		return made, nil, nil
	}
	config := made.Config()
	var renumber *codec.Renumbering
	if e.edge.Codec == ffmpeg.HEVC {
		var err error
		if renumber, config, err = codec.NewRenumbering(config, e.edge.SetID); err != nil {
			return cmaf.Track{}, nil, err
		}
	}
	track, ok := source.WithRecord(config.Record)
	if !ok || made.Timescale != source.Timescale || made.Width != source.Width || made.Height != source.Height {
		return cmaf.Track{}, nil, fmt.Errorf("the encoder made %dx%d of %dx%d", made.Width, made.Height, source.Width, source.Height)
	}
	return track, renumber, nil
}

// merged describes the frames of a run and what was encoded beside them.
func (e *edgeCoder) merged(source cmaf.Track) (cmaf.Track, error) {
	switch {
	case e.made == nil:
		return source, nil
	case e.whole != "":
		return *e.made, nil
	}
	record, ok := codec.Merge(source.Config(), e.made.Config())
	if ok {
		source, ok = source.WithRecord(record)
	}
	if !ok {
		return source, errors.New("the parameter sets of the encoder can't be beside those of the source")
	}
	return source, nil
}

// renumbered returns samples that refer to other parameter sets.
func renumbered(renumber *codec.Renumbering, f cmaf.Fragment) (cmaf.Fragment, error) {
	var data []byte
	rest := f.Data
	for i, s := range f.Samples {
		sample, err := renumber.Sample(rest[:s.Size])
		if err != nil {
			return f, err
		}
		rest = rest[s.Size:]
		f.Samples[i].Size = uint32(len(sample))
		data = append(data, sample...)
	}
	f.Data = data
	return f, nil
}

// decodable reports whether a decoder can start with a sample, whatever it decoded before.
func (c *clipMaker) decodable(ctx context.Context, track cmaf.Track, s clipSample) (bool, error) {
	config := track.Config()
	sets, err := config.ParameterSets()
	if err != nil {
		return false, err
	}
	data, err := c.source.Video.Sample(ctx, s.segment, s.part, s.sample)
	if err != nil {
		return false, err
	}
	return config.StartsDecoding(data, sets.LengthSize), nil
}
