package c2pa

import (
	"slices"

	"weir/internal/weir"
)

// Tracks names the tracks that belong together. The specification has no such assertion: to its
// validators, each segment and each file is valid by itself, whatever else is missing.
type Tracks struct {
	// Set identifies files that have a manifest each; "" = the tracks have this manifest.
	Set  string       `cbor:"set,omitempty" json:"set,omitempty"`
	File string       `cbor:"file,omitempty" json:"file,omitempty"` // name of the track in this file of the set
	All  []NamedTrack `cbor:"tracks" json:"all"`
}

// NamedTrack is a track of a signed presentation. If it has several init segments, each is one of
// the same name.
type NamedTrack struct {
	ID   int    `cbor:"id,omitempty" json:"id,omitempty"` // its Tree.Track; 0 = it is a file
	Name string `cbor:"name" json:"name"`
	Kind string `cbor:"kind" json:"kind"` // video or audio
}

// maxTracks bounds the tracks that a manifest names.
const maxTracks = 1024

// numbered returns the tracks with the numbers of their trees.
func (t *Tracks) numbered(trees []*Tree) (*Tracks, error) {
	if t == nil {
		return nil, nil
	}
	if len(t.All) != len(trees) {
		return nil, weir.Errorf(weir.Internal, "a manifest names %d tracks and has %d", len(t.All), len(trees))
	}
	if len(t.All) > maxTracks { // of an encoder that changed its settings again and again
		return nil, nil
	}
	n := *t
	n.All = slices.Clone(t.All)
	for i, tree := range trees {
		n.All[i].ID = tree.Track
	}
	return &n, nil
}

// Tracks returns the numbers of the tracks that the segments so far may be of: one, unless the init
// segments of several are the same and there was no valid segment.
func (f *Fragments) Tracks() (ids []int) {
	for _, t := range f.tracks {
		if f.track == 0 || f.track == t.Track {
			ids = append(ids, t.Track)
		}
	}
	return ids
}
