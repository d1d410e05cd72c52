package publish

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/c2pa"
	"weir/internal/hls"
)

// codeTrackMissing is a problem that the specification of C2PA has no code for.
const codeTrackMissing = "weir.track.missing"

// set returns what the tracks that belong together have in common: the manifest, or what it says.
func (r *Verified) set() string {
	if set := r.Manifest.Tracks.Set; set != "" {
		return set
	}
	return r.Manifest.ID
}

// named reports whether the manifest names the tracks.
func (r *Verified) named() bool { return r.Manifest != nil && r.Manifest.Tracks != nil }

// has reports whether the result is that of a track of its manifest.
func (r *Verified) has(t c2pa.NamedTrack) bool {
	if t.ID == 0 {
		return t.Name == r.Manifest.Tracks.File
	}
	return slices.Contains(r.tracks, t.ID)
}

// compare compares the tracks that a playlist names with those that were signed together. A master
// playlist must have all of them, a media playlist all parts of its own. more are problems that were
// found before.
func (v *verifier) compare(address string, master bool, more []c2pa.Problem) {
	missing := map[string]bool{} // what was said
	problems := more
	for i := range v.results {
		r := &v.results[i]
		if r.Manifest != nil && r.Manifest.Tracks == nil && master {
			r.Note = notCovered
		}
		if !r.named() {
			continue
		}
		for _, t := range r.Manifest.Tracks.All {
			wanted := master || slices.ContainsFunc(r.Manifest.Tracks.All, func(own c2pa.NamedTrack) bool { return own.Name == t.Name && r.has(own) })
			found := slices.ContainsFunc(v.results, func(other Verified) bool {
				return other.named() && other.set() == r.set() && other.has(t)
			})
			key := fmt.Sprint(r.set(), t)
			if !wanted || found || missing[key] {
				continue
			}
			missing[key] = true
			problems = append(problems, c2pa.Problem{Code: codeTrackMissing, Explanation: fmt.Sprintf("the playlist does not have the %s %q, which was signed with the rest", t.Kind, t.Name)})
		}
	}
	if len(problems) > 0 {
		v.results = append(v.results, Verified{Name: address, Report: c2pa.Report{State: c2pa.Invalid, Problems: problems}})
	}
}

// muted returns which video of a master playlist does not play with audio that was signed with it.
// The audio itself may be there.
func (v *verifier) muted(address string, master *hls.Master) (problems []c2pa.Problem) {
	for _, variant := range master.Variants {
		video, err := relative(address, variant.URI)
		if err != nil {
			continue // so its playlist was not read
		}
		var beside []string // playlists of its audio
		for _, a := range master.Audio {
			if uri, err := relative(address, a.URI); err == nil && a.Group == variant.Audio && a.URI != "" {
				beside = append(beside, uri)
			}
		}
		for i := range v.results {
			r := &v.results[i]
			shows := func(t c2pa.NamedTrack) bool { return t.Kind == "video" && r.has(t) }
			if !r.named() || r.playlist != video || !slices.ContainsFunc(r.Manifest.Tracks.All, shows) {
				continue
			}
			var without []string
			for _, t := range r.Manifest.Tracks.All {
				plays := func(other Verified) bool {
					return other.named() && other.set() == r.set() && other.has(t) && slices.Contains(beside, other.playlist)
				}
				if t.Kind == "audio" && !slices.ContainsFunc(v.results, plays) && !slices.Contains(without, t.Name) {
					without = append(without, t.Name)
				}
			}
			if len(without) > 0 {
				problems = append(problems, c2pa.Problem{Code: codeTrackMissing, Where: video, Explanation: "plays without " + strings.Join(without, ", ") + ", which was signed with it"})
				break
			}
		}
	}
	return problems
}
