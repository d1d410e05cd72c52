package publish

import (
	"encoding/json"
	"errors"
	"fmt"

	"weir/internal/blob"
	"weir/internal/c2pa"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// State is the progress of Outputs. In JSON, the items of an output are a member with
// its name.
type State struct {
	Begun    bool   `json:"begun,omitempty"`    // older manifests are deleted
	Finished bool   `json:"finished,omitempty"` // everything was put
	Base     string `json:"base,omitempty"`     // result of blob.Dest.Seal
	Set      string `json:"set,omitempty"`      // the id of signed files that belong together

	// items is the progress of each item, by the names of its output and its own.
	items map[string]map[string]*itemState
}

// itemState is the progress of an item of an output: a track in segments, or a file.
type itemState struct {
	Form string `json:"form,omitempty"` // of its bytes; if it changed, the item is put again
	segmentState
	fileState
	Signed *weir.Provenance `json:"signed,omitempty"` // its manifest was put
}

// segmentState is the progress of a track in segments.
type segmentState struct {
	Segments int          `json:"segments,omitempty"` // put so far, from the first on
	TS       cmaf.TSState `json:"ts,omitzero"`        // after the last of them
	Init     bool         `json:"init,omitempty"`
	Bytes    int64        `json:"bytes,omitempty"`    // of the init segment and the segments put so far
	Playlist int64        `json:"playlist,omitempty"` // bytes of the media playlist
	Tree     *c2pa.Tree   `json:"tree,omitempty"`     // hashes of the segments, if they are signed
}

// fileState is the progress of an MP4 file. A small file is put with one request when it is complete; a
// large one is uploaded in parts of equal size while it grows. Its first part contains the head of
// the file and is sent last, because the head lists all samples: space is reserved for it, and the
// rest is padding.
type fileState struct {
	Upload   string                `json:"upload,omitempty"`   // its id; "" = not begun
	Head     int64                 `json:"head,omitempty"`     // bytes before the media data
	PartSize int64                 `json:"partSize,omitempty"` // of all parts but the last
	Parts    map[int]blob.PartInfo `json:"parts,omitempty"`    // by number, from 1
	Hash     *c2pa.Hash            `json:"hash,omitempty"`     // of what was sent, if it is signed
	Done     bool                  `json:"done,omitempty"`
	Size     int64                 `json:"size,omitempty"` // of the whole file, once it is done
}

// item returns the state of an item; a new one gets the form.
func (s *State) item(output, name, form string) *itemState {
	if s.items == nil {
		s.items = map[string]map[string]*itemState{}
	}
	if s.items[output] == nil {
		s.items[output] = map[string]*itemState{}
	}
	if s.items[output][name] == nil {
		s.items[output][name] = &itemState{Form: form}
	}
	return s.items[output][name]
}

// size returns the bytes of an item in the destination; 0 = not known.
func (s *State) size(output, name string) int64 {
	p := s.items[output][name]
	if p == nil {
		return 0
	}
	return p.Bytes + p.Playlist + p.Size
}

func (s State) MarshalJSON() ([]byte, error) {
	type plain State // without methods
	members := map[string]any{}
	text, err := json.Marshal(plain(s))
	if err == nil {
		err = json.Unmarshal(text, &members)
	}
	for output, items := range s.items {
		members[output] = items
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

// UnmarshalJSON treats every member that is an object as an output.
func (s *State) UnmarshalJSON(text []byte) error {
	type plain State
	var members map[string]json.RawMessage
	err := errors.Join(json.Unmarshal(text, (*plain)(s)), json.Unmarshal(text, &members))
	if err != nil {
		return err
	}
	s.items = map[string]map[string]*itemState{}
	for output, text := range members {
		if text[0] != '{' {
			continue
		}
		var items map[string]*itemState
		if err := json.Unmarshal(text, &items); err != nil {
			return fmt.Errorf("output %s: %w", output, err)
		}
		s.items[output] = items
	}
	return nil
}
