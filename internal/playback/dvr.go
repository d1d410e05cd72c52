package playback

import (
	"reflect"
	"strings"
	"time"

	"weir/internal/access"
	"weir/internal/store"
	"weir/internal/weir"
)

// Who may play a stream may play all of its current session at dvr.m3u8, if it is recorded. After the
// session the same address leads to its recording, until that is deleted or the next session begins.

// orRecording answers with the recording of the last session if the stream is not live.
func (s *Server) orRecording(answered func(*answer, *visit) error) func(*answer, *visit) error {
	return func(w *answer, v *visit) error {
		err := answered(w, v)
		if weir.KindOf(err) != weir.NotFound || v.broadcast != nil || v.node {
			return err
		}
		recording, findErr := s.recordingOf(v)
		switch {
		case weir.IsNotFound(findErr):
			return err
		case findErr != nil:
			return findErr
		}
		return s.master(w, recording)
	}
}

// recordingOf returns a visit to the recording of the last session of a stream, for a viewer who may
// play the stream.
func (s *Server) recordingOf(v *visit) (*visit, error) {
	page, err := s.Store.Sessions(v.Context(), store.Query{Where: []store.Filter{{ID: "parentId", Value: v.title.streamID}}, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Items) == 0 || !page.Items[0].Record {
		return nil, weir.ErrNotFound()
	}
	asset, err := s.Store.Asset(v.Context(), page.Items[0].ID)
	if err != nil {
		return nil, err
	}
	t, err := s.titles.find(v.Context(), asset.PlaybackID)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(t.policy, v.title.policy) {
		// The owner has changed who may play one of the two.
		return nil, weir.ErrNotFound()
	}
	r := *v
	r.title, r.id, r.path, r.inPath = t, asset.PlaybackID, "index.m3u8", false
	up := "../"
	if v.inPath {
		up += strings.Repeat("../", 2) // the token
	}
	r.base = up + asset.PlaybackID + "/"
	if v.token != nil {
		r.token = s.tokens.issue(t, access.Decision{KeyID: v.token.key}, "", v.token.viewing, time.Now())
	}
	return &r, nil
}
