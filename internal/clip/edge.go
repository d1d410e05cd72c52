package clip

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/vod"
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

	input ffmpeg.Track // of the source, if whole is not ""
	made  *cmaf.Track  // what was encoded; nil = nothing so far
}

// newEdgeCoder returns what encodes frames of a run.
func (c *maker) newEdgeCoder(ctx context.Context, r *run) (*edgeCoder, error) {
	timescale := int64(r.track.Timescale)
	tick, rate := ffmpeg.Timing(r.shown(), r.table.Next(r.end), timescale)
	coder := &edgeCoder{whole: c.source.Whole, edge: ffmpeg.Edge{
		Lead: cmaf.Lead, Timescale: timescale, Tick: tick, Rate: rate,
		Keys: max(int(rate.Float()*edgeSeconds), 1), Threads: c.Threads(),
	}}
	if coder.whole == "" {
		coder.whole = coder.match(r, c.video)
	}
	switch {
	case coder.whole == "":
	case c.source.Track != nil:
		coder.input = *c.source.Track
	default:
		probe, err := c.ProbeSegment(ctx, c.source.Video, r.samples[0].segment, c.o.Dir)
		if err != nil {
			return nil, err
		}
		if len(probe.Video) == 0 {
			return nil, weir.Errorf(weir.Invalid, "%s: there is no frame in the video", ffmpeg.InvalidSource)
		}
		coder.input = probe.Video[0]
	}
	return coder, nil
}

// match sets the form of the frames that are encoded to that of the run; or it returns why our encoders can't
// make such frames. before has earlier runs, whose edges have sets of their own.
func (e *edgeCoder) match(r *run, before cmaf.TrackIndex) string {
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
		return "its chroma subsampling is not 4:2:0"
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
		Lead: e.edge.Lead, Video: e.input.VideoFormat(), Timescale: e.edge.Timescale, Tick: e.edge.Tick, Rate: e.edge.Rate,
		Start: times[0], End: next, Threads: e.edge.Threads,
	}
	width, height := e.input.Shown()
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
func (c *maker) encode(ctx context.Context, r *run, coder *edgeCoder, times []int64) error {
	if len(times) == 0 {
		return nil
	}
	next := r.table.Next(times[len(times)-1] + 1)
	again := vod.Recode{
		Track: c.source.Video, Frames: r.table, Times: times, Segment: coder.edge.Keys,
		Command: ffmpeg.Command{
			Args: coder.args(times, next), Threads: coder.edge.Threads, Priority: ffmpeg.Interactive,
			Brief:  r.track.Time(next-times[0]) < briefEdge,
			Pixels: 2 * int64(r.track.Width) * int64(r.track.Height),
		},
	}
	err := c.Recode(ctx, again, func(made cmaf.Track, f cmaf.Fragment) error { return c.storeEdge(ctx, r, coder, made, f) })
	if err != nil {
		return fmt.Errorf("frames from %v on: %w", r.track.Time(times[0]).Round(time.Millisecond), err)
	}
	c.encoded += len(times)
	return nil
}

// storeEdge stores a segment of encoded frames.
func (c *maker) storeEdge(ctx context.Context, r *run, coder *edgeCoder, made cmaf.Track, f cmaf.Fragment) error {
	track, renumber, err := coder.track(r.track, made)
	if err != nil {
		return err
	}
	if coder.made != nil && !sameCoding(*coder.made, track) {
		return errors.New("the encoder used different parameter sets for the end than for the start")
	}
	coder.made = &track
	if renumber != nil {
		if f, err = renumbered(renumber, f); err != nil {
			return err
		}
	}
	w := c.segmentWriter(r, track)
	if err := errors.Join(w.Add(ctx, f), w.Finish(ctx)); err != nil {
		return err
	}
	r.made = append(r.made, w.Index().Segments...)
	c.report(track.Time(f.End()))
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
		return cmaf.Track{}, nil, fmt.Errorf("the encoder made frames of %dx%d, the source has %dx%d", made.Width, made.Height, source.Width, source.Height)
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
		return source, errors.New("the parameter sets of the encoder can't be combined with those of the source")
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
func (c *maker) decodable(ctx context.Context, track cmaf.Track, s sample) (bool, error) {
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
