package cmaf

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/hls"
	"weir/internal/weir"
)

// The connections of an encoder, as they follow one another in a recording.
const (
	firstCoding  = videoInput + " " + audio + " -c:v libx264 -preset veryfast -bf 3 -g 25 -pix_fmt yuv420p -video_track_timescale 90000 -c:a aac"
	otherCoding  = videoInput + " " + audio + " -c:v libx264 -preset ultrafast -bf 0 -g 25 -pix_fmt yuv420p -video_track_timescale 90000 -c:a aac"
	largerCoding = "-f lavfi -i testsrc2=s=320x180:r=25:d=3 " + audio + " -c:v libx264 -preset ultrafast -g 25 -pix_fmt yuv420p -video_track_timescale 90000 -c:a aac"
	hevcCoding   = videoInput + " " + audio + " -c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=25:bframes=0 -pix_fmt yuv420p -tag:v hvc1 -video_track_timescale 90000 -c:a aac"
	otherHEVC    = videoInput + " " + audio + " -c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=25:bframes=0:sao=0:deblock=1 -pix_fmt yuv420p -tag:v hvc1 -video_track_timescale 90000 -c:a aac"
	distinctIDs  = videoInput + " " + audio + " -c:v libx264 -preset ultrafast -profile:v high -bf 0 -g 25 -pix_fmt yuv420p -x264-params sps-id=31 -video_track_timescale 90000 -c:a aac"
	otherAudio   = videoInput + " -f lavfi -i sine=440:r=48000:d=3 -c:v libx264 -preset veryfast -bf 3 -g 25 -pix_fmt yuv420p -video_track_timescale 90000 -c:a aac"
)

// connected returns tracks that were recorded of connections with the given codings, one
// every minute.
func connected(t *testing.T, options ...string) []stored {
	t.Helper()
	var all []stored
	for i, o := range options {
		for k, track := range store(t, generate(t, o)) {
			track = moved(track, 60*float64(i))
			if i == 0 {
				all = append(all, track)
				continue
			}
			to := &all[k]
			if last := to.TrackOf(len(to.Segments)); !bytes.Equal(last.Entry, track.Track.Entry) || last.Delay != track.Track.Delay {
				to.Changes = append(to.Changes, Change{First: len(to.Segments), Track: track.Track})
			}
			track.Segments[0].Discontinuity = true
			to.Segments, to.segments = append(to.Segments, track.Segments...), append(to.segments, track.segments...)
		}
	}
	return all
}

func TestTracksChange(t *testing.T) {
	all := connected(t, firstCoding, otherCoding, firstCoding)
	video, audio := all[0], all[1]
	if len(video.Changes) != 2 || len(audio.Changes) != 0 {
		t.Fatalf("%d and %d changes, want 2 and none", len(video.Changes), len(audio.Changes))
	}
	for n, want := range map[int]int{0: 0, 2: 0, 3: 1, 5: 1, 6: 2, 8: 2, 99: 2} {
		track, ok := video.Coded(want)
		if got := video.InitOf(n); got != want || !ok || !bytes.Equal(video.TrackOf(n).Entry, track.Entry) {
			t.Errorf("segment %d needs init segment %d, want %d", n, got, want)
		}
	}
	for _, k := range []int{-1, 3} {
		if _, ok := video.Coded(k); ok {
			t.Errorf("there is an init segment %d", k)
		}
	}
	// Each connection has three seconds; audio ends a little later than video.
	if got := Played(indices(all...)); got < 9*time.Second || got > 9300*time.Millisecond {
		t.Errorf("the duration is %v, want a little more than 9 s", got)
	}
	if got := Played(nil); got != 0 {
		t.Errorf("the duration of nothing is %v", got)
	}
}

// A recording of several connections is one file, without the gaps between them, and with
// every frame.
func TestProgressiveJoinsConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for name, codings := range map[string][]string{
		"same":  {firstCoding, firstCoding, firstCoding},
		"other": {firstCoding, otherCoding, firstCoding},
		"HEVC":  {hevcCoding, otherHEVC, otherHEVC, hevcCoding},
		"ids":   {firstCoding, distinctIDs, firstCoding},
	} {
		t.Run(name, func(t *testing.T) {
			all := connected(t, codings...)
			layout, err := Progressive(indices(all...), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, one := all[0].oneEntry(); one != (name == "same" || name == "ids") {
				t.Errorf("one sample entry has all parameter sets: %v", one)
			}
			file := writeFile(t, render(t, layout, all...))
			decode(t, file)
			// The frames of the connections are shown, one after the other.
			var want []string
			for _, coding := range codings {
				want = append(want, frameHashes(t, writeFile(t, generate(t, coding)))...)
			}
			if diff := cmp.Diff(want, frameHashes(t, file)); diff != "" {
				t.Errorf("other frames are shown (-want +got):\n%s", diff)
			}
			audio := packets(t, file, "a:0")
			if len(audio) != all[1].Frames() {
				t.Errorf("%d packets of audio, want %d", len(audio), all[1].Frames())
			}
			// Audio and video of a connection begin together.
			video, gap := packets(t, file, "v:0"), 0.0
			for i := range codings {
				v, a := seconds(t, video[i*len(video)/len(codings)].PTS), seconds(t, audio[i*len(audio)/len(codings)].PTS)
				gap = max(gap, math.Abs(v-a))
				if at := 3.1 * float64(i); v < 3*float64(i)-0.1 || v > at+0.2 {
					t.Errorf("connection %d begins at %v", i, v)
				}
			}
			if gap > 0.12 {
				t.Errorf("audio and video begin up to %v s apart", gap)
			}
		})
	}
}

// An encoder that is lost leaves a frame behind that is shown later than those which were
// to come before it. What the next encoder sends must come after that.
func TestProgressiveJoinsWhatBrokeOff(t *testing.T) {
	all := connected(t, firstCoding, firstCoding)[:1]
	video := &all[0]
	for _, last := range []int{2, 5} { // the segments that the connections end with
		parts := video.Segments[last].Parts
		broken := parts[1]
		for broken.Samples[len(broken.Samples)-1].Offset <= 0 {
			broken.Samples = broken.Samples[:len(broken.Samples)-1]
		}
		video.Segments[last].Parts = []Part{parts[0], broken}
	}
	layout, err := Progressive(indices(all...), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, render(t, layout, all...))
	decode(t, file)
	frames := packets(t, file, "v:0")
	first := 0 // frame of the second connection
	for _, s := range video.Segments[:3] {
		first += s.Frames()
	}
	if shown := len(shown(frames)); shown != video.Frames() || len(frameHashes(t, file)) != shown {
		t.Errorf("%d frames can be seen, want %d", shown, video.Frames())
	}
	before := 0.0
	for i, p := range frames {
		at := seconds(t, p.PTS)
		if i == first && at <= before {
			t.Errorf("the second connection begins at %v, the first one ends with a frame at %v", at, before)
		}
		before = max(before, at)
	}
}

// frameHashes returns the hashes of the frames that ffmpeg shows of a file.
func frameHashes(t *testing.T, file string) (sums []string) {
	t.Helper()
	for line := range strings.Lines(string(ffmpeg(t, "-i", file, "-map", "0:v", "-fps_mode", "passthrough", "-f", "framemd5", "-"))) {
		if !strings.HasPrefix(line, "#") {
			fields := strings.Split(strings.TrimSpace(line), ",")
			sums = append(sums, strings.TrimSpace(fields[len(fields)-1]))
		}
	}
	return sums
}

func TestProgressiveWantsOneForm(t *testing.T) {
	for name, codings := range map[string][]string{
		"another size":        {firstCoding, largerCoding},
		"another codec":       {firstCoding, hevcCoding},
		"another sample rate": {firstCoding, otherAudio},
	} {
		all := connected(t, codings...)
		_, err := Progressive(indices(all...), nil, 0)
		if weir.KindOf(err) != weir.Invalid || !strings.Contains(fmt.Sprint(err), "there is no MP4 file of this recording") {
			t.Errorf("%s: error %v, want one that says what changes", name, err)
		}
	}
}

// A list of a track that changes has an init segment for each coding, and lengths that
// follow its clock.
func TestPlaylistOfChanges(t *testing.T) {
	index := connected(t, firstCoding, otherAudio)[1].TrackIndex
	written := string(vod(index, numbered("m4s"), func(n int) string { return fmt.Sprintf("init-%d.mp4", index.InitOf(n)) }).Text())
	var event hls.Entries
	for n, s := range index.Segments {
		event.Add(LiveEntry(int64(n), s, index.TrackOf(n), index.InitOf(n)))
	}
	growing := strings.Replace(string(hls.Media{Type: hls.Event, Ended: true}.TextWith(&event)), "EVENT", "VOD", 1)
	if diff := cmp.Diff(growing, written); diff != "" {
		t.Errorf("the list that grew is another (-grown +written at once):\n%s", diff)
	}
	if n := strings.Count(written, "#EXT-X-MAP"); n != 2 || !strings.Contains(written, "#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"init-1.mp4\"") {
		t.Errorf("the change is not in the list:\n%s", written)
	}
	total := 0.0
	for line := range strings.Lines(written) {
		if length, ok := strings.CutPrefix(line, "#EXTINF:"); ok {
			total += seconds(t, strings.TrimSuffix(strings.TrimSpace(length), ","))
		}
	}
	if math.Abs(total-6) > 0.2 {
		t.Errorf("the segments last %v s, want about 6:\n%s", total, written)
	}
	list := hls.Media{Type: hls.Event, Sequence: 7, DiscontinuitySequence: 3, Target: 4 * time.Second}
	if open := string(list.TextWith(&event)); !strings.Contains(open, "TARGETDURATION:4\n") || !strings.Contains(open, "MEDIA-SEQUENCE:7\n") ||
		!strings.Contains(open, "DISCONTINUITY-SEQUENCE:3\n") || strings.Contains(open, "ENDLIST") {
		t.Errorf("a list that goes on:\n%s", open)
	}
}
