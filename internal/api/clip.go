package api

import (
	"context"
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// Clips knows what can be clipped.
type Clips interface {
	// Ranges returns the parts of a source that exist now, in order; a NotFound error means that nothing does.
	// With a session, the times are of the wall clock; with an asset alone, they count from its start.
	Ranges(ctx context.Context, of weir.ClipSource) ([]weir.ClipRange, error)
}

// createClip answers POST /clip. A caller without an API key is a viewer, who may clip what the viewer may
// play, if the owner and the server allow it.
func (s *server) createClip(w http.ResponseWriter, r *request, body weir.NewClip) error {
	if s.Clips == nil {
		return weir.Errorf(weir.Unavailable, "this server does not make clips")
	}
	ctx, now := r.Context(), time.Now()
	content, err := s.clippable(ctx, body.PlaybackID)
	if err != nil {
		return err
	}
	if err := s.mayClip(r, body, content); err != nil {
		return err
	}
	if content.stream != nil && content.stream.Suspended {
		return errNoContent()
	}
	if err := s.mayHaveClip(r, s.Store, content.owner.UserID, body.PlaybackID); err != nil { // checked again below
		return err
	}
	of, err := s.clipOf(ctx, body.SessionID, content, r.caller == nil, now)
	if err != nil {
		return err
	}
	exists, err := s.Clips.Ranges(ctx, body.Source(of))
	if ignoreNotFound(err) != nil {
		return err
	}
	longest := s.MaxDuration
	if r.caller == nil {
		longest = weir.MaxPublicClip
	}
	window, err := body.Window(of, exists, longest, now)
	if err != nil {
		return err
	}
	if err := s.FreeSpace(); err != nil {
		return err
	}
	asset, task := body.Clip(of, window, r.caller, now)
	if r.caller == nil {
		task.Secrets.Viewer = s.network(r)
	}
	var notBefore time.Time
	if end := time.UnixMilli(int64(window.End)); of.OnAir() && end.After(now) {
		notBefore = end
	}
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.LockAccount(ctx, asset.UserID); err != nil {
			return err
		}
		if err := s.mayHaveClip(r, tx, asset.UserID, body.PlaybackID); err != nil {
			return err
		}
		err := s.writeAsset(ctx, tx, &asset, &task, now)
		if kind := weir.KindOf(err); r.caller == nil && (kind == weir.Denied || kind == weir.Busy) {
			return weir.Errorf(weir.Denied, "the owner of this content has reached a limit of clips or tasks; try again later") // and no details of the account
		}
		if err != nil {
			return err
		}
		return tx.EnqueueClip(ctx, task, notBefore)
	})
	if err != nil {
		return notFoundAs(err, "Content not found")
	}
	if r.caller == nil {
		return writeJSON(w, http.StatusOK, publicClip(asset, task))
	}
	return writeJSON(w, http.StatusOK, newAsset{asset, taskID{task.ID}})
}

// clipCounter counts clips in progress.
type clipCounter interface {
	CheckClips(ctx context.Context, userID string, more int) error
	CheckClipsOfViewers(ctx context.Context, userID, playbackID, network string, more int) error
}

// mayHaveClip returns an error if too many clips are in progress: those of the owner, or of viewers. A viewer's
// takes no place of the owner's.
func (s *server) mayHaveClip(r *request, in clipCounter, ownerID, playbackID string) error {
	switch {
	case r.caller == nil:
		return in.CheckClipsOfViewers(r.Context(), ownerID, playbackID, s.network(r), 1)
	case r.caller.Admin:
		return nil
	}
	return in.CheckClips(r.Context(), ownerID, 1)
}

// viewersClip is the response to a viewer: only what concerns the clip, and nothing about its owner.
type viewersClip struct {
	Asset struct {
		ID             string               `json:"id"`
		Name           string               `json:"name"`
		PlaybackID     string               `json:"playbackId"`
		CreatedAt      weir.Millis          `json:"createdAt"`
		PlaybackPolicy *weir.PlaybackPolicy `json:"playbackPolicy,omitempty"`
		Status         weir.AssetStatus     `json:"status"`
	} `json:"asset"`
	Task taskID `json:"task"`
}

func publicClip(a weir.Asset, t weir.Task) viewersClip {
	shown := viewersClip{Task: taskID{t.ID}}
	shown.Asset.ID, shown.Asset.Name, shown.Asset.PlaybackID, shown.Asset.CreatedAt = a.ID, a.Name, a.PlaybackID, a.CreatedAt
	shown.Asset.PlaybackPolicy, shown.Asset.Status = publicPolicy(a.PlaybackPolicy), a.Status
	return shown
}

func errNoContent() error { return weir.Errorf(weir.NotFound, "Content not found") }

// clippable is the stream or the asset with a playback id.
type clippable struct {
	owner   weir.Owner
	stream  *weir.Stream
	asset   *weir.Asset
	session *weir.Session // of an asset that is a recording
}

func (s *server) clippable(ctx context.Context, playbackID string) (c clippable, err error) {
	stream, err := s.Store.StreamByPlaybackID(ctx, playbackID)
	if err == nil && !stream.Deleted {
		return clippable{owner: stream.Owner(), stream: &stream}, nil
	}
	if ignoreNotFound(err) != nil {
		return c, err
	}
	asset, err := s.Store.AssetByPlaybackID(ctx, playbackID)
	if err == nil && asset.Deleted {
		err = weir.ErrNotFound()
	}
	if err != nil {
		return c, notFoundAs(err, "Content not found")
	}
	c = clippable{owner: asset.Owner(), asset: &asset}
	if asset.Source.Type != weir.SourceRecording {
		return c, nil
	}
	session, err := s.Store.Session(ctx, asset.Source.SessionID)
	if err == nil {
		c.session = &session
	}
	return c, ignoreNotFound(err)
}

// mayClip checks that the caller may clip the content.
func (s *server) mayClip(r *request, body weir.NewClip, c clippable) error {
	if r.caller != nil {
		if !r.caller.Owns(c.owner.UserID, c.owner.ProjectID) {
			return weir.Errorf(weir.Denied, "You do not have permission to clip this stream")
		}
		return nil
	}
	if err := s.checkOwnPage(r); err != nil {
		return err
	}
	allowed, err := s.viewersMayClip(r.Context(), c)
	if err != nil {
		return err
	}
	if !allowed {
		return weir.Errorf(weir.Denied, "viewers may not make clips of this content; send an API key of its owner")
	}
	if !s.limits.clips.Take(s.network(r), time.Now()) {
		return weir.TooMany(clipEvery, "too many clips from this address; try again in %d seconds", int(clipEvery.Seconds()))
	}
	return s.MayPlay(r.Request, body.PlaybackID, body.PlaybackToken)
}

// viewersMayClip reports whether viewers may clip the content. The setting of a stream counts for its
// recordings too.
func (s *server) viewersMayClip(ctx context.Context, c clippable) (bool, error) {
	if c.stream != nil {
		return c.stream.MayClip(s.PublicClips), nil
	}
	stream, err := s.Store.StreamOfRecording(ctx, *c.asset)
	return stream.MayClip(s.PublicClips), ignoreNotFound(err) // without a stream, the setting of the server counts
}

// clipOf returns what a clip is cut from: an asset, or a session of a stream, which is the one that the request
// names, the one on air, or the latest.
func (s *server) clipOf(ctx context.Context, sessionID string, c clippable, viewer bool, now time.Time) (weir.ClipOf, error) {
	if c.asset != nil {
		if sessionID != "" && (c.session == nil || c.session.ID != sessionID) {
			return weir.ClipOf{}, s.wrongSession(ctx, sessionID, c.owner)
		}
		switch c.asset.Status.Phase {
		case weir.AssetReady:
			return weir.ClipOfAsset(c.asset, c.session), nil
		case weir.AssetFailed:
			return weir.ClipOf{}, weir.Errorf(weir.Invalid, "the asset has failed, so there is nothing to clip")
		}
		return weir.ClipOf{}, weir.Errorf(weir.NotReady, "asset is not ready to be clipped")
	}
	air, err := s.Store.OnAirOf(ctx, c.stream.PlaybackID)
	if ignoreNotFound(err) != nil {
		return weir.ClipOf{}, err
	}
	session, err := s.sessionToClip(ctx, c.stream, sessionID, air.SessionID)
	if err != nil {
		return weir.ClipOf{}, err
	}
	if session.ID == air.SessionID {
		return weir.ClipOfSession(c.stream, &session, nil), nil
	}
	if viewer { // who may play the stream may not be allowed to play its recordings
		return weir.ClipOf{}, weir.Errorf(weir.Denied, "this session has ended; without an API key, clip it by the playback id of its recording")
	}
	recording, err := s.recordingToClip(ctx, session, now)
	return weir.ClipOfSession(c.stream, &session, &recording), err
}

// sessionToClip returns a session of the stream.
func (s *server) sessionToClip(ctx context.Context, stream *weir.Stream, named, onAir string) (weir.Session, error) {
	if named == "" && onAir != "" {
		named = onAir
	}
	if named != "" {
		session, err := s.Store.Session(ctx, named)
		if err == nil && session.Deleted {
			err = weir.ErrNotFound()
		}
		if weir.IsNotFound(err) || err == nil && session.ParentID != stream.ID {
			return session, s.wrongSession(ctx, named, stream.Owner())
		}
		return session, err
	}
	latest, err := s.Store.Sessions(ctx, store.Query{Where: []store.Filter{{ID: "parentId", Value: stream.ID}}, Order: "createdAt-true", Limit: 1})
	if err == nil && len(latest.Items) == 0 {
		err = weir.Errorf(weir.NotFound, "Session not found")
	}
	if err != nil {
		return weir.Session{}, err
	}
	return latest.Items[0], nil
}

// wrongSession returns the error for a session that is not one of the content. Sessions of other projects look
// as if they did not exist.
func (s *server) wrongSession(ctx context.Context, id string, of weir.Owner) error {
	session, err := s.Store.Session(ctx, id)
	if weir.IsNotFound(err) || err == nil && !of.MayName(session.Owner(), false) {
		return weir.Errorf(weir.NotFound, "Session not found")
	}
	if err != nil {
		return err
	}
	return weir.Errorf(weir.NotFound, "The provided session id does not belong to this stream")
}

// recordingToClip returns the recording of a session that has ended.
func (s *server) recordingToClip(ctx context.Context, session weir.Session, now time.Time) (weir.Asset, error) {
	asset, err := s.Store.Asset(ctx, session.ID)
	if ignoreNotFound(err) != nil {
		return asset, err
	}
	var recording *weir.Asset
	if err == nil {
		recording = &asset
	}
	session.SetRecording(recording, weir.At(now))
	switch session.RecordingStatus {
	case weir.RecordingReady:
		return asset, nil
	case weir.RecordingWaiting:
		return asset, weir.Errorf(weir.NotReady, "the session has just ended and its recording is not ready; try again in a few seconds")
	case weir.RecordingFailed:
		return asset, weir.Errorf(weir.Invalid, "the recording of this session has failed, so there is nothing to clip")
	}
	if session.Record && recording != nil {
		return asset, weir.Errorf(weir.Invalid, "the recording of this session was deleted, so there is nothing to clip")
	}
	return asset, weir.Errorf(weir.Invalid, "this session has ended and was not recorded, so there is nothing to clip")
}

// A clip is an asset whose source names the content that it was cut from: the playback id of the
// request, and the session, or the asset if that is no recording. Lists have only the caller's own
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
	return store.Filter{ID: "sourceStreamId", Value: stream.ID}, visible, err
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
	return cutFromAsset(asset), visible, err
}

// cutFromAsset returns the filter for the clips of an asset. Those of a recording name its session, whose id
// it has.
func cutFromAsset(a weir.Asset) store.Filter {
	if a.Source.Type == weir.SourceRecording {
		return store.Filter{ID: "sourceSessionId", Value: a.ID}
	}
	return store.Filter{ID: "sourceAssetId", Value: a.ID}
}

func (s *server) contentClips(r *request, cid string) (store.Filter, bool, error) {
	asset, err := s.Store.AssetByCID(r.Context(), r.caller.UserID, r.caller.ProjectID, cid)
	return cutFromAsset(asset), true, err
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
