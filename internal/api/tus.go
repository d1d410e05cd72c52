package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	tusd "github.com/tus/tusd/v2/pkg/handler"
	"github.com/tus/tusd/v2/pkg/memorylocker"
	"golang.org/x/exp/slog"

	"weir/internal/blob"
	"weir/internal/weir"
)

// tusPath is where uploads by the tus protocol live.
const tusPath = "/api/asset/upload/tus/"

// tusPart is how much of an upload is kept at once: what a node that dies may lose
// of it.
const tusPart = 16 << 20

// newTus returns the tus protocol over the service's storage. The client makes an
// upload with the token that request-upload answered; the address of the upload,
// which nobody can guess, is the credential from then on.
func (s *server) newTus() (*tusd.UnroutedHandler, error) {
	data := &tusStore{s}
	composer := tusd.NewStoreComposer()
	composer.UseCore(data)
	composer.UseTerminater(data)
	composer.UseLengthDeferrer(data)
	composer.UseLocker(memorylocker.New())
	return tusd.NewUnroutedHandler(tusd.Config{
		StoreComposer: composer, MaxSize: s.MaxUpload, BasePath: tusPath, DisableDownload: true, DisableConcatenation: true,
		Cors: &tusd.CorsConfig{Disable: true}, NetworkTimeout: receiveTimeout,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), // it would log addresses, which are credentials
		PreUploadCreateCallback: func(hook tusd.HookEvent) (tusd.HTTPResponse, tusd.FileInfoChanges, error) {
			id, err := s.beginTus(hook)
			return tusd.HTTPResponse{}, tusd.FileInfoChanges{ID: id, MetaData: tusd.MetaData{}}, tusError(err)
		},
	})
}

// tusHandler answers everything under /asset/upload/tus with one of tusd's handlers.
func (s *server) tusHandler(pick func(*tusd.UnroutedHandler) http.HandlerFunc) handler {
	return func(w http.ResponseWriter, r *request) error {
		s.tus.Middleware(pick(s.tus)).ServeHTTP(&tusAnswer{ResponseWriter: w, base: s.base(r.Request)}, r.Request)
		return nil
	}
}

// tusAnswer makes tusd's answers look like all the others: addresses have the base
// that all of weir's have, and errors are JSON.
type tusAnswer struct {
	http.ResponseWriter
	base   string
	failed bool // and the text is still to come
}

func (w *tusAnswer) WriteHeader(code int) {
	if at := w.Header().Get("Location"); at != "" {
		if _, id, ok := strings.Cut(at, tusPath); ok {
			w.Header().Set("Location", w.base+tusPath+id)
		}
	}
	h := w.Header()
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Set("Access-Control-Expose-Headers", "Location, Tus-Resumable, Tus-Version, Tus-Max-Size, Tus-Extension, Upload-Offset, Upload-Length, Upload-Metadata, Upload-Defer-Length, X-Request-Id")
	}
	if w.failed = code >= http.StatusBadRequest && h.Get("Content-Type") != jsonType[0]; w.failed {
		h.Set("Content-Type", jsonType[0])
		h.Del("Content-Length")
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *tusAnswer) Write(b []byte) (int, error) {
	if !w.failed {
		return w.ResponseWriter.Write(b)
	}
	_, message, _ := strings.Cut(strings.TrimSpace(string(b)), ": ") // ERR_… comes first
	body, err := json.Marshal(map[string][]string{"errors": {message}})
	if err == nil {
		_, err = w.ResponseWriter.Write(body)
	}
	return len(b), err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *tusAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// tusAbilities tells a client what can be asked of uploads by tus.
func (s *server) tusAbilities(h http.Header) {
	h.Set("Tus-Resumable", "1.0.0")
	h.Set("Tus-Version", "1.0.0")
	h.Set("Tus-Extension", "creation,creation-with-upload,termination,creation-defer-length")
	h.Set("Tus-Max-Size", strconv.FormatInt(s.MaxUpload, 10))
}

// beginTus checks the token of a new upload and returns the upload's id.
func (s *server) beginTus(hook tusd.HookEvent) (string, error) {
	at, err := url.Parse(hook.HTTPRequest.URI)
	if err != nil {
		return "", weir.Wrap(weir.Refused, err, "the address is not one")
	}
	token := at.Query().Get("token")
	if token == "" {
		token = hook.Upload.MetaData["uploadToken"]
	}
	if token == "" {
		return "", weir.Errorf(weir.Unauthenticated, "Missing uploadToken metadata from /request-upload API")
	}
	asset, err := s.uploadOf(hook.Context, token)
	if err != nil {
		return "", err
	}
	if err := s.Room(); err != nil {
		return "", err
	}
	var secret [16]byte
	_, _ = rand.Read(secret[:])
	return asset.ID + "-" + hex.EncodeToString(secret[:]), nil
}

// tusError is how tusd answers with an error of ours.
func tusError(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*weir.Error](err)
	if !ok || e.Kind == weir.Internal {
		return err
	}
	body, _ := json.Marshal(map[string][]string{"errors": e.Messages})
	return tusd.Error{ErrorCode: "ERR_REFUSED", Message: e.Messages[0], HTTPResponse: tusd.HTTPResponse{
		StatusCode: e.Kind.Status(), Body: string(body), Header: tusd.HTTPHeader{"Content-Type": jsonType[0]},
	}}
}

// tusStore keeps uploads in parts in the service's storage, so that they can be
// resumed after a restart and on another node.
type tusStore struct{ s *server }

// tusInfo is what is known of an upload besides its parts.
type tusInfo struct {
	ID       string `json:"id"`
	Size     int64  `json:"size"`
	Deferred bool   `json:"deferred,omitempty"` // the size is not known yet
}

type tusUpload struct {
	s       *server
	assetID string
	info    tusInfo
}

func infoKey(assetID string) string { return uploadFolder(assetID) + "/info.json" }

// NewUpload begins an upload; one that was begun before is forgotten.
func (d *tusStore) NewUpload(ctx context.Context, info tusd.FileInfo) (tusd.Upload, error) {
	u := &tusUpload{s: d.s, assetID: assetOfUpload(info.ID), info: tusInfo{info.ID, info.Size, info.SizeIsDeferred}}
	if err := d.s.Media.DeletePrefix(ctx, uploadFolder(u.assetID)); err != nil {
		return nil, tusError(err)
	}
	return u, u.save(ctx)
}

// GetUpload returns an upload that was begun. One whose last part arrived when the
// node died is finished now.
func (d *tusStore) GetUpload(ctx context.Context, id string) (tusd.Upload, error) {
	u := &tusUpload{s: d.s, assetID: assetOfUpload(id)}
	r, _, err := d.s.Media.Get(ctx, infoKey(u.assetID), 0, -1)
	if isNotFound(err) || u.assetID == "" {
		return nil, tusd.ErrNotFound
	}
	if err != nil {
		return nil, tusError(err)
	}
	err = json.NewDecoder(r).Decode(&u.info)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("read state of an upload: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(u.info.ID), []byte(id)) != 1 {
		return nil, tusd.ErrNotFound
	}
	info, err := u.GetInfo(ctx)
	if err != nil {
		return nil, err
	}
	if !u.info.Deferred && info.Offset == u.info.Size {
		if err := u.FinishUpload(ctx); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// assetOfUpload returns the asset that an upload is for.
func assetOfUpload(id string) string {
	if len(id) != 36+1+32 || strings.ContainsAny(id, "/.") {
		return ""
	}
	return id[:36]
}

func (u *tusUpload) save(ctx context.Context) error {
	text, err := json.Marshal(u.info)
	if err != nil {
		return err
	}
	return tusError(u.s.Media.Put(ctx, infoKey(u.assetID), bytes.NewReader(text), int64(len(text)), blob.PutOptions{}))
}

// WriteChunk keeps what arrives, part by part. A connection that breaks leaves what
// came before.
func (u *tusUpload) WriteChunk(ctx context.Context, offset int64, src io.Reader) (int64, error) {
	var total int64
	for {
		var first [1]byte
		if _, err := io.ReadFull(src, first[:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return total, err
		}
		if err := u.s.Room(); err != nil {
			return total, tusError(err)
		}
		part := &untilBroken{r: io.LimitReader(io.MultiReader(bytes.NewReader(first[:]), src), tusPart)}
		if err := u.s.Media.Put(ctx, partKey(u.assetID, offset+total), part, -1, blob.PutOptions{}); err != nil {
			return total, tusError(err)
		}
		total += part.n
		if part.err != nil {
			return total, part.err
		}
	}
}

// untilBroken ends where its reader breaks.
type untilBroken struct {
	r   io.Reader
	n   int64
	err error
}

func (u *untilBroken) Read(b []byte) (int, error) {
	n, err := u.r.Read(b)
	u.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		u.err, err = err, io.EOF
	}
	return n, err
}

// GetInfo tells how much is there.
func (u *tusUpload) GetInfo(ctx context.Context) (tusd.FileInfo, error) {
	type part struct{ offset, size int64 }
	var parts []part
	folder := uploadFolder(u.assetID)
	for info, err := range u.s.Media.List(ctx, folder) {
		if err != nil {
			return tusd.FileInfo{}, tusError(err)
		}
		if offset, err := strconv.ParseInt(strings.TrimPrefix(info.Key, folder+"/"), 10, 64); err == nil {
			parts = append(parts, part{offset, info.Size})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return int(min(max(a.offset-b.offset, -1), 1)) })
	var there int64
	for _, p := range parts {
		if p.offset == there {
			there += p.size
		}
	}
	return tusd.FileInfo{ID: u.info.ID, Size: u.info.Size, SizeIsDeferred: u.info.Deferred, Offset: there, MetaData: tusd.MetaData{}}, nil
}

// GetReader is for downloads, which are off.
func (u *tusUpload) GetReader(context.Context) (io.ReadCloser, error) {
	return nil, tusd.ErrNotImplemented
}

// FinishUpload makes the asset's task wait for its turn.
func (u *tusUpload) FinishUpload(ctx context.Context) error {
	if u.info.Size == 0 {
		return tusError(weir.Errorf(weir.Invalid, "the file is empty"))
	}
	err := u.s.uploaded(ctx, u.assetID)
	if weir.KindOf(err) == weir.Invalid && err != nil {
		return nil // it was finished before
	}
	return tusError(err)
}

// AsTerminatableUpload lets clients give an upload up.
func (d *tusStore) AsTerminatableUpload(u tusd.Upload) tusd.TerminatableUpload { return u.(*tusUpload) }

// Terminate forgets an upload; the asset waits for another.
func (u *tusUpload) Terminate(ctx context.Context) error {
	if _, err := u.s.uploading(ctx, u.assetID); err != nil {
		return tusError(err)
	}
	return tusError(u.s.Media.DeletePrefix(ctx, uploadFolder(u.assetID)))
}

// AsLengthDeclarableUpload lets clients say late how long a file is.
func (d *tusStore) AsLengthDeclarableUpload(u tusd.Upload) tusd.LengthDeclarableUpload {
	return u.(*tusUpload)
}

// DeclareLength notes how long the file is.
func (u *tusUpload) DeclareLength(ctx context.Context, length int64) error {
	u.info.Size, u.info.Deferred = length, false
	return u.save(ctx)
}
