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

// Streams returns the tracks of a plan, from the results so far, in any order. Chunks count up to
// the first missing one.
func (e Engine) Streams(ctx context.Context, plan Plan, chunks []ChunkResult, audios []RenditionResult) (video, audio []publish.Stream, err error) {
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
		s := plan.stream(r.Name, r.Dir)
		s.Samples = plan.totalFrames(r)
		s.FPS = r.rateIn(plan).Float()
		if r.Copy {
			track, err := media.Open(ctx, e.Store, s.Prefix)
			if err != nil {
				return nil, nil, err
			}
			s.Index, s.Complete = track.Index(), true
		} else {
			for _, result := range ordered[:done] {
				if err := addResults(&s, result.Renditions); err != nil {
					return nil, nil, err
				}
			}
			s.Complete = done == len(ordered)
		}
		video = append(video, s)
	}
	for k, track := range plan.Audio {
		s := plan.stream(track.Name, track.Name)
		s.Samples = audioPackets(plan, k)
		if i := slices.IndexFunc(audios, func(r RenditionResult) bool { return r.Name == track.Name }); i >= 0 {
			if err := addResults(&s, audios[i:i+1]); err != nil {
				return nil, nil, err
			}
			s.Complete = true
		}
		audio = append(audio, s)
	}
	// A track may turn out to be empty.
	return video, slices.DeleteFunc(audio, func(s publish.Stream) bool { return s.Complete && len(s.Index.Segments) == 0 }), nil
}

func (p *Plan) stream(name, dir string) publish.Stream {
	return publish.Stream{Name: name, Prefix: p.Prefix + "/" + dir, Length: time.Duration(p.Source.Duration * float64(time.Second))}
}

// addResults appends the segments of the result that has the stream's name.
func addResults(s *publish.Stream, results []RenditionResult) error {
	for _, r := range results {
		if r.Name != s.Name {
			continue
		}
		segments, err := r.segments()
		if err != nil {
			return err
		}
		if len(s.Index.Segments) == 0 {
			s.Index.Track = r.Track
		}
		if !bytes.Equal(r.Track.Entry, s.Index.Track.Entry) || r.Track.Timescale != s.Index.Track.Timescale {
			return weir.Errorf(weir.Internal, "internal error processing file: the pieces of %s do not fit together", s.Name)
		}
		if n := len(s.Index.Segments); s.Index.FolderOf(n) != r.Folder {
			s.Index.Folders = append(s.Index.Folders, cmaf.Folder{First: n, Name: r.Folder})
		}
		s.Index.Segments = append(s.Index.Segments, segments...)
	}
	return nil
}

// audioPackets bounds the number of packets of an audio track of a plan.
func audioPackets(plan Plan, k int) int {
	const packet = 1024 // samples in a packet of AAC
	hertz := max(plan.Source.Audio[k].Stream.SampleRate, 48_000)
	return int(math.Ceil((plan.Source.Duration+1)*float64(hertz)/packet)) + 16
}

// CheckFrames returns an error if a rendition is incomplete or has another number of frames than
// planned.
func CheckFrames(plan Plan, video []publish.Stream) error {
	for _, r := range plan.Renditions {
		i := slices.IndexFunc(video, func(s publish.Stream) bool { return s.Name == r.Name })
		if i < 0 || !video[i].Complete {
			return weir.Errorf(weir.Internal, "rendition %s is not complete", r.Name)
		}
		want, got := plan.totalFrames(r), video[i].Index.Frames()
		if plan.Source.Sequential == "" && got != want {
			return weir.Errorf(weir.Internal, "internal error processing file: rendition %s has %d frames, %d were expected", r.Name, got, want)
		}
	}
	return nil
}
