package vod

import (
	"cmp"
	"context"
	"io"
	"math"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/hls"
	"weir/internal/weir"
)

// The bounds of a source. A small file can ask for days of work: with a packet at the start and one after
// a day, between which there would be silence, with hundreds of tracks, or with frames of a gigabyte. Such
// a file is refused before it is encoded: by its header, and where that says nothing or lies, by its
// packets while they are imported. Recordings have no such bounds: those of their encoders hold for them
// (package live), and [Engine.Recorded] does not import.
const (
	defaultMaxDuration = 24 * time.Hour

	// maxTracks counts tracks of all kinds, because a demuxer works for each. Films with a dozen languages
	// of audio and subtitles have about 50.
	maxTracks = 64

	// maxPixels is the maximum of width times height: cinemas show 8192x4320.
	maxPixels = 36_000_000

	// maxFrames are those of a day at 60 frames a second. The table of frames is in memory.
	maxFrames = 24 * 3600 * 60

	// maxHole is the longest time in which no packet of any track starts. Recordings of a screen have frames
	// only where something changes, slideshows every few minutes; but a clock on the screen changes every
	// minute, and most have sound.
	maxHole = time.Hour

	// maxSegments is how many segments a playlist can have: see [hls.Parse].
	maxSegments = hls.MaxEntries

	// minRate is how many bytes there are at least for a second of a track, in files with more than
	// freeMedia. Speech takes 600, silence in AAC 380 and in Opus 25, pictures of 15 kB that are shown for
	// half an hour each 8.
	minRate   = 8
	freeMedia = 10 * time.Minute

	// maxRepeat is how often a file can use its own bytes: the index of an MP4 file can name the same frames
	// again and again. Small files may, up to freeRepeat bytes: loops are made so.
	maxRepeat  = 4
	freeRepeat = 1 << 20
)

// limits are the bounds of one source.
type limits struct {
	duration time.Duration
	segment  float64 // seconds
}

func (e Engine) limits(segmentSeconds float64) limits {
	return limits{duration: cmp.Or(e.MaxDuration, defaultMaxDuration), segment: segmentSeconds}
}

func tooLong(limit time.Duration) error {
	return weir.Errorf(weir.Invalid, "%s: the file lasts longer than the %v that are allowed", badSource, limit)
}

func tooManyFrames() error {
	return weir.Errorf(weir.Invalid, "%s: the video has more than the %d frames that are allowed", badSource, maxFrames)
}

// checkProbe refuses a file by its header. Where the header has no duration, that of the probe is a guess,
// and the packets will show.
func (l limits) checkProbe(p ffmpeg.Probe) error {
	if n := len(p.Video) + len(p.Audio) + len(p.Stills) + len(p.Other); n > maxTracks {
		return weir.Errorf(weir.Invalid, "%s: the file has %d tracks; at most %d are allowed", badSource, n, maxTracks)
	}
	if len(p.Video) > 0 {
		v := p.Video[0]
		if v.Width*v.Height > maxPixels {
			return weir.Errorf(weir.Invalid, "%s: its frames have %dx%d pixels; at most %d million are allowed", badSource, v.Width, v.Height, maxPixels/1_000_000)
		}
		if exactHeader(p.Demuxer) && v.Frames > maxFrames {
			return tooManyFrames()
		}
	}
	if !exactHeader(p.Demuxer) {
		return nil
	}
	var ends []time.Duration
	for _, s := range imported(p) {
		end := p.Duration
		if s.Duration > 0 {
			end = s.Start + s.Duration - p.Start
		}
		ends = append(ends, end)
	}
	return l.checkEnds(ends, p.Size)
}

// imported returns the tracks of a file that Import reads.
func imported(p ffmpeg.Probe) (tracks []ffmpeg.Track) {
	if len(p.Video) > 0 {
		tracks = append(tracks, p.Video[0])
	}
	return append(tracks, p.Audio...)
}

// checkEnds refuses a file by the ends of its tracks and its size.
func (l limits) checkEnds(ends []time.Duration, size int64) error {
	var longest, all time.Duration
	for _, end := range ends {
		if end > l.duration {
			return tooLong(l.duration)
		}
		longest, all = max(longest, end), all+max(end, 0)
	}
	if float64(size) < minRate*(all-freeMedia).Seconds() {
		return weir.Errorf(weir.Invalid, "%s: the file has only %d bytes for %v of media; send the whole file",
			badSource, size, longest.Round(time.Second))
	}
	if n := math.Ceil(longest.Seconds() / l.segment); n > maxSegments {
		return weir.Errorf(weir.Invalid, "%s: the file would have %.0f segments of %g seconds; at most %d are allowed, so request longer segments",
			badSource, n, l.segment, maxSegments)
	}
	return nil
}

// packets checks the packets of a file while it is imported.
type packets struct {
	limits
	hasVideo bool            // it is the first track
	starts   []time.Duration // of the tracks; the largest time = there is no packet
	ends     []time.Duration // of the tracks
	latest   time.Duration   // start of the last packet
	frames   int
	bytes    int64 // of all packets
	size     int64 // of the file
}

// read reads the list of packets.
func (p *packets) read(_ context.Context, r io.Reader) error { return ffmpeg.ReadPackets(r, p.check) }

func (p *packets) check(packet ffmpeg.Packet) error {
	end := packet.Start + packet.Duration
	if end > p.duration {
		return tooLong(p.duration)
	}
	if err := p.checkHole(packet.Start); err != nil {
		return err
	}
	p.latest, p.ends[packet.Track] = max(p.latest, packet.Start), max(p.ends[packet.Track], end)
	p.starts[packet.Track] = min(p.starts[packet.Track], packet.Start)
	if p.hasVideo && packet.Track == 0 {
		p.frames++
	}
	if p.frames > maxFrames {
		return tooManyFrames()
	}
	if p.bytes += packet.Size; p.bytes > maxRepeat*p.size+freeRepeat {
		return weir.Errorf(weir.Invalid, "%s: the file has %d bytes, but its packets have more than %d; at most %d times the size of the file is allowed",
			badSource, p.size, p.bytes, maxRepeat)
	}
	return nil
}

// checkHole checks the time from the last packet on.
func (p *packets) checkHole(until time.Duration) error {
	if until-p.latest <= maxHole {
		return nil
	}
	return weir.Errorf(weir.Invalid, "%s: no track has packets from %v to %v; gaps of at most %v are allowed",
		badSource, p.latest.Round(time.Second), until.Round(time.Second), maxHole)
}

// checkComplete checks the file after its last packet.
func (p *packets) checkComplete() error {
	for _, end := range p.ends {
		if err := p.checkHole(end); err != nil {
			return err
		}
	}
	return p.checkEnds(p.ends, p.size)
}

// decoded returns an add that refuses what was decoded of a source beyond the bounds: its packets may have
// more in them than they say.
func (l limits) decoded(track func() cmaf.Track, add func(cmaf.Fragment) error) func(cmaf.Fragment) error {
	frames := 0
	return func(f cmaf.Fragment) error {
		// Encoders add a little at the end.
		if t := track(); t.Time(f.End()) > l.duration+time.Minute {
			return tooLong(l.duration)
		} else if frames += len(f.Samples); t.Kind == cmaf.Video && frames > 2*maxFrames {
			return tooManyFrames()
		}
		return add(f)
	}
}

// checkFrames refuses renditions with more frames than a source can have.
func (p *Plan) checkFrames() error {
	for _, r := range p.Renditions {
		if r.converts() && p.Source.Duration*r.Rate.Float() > maxFrames {
			return weir.Errorf(weir.Invalid, "rendition %s: %.2f frames a second of a video of %v are more than the %d that are allowed",
				r.Name, r.Rate.Float(), time.Duration(p.Source.Duration*float64(time.Second)).Round(time.Second), maxFrames)
		}
	}
	return nil
}
