package web

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"weir/internal/endpoint"
)

// oEmbed is the response of GET /oembed, by which other sites turn a link into a player (oembed.com).
type oEmbed struct {
	Version      string `json:"version"`
	Type         string `json:"type"`
	ProviderName string `json:"provider_name"`
	ProviderURL  string `json:"provider_url"`
	Title        string `json:"title"`
	HTML         string `json:"html"`
	Width        int    `json:"width"`
	Height       int    `json:"height"`
	ThumbnailURL string `json:"thumbnail_url,omitempty"`
}

// The size of the player that other sites get, unless they ask for a smaller one.
const (
	embedWidth  = 1280
	embedHeight = 720
)

// serveOEmbed answers GET /oembed?url=…, where url is that of a watch page of this server.
func (p *WatchPage) serveOEmbed(w http.ResponseWriter, r *http.Request) int {
	endpoint.CORS{Origin: "*"}.Allow(w.Header())
	w.Header().Set("Content-Type", "application/json")
	fail := func(status int, text string) int {
		endpoint.Failure{Status: status, Messages: []string{text}}.Write(w)
		return status
	}
	q, base := r.URL.Query(), p.o.Base(r)
	if format := q.Get("format"); format != "" && format != "json" {
		return fail(http.StatusNotImplemented, "format: only json is supported")
	}
	id, err := playbackIDOf(q.Get("url"), base)
	if err != nil {
		return fail(http.StatusNotFound, err.Error())
	}
	shown, status := p.find(r.Context(), id)
	if shown.Kind == "" {
		return fail(max(status, http.StatusNotFound), "url: there is nothing to play at this address")
	}
	width, height := embedWidth, embedHeight
	if limit := sizeLimit(q, "maxwidth"); limit < width {
		width, height = limit, limit*9/16
	}
	if limit := sizeLimit(q, "maxheight"); limit < height {
		width, height = limit*16/9, limit
	}
	response := oEmbed{
		Version: "1.0", Type: "video", ProviderName: "weir", ProviderURL: base + "/", Title: shown.Title, Width: width, Height: height,
		HTML: fmt.Sprintf(`<iframe src="%s" title="%s" width="%d" height="%d" frameborder="0" allow="autoplay; picture-in-picture" allowfullscreen></iframe>`,
			html.EscapeString(base+"/play/"+url.PathEscape(id)), html.EscapeString(shown.Title), width, height),
	}
	if shown.Public {
		response.ThumbnailURL = base + "/hls/" + url.PathEscape(id) + "/poster.jpg"
	}
	_ = json.NewEncoder(w).Encode(response) // an error means that the client has disconnected
	return http.StatusOK
}

// playbackIDOf returns the id in the address of a watch page.
func playbackIDOf(address, base string) (string, error) {
	u, err := url.Parse(address)
	want, baseErr := url.Parse(base)
	if err != nil || baseErr != nil || u.Host != want.Host {
		return "", fmt.Errorf("url: must be the address of a watch page of this server, %s/play/…", base)
	}
	id, ok := strings.CutPrefix(u.Path, want.Path+"/play/")
	if !ok || id == "" || strings.Contains(id, "/") {
		return "", fmt.Errorf("url: must be the address of a watch page of this server, %s/play/…", base)
	}
	return id, nil
}

// sizeLimit reads a size in pixels; one that is absent or no size does not limit.
func sizeLimit(q url.Values, name string) int {
	if n, err := strconv.Atoi(q.Get(name)); err == nil && n > 0 {
		return n
	}
	return embedWidth
}
