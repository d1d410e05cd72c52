package playback

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/caption"
	"weir/internal/cmaf"
	"weir/internal/endpoint"
	"weir/internal/hls"
	"weir/internal/media"
	"weir/internal/weir"
)

// Text of an asset is below text/, so no rendition gets that name:
//
//	text/<track>.vtt                  all of it; also .srt, and .txt without times
//	text/<track>/index.m3u8           its media playlist
//	text/<track>/<content>-<n>.vtt    its segments; <content> changes with the text

const textFolder = "text"

// textLength is the length of a segment of text. A minute of it has some kilobytes.
const textLength = time.Minute

var textTypes = map[string]string{
	"vtt": "text/vtt; charset=utf-8", "srt": "application/x-subrip; charset=utf-8", "txt": "text/plain; charset=utf-8",
}

// textRoute returns the route of a path below text/; "" = it is that of a rendition.
func textRoute(path string) string {
	_, file, nested := strings.Cut(path, "/")
	_, extension, _ := strings.Cut(path, ".")
	switch {
	case nested && file == "index.m3u8":
		return routeTextMedia
	case nested:
		return routeTextSegment
	case textTypes[extension] != "":
		return routeText
	}
	return ""
}

// playableText returns the tracks of text that viewers get.
func playableText(tracks []weir.AssetTrack) (text []weir.AssetTrack) {
	for _, t := range tracks {
		if t.Type == weir.TextTrack && t.Playable() {
			text = append(text, t)
		}
	}
	return text
}

// subtitles returns the texts that the master playlist of an asset lists. While its video grows there are
// none: text of what is still to come has another target duration than the video, which only complete
// playlists may have.
func (req *request) subtitles() (list []cmaf.Text) {
	if !req.title.done {
		return nil
	}
	for _, t := range req.title.text {
		if t.Kind == weir.Subtitles {
			list = append(list, cmaf.Text{
				Name: t.Name, URI: req.below("") + textFolder + "/" + t.ID + "/index.m3u8", Language: t.Language,
				Default: t.Default, Forced: t.Forced, ClosedCaptions: t.ClosedCaptions,
			})
		}
	}
	return list
}

// findText returns the track of text of a path below text/, and the rest of the path.
func (req *request) findText() (track weir.AssetTrack, rest string, err error) {
	path := strings.TrimPrefix(req.path, textFolder+"/")
	for _, t := range req.title.text {
		if rest, ok := strings.CutPrefix(path, t.ID); ok {
			return t, rest, nil
		}
	}
	return weir.AssetTrack{}, "", weir.ErrNotFound()
}

// textFile answers with all of a text as one file, from the start of the video on.
func (s *Server) textFile(w *endpoint.Response, req *request) error {
	track, extension, err := req.findText()
	if err != nil {
		return err
	}
	cues, err := req.title.readText(req.Context(), s, track)
	if err != nil {
		return err
	}
	if track.Start > 0 {
		cues = caption.Shift(cues, track.StartTime(), caption.MaxTime)
	}
	extension = strings.TrimPrefix(extension, ".")
	write := map[string]func([]caption.Cue) []byte{"vtt": caption.WebVTT, "srt": caption.SubRip, "txt": caption.Transcript}[extension]
	if write == nil {
		return weir.ErrNotFound()
	}
	return cached(w, req, textTypes[extension], req.title.keepText(), write(cues))
}

// textPlaylist answers with the media playlist of a text.
func (s *Server) textPlaylist(w *endpoint.Response, req *request) error {
	track, rest, err := req.findText()
	if err != nil {
		return err
	}
	index, ok := req.title.mainIndex()
	if !ok || rest != "/index.m3u8" {
		return weir.ErrNotFound()
	}
	list := hls.Media{Type: hls.VOD, Ended: true}
	below := req.below(textFolder + "/" + track.ID)
	for n, segment := range index.TextSegments(textLength) {
		list.Segments = append(list.Segments, hls.Segment{
			File:     hls.File{URI: below + textContent(track) + "-" + strconv.Itoa(n) + ".vtt"},
			Duration: segment.To - segment.From, Discontinuity: segment.Discontinuity,
		})
	}
	return s.text(w, req, list.Text())
}

// textContent names the content of a text.
func textContent(t weir.AssetTrack) string { return t.SHA256[:min(16, len(t.SHA256))] }

// textSegment answers with a segment of a text. One of a text that was replaced meanwhile has the new
// text, so players that have an old playlist go on.
func (s *Server) textSegment(w *endpoint.Response, req *request) error {
	track, file, err := req.findText()
	if err != nil {
		return err
	}
	content, number, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(file, "/"), ".vtt"), "-")
	n, err := strconv.Atoi(number)
	index, ok := req.title.mainIndex()
	if err != nil || !ok {
		return weir.ErrNotFound()
	}
	segments := index.TextSegments(textLength)
	if n < 0 || n >= len(segments) || file != "/"+content+"-"+strconv.Itoa(n)+".vtt" {
		return weir.ErrNotFound()
	}
	cues, err := req.title.readText(req.Context(), s, track)
	if err != nil {
		return err
	}
	segment, start := segments[n], track.StartTime()
	body := caption.Segment(cues, start+segment.From, start+segment.To, start+segment.From, segment.Media)
	if content != textContent(track) {
		return cached(w, req, textTypes["vtt"], req.title.keepText(), body)
	}
	w.Header().Set("Content-Type", textTypes["vtt"])
	s.immutable(w, req, req.path)
	return serveBody(w, req, body)
}

// mainIndex returns the index of the track that the text of an asset goes by; ok is false if the asset is
// not complete.
func (t *tracks) mainIndex() (index cmaf.TrackIndex, ok bool) {
	for _, list := range [][]rendition{t.video, t.audio} {
		if len(list) > 0 {
			return list[0].Index(), t.done
		}
	}
	return index, false
}

// readText returns the cues of a track of text. They are read once.
func (t *title) readText(ctx context.Context, s *Server, track weir.AssetTrack) ([]caption.Cue, error) {
	t.mu.Lock()
	cues, ok := t.cues[track.Object]
	t.mu.Unlock()
	if ok {
		return cues, nil
	}
	cues, err := media.LoadText(ctx, s.Media, media.AssetFolder(t.AssetID), track.Object)
	if err != nil {
		return nil, storageError(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cues == nil {
		t.cues = map[string][]caption.Cue{}
	}
	const cueBytes = 80
	t.cues[track.Object] = cues
	t.memory.Add(track.Size + int64(cueBytes*len(cues)))
	return cues, nil
}

// maxFileText limits the texts in an MP4 file, in bytes of WebVTT: a film has a hundred kilobytes of one.
// Further ones are left out.
const maxFileText = 8 << 20

// fileText returns the texts that the MP4 files of an asset have, and what identifies them. Signed files
// have none: they are signed before texts are added.
func (t *title) fileText(ctx context.Context, s *Server) (texts []media.Text, content string, err error) {
	if t.signature != nil {
		return nil, "", nil
	}
	left := int64(maxFileText)
	for _, track := range t.text {
		if track.Kind != weir.Subtitles || track.Size > left {
			continue
		}
		left -= track.Size
		cues, err := t.readText(ctx, s, track)
		if err != nil {
			return nil, "", err
		}
		texts = append(texts, media.Text{Name: track.Name, Language: track.Language, Default: track.Default, Cues: cues, Start: track.StartTime()})
		content += fmt.Sprintf("%s %q %s %t %g\n", track.Object, track.Name, track.Language, track.Default, track.Start)
	}
	return texts, content, nil
}
