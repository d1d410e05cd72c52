package cmaf

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/Eyevinn/mp4ff/mp4"

	"weir/internal/hls"
)

// Shaka lines the decode times of segments up with their dates, each track by itself. So
// for audio and video to stay together, the two must be equally far apart in all tracks.
func TestDatesGoWithDecodeTimes(t *testing.T) {
	zero := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) // of the timeline
	name := constant("x")
	playlists := map[string]func(Segment, Track) []byte{
		"live": func(s Segment, track Track) []byte {
			return []byte(LiveWindow{Segments: []Segment{s}, Tracks: []Track{track}, Inits: []int{0}, Low: true}.text(t))
		},
		"event": func(s Segment, track Track) []byte {
			var list hls.Entries
			list.Add(LiveEntry(0, s, track, 0))
			return hls.Media{Type: hls.Event, Target: time.Second, Ended: true}.TextWith(&list)
		},
		"stored": func(s Segment, track Track) []byte {
			return vod(TrackIndex{Track: track, Segments: []Segment{s}}, name, name).Text()
		},
		"changed": func(s Segment, track Track) []byte {
			old := track
			old.Delay = 0
			return vod(TrackIndex{Track: old, Segments: []Segment{s}, Changes: []Change{{Track: track}}}, name, name).Text()
		},
	}
	for kind, write := range playlists {
		t.Run(kind, func(t *testing.T) {
			for _, track := range []Track{
				{Kind: Video, Timescale: 90000, Delay: 12000},
				{Kind: Video, Timescale: 90000},
				{Kind: Audio, Timescale: 48000},
			} {
				samples := []Sample{{Duration: track.Timescale, Offset: int32(-track.Delay / 2), Size: 1, Sync: true}}
				part, data := EncodePart(1, track, Fragment{Start: 3 * int64(track.Timescale), Samples: samples, Data: []byte{1}})
				segment := Segment{Parts: []Part{part}, Wall: zero.Add(3 * time.Second)}
				text := string(write(segment, track))
				_, date, _ := strings.Cut(text, "#EXT-X-PROGRAM-DATE-TIME:")
				date, _, _ = strings.Cut(date, "\n")
				got, err := time.Parse(time.RFC3339, date)
				if err != nil {
					t.Fatalf("%v in:\n%s", err, text)
				}
				file, err := mp4.DecodeFile(bytes.NewReader(append(Init(Track{Kind: track.Kind, Timescale: track.Timescale, Entry: entryOf(track.Kind)}), data...)))
				if err != nil {
					t.Fatal(err)
				}
				decoded := track.Time(int64(file.Segments[0].Fragments[0].Moof.Traf.Tfdt.BaseMediaDecodeTime()))
				if want := zero.Add(decoded - Lead); got.Sub(want).Abs() > time.Millisecond {
					t.Errorf("%s with a delay of %d ticks is decoded at %v, its date is %v", track.Kind, track.Delay, want, got)
				}
			}
		})
	}

	// In MPEG-TS, players look for the first time at which something is shown.
	segment := Segment{Parts: []Part{{Samples: []Sample{{Duration: 90000, Size: 1}}}}, Wall: zero}
	text := string(vod(TrackIndex{Track: Track{Kind: Video, Timescale: 90000, Delay: 12000}, Segments: []Segment{segment}}, name, nil).Text())
	if want := "#EXT-X-PROGRAM-DATE-TIME:2026-01-02T03:04:05.000Z\n"; !strings.Contains(text, want) {
		t.Errorf("there is no %s in:\n%s", want, text)
	}
}
