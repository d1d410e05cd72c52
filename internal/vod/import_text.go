package vod

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"weir/internal/caption"
	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/weir"
)

// maxTextTracks is the number of tracks of text that are imported from a file.
const maxTextTracks = 32

// textCodecs are those that ffprobe names and package caption reads.
var textCodecs = map[string]func(packet []byte, start, end time.Duration) ([]caption.Cue, error){
	"ass":      one(caption.ASS),
	"ssa":      one(caption.ASS),
	"mov_text": tx3g,
	"subrip":   one(caption.SubRipPacket),
	"text":     one(caption.SubRipPacket),
	"webvtt":   one(webvtt),
	"ttml":     caption.STPP,
}

// pictureCodecs are those of subtitles that are pictures, by the names that people know.
var pictureCodecs = map[string]string{
	"hdmv_pgs_subtitle": "PGS", "dvb_subtitle": "DVB", "dvd_subtitle": "VobSub", "xsub": "XSUB",
}

// textImport reads a track of text: its packets' bytes and their list come over two pipes.
type textImport struct {
	track   ffmpeg.Track
	bytes   []byte
	packets []ffmpeg.Packet
}

// newTextImports returns the tracks of text of a source that can be imported, and notes why others can't.
func newTextImports(src *Source) (list []*textImport) {
	src.Unread = nil
	unread := func(t ffmpeg.Track, format string, args ...any) {
		src.Unread = append(src.Unread, fmt.Sprintf("the subtitles in track %d%s %s; add them as a file of text", t.Index, inLanguage(t), fmt.Sprintf(format, args...)))
	}
	for _, t := range src.Probe.Other {
		switch picture, isPicture := pictureCodecs[t.Codec]; {
		case t.Kind != "subtitle":
		case isPicture:
			unread(t, "are pictures (%s) and were not imported", picture)
		case textCodecs[t.Codec] == nil:
			unread(t, "have the codec %q, which is not supported", t.Codec)
		case len(list) == maxTextTracks:
			unread(t, "come after %d others and were not imported", maxTextTracks)
		default:
			list = append(list, &textImport{track: t})
		}
	}
	return list
}

func inLanguage(t ffmpeg.Track) string {
	if t.Language == "" {
		return ""
	}
	return " (" + t.Language + ")"
}

// readBytes reads the bytes of all packets. What is too long is no text.
func (in *textImport) readBytes(_ context.Context, r io.Reader) (err error) {
	in.bytes, err = io.ReadAll(io.LimitReader(r, caption.MaxFile+1))
	return err
}

func (in *textImport) readPackets(_ context.Context, r io.Reader) error {
	return ffmpeg.ReadPackets(r, func(p ffmpeg.Packet) error {
		if len(in.packets) <= caption.MaxCues {
			in.packets = append(in.packets, p)
		}
		return nil
	})
}

// cues returns the cues of the track.
func (in *textImport) cues() (all []caption.Cue, err error) {
	if len(in.bytes) > caption.MaxFile || len(in.packets) > caption.MaxCues {
		return nil, weir.Errorf(weir.Invalid, "it has more than 10 MiB, or more than 100,000 packets")
	}
	read, rest := textCodecs[in.track.Codec], in.bytes
	for i, p := range in.packets {
		size := int(min(p.Size, int64(len(rest))))
		packet := rest[:size]
		rest = rest[size:]
		end := p.Start + p.Duration
		if p.Duration == 0 && i+1 < len(in.packets) {
			end = in.packets[i+1].Start
		}
		if p.Start < 0 || end <= p.Start {
			continue
		}
		cues, err := read(packet, p.Start, end)
		if err != nil {
			return nil, err
		}
		all = append(all, cues...)
	}
	if all, err = caption.Collect(all); in.track.Codec == "ttml" {
		all = caption.Join(all) // a cue is in each sample during which it is shown
	}
	return all, err
}

// saveText stores the tracks of text, and the closed captions of the video as such. One that can't be read does not fail the import.
func (im *importer) saveText(ctx context.Context) error {
	src := im.src
	src.Text, src.Captions = nil, nil
	if im.options.Text && im.video != nil {
		if err := im.saveCaptions(ctx); err != nil {
			return err
		}
	}
	for _, in := range im.text {
		cues, err := in.cues()
		if err != nil {
			src.Unread = append(src.Unread, fmt.Sprintf("the subtitles in track %d%s were not imported: %v", in.track.Index, inLanguage(in.track), err))
			continue
		}
		if len(cues) == 0 {
			continue
		}
		if err := im.addText(ctx, in.track, cues); err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) addText(ctx context.Context, track ffmpeg.Track, cues []caption.Cue) error {
	text := SourceText{Track: track, ID: weir.NewID()}
	file, err := media.SaveText(ctx, im.Store, im.src.Prefix, text.ID, cues)
	text.TrackFile = file
	im.src.Text = append(im.src.Text, text)
	return err
}

// captionImport decodes the closed captions (CEA-608) in the frames of a video.
type captionImport struct {
	track    cmaf.Track
	config   codec.Config
	length   int // of the sizes of NAL units
	order    caption.CEA608Order
	found    caption.CEA608Channels
	decoders [4]*caption.CEA608
	cues     [4][]caption.Cue
}

func (c *captionImport) begin(track cmaf.Track, lengthSize int) {
	*c = captionImport{track: track, config: track.Config(), length: lengthSize}
	for i := range c.decoders {
		c.decoders[i] = caption.NewCEA608(i + 1)
	}
}

// inspect reads the captions of a frame. Frames come in decode order.
func (c *captionImport) inspect(decoded, shown int64, data []byte) {
	for _, pair := range c.config.Captions(data, c.length) {
		c.order.Add(caption.CEA608Pair{At: c.track.Time(shown), Field: pair.Field, Data: pair.Data})
	}
	c.decode(c.track.Time(decoded))
}

// decode decodes the captions of frames that are shown up to a time.
func (c *captionImport) decode(until time.Duration) {
	for _, pair := range c.order.Take(until) {
		c.found.Add(pair)
		for i, d := range c.decoders {
			if cues := d.Add(pair); len(c.cues[i]) < caption.MaxCues {
				c.cues[i] = append(c.cues[i], cues...)
			}
		}
	}
}

// saveCaptions stores the closed captions of the video as tracks of text, if there are any.
func (im *importer) saveCaptions(ctx context.Context) error {
	c := &im.video.captions
	end := c.track.Time(im.src.Video.End)
	c.decode(math.MaxInt64)
	im.src.Captions = append([]int{}, c.found.Found()...)
	for _, channel := range im.src.Captions {
		cues, err := caption.Collect(append(c.cues[channel-1], c.decoders[channel-1].Flush(end)...))
		if err != nil || len(cues) == 0 {
			continue
		}
		track := im.src.Video.Track
		track.Language, track.Title, track.Default, track.Deaf = "", fmt.Sprintf("CC%d", channel), false, true
		if err := im.addText(ctx, track, cues); err != nil {
			return err
		}
	}
	return nil
}

func tx3g(packet []byte, start, end time.Duration) ([]caption.Cue, error) {
	c, ok, err := caption.TX3G(packet, start, end)
	if !ok || err != nil {
		return nil, err
	}
	return []caption.Cue{c}, nil
}

func webvtt(packet string, start, end time.Duration) (caption.Cue, bool) {
	return caption.WebVTTPacket(packet, "", start, end) // ffmpeg keeps what Matroska adds to itself
}

// one makes a reader of several cues of a reader of one.
func one(read func(packet string, start, end time.Duration) (caption.Cue, bool)) func([]byte, time.Duration, time.Duration) ([]caption.Cue, error) {
	return func(packet []byte, start, end time.Duration) ([]caption.Cue, error) {
		cue, ok := read(strings.ToValidUTF8(string(packet), "\ufffd"), start, end)
		return slices.Repeat([]caption.Cue{cue}, map[bool]int{true: 1}[ok]), nil
	}
}

// AssetTracks returns the tracks of text of a source as those of an asset. Their times are those of the
// source, in which the video may begin later than the file.
func (s Source) AssetTracks(now time.Time) (tracks []weir.AssetTrack) {
	var start float64
	if s.Video != nil && s.Video.Timescale > 0 {
		start = float64(s.Video.Start) / float64(s.Video.Timescale)
	}
	for _, text := range s.Text {
		t := text.Track
		track := weir.AssetTrack{
			ID: text.ID, Type: weir.TextTrack, Kind: weir.Subtitles, Language: cmp.Or(cmaf.LanguageTag(t.Language), "und"),
			Default: t.Default && !slices.ContainsFunc(tracks, func(t weir.AssetTrack) bool { return t.Default }),
			Forced:  t.Forced, ClosedCaptions: t.Deaf, CreatedAt: weir.At(now),
			Status: weir.TrackStatus{Phase: weir.TrackReady, UpdatedAt: weir.At(now)},
			Object: text.Object, Size: text.Size, SHA256: text.SHA256, Cues: text.Cues, Start: start,
		}
		track.Name = cmp.Or(weir.Shorten(strings.TrimSpace(t.Title), 80), track.Language)
		tracks = append(tracks, track)
	}
	return tracks
}
