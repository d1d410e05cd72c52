package vod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/weir"
)

// Engine is what the steps work with.
type Engine struct {
	FFmpeg *ffmpeg.Engine
	Store  blob.Store // has the tracks of sources and results
}

// ImportOptions say what is imported.
type ImportOptions struct {
	File           string  // the source, on this machine
	Prefix         string  // where its tracks go
	SegmentSeconds float64 // as in Request
	Progress       func(share float64)
}

const badSource = ffmpeg.InvalidSource

// What a segment of a source weighs: from soft on it ends with the next key frame, at
// hard at once.
const (
	softSegment = 32 << 20
	hardSegment = 64 << 20
)

// maxDelay bounds by how much decoding is ahead of showing, in seconds: times
// in stored segments must not get below 0.
const maxDelay = 5

// Import takes a file apart: its video and its audio tracks go to the store, without
// being decoded. What the file promised and what came out is compared, so that a file
// that breaks off is an error and not a short result.
func (e Engine) Import(ctx context.Context, o ImportOptions) (Source, error) {
	probe, err := e.FFmpeg.Probe(ctx, o.File)
	if err != nil {
		return Source{}, err
	}
	src := Source{Prefix: o.Prefix, Probe: probe}
	for _, stream := range probe.Other {
		if len(probe.Video) == 0 && stream.Kind == "video" {
			return Source{}, weir.Errorf(weir.Invalid, "%s: there is no frame in the video", badSource)
		}
	}
	if len(probe.Video) > 0 {
		src.Video = newSourceVideo(probe)
		src.Sequential = whySequential(probe)
	}
	for _, stream := range probe.Audio {
		audio := SourceAudio{Stream: stream, Dir: fmt.Sprintf("source-audio%d", stream.Index), Track: stream.Codec == "aac" && stream.Profile == "LC"}
		if !audio.Track {
			audio.Dir += ".mka"
		}
		src.Audio = append(src.Audio, audio)
	}
	im := importer{Engine: e, options: o, src: &src}
	err = im.run(ctx)
	if reason, unusable := errors.AsType[*unusableVideo](err); unusable {
		src.Sequential = reason.Error()
		im = importer{Engine: e, options: o, src: &src}
		err = im.run(ctx)
	}
	if err != nil {
		return Source{}, err
	}
	if err := im.check(); err != nil {
		return Source{}, err
	}
	if err := im.verify(ctx); err != nil {
		return Source{}, err
	}
	var audio []SourceAudio
	for k := range im.audio {
		if !im.audio[k].empty() { // announced, and nothing came of it
			audio = append(audio, src.Audio[k])
		}
	}
	src.Audio = audio
	return src, nil
}

// whySequential returns what keeps a video from being taken apart, or nothing. It takes
// packets that are frames, one each.
func whySequential(probe ffmpeg.Probe) string {
	stream := probe.Video[0]
	switch {
	case !ffmpeg.Copyable(stream.Codec):
		return "no way is known to take " + stream.Codec + " apart"
	case stream.Codec == "mpeg4":
		return "frames of " + stream.Codec + " may be left out"
	case stream.Codec == "h264" && stream.Interlaced() && !strings.Contains(probe.Demuxer, "mp4"):
		return "half pictures may come in packets of their own"
	}
	return ""
}

// Plan plans what a request makes of a source; see newPlan.
func (e Engine) Plan(ctx context.Context, src Source, req Request) (Plan, error) {
	var index cmaf.TrackIndex
	if src.Video != nil && src.Sequential == "" {
		track, err := media.Open(ctx, e.Store, src.Prefix+"/"+sourceDir)
		if err != nil {
			return Plan{}, err
		}
		index = track.Index()
	}
	return newPlan(src, index, req)
}

// unusableVideo is why a video can't be taken apart although its codec allows it.
type unusableVideo struct{ cause error }

func (u *unusableVideo) Error() string { return u.cause.Error() }
func (u *unusableVideo) Unwrap() error { return u.cause }

// importer is one attempt at taking a file apart.
type importer struct {
	Engine
	options ImportOptions
	src     *Source
	video   *videoImport
	audio   []audioImport
}

// run starts ffmpeg and takes what it writes, every stream in a goroutine.
func (im *importer) run(ctx context.Context) error {
	src := im.src
	remux := ffmpeg.Remux{Lead: cmaf.Lead, Input: im.options.File, Strict: strings.Contains(src.Probe.Demuxer, "mp4")}
	var consumers []func(context.Context, io.Reader) error
	if src.Video != nil && src.Sequential == "" {
		im.video = newVideoImport(im.Engine, im.options, src.Video)
		if remux.Strict && src.Video.Stream.Frames > 0 {
			// The length is that of the edit list, and the list of frames is not in fragments.
			im.video.limit = promised(src.Probe, src.Video.Stream)
		}
		remux.Streams = append(remux.Streams, ffmpeg.Copy{Stream: src.Video.Stream.Index, Codec: src.Video.Stream.Codec})
		consumers = append(consumers, im.video.read)
	}
	im.audio = make([]audioImport, len(src.Audio))
	for k, audio := range src.Audio {
		im.audio[k] = audioImport{Engine: im.Engine, source: &src.Audio[k], place: src.place(k)}
		remux.Streams = append(remux.Streams, ffmpeg.Copy{Stream: audio.Stream.Index, Codec: audio.Stream.Codec, Matroska: !audio.Track})
		consumers = append(consumers, im.audio[k].read)
	}
	if len(consumers) == 0 {
		return nil
	}
	command := ffmpeg.Command{
		Args: remux.Args(), Read: []string{im.options.File}, Priority: ffmpeg.Interactive, Progress: im.progress(), Damage: &src.Damage,
	}
	err := runPipes(ctx, im.FFmpeg, command, consumers)
	if remux.Strict && ffmpeg.ReasonOf(err) == ffmpeg.BadInput {
		return weir.Wrap(weir.Invalid, err, "%s: the file is damaged or breaks off after %.2f of %.2f seconds; send the whole file",
			badSource, im.reached().Seconds(), src.Probe.Duration.Seconds())
	}
	return err
}

// reached returns how much of the file came out.
func (im *importer) reached() (end time.Duration) {
	if im.video != nil && im.video.samples > 0 {
		end = im.video.writer.packer.Track.Time(im.video.latest)
	}
	for k := range im.audio {
		end = max(end, im.audio[k].end())
	}
	return end
}

func (im *importer) progress() func(ffmpeg.Progress) {
	total := im.src.Probe.Duration
	if im.options.Progress == nil || total <= 0 {
		return nil
	}
	return func(p ffmpeg.Progress) {
		im.options.Progress(min(max(float64(p.Time)/float64(total), 0), 1))
	}
}

// runPipes runs ffmpeg with a consumer for each output and returns when all have
// ended. The error of a consumer is more telling than that of ffmpeg, which
// fails because nobody reads on; unless it had no memory for what the consumer misses.
func runPipes(ctx context.Context, engine *ffmpeg.Engine, command ffmpeg.Command, consumers []func(context.Context, io.Reader) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	var writers []*io.PipeWriter
	for _, consume := range consumers {
		reader, writer := io.Pipe()
		writers = append(writers, writer)
		command.Outputs = append(command.Outputs, writer)
		group.Go(func() error {
			err := consume(groupCtx, reader)
			if err == nil { // what it did not want to read
				_, err = io.Copy(io.Discard, reader)
			}
			reader.CloseWithError(err)
			return err
		})
	}
	var complaint error
	command.Complaint = func(err error) { complaint = err }
	runErr := engine.Run(groupCtx, command)
	for _, writer := range writers {
		writer.CloseWithError(runErr)
	}
	err := group.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case runErr != nil && (err == nil || errors.Is(err, runErr) || ffmpeg.ReasonOf(runErr) != ""):
		return runErr
	case runErr == nil && ffmpeg.ReasonOf(complaint) == ffmpeg.OutOfMemory && err != nil:
		return complaint
	case runErr == nil && errors.Is(err, cmaf.ErrBrokenOff):
		return weir.Wrap(weir.Internal, err, "internal error processing file: ffmpeg did not write all of it")
	}
	return err
}

// videoImport writes the video of a source as a track.
type videoImport struct {
	Engine
	video   *SourceVideo
	seconds float64 // length of segments to aim at
	writer  trackWriter
	retimer cmaf.Retimer
	bits    bitstream
	efforts effortMeter

	samples  int
	firstKey int64 // when the first key frame is shown
	lastKey  int64
	latest   int64 // when the last frame is shown
	next     int64 // when the next segment is due
	odd      string

	// limit is when the file says that the video ends; frames after it are hidden. 0 =
	// it does not say.
	limit time.Duration
}

func newSourceVideo(probe ffmpeg.Probe) *SourceVideo {
	stream := probe.Video[0]
	v := &SourceVideo{Stream: stream, Bitrate: int(stream.BitRate), Timescale: timescale(stream.TimeBase)}
	v.Width, v.Height = stream.Shown()
	if v.Bitrate == 0 {
		v.Bitrate = int(probe.BitRate)
	}
	return v
}

// timescale returns a timescale in which every time of a stream is a whole number.
func timescale(timeBase ffmpeg.Ratio) int64 {
	scale := timeBase.Den
	if scale <= 0 || scale > 1<<30 {
		return 90_000
	}
	for scale < 10_000 {
		scale *= 2
	}
	return scale
}

func newVideoImport(e Engine, o ImportOptions, video *SourceVideo) *videoImport {
	return &videoImport{
		Engine: e, video: video, seconds: segmentSeconds(o.SegmentSeconds),
		writer: trackWriter{store: e.Store, prefix: o.Prefix + "/" + sourceDir},
	}
}

// read takes the video off a pipe.
func (v *videoImport) read(ctx context.Context, r io.Reader) error {
	reader, track, err := openTrack(r, cmaf.Video)
	if err != nil || reader == nil {
		return err
	}
	track.Delay = reorderDelay(v.video.Stream, int64(track.Timescale))
	v.writer.begin(ctx, track, 1, v.cut)
	v.video.Timescale = int64(track.Timescale)
	v.bits = newBitstream(track)
	v.efforts = newEffortMeter(v.bits, v.video.Timescale)
	lead := track.Ticks(cmaf.Lead)
	for {
		f, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		f.Start -= lead
		v.look(f)
		settled, err := v.retimer.Add(f)
		if err != nil {
			return &unusableVideo{err}
		}
		if err := v.pack(settled); err != nil {
			return err
		}
	}
	rest, err := v.retimer.Finish()
	if err != nil {
		return &unusableVideo{err}
	}
	if err := v.pack(rest); err != nil {
		return err
	}
	return v.finish(ctx)
}

// reorderDelay returns how much earlier than they are shown frames of a source must be
// decoded, in ticks.
func reorderDelay(stream ffmpeg.Stream, timescale int64) int64 {
	if stream.Reorder <= 0 || stream.Rate.Num <= 0 {
		return 0
	}
	return min(int64(stream.Reorder)*timescale*stream.Rate.Den/stream.Rate.Num+1, maxDelay*timescale)
}

// look finds out about the frames while they come.
func (v *videoImport) look(f cmaf.Fragment) {
	at, data := f.Start, f.Data
	for _, s := range f.Samples {
		shown := at + int64(s.Offset)
		if v.samples == 0 {
			v.firstKey, v.lastKey, v.latest = shown, shown, shown
		}
		v.samples++
		if s.Sync {
			v.longest(shown)
			v.lastKey = shown
		}
		v.latest = max(v.latest, shown)
		v.bits.look(s, data[:s.Size])
		v.efforts.look(shown, data[:s.Size])
		data = data[s.Size:]
		at += int64(s.Duration)
	}
}

func (v *videoImport) longest(until int64) {
	v.video.MaxGOP = max(v.video.MaxGOP, float64(until-v.lastKey)/float64(v.video.Timescale))
}

// pack stores samples that have their times.
func (v *videoImport) pack(f cmaf.Fragment) error {
	for _, s := range f.Samples {
		if s.Duration == 0 {
			return &unusableVideo{errors.New("two frames are shown at the same time")}
		}
	}
	return v.writer.add(f)
}

// cut ends segments of the source at key frames, as near to multiples of the length
// aimed at as they allow. Where there is no key frame for long the segment
// ends anyway: nobody plays such a track, it is only read.
func (v *videoImport) cut(open cmaf.Contents, at int64, s cmaf.Sample) bool {
	length := int64(v.seconds * float64(v.video.Timescale))
	if v.next == 0 {
		v.next = open.Start + length
	}
	due := at >= v.next && at-open.Start >= min(length, 2*v.video.Timescale)
	switch {
	case s.Sync && (due || open.Bytes > softSegment):
	case at-open.Start >= 2*length || open.Bytes > hardSegment:
		v.odd = fmt.Sprintf("there is no key frame for %.1f seconds", float64(at-open.Start)/float64(v.video.Timescale))
	default:
		return false
	}
	for v.next <= at {
		v.next += length
	}
	return true
}

// finish seals the track and describes it.
func (v *videoImport) finish(ctx context.Context) error {
	if err := v.writer.finish(); err != nil {
		return err
	}
	if v.samples == 0 {
		return nil
	}
	video, index := v.video, v.writer.index()
	video.Start = max(v.firstKey, 0)
	video.End = index.End()
	if limit := index.Track.Ticks(v.limit); v.limit > 0 && limit > video.Start {
		video.End = min(video.End, limit)
	}
	video.Frames = len(newFrames(*video, index).times)
	if length := video.End - video.Start; length > 0 {
		video.Bitrate = int(index.Size() * 8 * video.Timescale / length)
	}
	v.longest(video.End)
	video.Efforts = v.efforts.efforts()
	video.Encode = v.whyEncode(index)
	return media.Seal(ctx, v.Store, v.writer.prefix, index)
}

// whyEncode returns what keeps the stored track from being a rendition, or nothing.
func (v *videoImport) whyEncode(index cmaf.TrackIndex) string {
	s := v.video.Stream
	switch {
	case s.Codec != "h264":
		return "its codec is " + s.Codec
	case s.PixelFormat != "yuv420p" || s.BitDepth > 8:
		return "its pixels are " + s.PixelFormat
	case s.Interlaced():
		return "it is interlaced"
	case s.Rotation != 0 || s.Mirrored:
		return "it must be turned to be shown"
	case s.Sample.Num != s.Sample.Den:
		return "its pixels are not square"
	case s.Width%2 != 0 || s.Height%2 != 0:
		return fmt.Sprintf("its size is odd, %dx%d", s.Width, s.Height)
	case index.Track.Width != s.Width || index.Track.Height != s.Height:
		return "its size is not the one that it claims"
	case v.video.Frames != v.samples || index.Start() < 0:
		return "some of its frames are hidden"
	case v.odd != "":
		return v.odd
	case v.video.MaxGOP > 2*v.seconds:
		return fmt.Sprintf("its key frames are up to %.1f seconds apart", v.video.MaxGOP)
	}
	return v.bits.odd
}

// check compares what came out with what the file promised.
func (im *importer) check() error {
	src := im.src
	var end time.Duration
	counted := true // the ends of all streams are known
	if im.video != nil {
		if src.Video.Frames == 0 {
			return weir.Errorf(weir.Invalid, "%s: there is no frame in the video", badSource)
		}
		end = im.video.writer.packer.Track.Time(src.Video.End)
		if err := checkLength(src.Probe, "video", src.Video.Stream, end); err != nil {
			return err
		}
	} else if src.Video != nil {
		counted = false
	}
	for k := range im.audio {
		if !src.Audio[k].Track {
			counted = false
			continue
		}
		if im.audio[k].empty() {
			continue
		}
		if err := checkLength(src.Probe, "audio", src.Audio[k].Stream, im.audio[k].end()); err != nil {
			return err
		}
		end = max(end, im.audio[k].end())
	}
	if counted {
		src.Duration = end.Seconds()
		return checkEnd(src.Probe, end)
	}
	src.Duration = max(end, src.Probe.Duration).Seconds()
	return nil
}

// verify decodes two key frames of a video that looks as if it could pass through, the
// first and the one of the last segment. What can't be decoded is not handed to players.
func (im *importer) verify(ctx context.Context) error {
	if im.video == nil || im.src.Video.Encode != "" {
		return nil
	}
	index := im.video.writer.index()
	track := media.NewTrack(im.Store, im.video.writer.prefix, index)
	var keys []keyFrame
	for _, n := range slices.Compact([]int{0, len(index.Segments) - 1}) {
		sample := index.Segments[n].Parts[0].Samples[0]
		keys = append(keys, keyFrame{segment: n, size: sample.Size, start: index.Segments[n].Start(), end: index.Segments[n].End()})
	}
	pictures := 0
	run := ffmpeg.Thumbnails{
		Lead: cmaf.Lead, Video: im.src.Video.Stream.VideoFormat(), Timescale: im.src.Video.Timescale,
		Width: smallestSide, Height: smallestSide,
	}
	command := ffmpeg.Command{Args: run.Args(), Stdin: newKeyFeed(ctx, track, keys), Priority: ffmpeg.Interactive}
	err := runPipes(ctx, im.FFmpeg, command, []func(context.Context, io.Reader) error{
		func(_ context.Context, r io.Reader) error {
			jpegs := newJPEGReader(r)
			for {
				if _, err := jpegs.next(); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				pictures++
			}
		},
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && ffmpeg.ReasonOf(err) != ffmpeg.BadInput:
		return err
	case err != nil || pictures != len(keys):
		im.src.Video.Encode = "its key frames can't be decoded one by one"
	}
	return nil
}

// checkEnd compares the end of the stream that ends last with the length that the
// file as a whole promises.
func checkEnd(probe ffmpeg.Probe, end time.Duration) error {
	want := probe.Duration
	if !exactHeader(probe.Demuxer) || len(probe.Other) > 0 || end >= want-slack(probe, want) {
		return nil
	}
	return weir.Errorf(weir.Invalid, "%s: the file breaks off after %.2f of %.2f seconds; send the whole file",
		badSource, end.Seconds(), want.Seconds())
}

// checkLength compares the length of a stream with what the file says of it.
func checkLength(probe ffmpeg.Probe, kind string, stream ffmpeg.Stream, end time.Duration) error {
	want := promised(probe, stream)
	if want == 0 || end >= want-slack(probe, want) {
		return nil
	}
	return weir.Errorf(weir.Invalid, "%s: the %s breaks off after %.2f of %.2f seconds; send the whole file",
		badSource, kind, end.Seconds(), want.Seconds())
}

// promised returns when a stream ends by what the file's header says, and 0 when
// it says nothing, or only ffmpeg guesses.
func promised(probe ffmpeg.Probe, stream ffmpeg.Stream) time.Duration {
	switch {
	case !exactHeader(probe.Demuxer):
		return 0
	case stream.Duration > 0:
		return stream.Start + stream.Duration - probe.Start
	}
	return 0
}

// exactHeader reports whether the header of a container has a length that a muxer
// wrote, and not one that was guessed from the size of the file.
func exactHeader(demuxer string) bool {
	for _, name := range []string{"mp4", "matroska", "avi", "flv", "asf", "wav"} {
		if strings.Contains(demuxer, name) {
			return true
		}
	}
	return false
}

// slack is by how much a whole file may be shorter than its header says.
func slack(probe ffmpeg.Probe, length time.Duration) time.Duration {
	if strings.Contains(probe.Demuxer, "mp4") {
		return max(250*time.Millisecond, length/1000)
	}
	return max(time.Second, length/50)
}
