package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// The values of breakdownBy and timeStep.
var (
	viewBreakdowns = []string{
		"playbackId", "dStorageUrl", "deviceType", "device", "cpu", "os", "browser", "browserEngine", "continent", "country",
		"subdivision", "timezone", "geohash", "viewerId", "creatorId",
	}
	nowBreakdowns = []string{"playbackId", "device", "browser", "country"}
	viewSteps     = []string{"hour", "day", "week", "month", "year"}
	usageSteps    = []string{"hour", "day"}
)

// watchingNow is how long after the last request a viewer counts as watching: players send a
// request every few seconds.
const watchingNow = 30 * time.Second

// queryViews answers GET /data/views/query.
func (s *server) queryViews(w http.ResponseWriter, r *request) error {
	v := r.URL.Query()
	q, err := s.viewQuery(r, v.Get("playbackId"), v.Get("assetId"), v.Get("streamId"))
	if err != nil {
		return err
	}
	if err := readTimeRange(&q, v); err != nil {
		return err
	}
	return s.writeViews(w, r, q, func(row map[string]any, sums weir.ViewSums) {
		row["playtimeMins"], row["exitsBeforeStart"] = sums.PlaytimeMins(), sums.ExitRate()
		if sums.TTFFViews > 0 {
			row["ttffMs"] = sums.TTFF()
		}
	})
}

// queryCreatorViews answers GET /data/views/query/creator, which web pages may use.
func (s *server) queryCreatorViews(w http.ResponseWriter, r *request) error {
	v := r.URL.Query()
	assetID, streamID := v.Get("assetId"), v.Get("streamId")
	if (assetID == "") == (streamID == "") {
		return weir.Errorf(weir.Refused, "must provide exactly 1 of assetId or streamId for creator query")
	}
	q, err := s.viewQuery(r, "", assetID, streamID)
	if err != nil {
		return err
	}
	if err := readTimeRange(&q, v); err != nil {
		return err
	}
	return s.writeViews(w, r, q, func(row map[string]any, sums weir.ViewSums) { row["playtimeMins"] = sums.PlaytimeMins() })
}

// queryViewsNow answers GET /data/views/now.
func (s *server) queryViewsNow(w http.ResponseWriter, r *request) error {
	v := r.URL.Query()
	if v.Has("from") || v.Has("to") || v.Has("timeStep") {
		return weir.Errorf(weir.Refused, "time range params (from, to, timeStep) are not supported for Realtime Viewership API")
	}
	q, err := s.viewQuery(r, v.Get("playbackId"), v.Get("assetId"), v.Get("streamId"))
	if err != nil {
		return err
	}
	if q.By, err = breakdown(v, nowBreakdowns); err != nil {
		return err
	}
	q.SeenSince = weir.At(time.Now().Add(-watchingNow))
	return s.writeViews(w, r, q, func(row map[string]any, _ weir.ViewSums) {
		row["errorRate"] = 0 // players report no errors, but SDKs require the member
	})
}

// getTotalViews answers GET /data/views/query/total/{playbackId}. The number of views is public.
func (s *server) getTotalViews(w http.ResponseWriter, r *request) error {
	id := r.PathValue("playbackId")
	q, total := store.ViewQuery{PlaybackID: id, Public: true}, map[string]any{"playbackId": id}
	if scheme := contentScheme(id); scheme != "" {
		q, total = store.ViewQuery{ContentID: id, Public: true}, map[string]any{"dStorageUrl": scheme + id}
	}
	rows, err := s.Store.Views(r.Context(), q)
	if err != nil {
		return err
	}
	total["viewCount"], total["playtimeMins"] = rows[0].Watched(), rows[0].PlaytimeMins()
	return writeJSON(w, http.StatusOK, total)
}

// getAssetViews answers GET /data/views/{assetId}/total.
func (s *server) getAssetViews(w http.ResponseWriter, r *request) error {
	id := r.PathValue("assetId")
	asset, err := s.Store.Asset(r.Context(), id)
	playbackID, owner := asset.PlaybackID, asset.Owner()
	if weir.IsNotFound(err) || err == nil && !r.caller.Owns(owner.UserID, owner.ProjectID) {
		var stream weir.Stream
		stream, err = s.Store.Stream(r.Context(), id)
		playbackID, owner = stream.PlaybackID, stream.Owner()
	}
	if err == nil && !r.caller.Owns(owner.UserID, owner.ProjectID) {
		err = weir.ErrNotFound()
	}
	if err != nil {
		return notFoundAs(err, "asset not found")
	}
	rows, err := s.Store.Views(r.Context(), store.ViewQuery{PlaybackID: playbackID})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, []map[string]any{{"id": playbackID, "startViews": rows[0].Watched()}})
}

// contentScheme returns the scheme of an id on IPFS or Arweave, and "" for a playback id.
func contentScheme(id string) string {
	switch {
	case weir.IsContentID(id):
		return "ipfs://"
	case weir.IsArweaveID(id):
		return "ar://"
	}
	return ""
}

// viewQuery returns the query for the views of the caller's content with one of the ids, also if it
// is deleted by now, or for those of all content if all ids are empty.
func (s *server) viewQuery(r *request, playbackID, assetID, streamID string) (store.ViewQuery, error) {
	ctx := r.Context()
	q := store.ViewQuery{UserID: r.caller.UserID, ProjectID: r.caller.ProjectID, CreatorID: r.URL.Query().Get("creatorId")}
	own := func(owner weir.Owner, err error) error {
		if err == nil && !r.caller.Owns(owner.UserID, owner.ProjectID) {
			err = weir.ErrNotFound()
		}
		if err == nil {
			q.UserID, q.ProjectID = owner.UserID, owner.ProjectID // an admin may query the views of others
		}
		return notFoundAs(err, "asset not found")
	}
	if assetID != "" {
		asset, err := s.Store.Asset(ctx, assetID)
		if err := own(asset.Owner(), err); err != nil {
			return q, err
		}
		q.AssetID = asset.ID
	}
	if streamID != "" {
		stream, err := s.Store.Stream(ctx, streamID)
		if err := own(stream.Owner(), err); err != nil {
			return q, err
		}
		q.StreamID = stream.ID
	}
	if playbackID == "" {
		return q, nil
	}
	id := strings.TrimPrefix(strings.TrimPrefix(playbackID, "ipfs://"), "ar://")
	if contentScheme(id) != "" {
		asset, err := s.contentAsset(r, id)
		q.ContentID = id
		return q, own(asset.Owner(), err)
	}
	q.PlaybackID = id
	stream, err := s.Store.StreamByPlaybackID(ctx, id)
	if !weir.IsNotFound(err) {
		return q, own(stream.Owner(), err)
	}
	asset, err := s.Store.AssetByPlaybackID(ctx, id)
	return q, own(asset.Owner(), err)
}

// readTimeRange reads the range of time, its steps and the breakdown.
func readTimeRange(q *store.ViewQuery, v url.Values) (err error) {
	if q.From, q.To, err = span(v); err != nil {
		return err
	}
	if q.Step, err = timeStep(v, viewSteps); err != nil {
		return err
	}
	q.By, err = breakdown(v, viewBreakdowns)
	return err
}

// writeViews answers with rows, to which figures adds the figures of the endpoint. Unknown values
// are left out.
func (s *server) writeViews(w http.ResponseWriter, r *request, q store.ViewQuery, figures func(row map[string]any, sums weir.ViewSums)) error {
	rows, err := s.Store.Views(r.Context(), q)
	if err != nil {
		return err
	}
	response := make([]map[string]any, len(rows))
	for i, row := range rows {
		response[i] = map[string]any{"viewCount": row.Watched()}
		if q.Step != "" {
			response[i]["timestamp"] = row.Start
		}
		for j, name := range q.By {
			if row.By[j] != "" {
				response[i][name] = row.By[j]
			}
		}
		figures(response[i], row.ViewSums)
	}
	return writeJSON(w, http.StatusOK, response)
}

// span reads from and to.
func span(v url.Values) (from, to weir.Millis, err error) {
	for _, p := range []struct {
		name   string
		moment *weir.Millis
	}{{"from", &from}, {"to", &to}} {
		text := v.Get(p.name)
		if text == "" {
			continue
		}
		if *p.moment, err = weir.ParseMoment(text); err != nil {
			return 0, 0, weir.Errorf(weir.Refused, "%s: %v", p.name, err)
		}
	}
	if v.Get("to") != "" && from >= to {
		return 0, 0, weir.Errorf(weir.Refused, "from: must be before to")
	}
	return from, to, nil
}

// timeStep reads timeStep.
func timeStep(v url.Values, known []string) (weir.TimeStep, error) {
	step := v.Get("timeStep")
	if step != "" && !slices.Contains(known, step) {
		return "", weir.Errorf(weir.Refused, "timeStep: %q is not one of %s", weir.Shorten(step, 50), strings.Join(known, ", "))
	}
	return weir.TimeStep(step), nil
}

// breakdown reads breakdownBy[], which may be repeated; a list with commas works too.
func breakdown(v url.Values, known []string) ([]string, error) {
	var by []string
	for _, value := range slices.Concat(v["breakdownBy[]"], v["breakdownBy"]) {
		for name := range strings.SplitSeq(value, ",") {
			if !slices.Contains(known, name) {
				return nil, weir.Errorf(weir.Refused, "breakdownBy[]: %q is not one of %s", weir.Shorten(name, 50), strings.Join(known, ", "))
			}
			if !slices.Contains(by, name) {
				by = append(by, name)
			}
		}
	}
	return by, nil
}

// usageRow is usage with the names that SDKs know.
type usageRow struct {
	UserID            string       `json:"UserID,omitempty"`
	CreatorID         string       `json:"CreatorID,omitempty"`
	TimeInterval      *weir.Millis `json:"TimeInterval,omitempty"`
	DeliveryUsageMins float64      `json:"DeliveryUsageMins"`
	TotalUsageMins    float64      `json:"TotalUsageMins"`
	StorageUsageMins  float64      `json:"StorageUsageMins"`
}

// usage returns the usage that a query selects.
func (s *server) usage(r *request, q store.UsageQuery) ([]usageRow, error) {
	usage, err := s.Store.Usage(r.Context(), q)
	rows := make([]usageRow, len(usage))
	for i, u := range usage {
		rows[i] = usageRow{
			UserID: u.UserID, CreatorID: u.CreatorID, DeliveryUsageMins: weir.Minutes(u.DeliveryMs),
			TotalUsageMins: weir.Minutes(u.TotalMs), StorageUsageMins: weir.Minutes(u.StorageMs),
		}
		if q.Step != "" {
			rows[i].TimeInterval = &u.Hour
		}
	}
	return rows, err
}

// queryUsage answers GET /data/usage/query: one object, or a list if the request has steps or a
// breakdown.
func (s *server) queryUsage(w http.ResponseWriter, r *request) error {
	v := r.URL.Query()
	q := store.UsageQuery{UserID: r.caller.UserID, CreatorID: v.Get("creatorId")}
	if user := v.Get("userId"); user != "" && user != r.caller.UserID {
		if !r.caller.Admin {
			return weir.Errorf(weir.Denied, "only an admin may query the usage of another user")
		}
		q.UserID = user
	}
	var err error
	if q.From, q.To, err = span(v); err != nil {
		return err
	}
	if q.Step, err = timeStep(v, usageSteps); err != nil {
		return err
	}
	by, err := breakdown(v, []string{"creatorId"})
	if err != nil {
		return err
	}
	q.ByCreator = len(by) > 0
	rows, err := s.usage(r, q)
	if err != nil {
		return err
	}
	if q.Step == "" && !q.ByCreator {
		return writeJSON(w, http.StatusOK, rows[0])
	}
	return writeJSON(w, http.StatusOK, rows)
}

// queryTotalUsage answers GET /data/usage/query/total: the usage of all users, day by day.
func (s *server) queryTotalUsage(w http.ResponseWriter, r *request) error {
	from, to, err := span(r.URL.Query())
	if err != nil {
		return err
	}
	rows, err := s.usage(r, store.UsageQuery{From: from, To: to, Step: weir.StepDay})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, rows)
}

// activeUser is the usage of one user in a range of time.
type activeUser struct {
	UserID            string      `json:"userId"`
	Email             string      `json:"email"`
	DeliveryUsageMins float64     `json:"deliveryUsageMins"`
	TotalUsageMins    float64     `json:"totalUsageMins"`
	StorageUsageMins  float64     `json:"storageUsageMins"`
	From              weir.Millis `json:"from"`
	To                weir.Millis `json:"to"`
}

// queryActiveUsers answers GET /data/usage/query/active: all users with any usage.
func (s *server) queryActiveUsers(w http.ResponseWriter, r *request) error {
	from, to, err := span(r.URL.Query())
	if err != nil {
		return err
	}
	if to == 0 {
		to = weir.At(time.Now())
	}
	usage, err := s.Store.Usage(r.Context(), store.UsageQuery{From: from, To: to, ByUser: true})
	if err != nil {
		return err
	}
	ids := make([]string, len(usage))
	for i, u := range usage {
		ids[i] = u.UserID
	}
	users, err := s.Store.UsersByID(r.Context(), ids)
	if err != nil {
		return err
	}
	rows := make([]activeUser, len(usage))
	for i, u := range usage {
		rows[i] = activeUser{
			UserID: u.UserID, Email: users[u.UserID].Email, DeliveryUsageMins: weir.Minutes(u.DeliveryMs),
			TotalUsageMins: weir.Minutes(u.TotalMs), StorageUsageMins: weir.Minutes(u.StorageMs), From: from, To: to,
		}
	}
	return writeJSON(w, http.StatusOK, rows)
}
