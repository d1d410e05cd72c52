package blob

import (
	"context"
	"errors"
	"io"

	"weir/internal/weir"
)

// origin is a file that can be read again, in whole or in part.
type origin interface {
	// open begins to read a span. If v is not empty, the span is only valid for that version; if the
	// origin has another version or does not know, it may return its whole content and version.
	open(ctx context.Context, s span, v version) (response, error)

	// String names the origin for people.
	String() string
}

// span is a range of bytes.
type span struct {
	from, to int64 // to is the first byte that is not in it; -1 = it has no end
}

// version identifies the content of a resource. Without etag and modified it is unknown.
type version struct {
	etag     string
	modified string
	size     int64 // of all of it; -1 = unknown
}

// known reports whether a change of the resource can be noticed.
func (v version) known() bool { return v.etag != "" || v.modified != "" }

// same reports whether two responses had the same content.
func (v version) same(o version) bool {
	if v.size >= 0 && o.size >= 0 && v.size != o.size {
		return false
	}
	if v.etag != "" && o.etag != "" {
		return v.etag == o.etag
	}
	return v.modified == o.modified
}

// plain is an origin that is asked for its whole content only, because its ranges can't be trusted.
type plain struct{ origin }

func (p plain) open(ctx context.Context, _ span, _ version) (response, error) {
	return p.origin.open(ctx, span{0, -1}, version{})
}

// response is the response of an origin.
type response struct {
	body     io.ReadCloser
	from     int64 // offset of the body: 0, or that of the span
	version  version
	whole    bool   // the body is the whole file, whatever span was requested
	location string // the URL after redirects, if there is one
}

// openWatched is open with a timeout for a stalled origin, before the first byte and after.
func openWatched(ctx context.Context, o origin, s span, v version, t timing) (response, error) {
	watched, dog := watch(ctx, t.stall)
	res, err := o.open(watched, s, v)
	if err != nil {
		if errors.Is(context.Cause(watched), errStalled) {
			err = weir.Wrap(weir.Upstream, err, "%s stopped answering", o)
		}
		dog.stop()
		return response{}, err
	}
	dog.moved()
	res.body = &watchedBody{ReadCloser: res.body, cause: func() error { return context.Cause(watched) }, dog: dog}
	return res, nil
}

// reader reads a span of an origin. When the connection breaks it continues from there, as long as the
// origin has the same version, so that each byte is read once.
type reader struct {
	origin origin
	timing timing
	open   func(span) (response, error)
	wait   func(n int, err error) error
	cause  func(error) error // converts the error of a body

	body    io.ReadCloser
	at, to  int64 // to is -1 until the end is known
	version version
	ranged  bool  // a response with the whole file is an error
	failed  int   // tries since the last one with enough bytes
	since   int64 // bytes since then
}

// errRestart means that a connection broke and that the origin can't resume.
var errRestart = errors.New("the server can't continue a broken transfer")

// errChanged means that the content is not the one of the first response.
var errChanged = errors.New("the file has changed")

// errWrongRange means that a range is not the requested one, or that its description contradicts itself.
var errWrongRange = errors.New("the server sends wrong ranges")

// changed returns the error with errChanged. Reading again from the start may work.
func changed(where string) error {
	return weir.Wrap(weir.Upstream, errChanged, "the source at %s changed while it was read", where)
}

// openReader opens a span of any version if v is empty, else a range of that version.
func openReader(ctx context.Context, o origin, s span, v version, t timing) (*reader, response, error) {
	r := &reader{
		origin: o, timing: t, at: s.from, to: s.to, version: v, ranged: v != version{},
		wait:  func(n int, err error) error { return t.wait(ctx, n, err) },
		cause: func(err error) error { return netError(ctx, err, o.String()) },
	}
	r.open = func(s span) (response, error) { return openWatched(ctx, o, s, r.version, t) }
	var res response
	err := t.retry(ctx, func() (err error) {
		res, err = r.open(s)
		return err
	})
	if err != nil {
		return nil, response{}, err
	}
	if !r.ranged {
		r.version = res.version
	}
	if size := res.version.size; size >= 0 && (r.to < 0 || r.to > size) {
		r.to = size
	}
	if err := r.use(res); err != nil {
		return nil, response{}, err
	}
	return r, res, nil
}

// use continues with a response, if it has the right bytes.
func (r *reader) use(res response) error {
	if !r.version.same(res.version) {
		_ = res.body.Close()
		return changed(r.origin.String())
	}
	if res.from < r.at && r.ranged {
		_ = res.body.Close()
		return errors.Join(errRestart, weir.Errorf(weir.Upstream, "%s sends the whole file instead of the requested range", r.origin))
	}
	if res.from < r.at {
		// The origin can't send a range: skip the bytes that were read already.
		if _, err := io.CopyN(io.Discard, res.body, r.at-res.from); err != nil {
			_ = res.body.Close()
			return r.cause(unexpected(err))
		}
	}
	r.body = res.body
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *reader) Read(p []byte) (int, error) {
	for {
		if r.to >= 0 && r.at >= r.to {
			return 0, io.EOF
		}
		if r.to >= 0 {
			p = p[:min(int64(len(p)), r.to-r.at)]
		}
		n, err := r.body.Read(p)
		r.at += int64(n)
		if r.since += int64(n); r.since >= minProgress {
			r.since, r.failed = 0, 0
		}
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, io.EOF) && r.to < 0:
			return 0, io.EOF
		case err != nil:
			if err := r.resume(err); err != nil {
				return 0, err
			}
		}
	}
}

// resume opens the rest after the connection broke.
func (r *reader) resume(err error) error {
	_ = r.body.Close()
	for {
		err = r.cause(unexpected(err))
		r.failed++
		if !worthRetry(err) {
			return err
		}
		if !r.version.known() {
			return errors.Join(errRestart, r.short(err))
		}
		if r.failed >= r.timing.tries {
			return r.short(err)
		}
		if e := r.wait(r.failed, err); e != nil {
			return e
		}
		res, e := r.open(span{r.at, r.to})
		if e == nil {
			e = r.use(res)
		}
		if e == nil {
			return nil
		}
		err = e
	}
}

// short returns the error for a transfer that broke off.
func (r *reader) short(err error) error {
	if r.version.size < 0 {
		return weir.Wrap(weir.Upstream, err, "the connection to %s broke off after %d bytes", r.origin, r.at)
	}
	return weir.Wrap(weir.Upstream, err, "the connection to %s broke off after %d of %d bytes", r.origin, r.at, r.version.size)
}

func (r *reader) Close() error { return r.body.Close() }
