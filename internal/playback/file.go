package playback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/endpoint"
	"weir/internal/media"
	"weir/internal/weir"
)

func (s *Server) object(w *endpoint.Response, req *request, key string, size int64) error {
	if name, ok := s.Media.Path(key); ok {
		file, err := os.Open(name) // so that the kernel can copy it to the connection
		if errors.Is(err, os.ErrNotExist) {
			return weir.Wrap(weir.NotFound, err, "not found")
		}
		if err != nil {
			return err
		}
		defer file.Close()
		return serveFile(w, req, file)
	}
	body := &object{ctx: req.Context(), store: s.Media, key: key, size: size}
	defer body.Close()
	return serveContent(w, req, body)
}

// serveFile answers with a file. It returns a read error only if nothing was sent; otherwise the viewer
// notices that the response is too short.
func serveFile(w *endpoint.Response, req *request, file io.ReadSeeker) error {
	http.ServeContent(w, req.Request, "", time.Time{}, file)
	return w.ReadError()
}

// object is an io.ReadSeekCloser of an object of the storage. It has the context of the request as a
// field, because http.ServeContent calls Read and Seek, which take none.
type object struct {
	ctx   context.Context
	store blob.Store
	key   string
	size  int64
	at    int64
	body  io.ReadCloser
}

// Seek does not access the storage; the next Read does.
func (o *object) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += o.at
	case io.SeekEnd:
		offset += o.size
	}
	if offset < 0 {
		return 0, errors.New("seek to before the start of an object")
	}
	if offset != o.at {
		_ = o.Close()
	}
	o.at = offset
	return offset, nil
}

func (o *object) Read(p []byte) (int, error) {
	if o.at >= o.size {
		return 0, io.EOF
	}
	if o.body == nil {
		body, _, err := o.store.Get(o.ctx, o.key, o.at, -1)
		if err != nil {
			return 0, err
		}
		o.body = body
	}
	n, err := o.body.Read(p)
	o.at += int64(n)
	if err != nil && o.at < o.size {
		err = weir.Wrap(weir.Upstream, err, "the media storage does not respond; try again")
	}
	return n, err
}

func (o *object) Close() (err error) {
	if o.body != nil {
		err = o.body.Close()
		o.body = nil
	}
	return err
}

// mp4 answers with a rendition as an MP4 file, which is made of its segments while it is sent.
func (s *Server) mp4(w *endpoint.Response, req *request) error {
	return s.rendered(w, req, strings.TrimSuffix(req.path, ".mp4"))
}

func (s *Server) rendered(w *endpoint.Response, req *request, name string) error {
	file, err := req.title.file(req.Context(), s, name)
	if err != nil {
		return err
	}
	if req.Method == http.MethodGet {
		if err := s.mayBeginView(req); err != nil {
			return err
		}
	}
	reader := file.Reader(req.Context())
	defer reader.Close()
	w.Header().Set("Content-Type", typeMP4)
	s.immutable(w, req, fmt.Sprintf("%s.mp4 %d %s", name, file.Size(), file.content))
	if req.Method == http.MethodGet {
		w.Sent = s.meter(req, file.kind, file.length, file.Size())
		defer func() { w.Sent(0) }()
	}
	return serveContent(w, req, reader)
}

// mp4File is a rendition as one file.
type mp4File struct {
	*media.File
	kind    cmaf.Kind
	length  time.Duration
	content string // what is in it beside the tracks: the id of its manifest, or its texts
}

// file returns a rendition as an MP4 file. Its layout is computed once, and again when the texts change.
func (t *title) file(ctx context.Context, s *Server, name string) (*mp4File, error) {
	together, err := t.together(name)
	if err != nil {
		return nil, err
	}
	tracks, indexes := make([]*media.Track, len(together)), make([]cmaf.TrackIndex, len(together))
	for i, one := range together {
		tracks[i], indexes[i] = one.Track, one.Index()
	}
	texts, content, err := t.fileText(ctx, s)
	if err != nil {
		return nil, err
	}
	if t.signature != nil {
		content = t.signature.MP4Manifest(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.files[name]
	if old != nil && old.content == content {
		return old, nil
	}
	f := &mp4File{kind: indexes[0].Track.Kind, length: cmaf.Played(indexes[:1]), content: content}
	if f.File, err = t.render(name, tracks, texts); err != nil {
		return nil, err
	}
	if old != nil {
		t.memory.Add(-old.Memory())
	}
	if t.files == nil {
		t.files = map[string]*mp4File{}
	}
	t.files[name] = f
	t.memory.Add(f.Memory())
	return f, nil
}

// together returns the tracks in the file of a rendition: with the video, all audio.
func (t *tracks) together(name string) ([]rendition, error) {
	r, err := t.find(name)
	if err != nil {
		return nil, err
	}
	list := []rendition{r}
	if r.Index().Track.Kind == cmaf.Video {
		list = append(list, t.audio...)
	}
	if slices.ContainsFunc(list, func(r rendition) bool { return !r.Complete }) {
		return nil, weir.Errorf(weir.NotFound, "the file is not ready yet")
	}
	return list, nil
}

func (t *tracks) render(name string, tracks []*media.Track, texts []media.Text) (*media.File, error) {
	if t.signature != nil {
		return t.signature.MP4(name, tracks)
	}
	return media.Progressive(tracks, texts)
}

// download answers with the source of an asset. That of a recording or a clip is an MP4 file of its segments.
func (s *Server) download(w *endpoint.Response, req *request) error {
	_, name, _ := strings.Cut(req.path, "/")
	if name == "" || strings.Contains(name, "/") {
		return weir.ErrNotFound()
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	if req.title.segmented {
		return s.rendered(w, req, req.title.main())
	}
	return s.storedFile(w, req, "video")
}

// thumbnail answers with a thumbnail or a list of them.
func (s *Server) thumbnail(w *endpoint.Response, req *request) error {
	_, name, _ := strings.Cut(req.path, "/")
	if strings.Contains(name, "/") {
		return weir.ErrNotFound()
	}
	switch path.Ext(name) {
	case ".jpg":
		w.Header().Set("Content-Type", "image/jpeg")
		return s.storedFile(w, req, req.path)
	case ".vtt":
		return s.thumbnailList(w, req)
	}
	return weir.ErrNotFound()
}

// maxList is far above the size of a thumbnail list for a video of a day.
const maxList = 16 << 20

// thumbnailList answers with a list of thumbnails, whose URIs have the viewer's token.
func (s *Server) thumbnailList(w *endpoint.Response, req *request) error {
	body, _, err := s.Media.Get(req.Context(), req.title.prefix+"/"+req.path, 0, -1)
	if err != nil {
		return storedFileError(err)
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxList))
	if err != nil {
		return storageError(err)
	}
	if below := req.below("thumbnails"); below != "" {
		lines := bytes.SplitAfter(text, []byte("\n"))
		for i, line := range lines {
			if image, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte("#")); bytes.HasSuffix(image, []byte(".jpg")) {
				lines[i] = append([]byte(below), line...)
			}
		}
		text = bytes.Join(lines, nil)
	}
	return cached(w, req, "text/vtt; charset=utf-8", req.title.keepText(), text)
}

func (s *Server) poster(w *endpoint.Response, req *request) error {
	w.Header().Set("Content-Type", "image/jpeg")
	return s.storedFile(w, req, "poster.jpg")
}

// storedFile answers with a file of the asset.
func (s *Server) storedFile(w *endpoint.Response, req *request, name string) error {
	key := req.title.prefix + "/" + name
	info, err := s.Media.Stat(req.Context(), key)
	if err != nil {
		return storedFileError(err)
	}
	s.immutable(w, req, fmt.Sprintf("%s %d %s", name, info.Size, info.ETag))
	return s.object(w, req, key, info.Size)
}

// storedFileError returns the error for a file that can't be read. One that does not exist is not logged:
// it may never have been made, or have an invalid name.
func storedFileError(err error) error {
	if kind := weir.KindOf(err); kind == weir.NotFound || kind == weir.Invalid {
		return weir.ErrNotFound()
	}
	return storageError(err)
}
