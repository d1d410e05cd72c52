package vod

import (
	"encoding/json"
	"errors"
	"fmt"

	"weir/internal/blob"
	"weir/internal/c2pa"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// PublishState is the progress of a Publisher. In JSON, the pieces of an output are a member with
// its name.
type PublishState struct {
	Begun    bool   `json:"begun,omitempty"`    // older manifests are deleted
	Finished bool   `json:"finished,omitempty"` // everything was put
	Base     string `json:"base,omitempty"`     // result of blob.Dest.Seal

	// Pieces is the progress of each piece, by the names of its output and its own.
	Pieces map[string]map[string]*PieceState `json:"-"`
}

// PieceState is the progress of a piece of an output: a track in segments, or a file.
type PieceState struct {
	Form string `json:"form,omitempty"` // of its bytes; if it changed, the piece is put again
	SegmentState
	FileState
	Signed *weir.Provenance `json:"signed,omitempty"` // its manifest was put
}

// SegmentState is the progress of a track in segments.
type SegmentState struct {
	Segments int          `json:"segments,omitempty"` // put so far, from the first on
	TS       cmaf.TSState `json:"ts,omitzero"`        // after the last of them
	Init     bool         `json:"init,omitempty"`
	Bytes    int64        `json:"bytes,omitempty"`    // of the init segment and the segments put so far
	Playlist int64        `json:"playlist,omitempty"` // bytes of the media playlist
	Tree     *c2pa.Tree   `json:"tree,omitempty"`     // hashes of the segments, if they are signed
}

// FileState is the progress of an MP4 file. A small file is put in one piece when it is complete; a
// large one is uploaded in parts of equal size while it grows. Its first part contains the head of
// the file and is sent last, because the head lists all samples: space is reserved for it, and the
// rest is padding.
type FileState struct {
	Upload   string                `json:"upload,omitempty"`   // its id; "" = not begun
	Head     int64                 `json:"head,omitempty"`     // bytes before the media data
	PartSize int64                 `json:"partSize,omitempty"` // of all parts but the last
	Parts    map[int]blob.PartInfo `json:"parts,omitempty"`    // by number, from 1
	Hash     *c2pa.Hash            `json:"hash,omitempty"`     // of what was sent, if it is signed
	Done     bool                  `json:"done,omitempty"`
	Size     int64                 `json:"size,omitempty"` // of the whole file, once it is done
}

// piece returns the state of a piece; a new one gets the form.
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

// UnmarshalJSON treats every member that is an object as an output.
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
