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

// What views can be broken down by, over time and at the moment.
var (
	viewBreakdowns = []string{
		"playbackId", "dStorageUrl", "deviceType", "device", "cpu", "os", "browser", "browserEngine", "continent", "country",
		"subdivision", "timezone", "geohash", "viewerId", "creatorId",
	}
	nowBreakdowns = []string{"playbackId", "device", "browser", "country"}
	viewSteps     = []string{"hour", "day", "week", "month", "year"}
	usageSteps    = []string{"hour", "day"}
)

// watchingNow is how long after the last sign of life somebody still watches:
// players fetch something every few seconds.
const watchingNow = 30 * time.Second

// queryViews answers GET /data/views/query.
func (s *server) queryViews(w http.ResponseWriter, r *request) error {
	v := r.URL.Query()
	q, err := s.viewQuery(r, v.Get("playbackId"), v.Get("assetId"), v.Get("streamId"))
	if err != nil {
		return err
	}
	if err := overTime(&q, v); err != nil {
		return err
	}
	return s.writeViews(w, r, q, func(row map[string]any, sums weir.ViewSums) {
		row["playtimeMins"], row["rebufferRatio"] = sums.PlaytimeMins(), sums.RebufferRatio()
		row["errorRate"], row["exitsBeforeStart"] = sums.ErrorRate(), sums.ExitRate()
		if sums.TTFFViews > 0 {
			row["ttffMs"] = sums.TTFF()
		}
	})
}

// queryCreatorViews answers GET /data/views/query/creator, which a web page may ask.
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
	if err := overTime(&q, v); err != nil {
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
	return s.writeViews(w, r, q, func(row map[string]any, sums weir.ViewSums) { row["errorRate"] = sums.ErrorRate() })
}

// getTotalViews answers GET /data/views/query/total/{playbackId}. How often
// something was watched is no secret.
func (s *server) getTotalViews(w http.ResponseWriter, r *request) error {
	id := r.PathValue("playbackId")
	q, total := store.ViewQuery{PlaybackID: id}, map[string]any{"playbackId": id}
	if scheme := contentScheme(id); scheme != "" {
		q, total = store.ViewQuery{ContentID: id}, map[string]any{"dStorageUrl": scheme + id}
	}
	rows, err := s.Store.Views(r.Context(), q)
	if err != nil {
		return err
	}
	total["viewCount"], total["playtimeMins"] = rows[0].Views, rows[0].PlaytimeMins()
	return writeJSON(w, http.StatusOK, total)
}

// getAssetViews answers GET /data/views/{assetId}/total.
func (s *server) getAssetViews(w http.ResponseWriter, r *request) error {
	id := r.PathValue("assetId")
	asset, err := s.Store.Asset(r.Context(), id)
	asset, err = ownAsset(r, asset, err)
	playbackID := asset.PlaybackID
	if isNotFound(err) {
		var stream weir.Stream
		stream, err = s.Store.Stream(r.Context(), id)
		if err == nil && !r.caller.Owns(stream.UserID, stream.ProjectID) {
			err = weir.ErrNotFound()
		}
		playbackID = stream.PlaybackID
	}
	if err != nil {
		return namedNotFound(err, "asset not found")
	}
	rows, err := s.Store.Views(r.Context(), store.ViewQuery{PlaybackID: playbackID})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, []map[string]any{{"id": playbackID, "startViews": rows[0].Views}})
}

// contentScheme returns the scheme of an address on IPFS or Arweave, and "" for a
// playback id.
func contentScheme(id string) string {
	switch {
	case weir.IsContentID(id):
		return "ipfs://"
	case weir.IsArweaveID(id):
		return "ar://"
	}
	return ""
}

// viewQuery asks for the views of something that is the caller's, also when it was
// deleted by now; of everything, when all ids are empty.
func (s *server) viewQuery(r *request, playbackID, assetID, streamID string) (store.ViewQuery, error) {
	ctx := r.Context()
	q := store.ViewQuery{UserID: r.caller.UserID, ProjectID: r.caller.ProjectID, CreatorID: r.URL.Query().Get("creatorId")}
	own := func(userID, projectID string, err error) error {
		if err == nil && !r.caller.Owns(userID, projectID) {
			err = weir.ErrNotFound()
		}
		if err == nil {
			q.UserID, q.ProjectID = userID, projectID // an admin may ask for what is another's
		}
		return namedNotFound(err, "asset not found")
	}
	if assetID != "" {
		asset, err := s.Store.Asset(ctx, assetID)
		if err := own(asset.UserID, asset.ProjectID, err); err != nil {
			return q, err
		}
		q.AssetID = asset.ID
	}
	if streamID != "" {
		stream, err := s.Store.Stream(ctx, streamID)
		if err := own(stream.UserID, stream.ProjectID, err); err != nil {
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
		return q, own(asset.UserID, asset.ProjectID, err)
	}
	q.PlaybackID = id
	stream, err := s.Store.StreamByPlaybackID(ctx, id)
	if !isNotFound(err) {
		return q, own(stream.UserID, stream.ProjectID, err)
	}
	asset, err := s.Store.AssetByPlaybackID(ctx, id)
	return q, own(asset.UserID, asset.ProjectID, err)
}

// overTime reads the span of time, its steps and the breakdown.
func overTime(q *store.ViewQuery, v url.Values) (err error) {
	if q.From, q.To, err = span(v); err != nil {
		return err
	}
	if q.Step, err = timeStep(v, viewSteps); err != nil {
		return err
	}
	q.By, err = breakdown(v, viewBreakdowns)
	return err
}

// writeViews answers with rows; figures adds those that the endpoint has. What is not
// known is left out.
func (s *server) writeViews(w http.ResponseWriter, r *request, q store.ViewQuery, figures func(row map[string]any, sums weir.ViewSums)) error {
	rows, err := s.Store.Views(r.Context(), q)
	if err != nil {
		return err
	}
	answer := make([]map[string]any, len(rows))
	for i, row := range rows {
		answer[i] = map[string]any{"viewCount": row.Views}
		if q.Step != "" {
			answer[i]["timestamp"] = row.Start
		}
		for j, name := range q.By {
			if row.By[j] != "" {
				answer[i][name] = row.By[j]
			}
		}
		figures(answer[i], row.ViewSums)
	}
	return writeJSON(w, http.StatusOK, answer)
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
		return "", weir.Errorf(weir.Refused, "timeStep: %q is not one of %s", cut(step, 50), strings.Join(known, ", "))
	}
	return weir.TimeStep(step), nil
}

// breakdown reads breakdownBy[], which may be repeated; a list with commas works too.
func breakdown(v url.Values, known []string) ([]string, error) {
	var by []string
	for _, value := range slices.Concat(v["breakdownBy[]"], v["breakdownBy"]) {
		for name := range strings.SplitSeq(value, ",") {
			if !slices.Contains(known, name) {
				return nil, weir.Errorf(weir.Refused, "breakdownBy[]: %q is not one of %s", cut(name, 50), strings.Join(known, ", "))
			}
			if !slices.Contains(by, name) {
				by = append(by, name)
			}
		}
	}
	return by, nil
}

// usageRow is what was used, with the names that SDKs know.
type usageRow struct {
	UserID            string       `json:"UserID,omitempty"`
	CreatorID         string       `json:"CreatorID,omitempty"`
	TimeInterval      *weir.Millis `json:"TimeInterval,omitempty"`
	DeliveryUsageMins float64      `json:"DeliveryUsageMins"`
	TotalUsageMins    float64      `json:"TotalUsageMins"`
	StorageUsageMins  float64      `json:"StorageUsageMins"`
}

func showUsage(u weir.Usage, step weir.TimeStep) usageRow {
	row := usageRow{
		UserID: u.UserID, CreatorID: u.CreatorID, DeliveryUsageMins: weir.Minutes(u.DeliveryMs),
		TotalUsageMins: weir.Minutes(u.TotalMs), StorageUsageMins: weir.Minutes(u.StorageMs),
	}
	if step != "" {
		row.TimeInterval = &u.Hour
	}
	return row
}

// queryUsage answers GET /data/usage/query: one object, or a list when the caller
// asks for steps or a breakdown.
func (s *server) queryUsage(w http.ResponseWriter, r *request) error {
	v := r.URL.Query()
	q := store.UsageQuery{UserID: r.caller.UserID, CreatorID: v.Get("creatorId")}
	if user := v.Get("userId"); user != "" && user != r.caller.UserID {
		if !r.caller.Admin {
			return weir.Errorf(weir.Denied, "only an admin may ask for the usage of another user")
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
	usage, err := s.Store.Usage(r.Context(), q)
	if err != nil {
		return err
	}
	rows := make([]usageRow, len(usage))
	for i, u := range usage {
		rows[i] = showUsage(u, q.Step)
	}
	if q.Step == "" && !q.ByCreator {
		return writeJSON(w, http.StatusOK, rows[0])
	}
	return writeJSON(w, http.StatusOK, rows)
}

// queryTotalUsage answers GET /data/usage/query/total: everybody's, day by day.
func (s *server) queryTotalUsage(w http.ResponseWriter, r *request) error {
	from, to, err := span(r.URL.Query())
	if err != nil {
		return err
	}
	usage, err := s.Store.Usage(r.Context(), store.UsageQuery{From: from, To: to, Step: weir.StepDay})
	if err != nil {
		return err
	}
	rows := make([]usageRow, len(usage))
	for i, u := range usage {
		rows[i] = showUsage(u, weir.StepDay)
	}
	return writeJSON(w, http.StatusOK, rows)
}

// activeUser is what one user used in a span of time.
type activeUser struct {
	UserID            string      `json:"userId"`
	Email             string      `json:"email"`
	DeliveryUsageMins float64     `json:"deliveryUsageMins"`
	TotalUsageMins    float64     `json:"totalUsageMins"`
	StorageUsageMins  float64     `json:"storageUsageMins"`
	From              weir.Millis `json:"from"`
	To                weir.Millis `json:"to"`
}

// queryActiveUsers answers GET /data/usage/query/active: each user who used anything.
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
