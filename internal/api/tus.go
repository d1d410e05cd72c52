package api

import (
	"bytes"
	"cmp"
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
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	tusd "github.com/tus/tusd/v2/pkg/handler"
	"github.com/tus/tusd/v2/pkg/memorylocker"
	"golang.org/x/exp/slog"

	"weir/internal/blob"
	"weir/internal/endpoint"
	"weir/internal/weir"
)

// tusPath is the path of uploads by the tus protocol.
const tusPath = "/api/asset/upload/tus/"

// uploadPartSize is the size of the parts that are stored: what is lost at most when a node dies.
const uploadPartSize = 16 << 20

// newTus returns the handler of the tus protocol. The client creates an upload with the token of
// request-upload; from then on the URL of the upload, which can't be guessed, is the credential.
func (s *server) newTus() (*tusd.UnroutedHandler, error) {
	data := &tusStore{s}
	composer := tusd.NewStoreComposer()
	composer.UseCore(data)
	composer.UseTerminater(data)
	composer.UseLengthDeferrer(data)
	composer.UseLocker(memorylocker.New())
	return tusd.NewUnroutedHandler(tusd.Config{
		StoreComposer: composer, MaxSize: s.MaxUpload, BasePath: tusPath, DisableDownload: true, DisableConcatenation: true,
		Cors: &tusd.CorsConfig{Disable: true}, NetworkTimeout: s.timeout,
		GracefulRequestCompletionTimeout: time.Millisecond,                               // WriteChunk finishes what must be finished
		Logger:                           slog.New(slog.NewTextHandler(io.Discard, nil)), // it would log URLs, which are credentials
		PreUploadCreateCallback: func(hook tusd.HookEvent) (tusd.HTTPResponse, tusd.FileInfoChanges, error) {
			id, err := s.beginTus(hook)
			return tusd.HTTPResponse{}, tusd.FileInfoChanges{ID: id, MetaData: tusd.MetaData{}}, s.tusError(hook.Context, err)
		},
	})
}

// tusHandler answers everything under /asset/upload/tus with one of tusd's handlers.
func (s *server) tusHandler(pick func(*tusd.UnroutedHandler) http.HandlerFunc) handler {
	return func(w http.ResponseWriter, r *request) error {
		ctx, cancel := context.WithCancel(r.Context()) // tusd waits for its end
		defer cancel()
		r.Request = r.WithContext(ctx)
		r.Body = &timedBody{ReadCloser: r.Body, timeout: s.timeout}
		own := http.StripPrefix(strings.TrimSuffix(tusPath, "/"), s.tus.Middleware(pick(s.tus)))
		out := &endpoint.Response{ResponseWriter: w, Edit: func(status int, first []byte) []byte {
			return adaptTus(w.Header(), s.base(r.Request), status, first)
		}}
		own.ServeHTTP(out, r.Request)
		out.End()
		return nil
	}
}

// timedBody is a body with a timeout for each step of bytes. tusd sets a deadline for reads, in case
// that nothing arrives at all.
type timedBody struct {
	io.ReadCloser
	timeout time.Duration
	left    int64 // bytes that must arrive until then
	until   time.Time
}

func (s *timedBody) Read(b []byte) (int, error) {
	now := time.Now()
	if s.left <= 0 {
		s.left, s.until = uploadStep, now.Add(s.timeout)
	}
	if now.After(s.until) {
		return 0, s.tooSlow()
	}
	n, err := s.ReadCloser.Read(b)
	s.left -= int64(n)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = s.tooSlow()
	}
	return n, err
}

func (s *timedBody) tooSlow() error {
	return tusd.NewError("ERR_READ_TIMEOUT", fmt.Sprintf("the upload is too slow: less than %d bytes arrived in %s; continue it from where it is", uploadStep, s.timeout), http.StatusRequestTimeout)
}

// adaptTus adapts a response of tusd: URLs have the base of this service, and errors are JSON. It
// returns the body, of which an error has all in first.
func adaptTus(h http.Header, base string, status int, first []byte) []byte {
	if _, id, ok := strings.Cut(h.Get("Location"), tusPath); ok {
		h.Set("Location", base+tusPath+id)
	}
	endpoint.Expose(h, "Location, Tus-Resumable, Tus-Version, Tus-Max-Size, Tus-Extension, Upload-Offset, Upload-Length, Upload-Metadata, Upload-Defer-Length, X-Request-Id")
	if status < http.StatusBadRequest || h.Get("Content-Type") == endpoint.JSON {
		return first
	}
	code, message, _ := strings.Cut(strings.TrimSpace(string(first)), ": ") // ERR_… comes first
	if code == "ERR_INTERNAL_SERVER_ERROR" {
		message = internalError(h.Get("X-Request-Id"))
	}
	f := endpoint.Failure{Status: status, Messages: []string{message}}
	f.SetHeader(h)
	if len(first) == 0 {
		return nil // the request was HEAD
	}
	return f.Body()
}

// tusFeatures sets the headers that list the supported features of tus.
func (s *server) tusFeatures(h http.Header) {
	h.Set("Tus-Resumable", "1.0.0")
	h.Set("Tus-Version", "1.0.0")
	h.Set("Tus-Extension", "creation,creation-with-upload,termination,creation-defer-length")
	h.Set("Tus-Max-Size", strconv.FormatInt(s.MaxUpload, 10))
}

// beginTus checks the token of a new upload and returns the upload's id.
func (s *server) beginTus(hook tusd.HookEvent) (string, error) {
	at, err := url.Parse(hook.HTTPRequest.URI)
	if err != nil {
		return "", weir.Wrap(weir.Refused, err, "the URL of the upload is not valid")
	}
	token := cmp.Or(at.Query().Get("token"), hook.Upload.MetaData["uploadToken"])
	if token == "" {
		return "", weir.Errorf(weir.Unauthenticated, "Missing uploadToken metadata from /request-upload API")
	}
	asset, err := s.uploadOf(hook.Context, token)
	if err != nil {
		return "", err
	}
	if err := s.reserve(hook.Context, asset.ID, hook.Upload.Size); err != nil {
		return "", err
	}
	var secret [16]byte
	_, _ = rand.Read(secret[:])
	return asset.ID + "-" + hex.EncodeToString(secret[:]), nil
}

// tusError makes an error of ours one of tusd. It logs other errors, which tusd would only send to
// the client.
func (s *server) tusError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[tusd.Error](err); ok {
		return known
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return tusd.ErrUploadInterrupted // by another request for the upload, if the client is still there
	}
	e, ok := errors.AsType[*weir.Error](err)
	if !ok || e.Kind == weir.Internal {
		s.Log.ErrorContext(ctx, "upload failed", "err", err)
		return tusd.NewError("ERR_INTERNAL_SERVER_ERROR", "internal", http.StatusInternalServerError)
	}
	if e.Err != nil {
		s.Log.InfoContext(ctx, "upload refused", "err", err)
	}
	f, header := endpoint.FailureOf(err, ""), http.Header{}
	f.SetHeader(header)
	response := tusd.HTTPResponse{StatusCode: f.Status, Body: string(f.Body()), Header: tusd.HTTPHeader{}}
	for name := range header {
		response.Header[name] = header.Get(name)
	}
	return tusd.Error{ErrorCode: "ERR_REFUSED", Message: e.Messages[0], HTTPResponse: response}
}

// tusStore stores uploads in parts, so that they can be resumed after a restart and on another
// node.
type tusStore struct{ s *server }

// tusInfo is the state of an upload besides its parts.
type tusInfo struct {
	ID       string `json:"id"`
	Size     int64  `json:"size"`
	Deferred bool   `json:"deferred,omitempty"` // the size is not known yet
	// Writer is the id of the last request, which alone may write: a client that lost its
	// connection may come back on another node before the first node has noticed.
	Writer string `json:"writer,omitempty"`
}

type tusUpload struct {
	s       *server
	assetID string
	info    tusInfo
}

func infoKey(assetID string) string { return uploadFolder(assetID) + "/info.json" }

// NewUpload begins an upload and deletes an earlier one of the asset.
func (d *tusStore) NewUpload(ctx context.Context, info tusd.FileInfo) (tusd.Upload, error) {
	u := &tusUpload{s: d.s, assetID: assetOfUpload(info.ID), info: tusInfo{ID: info.ID, Size: info.Size, Deferred: info.SizeIsDeferred}}
	if err := d.s.Media.DeletePrefix(ctx, uploadFolder(u.assetID)); err != nil {
		return nil, d.s.tusError(ctx, err)
	}
	return u, u.save(ctx)
}

// GetUpload returns an upload. It finishes one whose node died after the last part had arrived.
func (d *tusStore) GetUpload(ctx context.Context, id string) (tusd.Upload, error) {
	u := &tusUpload{s: d.s, assetID: assetOfUpload(id)}
	if u.assetID == "" {
		return nil, tusd.ErrNotFound
	}
	var err error
	if u.info, err = u.load(ctx); err != nil {
		return nil, d.s.tusError(ctx, err)
	}
	if subtle.ConstantTimeCompare([]byte(u.info.ID), []byte(id)) != 1 {
		return nil, tusd.ErrNotFound
	}
	info, err := u.GetInfo(ctx)
	if err != nil {
		return nil, err
	}
	if !u.info.Deferred && info.Offset == u.info.Size {
		return u, u.FinishUpload(ctx)
	}
	if _, err := d.s.uploading(ctx, u.assetID); err != nil {
		return nil, d.s.tusError(ctx, err)
	}
	return u, nil
}

// load reads the current state of an upload.
func (u *tusUpload) load(ctx context.Context) (info tusInfo, err error) {
	r, _, err := u.s.Media.Get(ctx, infoKey(u.assetID), 0, -1)
	if weir.IsNotFound(err) {
		return info, tusd.ErrNotFound
	}
	if err != nil {
		return info, err
	}
	err = json.NewDecoder(r).Decode(&info)
	if err = errors.Join(err, r.Close()); err != nil {
		return info, fmt.Errorf("read state of an upload: %w", err)
	}
	return info, nil
}

// assetOfUpload returns the id of the asset of an upload, "" for an invalid id.
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
	return u.s.tusError(ctx, u.s.Media.Put(ctx, infoKey(u.assetID), bytes.NewReader(text), int64(len(text)), blob.PutOptions{}))
}

// WriteChunk stores the body part by part. When the connection breaks, tusd ends the body without
// an error, and the part is stored although the client has disconnected.
func (u *tusUpload) WriteChunk(ctx context.Context, offset int64, src io.Reader) (int64, error) {
	ctx = context.WithoutCancel(ctx)
	u.info.Writer = weir.NewID()
	if err := u.save(ctx); err != nil {
		return 0, err
	}
	var total int64
	for {
		var first [1]byte
		if _, err := io.ReadFull(src, first[:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return total, u.s.tusError(ctx, err)
		}
		if err := u.s.FreeSpace(); err != nil {
			return total, u.s.tusError(ctx, err)
		}
		part := &uploadPart{r: io.LimitReader(io.MultiReader(bytes.NewReader(first[:]), src), uploadPartSize), atEnd: func() error { return u.check(ctx) }}
		if err := u.s.Media.Put(ctx, uploadPartKey(u.assetID, offset+total), part, -1, blob.PutOptions{}); err != nil {
			return total, u.s.tusError(ctx, err)
		}
		total += part.n
	}
}

// check returns an error when another request has taken over the upload, or it has ended.
func (u *tusUpload) check(ctx context.Context) error {
	now, err := u.load(ctx)
	if err == nil && (now.ID != u.info.ID || now.Writer != u.info.Writer) {
		err = weir.Errorf(weir.Conflict, "another request continues this upload")
	}
	if err == nil {
		if _, err = u.s.uploading(ctx, u.assetID); weir.Retriable(err) {
			err = nil // what has arrived is kept while the database is away
		}
	}
	return err
}

// uploadPart reads a part.
type uploadPart struct {
	r     io.Reader
	n     int64
	atEnd func() error // its error makes the storage discard the part
}

func (t *uploadPart) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.n += int64(n)
	if errors.Is(err, io.EOF) {
		if e := t.atEnd(); e != nil {
			err = e
		}
	}
	return n, err
}

// GetInfo returns how many bytes have arrived.
func (u *tusUpload) GetInfo(ctx context.Context) (tusd.FileInfo, error) {
	type uploadPart struct{ offset, size int64 }
	var parts []uploadPart
	folder := uploadFolder(u.assetID)
	for info, err := range u.s.Media.List(ctx, folder) {
		if err != nil {
			return tusd.FileInfo{}, u.s.tusError(ctx, err)
		}
		if offset, err := strconv.ParseInt(strings.TrimPrefix(info.Key, folder+"/"), 10, 64); err == nil {
			parts = append(parts, uploadPart{offset, info.Size})
		}
	}
	slices.SortFunc(parts, func(a, b uploadPart) int { return int(min(max(a.offset-b.offset, -1), 1)) })
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

// FinishUpload queues the asset's task, unless that was done before.
func (u *tusUpload) FinishUpload(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // the client need not wait
	if u.info.Size == 0 {
		return u.s.tusError(ctx, weir.Errorf(weir.Invalid, "the file is empty"))
	}
	asset, err := u.s.Store.Asset(ctx, u.assetID)
	if err == nil && !asset.Deleted {
		switch asset.Status.Phase {
		case weir.AssetWaiting, weir.AssetProcessing, weir.AssetReady:
			return nil
		}
	}
	if _, err := u.s.uploading(ctx, u.assetID); err != nil {
		return u.s.tusError(ctx, err)
	}
	return u.s.tusError(ctx, u.s.uploaded(ctx, u.assetID))
}

// AsTerminatableUpload lets clients delete an upload.
func (d *tusStore) AsTerminatableUpload(u tusd.Upload) tusd.TerminatableUpload { return u.(*tusUpload) }

// Terminate deletes an upload; the asset waits for another.
func (u *tusUpload) Terminate(ctx context.Context) error {
	if _, err := u.s.uploading(ctx, u.assetID); err != nil {
		return u.s.tusError(ctx, err)
	}
	return u.s.tusError(ctx, u.s.Media.DeletePrefix(ctx, uploadFolder(u.assetID)))
}

// AsLengthDeclarableUpload lets clients declare the size of a file later.
func (d *tusStore) AsLengthDeclarableUpload(u tusd.Upload) tusd.LengthDeclarableUpload {
	return u.(*tusUpload)
}

// DeclareLength sets the size of the file.
func (u *tusUpload) DeclareLength(ctx context.Context, length int64) error {
	if err := u.s.reserve(ctx, u.assetID, length); err != nil {
		return u.s.tusError(ctx, err)
	}
	u.info.Size, u.info.Deferred = length, false
	return u.save(ctx)
}
