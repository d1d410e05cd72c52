package ffmpeg

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Remux plans one run of ffmpeg that demuxes a file without decoding: track i goes to pipe:3+i
// with its times plus Lead, counted from the start of the presentation whatever the container says.
type Remux struct {
	Lead   time.Duration // see Encode
	Input  string
	Tracks []Copy

	// Packets are the indexes of tracks whose packets are listed at the pipe after those of Tracks; see
	// [ReadPackets]. The list has their times without Lead.
	Packets []int

	// Text are the indexes of tracks of text. Each goes to two pipes after all others: the bytes of its packets,
	// one after the other, and the list of its packets. No muxer takes all codecs of text as they are.
	Text []int

	// Strict makes the first damaged packet an error. That fits MP4, where damage means that the
	// file was cut off; transport streams begin with damage.
	Strict bool

	// From and To read a part of the input: from the key frame before From, which is sought by the index of
	// the file, up to the first packets at To. Times stay those of the whole input. 0 = its start, its end.
	From, To time.Duration
}

// Copy is a track of a [Remux].
type Copy struct {
	Track int    // index in the input
	Codec string // as ffprobe names it
	// Matroska writes Matroska instead of fragmented MP4: it can hold any audio codec, and how many
	// samples to skip at the start and end.
	Matroska bool
}

// Copyable reports whether fragments can hold video of a codec, as ffprobe names it. Other video is
// encoded from the file.
func Copyable(codec string) bool {
	return slices.Contains([]string{"h264", "hevc", "vp9", "av1", "mpeg4", "mpeg2video", "mpeg1video", "mjpeg", "prores"}, codec)
}

func (r Remux) Args() []string {
	var args []string
	if r.Strict {
		args = append(args, "-xerror")
	}
	// Some containers, AVI above all, have no presentation times.
	args = append(args, "-fflags", "+genpts")
	if r.From > 0 {
		// Both times count from the start of the presentation, as those of the output do.
		args = append(args, "-copyts", "-start_at_zero", "-ss", seconds(r.From))
	}
	if r.To > 0 {
		args = append(args, "-to", seconds(r.To))
	}
	args = append(args, source(r.Input, "")...)
	for i, c := range r.Tracks {
		args = append(args, "-map", fmt.Sprintf("0:%d", c.Track), "-c", "copy")
		if c.Matroska {
			args = append(args, matroska(3+i, r.Lead)...)
			continue
		}
		switch c.Codec {
		case "hevc":
			args = append(args, "-tag:v", "hvc1")
		case "aac":
			args = append(args, "-bsf:a", "aac_adtstoasc")
		case "mpeg4":
			args = append(args, "-bsf:v", "mpeg4_unpack_bframes")
		}
		options := fragments(3+i, r.Lead)
		if c.Codec == "prores" { // MP4 has no name for it, QuickTime has
			options[slices.Index(options, "-f")+1] = "mov"
		}
		args = append(args, options...)
	}
	for _, track := range r.Packets {
		args = append(args, "-map", fmt.Sprintf("0:%d", track))
	}
	pipe := 3 + len(r.Tracks)
	if len(r.Packets) > 0 {
		args = append(args, "-c", "copy", "-f", "framecrc", fmt.Sprintf("pipe:%d", pipe))
		pipe++
	}
	for _, track := range r.Text {
		for _, format := range []string{"data", "framecrc"} {
			args = append(args, "-map", fmt.Sprintf("0:%d", track), "-c", "copy", "-f", format, fmt.Sprintf("pipe:%d", pipe))
			pipe++
		}
	}
	return args
}

// Packet is an entry of a list of packets.
type Packet struct {
	Track    int           // position in Remux.Packets
	Start    time.Duration // decode time
	Duration time.Duration // 0 = not known
	Size     int64         // bytes
}

// ReadPackets reads the list of packets of a [Remux], which is in the order of their times as far as the
// file is. Times that are beyond any file are 100 years.
func ReadPackets(r io.Reader, see func(Packet) error) error {
	lines := bufio.NewScanner(r)
	var ticks []Ratio // seconds a tick, of each track
	for lines.Scan() {
		line := lines.Text()
		if comment, found := strings.CutPrefix(line, "#"); found {
			// #tb 0: 1/12800
			if name, value, ok := strings.Cut(comment, ":"); ok && strings.HasPrefix(name, "tb ") {
				ticks = append(ticks, text(strings.TrimSpace(value)).ratio("/"))
			}
			continue
		}
		// track, decode time, presentation time, duration, size, checksum, …
		var fields [5]int64
		rest := line
		for i := range fields {
			field, after, found := strings.Cut(rest, ",")
			n, err := strconv.ParseInt(strings.TrimSpace(field), 10, 64)
			if err != nil || !found {
				return fmt.Errorf("list of packets: %q can't be parsed", line)
			}
			fields[i], rest = n, after
		}
		n := fields[0]
		if n < 0 || n >= int64(len(ticks)) || !ticks[n].Given() {
			return fmt.Errorf("list of packets: track %d has no time base", n)
		}
		p := Packet{Track: int(n), Start: ticks[n].time(fields[1]), Duration: max(ticks[n].time(fields[3]), 0), Size: max(fields[4], 0)}
		if err := see(p); err != nil {
			return err
		}
	}
	return lines.Err()
}

// time returns how long a number of ticks of r seconds is, at most 100 years.
func (r Ratio) time(ticks int64) time.Duration {
	seconds := float64(ticks) * r.Float()
	if math.Abs(seconds) >= maxTime.Seconds() {
		return time.Duration(math.Copysign(float64(maxTime), seconds))
	}
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

func matroska(pipe int, lead time.Duration) []string {
	return []string{
		"-map_metadata", "-1", "-map_chapters", "-1", "-fflags", "+bitexact", "-flags", "+bitexact",
		"-f", "matroska", "-avoid_negative_ts", "disabled", "-output_ts_offset", seconds(lead),
		fmt.Sprintf("pipe:%d", pipe),
	}
}

// Audio plans one run of ffmpeg that encodes an audio track of a source as one continuous AAC
// track, at pipe:3 as fragmented MP4 with times plus Lead. The encoder's priming is before the
// presentation time 0. Where the source has no audio (a late start, gaps) the track has silence, so
// that it stays in sync with the video.
type Audio struct {
	Lead time.Duration // see Encode

	// Input is the source file. When it is "", the source is read from pipe:0, with times plus
	// Lead.
	Input  string
	Format string // of pipe:0: "mp4" or "matroska"
	Track  int    // index in the input

	Channels   int // of the source; more than two are mixed down to two
	SampleRate int // of the source
	Bitrate    int // bits a second; 0 = 64k a channel

	First time.Duration // start of the track, without Lead
}

func (a Audio) Args() []string {
	args := append([]string{"-threads", "1"}, source(a.Input, a.Format)...)
	channels := 2
	if a.Channels == 1 {
		channels = 1
	}
	bitrate := a.Bitrate
	if bitrate == 0 {
		bitrate = 64_000 * channels
	}
	filters := fmt.Sprintf("aresample=%d:async=1000:first_pts=%d:min_comp=0.01:min_hard_comp=0.05:ochl=%s,aformat=sample_fmts=fltp",
		a.rate(), int64(math.Round(a.First.Seconds()*float64(a.rate()))), map[int]string{1: "mono", 2: "stereo"}[channels])
	if a.Input == "" {
		filters = "asetpts=PTS-" + seconds(a.Lead) + "/TB," + filters
	}
	args = append(args, "-map", fmt.Sprintf("0:%d", a.Track), "-af", filters,
		"-c:a", "aac", "-profile:a", "aac_low", "-b:a", strconv.Itoa(bitrate))
	if bitrate >= 64_000*channels {
		// It takes a quarter of the time, and is closer to the source at high bitrates.
		args = append(args, "-aac_coder", "fast")
	}
	return append(args, fragments(3, a.Lead)...)
}

// rate returns the sample rate of the result: the source's if all players support it.
func (a Audio) rate() int {
	if a.SampleRate == 44_100 || a.SampleRate == 32_000 {
		return a.SampleRate
	}
	if a.SampleRate > 0 && a.SampleRate%11_025 == 0 {
		return 44_100
	}
	return 48_000
}
