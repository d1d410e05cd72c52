package vod

import (
	"bytes"
	"context"
	"math"
	"slices"
	"time"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/weir"
)

// Stream is a track of the outcome as far as there is something of it, from the
// start and without gaps.
type Stream struct {
	Name     string          // of the rendition, or audio<k>; also the name of its folder in outputs
	Prefix   string          // where its segments lie in the working storage
	Index    cmaf.TrackIndex // what there is
	Complete bool            // nothing comes after it
	FPS      float64         // frames a second on average; 0 = not known

	// What it will be at most; counts while it is not complete.
	Samples int
	Length  time.Duration
}

func (s Stream) incomplete() bool { return !s.Complete }

// Streams returns the tracks of a plan as far as the results go. Results may come in
// any order; of chunks only those count before which none is missing.
func (e Engine) Streams(ctx context.Context, plan Plan, chunks []ChunkResult, audios []RenditionResult) (video, audio []Stream, err error) {
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
		s.FPS = framesPerSecond(plan, r)
		if r.Copy {
			track, err := media.Open(ctx, e.Store, s.Prefix)
			if err != nil {
				return nil, nil, err
			}
			s.Index, s.Complete = track.Index(), true
		} else {
			for _, result := range ordered[:done] {
				if err := s.add(result.Renditions); err != nil {
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
			if err := s.add(audios[i : i+1]); err != nil {
				return nil, nil, err
			}
			s.Complete = true
		}
		audio = append(audio, s)
	}
	return video, withAudio(audio), nil
}

func (p *Plan) stream(name, dir string) Stream {
	return Stream{Name: name, Prefix: p.Prefix + "/" + dir, Length: time.Duration(p.Source.Duration * float64(time.Second))}
}

// add appends the segments of the result that has the stream's name.
func (s *Stream) add(results []RenditionResult) error {
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
		s.Index.Segments = append(s.Index.Segments, segments...)
	}
	return nil
}

// withAudio leaves out audio tracks in which there turned out to be nothing.
func withAudio(audio []Stream) []Stream {
	return slices.DeleteFunc(audio, func(s Stream) bool { return s.Complete && len(s.Index.Segments) == 0 })
}

func framesPerSecond(plan Plan, r Rendition) float64 {
	rate := r.Rate
	if !r.converts() {
		rate = plan.Rate
	}
	if rate.Num <= 0 || rate.Den <= 0 {
		return 0
	}
	return float64(rate.Num) / float64(rate.Den)
}

// audioPackets returns how many packets an audio track of a plan has at most.
func audioPackets(plan Plan, k int) int {
	const packet = 1024 // samples in a packet of AAC
	hertz := max(plan.Source.Audio[k].Stream.SampleRate, 48_000)
	return int(math.Ceil((plan.Source.Duration+1)*float64(hertz)/packet)) + 16
}

// CheckFrames compares complete renditions with the plan: a result with another
// number of frames than the source is no result.
func CheckFrames(plan Plan, video []Stream) error {
	for _, r := range plan.Renditions {
		i := slices.IndexFunc(video, func(s Stream) bool { return s.Name == r.Name })
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
