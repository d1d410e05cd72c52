package cmaf

import (
	"bytes"
	"crypto/md5"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fragmented are ffmpeg's options for a stream of fragments with absolute times, as
// the engine uses them.
var fragmented = strings.Fields("-output_ts_offset 10 -avoid_negative_ts disabled -use_editlist 0 " +
	"-movflags delay_moov+default_base_moof+frag_discont -frag_duration 400000 -f mp4 pipe:1")

// lavfi are inputs: three seconds of video, and of audio.
const (
	videoInput = "-f lavfi -i testsrc2=s=160x90:r=25:d=3"
	audio      = "-f lavfi -i sine=440:r=44100:d=3"
)

// ffmpeg returns what a run of ffmpeg writes to its output.
func ffmpeg(t testing.TB, args ...string) []byte {
	t.Helper()
	return run(t, "ffmpeg", append(strings.Fields("-v error -nostdin -y -threads 1"), args...)...)
}

func run(t testing.TB, program string, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes()
}

// generated keeps what generate made: encoding is what takes the time of these tests.
var generated sync.Map

// generate makes fragmented MP4 from lavfi inputs and options of encoders.
func generate(t testing.TB, options string) []byte {
	t.Helper()
	if data, ok := generated.Load(options); ok {
		return bytes.Clone(data.([]byte))
	}
	data := ffmpeg(t, append(strings.Fields(options), fragmented...)...)
	generated.Store(options, bytes.Clone(data))
	return data
}

func writeFile(t testing.TB, data []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "media.mp4")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// packet is what ffprobe reports of a sample.
type packet struct {
	PTS    string `json:"pts_time"` // in seconds
	Flags  string `json:"flags"`    // K = sync, D = hidden
	Size   string `json:"size"`
	Digest string `json:"data_hash"`
}

// packets returns what ffprobe finds of a stream such as v:0, by decode order.
func packets(t testing.TB, file, stream string) []packet {
	t.Helper()
	out := run(t, "ffprobe", "-v", "error", "-select_streams", stream, "-show_data_hash", "md5",
		"-show_entries", "packet=pts_time,size,flags,data_hash", "-of", "json", file)
	var found struct{ Packets []packet }
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	return found.Packets
}

// shown leaves out the packets that an edit list hides.
func shown(all []packet) []packet {
	var left []packet
	for _, p := range all {
		if !strings.Contains(p.Flags, "D") {
			left = append(left, p)
		}
	}
	return left
}

// probe returns entries of ffprobe about a stream, by name.
func probe(t testing.TB, file, stream, entries string) map[string]string {
	t.Helper()
	out := run(t, "ffprobe", "-v", "error", "-select_streams", stream, "-count_frames", "-show_entries", entries, "-of", "default=nw=1", file)
	found := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			found[name] = value
		}
	}
	return found
}

// decode fails the test if a file does not decode without any complaint.
func decode(t testing.TB, file string) {
	t.Helper()
	ffmpeg(t, "-xerror", "-err_detect", "explode", "-i", file, "-map", "0", "-f", "null", "-")
}

// readAll reads a whole stream: its tracks, and the fragments of each.
func readAll(t testing.TB, data []byte) ([]Track, [][]Fragment) {
	t.Helper()
	r := NewReader(bytes.NewReader(data))
	tracks, err := r.Tracks()
	if err != nil {
		t.Fatal(err)
	}
	frags := make([][]Fragment, len(tracks))
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return tracks, frags
		}
		if err != nil {
			t.Fatal(err)
		}
		frags[f.Track] = append(frags[f.Track], f)
	}
}

// stored is a track as weir keeps it.
type stored struct {
	TrackIndex
	segments [][]byte

	open    Segment
	written []byte // of the open segment
}

// store puts the tracks of a stream into weir's form: times from 0 on, segments of a
// second or more that start at sync samples, of two parts each.
func store(t testing.TB, data []byte) []stored {
	t.Helper()
	tracks, frags := readAll(t, data)
	all := make([]stored, len(tracks))
	for i, track := range tracks {
		all[i].Track = track
		run, err := retime(frags[i]...)
		if err != nil {
			t.Fatal(err)
		}
		run.Start -= track.Ticks(Lead)
		for _, s := range run.Samples {
			all[i].Track.Delay = max(all[i].Track.Delay, -int64(s.Offset))
		}
		packer, start := Packer{Track: all[i].Track, Sink: &all[i]}, run.Start
		for _, f := range cutFragment(run, func(at int64, s Sample) bool {
			due := s.Sync && at-start >= int64(track.Timescale)
			if due {
				start = at
			}
			return due
		}) {
			at, half := f.Start, f.Start+Span(f.Samples)/2
			for _, s := range f.Samples {
				if at >= half && packer.OpenPart.Samples == packer.OpenSegment.Samples {
					packer.EndPart()
				}
				packer.Add(at, s, f.Data[:s.Size])
				at, f.Data = at+int64(s.Duration), f.Data[s.Size:]
			}
			packer.EndSegment()
		}
	}
	return all
}

// Part and EndSegment make a stored the sink of a Packer.
func (s *stored) Part(part Part, last bool, buffers ...[]byte) error {
	s.open.Parts, s.written = append(s.open.Parts, part), append(s.written, bytes.Join(buffers, nil)...)
	if last {
		return s.EndSegment()
	}
	return nil
}

func (s *stored) EndSegment() error {
	s.Segments, s.segments = append(s.Segments, s.open), append(s.segments, s.written)
	s.open, s.written = Segment{}, nil
	return nil
}

// fragments returns the samples as they are stored, with times of the timeline.
func (s *stored) fragments() []Fragment {
	var all []Fragment
	for n, segment := range s.Segments {
		data := s.segments[n]
		for _, p := range segment.Parts {
			all = append(all, Fragment{Start: p.Start, Samples: p.Samples, Data: data[p.Head:p.Size()]})
			data = data[p.Size():]
		}
	}
	return all
}

// fmp4 returns the track as a file of fragments.
func (s *stored) fmp4() []byte { return append(Init(s.Track), bytes.Join(s.segments, nil)...) }

// render returns the file that a layout describes.
func render(t testing.TB, l Layout, tracks ...stored) []byte {
	t.Helper()
	file := bytes.Clone(l.Head)
	for _, e := range l.Extents {
		if e.At != int64(len(file)) {
			t.Fatalf("extent %+v stands at byte %d", e, len(file))
		}
		if e.Bytes != nil {
			file = append(file, e.Bytes...)
			continue
		}
		file = append(file, tracks[e.Track].segments[e.Segment][e.Offset:e.Offset+e.Length]...)
	}
	if l.Size != int64(len(file)) {
		t.Fatalf("size = %d, want %d", l.Size, len(file))
	}
	return file
}

// digest is the hash of a sample as ffprobe writes it.
func digest(b []byte) string { return fmt.Sprintf("MD5:%x", md5.Sum(b)) }
