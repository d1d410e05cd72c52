package vod

import (
	"context"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
)

// Excerpt is a window of a file, on its timeline.
type Excerpt struct {
	Start, End time.Duration // End 0 = the end of the file
}

// excerptMargin is how much more than its window Import reads on each side of it. Half of it must have been read
// for the window to be complete: frames are decoded up to cmaf.MaxDelaySeconds before they are shown, and the tracks of a
// file need not be at the same time at the place that its index names.
const excerptMargin = 2 * cmaf.MaxDelaySeconds * time.Second

// bounds returns what is read of a file for a window; 0, 0 = all of it. In containers without an index, times
// may jump, so that only all packets before a frame tell its time.
func (p Excerpt) bounds(probe ffmpeg.Probe) (from, to time.Duration) {
	end := headerEnd(probe)
	if !indexed(probe.Demuxer) || end <= 0 {
		return 0, 0
	}
	from = max(min(p.Start, end)-excerptMargin, 0)
	if to = p.End + excerptMargin; p.End == 0 || to >= end {
		to = 0 // only the last packets tell where the file ends
	}
	return from, to
}

// importExcerpt imports what a window needs, unless that is all of the file. It reports whether it is complete.
func (e Engine) importExcerpt(ctx context.Context, o ImportOptions, probe ffmpeg.Probe) (src Source, complete bool) {
	src = newSource(o.Prefix, probe)
	if src.From, src.To = o.Excerpt.bounds(probe); src.From == 0 && src.To == 0 {
		return src, false
	}
	im := importer{Engine: e, options: o, src: &src}
	if im.read(ctx) != nil || im.check() != nil || !im.covers(*o.Excerpt) {
		return src, false // the import of the whole file has the right message
	}
	im.dropEmpty()
	return src, true
}

// covers reports whether all that a window needs was read: every track has packets well before and after it,
// and a decoder can start before it. A window at the start or at the end of the file needs none there.
func (im *importer) covers(p Excerpt) bool {
	for k := range im.packets.ends {
		if im.src.From > 0 && im.packets.starts[k] > p.Start-excerptMargin/2 || im.src.To > 0 && im.packets.ends[k] < p.End+excerptMargin/2 {
			return false
		}
	}
	return im.src.From == 0 || im.video == nil || im.video.firstKey <= im.video.writer.Track().Ticks(p.Start)
}
