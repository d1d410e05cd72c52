package vod

import (
	"fmt"

	"weir/internal/ffmpeg"
)

// maxWarnings bounds the number of warnings about a source.
const maxWarnings = 10

// Warnings returns sentences about what is missing in the outputs: text that could not be imported, and
// damage that was found when the source was decoded. Renditions that are copied are not decoded.
func Warnings(plan Plan, chunks []ChunkResult, audio []RenditionResult) []string {
	var warnings []string
	warn := func(format string, args ...any) {
		if len(warnings) < maxWarnings {
			warnings = append(warnings, fmt.Sprintf(format, args...))
		}
	}
	for _, sentence := range plan.Source.Unread {
		warn("%s", sentence)
	}
	if plan.Source.Damage.Errors > 0 {
		warn("the container of the file is damaged; parts of its video or audio may be missing in the output")
	}
	var video ffmpeg.Damage
	for _, chunk := range chunks {
		video.Add(chunk.Damage)
	}
	// How many frames is not known well: decoders with several threads report only some of them.
	switch {
	case video.Frames+video.Packets > 0:
		warn("some frames of the video could not be decoded properly; they are missing or damaged in the output")
	case video.Errors > 0:
		warn("the video has errors that its decoder could not repair; frames may be damaged in the output")
	}
	for _, track := range audio {
		name := "the audio"
		if len(audio) > 1 {
			name = "the audio track " + track.Name
		}
		if track.Damage != (ffmpeg.Damage{}) {
			warn("parts of %s could not be decoded; they are silent or damaged in the output", name)
		}
	}
	return warnings
}
