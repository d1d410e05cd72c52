package api

import (
	"net/http"

	"weir/internal/store"
	"weir/internal/weir"
)

// A clip is an asset whose source names the content that it was cut from: the playback id, which
// the sessions of a stream share, and the session or the asset. Lists have only the caller's own
// clips, so content with a playback id, which is public, need not belong to the caller. Other ids of
// content that the caller may not see are not found, unless the caller has clips of it.

// listStreamClips answers GET /stream/{id}/clips, where the id may be a playback id.
func (s *server) listStreamClips(w http.ResponseWriter, r *request) error {
	return s.writeClips(w, r, "Stream not found", s.streamClips)
}

// listSessionClips answers GET /session/{id}/clips.
func (s *server) listSessionClips(w http.ResponseWriter, r *request) error {
	return s.writeClips(w, r, "Session not found", s.sessionClips)
}

// listAssetClips answers GET /asset/{id}/clips, where the id may be a playback id.
func (s *server) listAssetClips(w http.ResponseWriter, r *request) error {
	return s.writeClips(w, r, "Asset not found", s.assetClips)
}

// listClips answers GET /clip/{id}, where the id is that of a session, stream, asset or content on
// IPFS. A recording has the id of its session, so sessions come first.
func (s *server) listClips(w http.ResponseWriter, r *request) error {
	return s.writeClips(w, r, "Content not found", s.sessionClips, s.streamClips, s.assetClips, s.contentClips)
}

// cutFrom returns the filter for the clips of the content with the id, and whether the caller may
// see that content; or a NotFound error.
type cutFrom func(r *request, id string) (source store.Filter, visible bool, err error)

func (s *server) streamClips(r *request, id string) (store.Filter, bool, error) {
	stream, err := s.Store.Stream(r.Context(), id)
	visible := r.caller.Owns(stream.UserID, stream.ProjectID)
	if weir.IsNotFound(err) {
		stream, err = s.Store.StreamByPlaybackID(r.Context(), id)
		visible = true
	}
	if err == nil && stream.Deleted {
		err = weir.ErrNotFound()
	}
	return store.Filter{ID: "sourcePlaybackId", Value: stream.PlaybackID}, visible, err
}

func (s *server) sessionClips(r *request, id string) (store.Filter, bool, error) {
	session, err := s.Store.Session(r.Context(), id)
	if err == nil && session.Deleted {
		err = weir.ErrNotFound()
	}
	return store.Filter{ID: "sourceSessionId", Value: session.ID}, r.caller.Owns(session.UserID, session.ProjectID), err
}

func (s *server) assetClips(r *request, id string) (store.Filter, bool, error) {
	asset, err := s.Store.Asset(r.Context(), id)
	visible := r.caller.Owns(asset.UserID, asset.ProjectID)
	if weir.IsNotFound(err) {
		asset, err = s.Store.AssetByPlaybackID(r.Context(), id)
		visible = true
	}
	if err == nil && asset.Deleted {
		err = weir.ErrNotFound()
	}
	return store.Filter{ID: "sourceAssetId", Value: asset.ID}, visible, err
}

func (s *server) contentClips(r *request, cid string) (store.Filter, bool, error) {
	asset, err := s.Store.AssetByCID(r.Context(), r.caller.UserID, r.caller.ProjectID, cid)
	return store.Filter{ID: "sourceAssetId", Value: asset.ID}, true, err
}

// writeClips answers with the clips of the first content that is found.
func (s *server) writeClips(w http.ResponseWriter, r *request, notFound string, contents ...cutFrom) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	source, visible := store.Filter{}, false
	for _, find := range contents {
		if source, visible, err = find(r, r.PathValue("id")); !weir.IsNotFound(err) {
			break
		}
	}
	if err != nil {
		return notFoundAs(err, notFound)
	}
	q.Where = append(q.Where, store.Filter{ID: "sourceType", Value: weir.SourceClip}, source)
	page, err := s.Store.Assets(r.Context(), q)
	if err != nil {
		return err
	}
	if !visible && len(page.Items) == 0 {
		return weir.Errorf(weir.NotFound, "%s", notFound)
	}
	return writePage(s, w, r, q, page, s.showAsset(r))
}
