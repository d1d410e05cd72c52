package vod

import (
	"encoding/json"
	"errors"
	"fmt"

	"weir/internal/blob"
	"weir/internal/cmaf"
)

// PublishState is what a Publisher did so far. Its zero value is nothing. In JSON the pieces of
// an output are a member with its name.
type PublishState struct {
	Begun    bool   `json:"begun,omitempty"`    // older manifests are out of the way
	Finished bool   `json:"finished,omitempty"` // everything was put
	Base     string `json:"base,omitempty"`     // see blob.Dest: what keys are relative to

	// Pieces is how far each piece is, by the name of the output and that of the piece.
	Pieces map[string]map[string]*PieceState `json:"-"`
}

// PieceState is how far a piece of an output is: a track in segments, or a file.
type PieceState struct {
	Form string `json:"form,omitempty"` // of its bytes; what has another is put again
	SegmentState
	FileState
}

// SegmentState is how far a track in segments is.
type SegmentState struct {
	Segments int          `json:"segments,omitempty"` // put so far, from the first on
	TS       cmaf.TSState `json:"ts,omitzero"`        // after the last of them
	Init     bool         `json:"init,omitempty"`
	Bytes    int64        `json:"bytes,omitempty"`    // of the init segment and the segments put so far
	Playlist int64        `json:"playlist,omitempty"` // bytes of the media playlist
}

// FileState is how far one MP4 file is. A small file is put whole when it is
// complete; a large one is uploaded in parts of equal size while it grows. Its first
// part has the head of the file and is sent last, because the head lists all samples:
// so room is kept for it, and filled up with padding when it needs less.
type FileState struct {
	Upload   string                `json:"upload,omitempty"`   // its id; "" = not begun
	Head     int64                 `json:"head,omitempty"`     // bytes before the media data
	PartSize int64                 `json:"partSize,omitempty"` // of all parts but the last
	Parts    map[int]blob.PartInfo `json:"parts,omitempty"`    // by number, from 1
	Done     bool                  `json:"done,omitempty"`
	Size     int64                 `json:"size,omitempty"` // of the whole file, once it is done
}

// piece returns the state of a piece, which is one of the given form if it is new.
func (s *PublishState) piece(output, name, form string) *PieceState {
	if s.Pieces == nil {
		s.Pieces = map[string]map[string]*PieceState{}
	}
	if s.Pieces[output] == nil {
		s.Pieces[output] = map[string]*PieceState{}
	}
	if s.Pieces[output][name] == nil {
		s.Pieces[output][name] = &PieceState{Form: form}
	}
	return s.Pieces[output][name]
}

// size returns the bytes of a piece in the destination; 0 = not known.
func (s *PublishState) size(output, name string) int64 {
	p := s.Pieces[output][name]
	if p == nil {
		return 0
	}
	return p.Bytes + p.Playlist + p.Size
}

// MarshalJSON writes the outputs beside the other members.
func (s PublishState) MarshalJSON() ([]byte, error) {
	type plain PublishState // without methods
	members := map[string]any{}
	text, err := json.Marshal(plain(s))
	if err == nil {
		err = json.Unmarshal(text, &members)
	}
	for output, pieces := range s.Pieces {
		members[output] = pieces
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

// UnmarshalJSON takes every member that is an object for an output.
func (s *PublishState) UnmarshalJSON(text []byte) error {
	type plain PublishState
	var members map[string]json.RawMessage
	err := errors.Join(json.Unmarshal(text, (*plain)(s)), json.Unmarshal(text, &members))
	if err != nil {
		return err
	}
	s.Pieces = map[string]map[string]*PieceState{}
	for output, text := range members {
		if text[0] != '{' {
			continue
		}
		var pieces map[string]*PieceState
		if err := json.Unmarshal(text, &pieces); err != nil {
			return fmt.Errorf("output %s: %w", output, err)
		}
		s.Pieces[output] = pieces
	}
	return nil
}
