package vod

import (
	"bytes"
	endian "encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/e2e/harness"
)

// outputs checks what was made of a video, file by file, with programs that others
// wrote: ffmpeg, ffprobe, mediainfo, and mp4box.js and mux.js (player/parse.mjs).
type outputs struct {
	t       *testing.T
	dir     string  // that paths of outputs are in
	frames  int     // of the source
	seconds float64 // that its pictures last
	scratch string
	parse   []parseJob
	info    []string // files for mediainfo
}

func newOutputs(t *testing.T, dir string, frames int, seconds float64) *outputs {
	t.Helper()
	return &outputs{t: t, dir: dir, frames: frames, seconds: seconds, scratch: t.TempDir()}
}

// parseJob is a file that player/parse.mjs shall parse, and what it must find.
type parseJob struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind"` // ts, mp4 or cmaf
	Parts  []string `json:"parts"`
	codec  string   // of the picture; "" = there is none
	audio  bool
	frames int
}

// hls checks a master playlist and everything below it. What it returns is the
// names of the codecs, in the order of the playlist.
func (o *outputs) hls(master string) (codecs []string) {
	o.t.Helper()
	list := harness.ReadMaster(o.t, o.dir, master)
	if !list.Independent {
		o.t.Errorf("%s does not say that segments are independent", master)
	}
	for _, audio := range list.Audio {
		o.media(audio, nil, false)
	}
	for _, v := range list.Variants {
		o.media(v.Uri, &v, list.Audio[v.Audio] == "")
		codecs = append(codecs, v.Codecs)
	}
	return codecs
}

// media checks a media playlist and its segments against the line v that names it,
// which is nil for a playlist of audio. Muxed says that the audio is in the
// segments of the picture.
func (o *outputs) media(name string, v *harness.Variant, muxed bool) {
	o.t.Helper()
	list := readMedia(o.t, o.dir, name)
	if !list.Ended {
		o.t.Errorf("%s has no end", name)
	}
	job := parseJob{Name: name, Kind: "ts", frames: o.frames, audio: v == nil || muxed}
	var init []byte
	if list.Init != nil {
		init = o.cut(*list.Init)
		job.Kind, job.Parts = "cmaf", []string{o.writeFile(name, "init", init)}
	}
	var at, first, rate float64 // where the next segment must start, from the start of the first
	for i, s := range list.Segments {
		data := o.cut(s.ByteRange)
		part := o.writeFile(name, fmt.Sprint(i), data)
		job.Parts = append(job.Parts, part)
		if init != nil {
			part = o.writeFile(name, fmt.Sprint(i, ".mp4"), append(slices.Clone(init), data...))
		}
		start, end, codec := o.segment(part, v != nil)
		if i == 0 {
			first, job.codec = start, codec
		}
		if drift := start - first - at; math.Abs(drift) > drifted {
			o.t.Errorf("%s: segment %d starts %.4f s from where the playlist says", name, i, drift)
		}
		allowed := drifted
		if v == nil && i == len(list.Segments)-1 {
			allowed = audioPacket // the last one may be shown in part
		}
		if drift := end - first - at - s.Seconds; math.Abs(drift) > allowed {
			o.t.Errorf("%s: segment %d lasts %.4f s longer than the playlist says", name, i, drift)
		}
		if math.Round(s.Seconds) > list.Target {
			o.t.Errorf("%s: segment %d is longer than the target of %.0f s", name, i, list.Target)
		}
		at += s.Seconds
		rate = max(rate, float64(len(data))*8/s.Seconds)
	}
	if v != nil && math.Abs(at-o.seconds) > drifted {
		o.t.Errorf("%s lasts %.4f s, want %.4f", name, at, o.seconds)
	}
	o.parse = append(o.parse, job)
	if v == nil {
		harness.FFmpeg(o.t, "-allowed_extensions", "ALL", "-i", filepath.Join(o.dir, name), "-map", "0:a", "-f", "null", "-")
		return
	}
	o.variant(name, *v, job, rate)
}

const (
	drifted     = 0.001          // how far the times of a playlist may be off, in seconds
	audioPacket = 1024 / 44100.0 // how long a packet of audio is at most
)

// variant checks the line of a master playlist against what is in the segments.
func (o *outputs) variant(name string, v harness.Variant, job parseJob, rate float64) {
	o.t.Helper()
	if got := len(harness.FrameSums(o.t, filepath.Join(o.dir, name), "-allowed_extensions", "ALL")); got != o.frames {
		o.t.Errorf("%s: %d frames, want %d", name, got, o.frames)
	}
	file := job.Parts[0]
	if job.Kind == "cmaf" {
		file = filepath.Join(filepath.Dir(file), "0.mp4")
	}
	for _, s := range harness.FFprobe(o.t, file).Streams {
		if s.Type == "video" && v.Resolution != fmt.Sprintf("%dx%d", s.Width, s.Height) {
			o.t.Errorf("%s: the master says %s, it is %dx%d", name, v.Resolution, s.Width, s.Height)
		}
	}
	if !strings.HasPrefix(v.Codecs, job.codec) {
		o.t.Errorf("%s: the master says %s, the stream is %s", name, v.Codecs, job.codec)
	}
	if v.Bandwidth < math.Floor(rate) || v.Average <= 0 || v.Average > v.Bandwidth {
		o.t.Errorf("%s: BANDWIDTH %.0f, AVERAGE-BANDWIDTH %.0f, but a segment has %.0f", name, v.Bandwidth, v.Average, rate)
	}
	if want := float64(o.frames) / o.seconds; math.Abs(v.FrameRate-want) > 0.01 {
		o.t.Errorf("%s: FRAME-RATE %.3f, want %.3f", name, v.FrameRate, want)
	}
}

// segment looks at a segment that can be read by itself: it must start with a frame
// that needs no other. It returns its time span, and for H.264 the codec with profile
// and level, else its start.
func (o *outputs) segment(file string, video bool) (start, end float64, codec string) {
	o.t.Helper()
	kind := "audio"
	if video {
		kind = "video"
	}
	p := harness.FFprobe(o.t, file, "-show_packets")
	start, end = math.Inf(1), math.Inf(-1)
	for i, packet := range p.Packets {
		if packet.Type != kind {
			continue
		}
		if math.IsInf(start, 1) && !packet.Key() {
			o.t.Errorf("%s: packet %d, the first of the %s, is no key frame", file, i, kind)
		}
		start = min(start, packet.Time())
		end = max(end, packet.Time()+harness.Number(packet.Duration))
	}
	if !video {
		return start, end, ""
	}
	for _, s := range p.Streams {
		switch s.Codec {
		case "h264":
			return start, end, firstH264(o.t, file)
		case "hevc":
			firstHEVC(o.t, file)
			return start, end, "hvc1."
		case "vp9":
			return start, end, "vp09.00."
		case "av1":
			return start, end, "av01.0."
		}
	}
	o.t.Fatalf("%s: no picture: %+v", file, p.Streams)
	return 0, 0, ""
}

// firstH264 checks that the first picture is an IDR, and returns the codec as
// playlists name it.
func firstH264(t *testing.T, file string) string {
	t.Helper()
	codec := ""
	for _, nal := range bytes.Split(harness.FFmpeg(t, "-i", file, "-map", "0:v", "-c", "copy", "-frames:v", "1", "-f", "h264", "-"), []byte{0, 0, 1}) {
		if len(nal) < 4 {
			continue
		}
		switch kind := nal[0] & 0x1f; kind {
		case 7:
			codec = fmt.Sprintf("avc1.%02x%02x%02x", nal[1], nal[2], nal[3])
		case 1, 2, 3, 4:
			t.Errorf("%s: the first picture has a NAL unit of type %d, want an IDR", file, kind)
			return codec
		case 5:
			return codec
		}
	}
	t.Errorf("%s: no picture", file)
	return codec
}

// firstHEVC checks that the first picture is an IDR.
func firstHEVC(t *testing.T, file string) {
	t.Helper()
	for _, nal := range bytes.Split(harness.FFmpeg(t, "-i", file, "-map", "0:v", "-c", "copy", "-frames:v", "1", "-f", "hevc", "-"), []byte{0, 0, 1}) {
		if len(nal) < 2 {
			continue
		}
		if kind := nal[0] >> 1 & 0x3f; kind < 32 {
			if kind != 19 && kind != 20 {
				t.Errorf("%s: the first picture has a NAL unit of type %d, want an IDR", file, kind)
			}
			return
		}
	}
	t.Errorf("%s: no picture", file)
}

// cut returns the bytes that a playlist names.
func (o *outputs) cut(r harness.ByteRange) []byte {
	o.t.Helper()
	data, err := os.ReadFile(filepath.Join(o.dir, r.Uri))
	if err != nil {
		o.t.Fatal(err)
	}
	if r.Length > 0 {
		if r.Offset+r.Length > int64(len(data)) {
			o.t.Fatalf("bytes %d to %d of %s, which has %d", r.Offset, r.Offset+r.Length, r.Uri, len(data))
		}
		data = data[r.Offset : r.Offset+r.Length]
	}
	return data
}

// writeFile writes a part of an output to a file of its own.
func (o *outputs) writeFile(playlist, name string, data []byte) string {
	o.t.Helper()
	file := filepath.Join(o.scratch, strings.ReplaceAll(playlist, "/", "_"), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		o.t.Fatal(err)
	}
	return file
}

// mp4 checks a file that plays while it is being loaded.
func (o *outputs) mp4(name, codec string, audio bool) {
	o.t.Helper()
	file := filepath.Join(o.dir, name)
	if boxes := topBoxes(o.t, file); slices.Index(boxes, "moov") > slices.Index(boxes, "mdat") || !slices.Contains(boxes, "moov") {
		o.t.Errorf("%s: the boxes are %v, want moov before mdat", name, boxes)
	}
	if got := len(harness.FrameSums(o.t, file)); got != o.frames {
		o.t.Errorf("%s: %d frames, want %d", name, got, o.frames)
	}
	p := harness.FFprobe(o.t, file)
	for _, s := range p.Streams {
		if s.Type == "video" && math.Abs(harness.Number(s.Duration)-o.seconds) > 0.001 {
			o.t.Errorf("%s: the picture lasts %s s, want %.3f", name, s.Duration, o.seconds)
		}
		if start := harness.Number(s.StartTime); math.Abs(start) > 0.03 {
			o.t.Errorf("%s: the %s starts at %s", name, s.Type, s.StartTime)
		}
	}
	o.parse = append(o.parse, parseJob{Name: name, Kind: "mp4", Parts: []string{file}, codec: codec, audio: audio, frames: o.frames})
	o.info = append(o.info, file)
}

// fragmented checks a single file with fragments.
func (o *outputs) fragmented(name, codec string) {
	o.t.Helper()
	file := filepath.Join(o.dir, name)
	if boxes := topBoxes(o.t, file); len(boxes) < 5 || !slices.Equal(boxes[:3], []string{"ftyp", "moov", "sidx"}) {
		o.t.Errorf("%s: the boxes are %v", name, boxes)
	}
	if codec != "" {
		if got := len(harness.FrameSums(o.t, file)); got != o.frames {
			o.t.Errorf("%s: %d frames, want %d", name, got, o.frames)
		}
	}
	for _, s := range harness.FFprobe(o.t, file).Streams {
		if math.Abs(harness.Number(s.StartTime)) > drifted || math.Abs(harness.Number(s.Duration)-o.seconds) > 2*audioPacket {
			o.t.Errorf("%s: the %s starts at %s and lasts %s s, want 0 and %.3f", name, s.Type, s.StartTime, s.Duration, o.seconds)
		}
	}
	o.parse = append(o.parse, parseJob{Name: name, Kind: "mp4", Parts: []string{file}, codec: codec, audio: codec == "", frames: o.frames})
	o.info = append(o.info, file)
}

// topBoxes returns the names of the outermost boxes of an MP4 file.
func topBoxes(t *testing.T, file string) (names []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for len(data) >= 8 {
		size := uint64(endian.BigEndian.Uint32(data))
		if size == 1 {
			size = endian.BigEndian.Uint64(data[8:])
		}
		names = append(names, string(data[4:8]))
		if size < 8 || size > uint64(len(data)) {
			t.Fatalf("%s: box %s of %d bytes, %d are left", file, names[len(names)-1], size, len(data))
		}
		data = data[size:]
	}
	return names
}

// runParsers lets the parsers look at everything that was collected.
func (o *outputs) runParsers() {
	o.t.Helper()
	input, err := json.Marshal(map[string]any{"files": o.parse})
	if err != nil {
		o.t.Fatal(err)
	}
	cmd := exec.CommandContext(o.t.Context(), "node", "parse.mjs")
	cmd.Dir, cmd.Stdin = "../player", bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		o.t.Fatalf("parse.mjs: %v\n%s", err, &stderr)
	}
	var results []parsed
	if err := json.Unmarshal(out, &results); err != nil || len(results) != len(o.parse) {
		o.t.Fatalf("parse.mjs: %v\n%s", err, out)
	}
	for i, job := range o.parse {
		results[i].check(o.t, job)
	}
	o.mediainfo()
}

// parsed is what player/parse.mjs says of a file.
type parsed struct {
	Warnings []string
	MP4Box   *struct {
		Tracks []struct {
			Type, Codec string
			Samples     int
			FirstIsSync bool
		}
	}
	MuxJS *struct{ Tracks, Samples int }
	TS    *struct {
		Found struct{ Video, Audio int }
	}
}

func (p parsed) check(t *testing.T, job parseJob) {
	t.Helper()
	if len(p.Warnings) > 0 {
		t.Errorf("%s: mp4box.js or mux.js says: %s", job.Name, strings.Join(p.Warnings, "\n"))
		return
	}
	if job.Kind == "ts" {
		if p.TS.Found.Video != job.frames || (p.TS.Found.Audio > 0) != job.audio {
			t.Errorf("%s: mux.js finds %+v, want %d frames and sound %v", job.Name, p.TS.Found, job.frames, job.audio)
		}
		return
	}
	var picture, audio bool
	fragments := 0
	for _, track := range p.MP4Box.Tracks {
		fragments += track.Samples
		switch track.Type {
		case "video":
			picture = true
			if track.Samples != job.frames || !strings.HasPrefix(job.codec, track.Codec) && !strings.HasPrefix(track.Codec, job.codec) || !track.FirstIsSync {
				t.Errorf("%s: mp4box.js finds %+v, want %d frames of %s", job.Name, track, job.frames, job.codec)
			}
		case "audio":
			audio = true
			if track.Codec != "mp4a.40.2" || track.Samples == 0 {
				t.Errorf("%s: mp4box.js finds %+v", job.Name, track)
			}
		}
	}
	if picture != (job.codec != "") || audio != job.audio {
		t.Errorf("%s: mp4box.js finds %+v", job.Name, p.MP4Box.Tracks)
	}
	if p.MuxJS.Tracks != len(p.MP4Box.Tracks) || p.MuxJS.Samples > 0 && p.MuxJS.Samples != fragments {
		t.Errorf("%s: mux.js finds %+v, mp4box.js %+v", job.Name, *p.MuxJS, p.MP4Box.Tracks)
	}
}

// mediainfo looks at whole files.
func (o *outputs) mediainfo() {
	o.t.Helper()
	for _, job := range o.parse {
		if job.Kind == "ts" {
			o.info = append(o.info, job.Parts...)
		}
	}
	for _, file := range o.info {
		out, err := exec.CommandContext(o.t.Context(), "mediainfo", "--Output=JSON", "--Full", file).Output()
		if err != nil {
			o.t.Fatalf("mediainfo: %v", err)
		}
		var info struct {
			Media struct {
				Track []map[string]any `json:"track"`
			} `json:"media"`
		}
		if err := json.Unmarshal(out, &info); err != nil {
			o.t.Fatal(err)
		}
		if len(info.Media.Track) < 2 {
			o.t.Errorf("%s: mediainfo finds nothing in it:\n%s", file, out)
		}
		for _, complaint := range []string{"ConformanceErrors", "ConformanceWarnings", "IsTruncated", "Error"} {
			if bytes.Contains(out, []byte(`"`+complaint)) {
				o.t.Errorf("%s: mediainfo says %s:\n%s", file, complaint, out)
			}
		}
	}
}
