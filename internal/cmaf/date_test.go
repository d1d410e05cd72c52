package cmaf

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/Eyevinn/mp4ff/mp4"
)

// Shaka lines the decode times of segments up with their dates, each track by itself. So
// for audio and video to stay together, the two must be equally far apart in all tracks.
func TestDatesGoWithDecodeTimes(t *testing.T) {
	zero := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) // of the timeline
	name := func(int64) string { return "x" }
	playlists := map[string]func(*bytes.Buffer, Segment, Track) error{
		"live": func(w *bytes.Buffer, s Segment, track Track) error {
			return LivePlaylist(w, LiveWindow{Track: track, Segments: []Segment{s}, Inits: []int{0}}, LiveOptions{Low: true})
		},
		"event": func(w *bytes.Buffer, s Segment, track Track) error {
			var list EventPlaylist
			list.Add(0, s, 0, track)
			_, err := w.Write(list.Text(0, 0, time.Second, true))
			return err
		},
		"stored": func(w *bytes.Buffer, s Segment, track Track) error {
			return MediaPlaylist(w, PlaylistOptions{Type: VOD, Name: name, Init: name, Ended: true}, []Segment{s}, track)
		},
		"changed": func(w *bytes.Buffer, s Segment, track Track) error {
			old := track
			old.Delay = 0
			return MediaPlaylist(w, PlaylistOptions{Type: VOD, Name: name, Init: name, TrackOf: func(int64) Track { return track }}, []Segment{s}, old)
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
				var text bytes.Buffer
				if err := write(&text, segment, track); err != nil {
					t.Fatal(err)
				}
				_, date, _ := strings.Cut(text.String(), "#EXT-X-PROGRAM-DATE-TIME:")
				date, _, _ = strings.Cut(date, "\n")
				got, err := time.Parse(time.RFC3339, date)
				if err != nil {
					t.Fatalf("%v in:\n%s", err, &text)
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
	var text bytes.Buffer
	segment := Segment{Parts: []Part{{Samples: []Sample{{Duration: 90000, Size: 1}}}}, Wall: zero}
	if err := MediaPlaylist(&text, PlaylistOptions{Name: name}, []Segment{segment}, Track{Kind: Video, Timescale: 90000, Delay: 12000}); err != nil {
		t.Fatal(err)
	}
	if want := "#EXT-X-PROGRAM-DATE-TIME:2026-01-02T03:04:05.000Z\n"; !strings.Contains(text.String(), want) {
		t.Errorf("there is no %s in:\n%s", want, &text)
	}
}
