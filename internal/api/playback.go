package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"weir/internal/store"
	"weir/internal/weir"
)

// maxPlaybacks is the number of contents whose ways to play are remembered for an outage.
const maxPlaybacks = 10_000

// playbackInfo lists the ways to play content; meta differs by type.
type playbackInfo struct {
	Type string `json:"type"` // live, vod or recording
	Meta any    `json:"meta"`
}

type liveMeta struct {
	Live           int                  `json:"live"` // 1 or 0
	PlaybackPolicy *weir.PlaybackPolicy `json:"playbackPolicy,omitempty"`
	Source         []playbackSource     `json:"source"`
	DVRPlayback    []any                `json:"dvrPlayback,omitempty"`
}

type storedMeta struct {
	PlaybackPolicy *weir.PlaybackPolicy `json:"playbackPolicy"` // null when there is none
	Source         []playbackSource     `json:"source"`
	Tracks         []playbackTrack      `json:"tracks,omitempty"`
}

// playbackTrack is a track of text beside the video.
type playbackTrack struct {
	ID             string         `json:"id"`
	Type           weir.TrackType `json:"type"`
	Kind           weir.TextKind  `json:"kind,omitempty"`
	Language       string         `json:"language,omitempty"`
	Name           string         `json:"name"`
	Default        bool           `json:"default"`
	Forced         bool           `json:"forced"`
	ClosedCaptions bool           `json:"closedCaptions"`
	URL            string         `json:"url"`
}

func playbackTracks(a weir.Asset, base weir.Base) (list []playbackTrack) {
	for _, t := range a.Shown(a.Tracks, base) {
		if t.URL != "" {
			list = append(list, playbackTrack{t.ID, t.Type, t.Kind, t.Language, t.Name, t.Default, t.Forced, t.ClosedCaptions, t.URL})
		}
	}
	return list
}

type recordingMeta struct {
	Source []playbackSource `json:"source"`
}

// playbackSource is one way to play content. The names are a closed list: SDKs refuse others.
type playbackSource struct {
	HRN     string `json:"hrn"`
	Type    string `json:"type"`
	URL     string `json:"url"`
	Size    int64  `json:"size,omitempty"`
	Width   int    `json:"width,omitempty"`
	Height  int    `json:"height,omitempty"`
	Bitrate int    `json:"bitrate,omitempty"`
}

func hlsSource(url string) playbackSource {
	return playbackSource{HRN: "HLS (TS)", Type: "html5/application/vnd.apple.mpegurl", URL: url}
}

// getPlayback answers GET /playback/{id}, where the id is a playback id, the id of a session, or
// the id of one of the caller's assets on IPFS or Arweave.
func (s *server) getPlayback(w http.ResponseWriter, r *request) error {
	id := r.PathValue("id")
	info, err := playbackInfo{}, error(nil)
	if r.caller == nil && r.URL.RawQuery == "" { // a viewer
		info, err = s.playbacks.GetNow(r.Context(), s.base(r.Request)+" "+id, func(ctx context.Context) (playbackInfo, error) {
			return s.playback(&request{Request: r.WithContext(ctx)}, id)
		})
	} else {
		info, err = s.playback(r, id)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, info)
}

func (s *server) playback(r *request, id string) (playbackInfo, error) {
	for _, find := range []func(*request, string) (playbackInfo, error){s.livePlayback, s.assetPlayback, s.recordingPlayback, s.contentPlayback} {
		info, err := find(r, id)
		if weir.IsNotFound(err) {
			continue
		}
		return info, err
	}
	return playbackInfo{}, weir.Errorf(weir.NotFound, "No playback URL found for %s", weir.Shorten(id, 200))
}

// livePlayback returns the playback of a stream, on air or not.
func (s *server) livePlayback(r *request, id string) (playbackInfo, error) {
	stream, err := s.Store.StreamByPlaybackID(r.Context(), id)
	if err == nil && (stream.Deleted || stream.Suspended) {
		err = weir.ErrNotFound()
	}
	if err == nil {
		err = s.checkUser(r.Context(), stream.UserID)
	}
	if err != nil {
		return playbackInfo{}, err
	}
	base := s.base(r.Request)
	meta := liveMeta{PlaybackPolicy: publicPolicy(stream.PlaybackPolicy)}
	if stream.IsActive {
		meta.Live = 1
	}
	meta.Source = []playbackSource{hlsSource(base + "/hls/" + stream.PlaybackID + "/index.m3u8")}
	if s.WebRTC {
		meta.Source = append(meta.Source, playbackSource{HRN: "WebRTC (H264)", Type: "html5/video/h264", URL: base + "/webrtc/" + stream.PlaybackID})
	}
	last, err := s.lastSession(r.Context(), stream)
	if err != nil {
		return playbackInfo{}, err
	}
	if last != nil {
		meta.Source = append(meta.Source, playbackSource{HRN: "Thumbnail (JPEG)", Type: "image/jpeg", URL: base + "/hls/" + stream.PlaybackID + "/poster.jpg"})
	}
	if isSet(r.URL.Query(), "recordings") {
		if meta.DVRPlayback, err = s.dvrPlayback(r, stream, last); err != nil {
			return playbackInfo{}, err
		}
	}
	return playbackInfo{"live", meta}, nil
}

// lastSession returns the latest session of a stream, or nil.
func (s *server) lastSession(ctx context.Context, stream weir.Stream) (*weir.Session, error) {
	page, err := s.Store.Sessions(ctx, store.Query{Where: []store.Filter{{ID: "parentId", Value: stream.ID}}, Limit: 1})
	if err != nil || len(page.Items) == 0 {
		return nil, err
	}
	return &page.Items[0], nil
}

// dvrPlayback returns where the owner can play the current broadcast from its start, or the last
// one.
func (s *server) dvrPlayback(r *request, stream weir.Stream, last *weir.Session) ([]any, error) {
	if r.caller == nil {
		return nil, weir.Errorf(weir.Unauthenticated, "authentication is required to access recordings")
	}
	if !r.caller.Owns(stream.UserID, stream.ProjectID) {
		return nil, weir.Errorf(weir.Unauthenticated, "user does not have access to recordings for this content")
	}
	if last != nil && last.Record {
		// While the encoder is disconnected the broadcast can still be played.
		air, err := s.Store.OnAirOf(r.Context(), stream.PlaybackID)
		if ignoreNotFound(err) != nil {
			return nil, err
		}
		if stream.IsActive || err == nil && air.SessionID == last.ID && last.SourceSegments > 0 {
			return []any{hlsSource(s.base(r.Request) + "/hls/" + stream.PlaybackID + "/dvr.m3u8")}, nil
		}
		recording, err := s.Store.Asset(r.Context(), last.ID)
		if ignoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && playable(recording) {
			return []any{hlsSource(s.hlsOf(r, recording))}, nil
		}
	}
	return []any{map[string]string{"error": "no running recordings available for this stream."}}, nil
}

// assetPlayback returns the playback of an asset by its playback id.
func (s *server) assetPlayback(r *request, id string) (playbackInfo, error) {
	asset, err := s.Store.AssetByPlaybackID(r.Context(), id)
	if err != nil {
		return playbackInfo{}, err
	}
	return s.storedPlayback(r, asset)
}

// contentPlayback returns the playback of one of the caller's assets by its id on IPFS or Arweave.
func (s *server) contentPlayback(r *request, id string) (playbackInfo, error) {
	asset, err := s.contentAsset(r, id)
	if err != nil {
		return playbackInfo{}, err
	}
	return s.storedPlayback(r, asset)
}

// contentAsset returns the caller's asset that is stored at, or was made from, a CID
// or a transaction of Arweave.
func (s *server) contentAsset(r *request, id string) (weir.Asset, error) {
	if r.caller == nil {
		return weir.Asset{}, weir.ErrNotFound()
	}
	if !weir.IsArweaveID(id) {
		return s.Store.AssetByCID(r.Context(), r.caller.UserID, r.caller.ProjectID, id)
	}
	page, err := s.Store.Assets(r.Context(), store.Query{
		UserID: r.caller.UserID, ProjectID: r.caller.ProjectID, Where: []store.Filter{{ID: "sourceUrl", Value: "ar://" + id}},
		Order: "createdAt-false", Limit: 1,
	})
	if err != nil {
		return weir.Asset{}, err
	}
	if len(page.Items) == 0 {
		return weir.Asset{}, weir.ErrNotFound()
	}
	return page.Items[0], nil
}

func (s *server) storedPlayback(r *request, asset weir.Asset) (playbackInfo, error) {
	if asset.Deleted {
		return playbackInfo{}, weir.ErrNotFound()
	}
	if err := s.checkUser(r.Context(), asset.UserID); err != nil {
		return playbackInfo{}, err
	}
	if !playable(asset) {
		err := weir.Errorf(weir.Invalid, "asset is not ready for playback")
		if asset.Status.Phase == weir.AssetFailed { // a viewer who waits for it can stop
			err.Messages = append(err.Messages, "it could not be made")
		}
		return playbackInfo{}, err
	}
	meta := storedMeta{PlaybackPolicy: publicPolicy(asset.PlaybackPolicy), Tracks: playbackTracks(asset, s.addresses(r.Request))}
	at := func(f weir.File) string {
		return s.base(r.Request) + (&url.URL{Path: "/hls/" + asset.PlaybackID + "/" + strings.TrimPrefix(f.Path, "/")}).EscapedPath()
	}
	var thumbnails []playbackSource
	for _, f := range asset.Files {
		switch f.Type {
		case "static_transcoded_mp4":
			meta.Source = append(meta.Source, playbackSource{
				HRN: "MP4", Type: "html5/video/mp4", URL: at(f), Size: f.Size, Width: f.Width, Height: f.Height, Bitrate: f.Bitrate,
			})
		case "thumbnails_vtt":
			thumbnails = append(thumbnails, playbackSource{HRN: "Thumbnails", Type: "text/vtt", URL: at(f)})
		}
	}
	meta.Source = append(append(meta.Source, hlsSource(s.hlsOf(r, asset))), thumbnails...)
	return playbackInfo{"vod", meta}, nil
}

// recordingPlayback returns the playback of a session's recording.
func (s *server) recordingPlayback(r *request, id string) (playbackInfo, error) {
	session, err := s.Store.Session(r.Context(), id)
	if err == nil && session.Deleted {
		err = weir.ErrNotFound()
	}
	if err == nil {
		err = s.checkUser(r.Context(), session.UserID)
	}
	if err != nil {
		return playbackInfo{}, err
	}
	recording, err := s.Store.Asset(r.Context(), session.ID)
	if err == nil && (recording.Deleted || !playable(recording)) {
		err = weir.ErrNotFound()
	}
	if err != nil {
		return playbackInfo{}, err
	}
	return playbackInfo{"recording", recordingMeta{Source: []playbackSource{hlsSource(s.hlsOf(r, recording))}}}, nil
}

// playable reports whether an asset can be played, which may be before it is ready.
func playable(a weir.Asset) bool {
	return !a.Deleted && (a.Status.Phase == weir.AssetReady || a.Status.Phase == weir.AssetProcessing && a.PlaybackURL != "")
}

// hlsOf returns the URL of an asset's playlist.
func (s *server) hlsOf(r *request, a weir.Asset) string {
	if a.PlaybackURL != "" {
		return a.WithBase(s.addresses(r.Request)).PlaybackURL
	}
	return s.base(r.Request) + "/hls/" + a.PlaybackID + "/index.m3u8"
}

// checkUser returns a NotFound error when the user's content must not be played.
func (s *server) checkUser(ctx context.Context, userID string) error {
	u, err := s.Store.User(ctx, userID)
	if err == nil && (u.Suspended || u.Disabled) {
		err = weir.ErrNotFound()
	}
	return err
}

// publicPolicy returns a policy as it is shown to the public: without the context for the webhook.
func publicPolicy(p *weir.PlaybackPolicy) *weir.PlaybackPolicy {
	if p == nil {
		return nil
	}
	public := *p
	public.WebhookContext = nil
	return &public
}
