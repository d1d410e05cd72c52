package vod

import (
	"bytes"
	"context"
	"math"
	"slices"
	"time"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/publish"
	"weir/internal/weir"
)

// ResultTracks returns the tracks of a plan, from the results so far, in any order. Chunks count up to
// the first missing one.
func (e Engine) ResultTracks(ctx context.Context, plan Plan, chunks []ChunkResult, audios []RenditionResult) (video, audio []publish.Track, err error) {
	ordered := make([]*ChunkResult, len(plan.Chunks))
	for i := range chunks {
		if n := chunks[i].Chunk; n >= 0 && n < len(ordered) {
			ordered[n] = &chunks[i]
		}
	}
	done := 0
	for done < len(ordered) && ordered[done] != nil {
		done++
	}
	for _, r := range plan.Renditions {
		t := plan.track(r.Name, r.Dir)
		t.Samples = plan.totalFrames(r)
		t.FPS = r.rateIn(plan).Float()
		if r.Copy {
			track, err := media.Open(ctx, e.Store, t.Prefix)
			if err != nil {
				return nil, nil, err
			}
			t.Index, t.Complete = track.Index(), true
		} else {
			for _, result := range ordered[:done] {
				if err := addResults(&t, result.Renditions); err != nil {
					return nil, nil, err
				}
			}
			t.Complete = done == len(ordered)
		}
		video = append(video, t)
	}
	for k, track := range plan.Audio {
		t := plan.track(track.Name, track.Name)
		t.Samples = audioPackets(plan, k)
		if i := slices.IndexFunc(audios, func(r RenditionResult) bool { return r.Name == track.Name }); i >= 0 {
			if err := addResults(&t, audios[i:i+1]); err != nil {
				return nil, nil, err
			}
			t.Complete = true
		}
		audio = append(audio, t)
	}
	// A track may turn out to be empty.
	return video, slices.DeleteFunc(audio, func(t publish.Track) bool { return t.Complete && len(t.Index.Segments) == 0 }), nil
}

func (p *Plan) track(name, dir string) publish.Track {
	return publish.Track{Name: name, Prefix: p.Prefix + "/" + dir, Length: time.Duration(p.Source.Duration * float64(time.Second))}
}

// addResults appends the segments of the result that has the name of the track.
func addResults(t *publish.Track, results []RenditionResult) error {
	for _, r := range results {
		if r.Name != t.Name {
			continue
		}
		segments, err := r.segments()
		if err != nil {
			return err
		}
		if len(t.Index.Segments) == 0 {
			t.Index.Track = r.Track
		}
		if !bytes.Equal(r.Track.Entry, t.Index.Track.Entry) || r.Track.Timescale != t.Index.Track.Timescale {
			return weir.Errorf(weir.Internal, "internal error processing file: the chunks of %s have different codec parameters", t.Name)
		}
		if n := len(t.Index.Segments); t.Index.FolderOf(n) != r.Folder {
			t.Index.Folders = append(t.Index.Folders, cmaf.Folder{First: n, Name: r.Folder})
		}
		t.Index.Segments = append(t.Index.Segments, segments...)
	}
	return nil
}

// audioPackets bounds the number of packets of an audio track of a plan.
func audioPackets(plan Plan, k int) int {
	const packet = 1024 // samples in a packet of AAC
	hertz := max(plan.Source.Audio[k].Track.SampleRate, 48_000)
	return int(math.Ceil((plan.Source.Duration+1)*float64(hertz)/packet)) + 16
}

// CheckFrames returns an error if a rendition is incomplete or has another number of frames than
// planned.
func CheckFrames(plan Plan, video []publish.Track) error {
	for _, r := range plan.Renditions {
		i := slices.IndexFunc(video, func(t publish.Track) bool { return t.Name == r.Name })
		if i < 0 || !video[i].Complete {
			return weir.Errorf(weir.Internal, "rendition %s is not complete", r.Name)
		}
		want, got := plan.totalFrames(r), video[i].Index.Frames()
		if plan.Source.Sequential == "" && got != want {
			return weir.Errorf(weir.Internal, "internal error processing file: rendition %s has %d frames, expected %d", r.Name, got, want)
		}
	}
	return nil
}
