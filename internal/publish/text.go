package publish

import (
	"context"
	"strconv"
	"time"

	"weir/internal/caption"
	"weir/internal/cmaf"
	"weir/internal/hls"
)

// Text is a track of text that goes with the video. Outputs have it beside the video, as WebVTT; MP4
// files have it inside.
type Text struct {
	Name           string
	Language       string // a tag of BCP 47
	Default        bool
	Forced         bool
	ClosedCaptions bool
	Cues           []caption.Cue
	Start          time.Duration // the time of the cues at which the presentation begins
}

// textLength is the length of a segment of text.
const textLength = time.Minute

const (
	textFolder = "text"
	typeText   = "text/vtt; charset=utf-8"
)

// textPath returns the path of a file of text k, below the folder of the output.
func textPath(k int, name string) string { return textFolder + "/" + strconv.Itoa(k) + "/" + name }

func textSegment(n int) string { return strconv.Itoa(n) + ".vtt" }

// putText puts the texts of an output of HLS: for each of them a playlist and segments below the folder.
// mediaTime returns the time in the segments of the video of what is shown at the start of one of text.
func (r *run) putText(ctx context.Context, in folder, output string, mediaTime func(cmaf.TextSegment) time.Duration) (list []cmaf.Text, err error) {
	for k, text := range r.Text {
		segments := r.main().Index.TextSegments(textLength)
		r.change(func() {
			r.state.item(output, textFolder+"/"+strconv.Itoa(k), "").Segments = len(segments)
		})
		playlist := hls.Media{Type: hls.VOD, Ended: true}
		for n, s := range segments {
			from := text.Start + s.From
			body := caption.Segment(text.Cues, from, text.Start+s.To, from, mediaTime(s))
			if err := r.sendBytes(ctx, in.key(textPath(k, textSegment(n))), typeText, body); err != nil {
				return nil, err
			}
			playlist.Segments = append(playlist.Segments, hls.Segment{File: hls.File{URI: textSegment(n)}, Duration: s.To - s.From, Discontinuity: s.Discontinuity})
		}
		if err := r.sendBytes(ctx, in.key(textPath(k, hlsPlaylist)), typePlaylist, playlist.Text()); err != nil {
			return nil, err
		}
		list = append(list, cmaf.Text{
			Name: text.Name, URI: textPath(k, hlsPlaylist), Language: text.Language,
			Default: text.Default, Forced: text.Forced, ClosedCaptions: text.ClosedCaptions,
		})
	}
	return list, nil
}

// storedTime is the time in segments with the times of stored ones.
func storedTime(s cmaf.TextSegment) time.Duration { return s.Media }

// zeroTime is the time in segments and files that start at 0, see media.Track.FromZero. Their edit list
// takes back what it adds to the times for B-frames; all players of HLS in browsers respect it.
func zeroTime(s cmaf.TextSegment) time.Duration { return s.Media - cmaf.Lead }

// putTextFile puts all of a text as one file, whose times are those of the presentation.
func (r *run) putTextFile(ctx context.Context, in folder, k int) error {
	text := r.Text[k]
	cues := caption.Shift(text.Cues, text.Start, caption.MaxTime)
	return r.sendBytes(ctx, in.key(textPath(k, cmaf.TextFile)), typeText, caption.WebVTT(cues))
}

// textKeys returns the keys of the objects of a text; ok is false if an item is none.
func (f folder) textKeys(item string, state *itemState) (keys []string, ok bool) {
	if len(item) <= len(textFolder) || item[:len(textFolder)+1] != textFolder+"/" {
		return nil, false
	}
	keys = []string{f.key(item, hlsPlaylist), f.key(item, cmaf.TextFile)}
	for n := range state.Segments {
		keys = append(keys, f.key(item, textSegment(n)))
	}
	return keys, true
}

// main returns the track whose segments those of text go by.
func (r *run) main() *Track {
	if len(r.video) > 0 {
		return &r.video[0]
	}
	return &r.audio[0]
}
