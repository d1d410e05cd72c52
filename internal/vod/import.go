package vod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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

// Engine runs the steps.
type Engine struct {
	FFmpeg      *ffmpeg.Engine
	Store       blob.Store    // has the tracks of sources and results
	MaxDuration time.Duration // of a source; 0 = a day
}

// ImportOptions are the inputs of Import.
type ImportOptions struct {
	File           string  // the source, on this machine
	Prefix         string  // of its tracks in the store
	SegmentSeconds float64 // as in Request
	Progress       func(share float64)

	// Text imports the tracks of text too.
	Text bool

	// Excerpt is what the caller needs of the file; nil = all of it. Import reads some more, and the whole
	// file where it can't find the excerpt without.
	Excerpt *Excerpt
}

const badSource = ffmpeg.InvalidSource

// Sizes of a segment of a source: from softSegment on it ends with the next key frame, at
// hardSegment at once.
const (
	softSegment = 32 << 20
	hardSegment = 64 << 20
)

// maxCopyDelay bounds, in milliseconds, for how long a source is decoded before it is shown. hls.js begins that much
// before the first frame: with 143 ms it saw a hole at the start, seeked over it and skipped three frames. It lets
// pass holes of 100 ms (its maxBufferHole). Of a source with B-frames around a longer pause, the frames at the pause
// are decoded after they are shown.
const maxCopyDelay = 100

// tooLate is why frames of such a source are not copied into clips.
const tooLate = "it has B-frames around a pause"

// Import demuxes a file: its video and its audio tracks go to the store, without being decoded. It
// compares them with the header of the file, so that a file that breaks off is an error and not a
// short result.
func (e Engine) Import(ctx context.Context, o ImportOptions) (Source, error) {
	probe, err := e.FFmpeg.Probe(ctx, o.File)
	if err != nil {
		return Source{}, err
	}
	if err := e.limits(segmentSeconds(o.SegmentSeconds)).checkProbe(probe); err != nil {
		return Source{}, err
	}
	for _, track := range probe.Other {
		if len(probe.Video) == 0 && track.Kind == "video" {
			return Source{}, weir.Errorf(weir.Invalid, "%s: there is no frame in the video", badSource)
		}
	}
	if len(probe.Video) > 0 {
		if err := e.FFmpeg.Fits(int64(probe.Video[0].Width) * int64(probe.Video[0].Height)); err != nil {
			return Source{}, err
		}
	}
	if o.Excerpt != nil {
		if src, complete := e.importExcerpt(ctx, o, probe); complete || ctx.Err() != nil {
			return src, context.Cause(ctx)
		}
	}
	src := newSource(o.Prefix, probe)
	im := importer{Engine: e, options: o, src: &src}
	err = im.read(ctx)
	if reason, unusable := errors.AsType[*unusableVideo](err); unusable {
		src.Sequential = reason.Error()
		im = importer{Engine: e, options: o, src: &src}
		err = im.read(ctx)
	}
	if err != nil {
		return Source{}, err
	}
	if err := im.check(); err != nil {
		return Source{}, err
	}
	im.dropEmpty()
	return src, im.saveText(ctx)
}

// newSource describes a file before it is imported.
func newSource(prefix string, probe ffmpeg.Probe) Source {
	src := Source{Prefix: prefix, Probe: probe}
	if len(probe.Video) > 0 {
		src.Video = newSourceVideo(probe)
		src.Sequential = whySequential(probe)
	}
	for _, track := range probe.Audio {
		audio := SourceAudio{Track: track, Dir: fmt.Sprintf("source-audio%d", track.Index), AsTrack: track.Codec == "aac" && track.Profile == "LC"}
		if !audio.AsTrack {
			audio.Dir += ".mka"
		}
		src.Audio = append(src.Audio, audio)
	}
	return src
}

// dropEmpty removes the audio tracks without packets.
func (im *importer) dropEmpty() {
	var audio []SourceAudio
	for k := range im.audio {
		if !im.audio[k].empty() {
			audio = append(audio, im.src.Audio[k])
		}
	}
	im.src.Audio = audio
}

// Tracks opens the tracks of an imported file, the video of which is nil if there is none. Audio that
// is not AAC is encoded.
func (e Engine) Tracks(ctx context.Context, src Source) (video *media.Track, audio []*media.Track, err error) {
	if src.Video != nil {
		if video, err = media.Open(ctx, e.Store, src.Prefix+"/"+sourceDir); err != nil {
			return nil, nil, err
		}
	}
	var plan *Plan
	for k := range src.Audio {
		key := src.audioKey(k)
		if !src.Audio[k].Copy {
			if plan == nil {
				p, err := e.Plan(ctx, src, Request{})
				if err != nil {
					return nil, nil, err
				}
				plan = &p
			}
			result, err := e.EncodeAudio(ctx, *plan, k, nil)
			if err != nil {
				return nil, nil, err
			}
			key = plan.Prefix + "/" + result.Name
		}
		track, err := media.Open(ctx, e.Store, key)
		if err != nil {
			return nil, nil, err
		}
		audio = append(audio, track)
	}
	return video, audio, nil
}

// whySequential returns why a video can't be demuxed; "" = it can. Each packet must be a frame.
func whySequential(probe ffmpeg.Probe) string {
	track := probe.Video[0]
	switch {
	case !ffmpeg.Copyable(track.Codec):
		return track.Codec + " can't be stored in fragmented MP4"
	case track.Codec == "mpeg4":
		return track.Codec + " may have packets without a frame"
	case track.Codec == "h264" && track.Interlaced() && !strings.Contains(probe.Demuxer, "mp4"):
		return "its fields may be in separate packets"
	}
	return ""
}

// Plan plans the results of a request; see newPlan. If the source is the only rendition, nothing else
// would decode it, so it is checked first.
func (e Engine) Plan(ctx context.Context, src Source, req Request) (Plan, error) {
	if src.Video == nil || src.Sequential != "" {
		return newPlan(src, cmaf.TrackIndex{}, req)
	}
	track, err := media.Open(ctx, e.Store, src.Prefix+"/"+sourceDir)
	if err != nil {
		return Plan{}, err
	}
	plan, err := newPlan(src, track.Index(), req)
	if err != nil || len(plan.encoded()) > 0 {
		return plan, err
	}
	decodable, err := e.verify(ctx, *src.Video, track)
	if err != nil || decodable {
		return plan, err
	}
	video := *src.Video
	video.Encode = "its key frames can't be decoded one by one"
	src.Video = &video
	return newPlan(src, track.Index(), req)
}

// unusableVideo is the error for a video that can't be demuxed although its codec allows it.
type unusableVideo struct{ cause error }

func (u *unusableVideo) Error() string { return u.cause.Error() }
func (u *unusableVideo) Unwrap() error { return u.cause }

// importer is one attempt to import a file.
type importer struct {
	Engine
	options ImportOptions
	src     *Source
	delay   int64 // minimum of the video's Delay, in ticks
	video   *videoImport
	audio   []audioImport
	packets packets
	text    []*textImport
}

// read reads the file. It does so twice if frames must be decoded earlier than estimated: the delay is in all
// stored segments, and only the last frame tells how long it must be.
func (im *importer) read(ctx context.Context) error {
	if err := im.run(ctx); err != nil || im.video == nil || !im.video.short() {
		return err
	}
	*im = importer{Engine: im.Engine, options: im.options, src: im.src, delay: im.video.delay}
	return im.run(ctx)
}

// run starts ffmpeg and reads its output, with one goroutine for each track.
func (im *importer) run(ctx context.Context) error {
	src := im.src
	remux := ffmpeg.Remux{
		Lead: cmaf.Lead, Input: im.options.File, Strict: strings.Contains(src.Probe.Demuxer, "mp4"), From: src.From, To: src.To,
	}
	var consumers []func(context.Context, io.Reader) error
	if src.Video != nil && src.Sequential == "" {
		im.video = newVideoImport(im.Engine, im.options, src.Video)
		im.video.delay, im.video.whole = im.delay, max(src.To-excerptMargin/2, 0)
		if remux.Strict && src.Video.Track.Frames > 0 {
			// The duration is that of the edit list, which fragments don't have.
			im.video.limit = headerTrackEnd(src.Probe, src.Video.Track)
		}
		remux.Tracks = append(remux.Tracks, ffmpeg.Copy{Track: src.Video.Track.Index, Codec: src.Video.Track.Codec})
		consumers = append(consumers, im.video.read)
	}
	im.audio = make([]audioImport, len(src.Audio))
	for k, audio := range src.Audio {
		im.audio[k] = audioImport{Engine: im.Engine, source: &src.Audio[k], key: src.audioKey(k), from: src.From}
		remux.Tracks = append(remux.Tracks, ffmpeg.Copy{Track: audio.Track.Index, Codec: audio.Track.Codec, Matroska: !audio.AsTrack})
		consumers = append(consumers, im.audio[k].read)
	}
	for _, track := range imported(src.Probe) {
		remux.Packets = append(remux.Packets, track.Index)
	}
	im.packets = packets{
		limits: im.limits(segmentSeconds(im.options.SegmentSeconds)), hasVideo: src.Video != nil, size: src.Probe.Size,
		latest: src.From,
		starts: slices.Repeat([]time.Duration{math.MaxInt64}, len(remux.Packets)), ends: make([]time.Duration, len(remux.Packets)),
	}
	consumers = append(consumers, im.packets.read)
	if im.options.Text {
		im.text = newTextImports(src)
	}
	for _, text := range im.text {
		remux.Text = append(remux.Text, text.track.Index)
		consumers = append(consumers, text.readBytes, text.readPackets)
	}
	command := ffmpeg.Command{
		Args: remux.Args(), Read: []string{im.options.File}, Priority: ffmpeg.Interactive, Damage: &src.Damage,
		Progress: shareOf((cmp.Or(src.To, headerEnd(src.Probe)) - src.From).Seconds(), im.options.Progress),
	}
	err := runPipes(ctx, im.FFmpeg, command, consumers)
	if remux.Strict && ffmpeg.ReasonOf(err) == ffmpeg.BadInput {
		return weir.Wrap(weir.Invalid, err, "%s: the file is damaged or ends after %.2f of %.2f seconds; send the whole file",
			badSource, im.reached().Seconds(), src.Probe.Duration.Seconds())
	}
	return err
}

// reached returns the duration of the imported part of the file.
func (im *importer) reached() (end time.Duration) {
	if im.video != nil && im.video.samples > 0 {
		end = im.video.writer.Track().Time(im.video.latest)
	}
	for k := range im.audio {
		end = max(end, im.audio[k].end())
	}
	return end
}

// shareOf returns a Command.Progress that reports the share of a duration; report may be nil.
func shareOf(seconds float64, report func(share float64)) func(ffmpeg.Progress) {
	if report == nil || seconds <= 0 {
		return nil
	}
	return func(p ffmpeg.Progress) { report(min(max(p.Time.Seconds()/seconds, 0), 1)) }
}

// runPipes runs ffmpeg with a consumer for each output and returns when all have ended. The error
// of a consumer comes before that of ffmpeg, which fails because its pipe was closed; unless ffmpeg
// had no memory for the frames that the consumer misses.
func runPipes(ctx context.Context, engine *ffmpeg.Engine, command ffmpeg.Command, consumers []func(context.Context, io.Reader) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	var writers []*io.PipeWriter
	for _, consume := range consumers {
		reader, writer := io.Pipe()
		writers = append(writers, writer)
		command.Outputs = append(command.Outputs, writer)
		group.Go(func() error {
			err := consume(groupCtx, reader)
			if err == nil { // the rest that it did not read
				_, err = io.Copy(io.Discard, reader)
			}
			reader.CloseWithError(err)
			return err
		})
	}
	var logged error
	command.Logged = func(err error) { logged = err }
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
	case runErr == nil && ffmpeg.ReasonOf(logged) == ffmpeg.OutOfMemory && err != nil:
		return logged
	case runErr == nil && errors.Is(err, cmaf.ErrBrokenOff):
		return weir.Wrap(weir.Internal, err, "internal error processing file: the output of ffmpeg is truncated")
	}
	return err
}

// videoImport writes the video of a source as a track.
type videoImport struct {
	Engine
	video   *SourceVideo
	seconds float64 // target duration of segments
	writer  media.Writer
	bits    bitstream

	captions captionImport

	samples  int
	firstKey int64 // presentation time of the first key frame
	lastKey  int64
	latest   int64 // presentation time of the last frame
	delay    int64 // by how many ticks frames must be decoded before they are shown

	// The last frames of a part of a file lack those that are decoded after them. So the delay is only that of
	// frames up to whole; 0 = of all.
	whole   time.Duration
	next    int64  // earliest start of the next segment
	longGOP string // why the track is not played: it has too few key frames

	limit time.Duration // end of the video by the header; frames after it are hidden. 0 = not known
}

func newSourceVideo(probe ffmpeg.Probe) *SourceVideo {
	track := probe.Video[0]
	v := &SourceVideo{Track: track, Bitrate: int(track.BitRate), Timescale: timescale(track.TimeBase)}
	v.Width, v.Height = track.Shown()
	if v.Bitrate == 0 {
		v.Bitrate = int(probe.BitRate)
	}
	return v
}

// timescale returns a timescale in which all times of a track are whole numbers.
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
		writer: media.Writer{Store: e.Store, Prefix: o.Prefix + "/" + sourceDir},
	}
}

func (v *videoImport) read(ctx context.Context, r io.Reader) error {
	reader, track, err := openTrack(r, cmaf.Video)
	if err != nil || reader == nil {
		return err
	}
	track.Delay = max(reorderDelay(v.video.Track, int64(track.Timescale)), v.delay)
	v.writer.Begin(track, time.Second, v.cut)
	v.video.Timescale = int64(track.Timescale)
	v.bits = newBitstream(track)
	v.captions.begin(track, v.bits.sets.LengthSize)
	if err := retime(reader, track, v.inspect, func(f cmaf.Fragment) error { return v.store(ctx, f) }); err != nil {
		return err
	}
	return v.seal(ctx)
}

// retime reads the video of a pipe and gives its samples exact times. inspect gets the fragments as
// they are, and add with exact times. An *unusableVideo error means that there are no such times.
func retime(reader *cmaf.Reader, track cmaf.Track, inspect func(cmaf.Fragment), add func(cmaf.Fragment) error) error {
	var retimer cmaf.Retimer
	err := fragments(reader, track, func(f cmaf.Fragment) error {
		inspect(f)
		settled, err := retimer.Add(f)
		if err != nil {
			return &unusableVideo{err}
		}
		return add(settled)
	})
	if err != nil {
		return err
	}
	rest, err := retimer.Finish()
	if err != nil {
		return &unusableVideo{err}
	}
	return add(rest)
}

// fragments calls do for each fragment of a pipe, whose times it puts on the timeline.
func fragments(reader *cmaf.Reader, track cmaf.Track, do func(cmaf.Fragment) error) error {
	lead := track.Ticks(cmaf.Lead)
	for {
		f, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			f.Start -= lead
			err = do(f)
		}
		if err != nil {
			return err
		}
	}
}

// reorderDelay estimates by how many ticks frames of a source must be decoded before they are shown. With a
// constant frame rate that is enough, also if the times are rounded to the time base of the source.
func reorderDelay(track ffmpeg.Track, timescale int64) int64 {
	if track.Reorder <= 0 || track.Rate.Num <= 0 {
		return 0
	}
	rounding := int64(1)
	if base := track.TimeBase; base.Num > 0 && base.Den > 0 {
		rounding = max(rounding, timescale*base.Num/base.Den)
	}
	return min(int64(track.Reorder)*timescale*track.Rate.Den/track.Rate.Num+rounding, cmaf.MaxDelaySeconds*timescale)
}

// late reports that some frames of the stored track are decoded after they are shown.
func (v *videoImport) late() bool { return v.delay > v.writer.Track().Delay }

// short reports the same where a longer Delay prevents it.
func (v *videoImport) short() bool {
	return v.late() && v.delay <= maxCopyDelay*int64(v.writer.Track().Timescale)/1000
}

// inspect collects what is known about frames.
func (v *videoImport) inspect(f cmaf.Fragment) {
	at, data := f.Start, f.Data
	for _, s := range f.Samples {
		shown := at + int64(s.Offset)
		if v.samples == 0 {
			v.firstKey, v.lastKey, v.latest = shown, shown, shown
		}
		v.samples++
		if s.Sync {
			v.noteGOP(shown)
			v.lastKey = shown
		}
		v.latest = max(v.latest, shown)
		v.bits.inspect(s, data[:s.Size])
		v.captions.inspect(at, shown, data[:s.Size])
		data = data[s.Size:]
		at += int64(s.Duration)
	}
}

func (v *videoImport) noteGOP(until int64) {
	v.video.MaxGOP = max(v.video.MaxGOP, float64(until-v.lastKey)/float64(v.video.Timescale))
}

// store stores samples with exact times.
func (v *videoImport) store(ctx context.Context, f cmaf.Fragment) error {
	for _, s := range f.Samples {
		if s.Duration == 0 {
			return &unusableVideo{errors.New("two frames have the same presentation time")}
		}
		if v.whole == 0 || v.writer.Track().Time(f.Start) < v.whole {
			v.delay = max(v.delay, -int64(s.Offset))
		}
	}
	return v.writer.Add(ctx, f)
}

// cut ends segments of the source at the key frames nearest to multiples of the target duration. If
// there is no key frame for long, the segment ends anyway: such a track is not played.
func (v *videoImport) cut(open cmaf.Contents, at int64, s cmaf.Sample) bool {
	length := int64(v.seconds * float64(v.video.Timescale))
	if v.next == 0 {
		v.next = open.Start + length
	}
	due := at >= v.next && at-open.Start >= min(length, 2*v.video.Timescale)
	switch {
	case s.Sync && (due || open.Bytes > softSegment):
	case at-open.Start >= 2*length || open.Bytes > hardSegment:
		v.longGOP = fmt.Sprintf("there is no key frame for %.1f seconds", float64(at-open.Start)/float64(v.video.Timescale))
	default:
		return false
	}
	for v.next <= at {
		v.next += length
	}
	return true
}

// seal seals the track and describes it.
func (v *videoImport) seal(ctx context.Context) error {
	if err := v.writer.Finish(ctx); err != nil {
		return err
	}
	if v.samples == 0 {
		return nil
	}
	video, index := v.video, v.writer.Index()
	video.Start = max(v.firstKey, 0)
	video.End = index.End()
	if limit := index.Track.Ticks(v.limit); v.limit > 0 && limit > video.Start {
		video.End = min(video.End, limit)
	}
	video.Frames = len(video.frames(index).Times)
	if length := video.End - video.Start; length > 0 {
		video.Bitrate = int(index.Size() * 8 * video.Timescale / length)
	}
	v.noteGOP(video.End)
	video.Encode, video.NoCopy = v.whyEncode(index), v.whyNoCopy()
	return media.Seal(ctx, v.Store, v.writer.Prefix, index)
}

// whyEncode returns why the stored track can't be a rendition; "" = it can.
func (v *videoImport) whyEncode(index cmaf.TrackIndex) string {
	s := v.video.Track
	if why := whyNotH264(s); why != "" {
		return why
	}
	switch {
	case s.Rotation != 0 || s.Mirrored:
		return "it has to be rotated for display"
	case s.Width%2 != 0 || s.Height%2 != 0:
		return fmt.Sprintf("its size is odd, %dx%d", s.Width, s.Height)
	case index.Track.Width != s.Width || index.Track.Height != s.Height:
		return "its frame size differs from the header"
	case v.video.Frames != v.samples || index.Start() < 0:
		return "some of its frames are hidden"
	case v.longGOP != "":
		return v.longGOP
	case v.video.MaxGOP > 2*v.seconds:
		return fmt.Sprintf("its key frames are up to %.1f seconds apart", v.video.MaxGOP)
	}
	return v.bits.whyEncode()
}

// whyNoCopy returns why frames of the track can't be in a clip as they are; "" = they can.
func (v *videoImport) whyNoCopy() string {
	if v.video.Track.Rotation != 0 || v.video.Track.Mirrored {
		return "it has to be rotated for display"
	}
	if v.late() {
		return tooLate
	}
	return v.bits.noCopy
}

// check compares the imported tracks with the header of the file.
func (im *importer) check() error {
	src := im.src
	if err := im.packets.checkComplete(); err != nil {
		return err
	}
	var end time.Duration
	counted := true // the ends of all tracks are known
	if im.video != nil {
		if src.Video.Frames == 0 {
			return weir.Errorf(weir.Invalid, "%s: there is no frame in the video", badSource)
		}
		end = im.video.writer.Track().Time(src.Video.End)
		if err := src.checkLength("video", src.Video.Track, end); err != nil {
			return err
		}
	} else if src.Video != nil {
		counted = false
	}
	for k := range im.audio {
		if !src.Audio[k].AsTrack {
			counted = false
			continue
		}
		if im.audio[k].empty() {
			continue
		}
		if err := src.checkLength("audio", src.Audio[k].Track, im.audio[k].end()); err != nil {
			return err
		}
		end = max(end, im.audio[k].end())
	}
	if counted {
		src.Duration = end.Seconds()
		return src.checkEnd(end)
	}
	src.Duration = max(end, headerEnd(src.Probe)).Seconds()
	return nil
}

// verify decodes two key frames of a track: the first, and that of the last segment.
func (e Engine) verify(ctx context.Context, video SourceVideo, track *media.Track) (decodable bool, err error) {
	segments := track.Index().Segments
	var keys []keyFrame
	for _, n := range slices.Compact([]int{0, len(segments) - 1}) {
		size := segments[n].Parts[0].Samples[0].Size
		keys = append(keys, keyFrame{segment: n, size: size, start: segments[n].Start(), end: segments[n].End()})
	}
	images := 0
	run := ffmpeg.Thumbnails{
		Lead: cmaf.Lead, Video: video.Track.VideoFormat(), Timescale: video.Timescale, Width: minSide, Height: minSide,
	}
	command := ffmpeg.Command{Args: run.Args(), Stdin: newKeyFrameReader(ctx, track, keys), Priority: ffmpeg.Interactive}
	err = runPipes(ctx, e.FFmpeg, command, []func(context.Context, io.Reader) error{
		func(_ context.Context, r io.Reader) error {
			return eachJPEG(r, func([]byte) error {
				images++
				return nil
			})
		},
	})
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil && ffmpeg.ReasonOf(err) != ffmpeg.BadInput:
		return false, err
	}
	return err == nil && images == len(keys), nil
}

// checkEnd compares the end of the longest track with the duration in the header of the file.
func (s Source) checkEnd(end time.Duration) error {
	probe, want := s.Probe, headerEnd(s.Probe)
	if s.To > 0 || !exactHeader(probe.Demuxer) || len(probe.Other) > 0 || end >= want-slack(probe, want) {
		return nil
	}
	return weir.Errorf(weir.Invalid, "%s: the file ends after %.2f of %.2f seconds; send the whole file",
		badSource, end.Seconds(), want.Seconds())
}

// checkLength compares the end of a track with its duration in the header.
func (s Source) checkLength(kind string, track ffmpeg.Track, end time.Duration) error {
	want := headerTrackEnd(s.Probe, track)
	if s.To > 0 || want == 0 || end >= want-slack(s.Probe, want) {
		return nil
	}
	return weir.Errorf(weir.Invalid, "%s: the %s ends after %.2f of %.2f seconds; send the whole file",
		badSource, kind, end.Seconds(), want.Seconds())
}

// headerTrackEnd returns the end of a track by the header of the file; 0 = it is not there, or a guess
// of ffmpeg.
func headerTrackEnd(probe ffmpeg.Probe, track ffmpeg.Track) time.Duration {
	if !exactHeader(probe.Demuxer) || track.Duration <= 0 {
		return 0
	}
	return track.Start + track.Duration - probe.Start
}

// headerEnd returns the end of a file on its timeline by its header; 0 = it does not say. The durations of MP4
// and Matroska count from time 0 of the file, even if its first packet is later.
func headerEnd(probe ffmpeg.Probe) time.Duration {
	if indexed(probe.Demuxer) {
		return max(probe.Duration-max(probe.Start, 0), 0)
	}
	return probe.Duration
}

// indexed reports whether files of a container have an index of key frames, and times that never jump.
func indexed(demuxer string) bool {
	return strings.Contains(demuxer, "mp4") || strings.Contains(demuxer, "matroska")
}

// exactHeader reports whether the duration in the header of a container is from a muxer, and not
// guessed from the size of the file.
func exactHeader(demuxer string) bool {
	names := []string{"mp4", "matroska", "avi", "flv", "asf", "wav"}
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(demuxer, name) })
}

// slack returns by how much a complete file may be shorter than in its header.
func slack(probe ffmpeg.Probe, length time.Duration) time.Duration {
	if strings.Contains(probe.Demuxer, "mp4") {
		return max(250*time.Millisecond, length/1000)
	}
	return max(time.Second, length/50)
}
