package blob

import (
	"context"
	"errors"
	"io"

	"weir/internal/weir"
)

// origin is a place from which the same bytes can be read again, in whole or in part.
type origin interface {
	// open begins to read a span. If v is not empty, the bytes must be of that
	// version; if they are not, or the origin can't tell, it may give the whole of
	// what it has now, and the version of that.
	open(ctx context.Context, s span, v version) (stream, error)

	// String names the origin for people.
	String() string
}

// span is a range of bytes.
type span struct {
	from, to int64 // to is the first byte that is not in it; -1 = it has no end
}

// version tells one state of a resource from another. Without etag and modified,
// nothing can.
type version struct {
	etag     string
	modified string
	size     int64 // of all of it; -1 = unknown
}

// known reports whether it can be told that the resource is still the same.
func (v version) known() bool { return v.etag != "" || v.modified != "" }

// same reports whether two answers were about the same bytes.
func (v version) same(o version) bool {
	if v.size >= 0 && o.size >= 0 && v.size != o.size {
		return false
	}
	if v.etag != "" && o.etag != "" {
		return v.etag == o.etag
	}
	return v.modified == o.modified
}

// stream is bytes on their way.
type stream struct {
	body        io.ReadCloser
	from        int64 // where the body begins: at 0, or where the span does
	version     version
	whole       bool // the body goes to the end, whatever was asked for
	contentType string
	location    string // the URL after redirects, if there is one
}

// openWatched is open with a limit for how long the origin may keep still, before
// the first byte and after.
func openWatched(ctx context.Context, o origin, s span, v version, t tempo) (stream, error) {
	watched, dog := watch(ctx, t.stall)
	st, err := o.open(watched, s, v)
	if err != nil {
		if errors.Is(context.Cause(watched), errStalled) {
			err = weir.Wrap(weir.Upstream, err, "%s stopped answering", o)
		}
		dog.stop()
		return stream{}, err
	}
	dog.moved()
	st.body = &watchedBody{ReadCloser: st.body, ctx: func() error { return context.Cause(watched) }, dog: dog}
	return st, nil
}

// reader reads a span of an origin. When the connection breaks it reads on where it
// was, as long as the origin still has the same bytes, so that each byte is read
// once.
type reader struct {
	origin origin
	tempo  tempo
	open   func(span) (stream, error) // of the version that was read first
	wait   func(n int, err error) error
	cause  func(error) error // gives the error of a body its kind

	body    io.ReadCloser
	at, to  int64 // to is -1 until the end is known
	version version
	part    bool  // one of many, which the whole can't stand in for each time
	failed  int   // tries since the last one that brought enough
	since   int64 // bytes since then
}

// errRestart says that a connection broke and that the origin can't go on from there.
var errRestart = errors.New("the server can't continue a broken transfer")

// errChanged says that the bytes are not those that were there when the reading began.
var errChanged = errors.New("the version is another one")

// changed is the error for that. It may go well from the start, but not from here.
func changed(where string) error {
	return weir.Wrap(weir.Upstream, errChanged, "the source at %s changed while it was read", where)
}

// openReader opens a span: of any version if v is empty, else a part of that one.
func openReader(ctx context.Context, o origin, s span, v version, t tempo) (*reader, stream, error) {
	r := &reader{
		origin: o, tempo: t, at: s.from, to: s.to, version: v, part: v != version{},
		wait:  func(n int, err error) error { return t.wait(ctx, n, err) },
		cause: func(err error) error { return netError(ctx, err, o.String()) },
	}
	r.open = func(s span) (stream, error) { return openWatched(ctx, o, s, r.version, t) }
	var st stream
	err := t.retry(ctx, func() (err error) {
		st, err = r.open(s)
		return err
	})
	if err != nil {
		return nil, stream{}, err
	}
	if !r.part {
		r.version = st.version
	}
	if size := st.version.size; size >= 0 && (r.to < 0 || r.to > size) {
		r.to = size
	}
	if err := r.use(st); err != nil {
		return nil, stream{}, err
	}
	return r, st, nil
}

// use goes on with a stream, if it is one of the right bytes.
func (r *reader) use(st stream) error {
	if !r.version.same(st.version) {
		_ = st.body.Close()
		return changed(r.origin.String())
	}
	if st.from < r.at && r.part {
		_ = st.body.Close()
		return errors.Join(errRestart, weir.Errorf(weir.Upstream, "%s sends the whole file when it is asked for a part", r.origin))
	}
	if st.from < r.at {
		// It can't give a part, so the rest comes after what we have already.
		if _, err := io.CopyN(io.Discard, st.body, r.at-st.from); err != nil {
			_ = st.body.Close()
			return r.cause(unexpected(err))
		}
	}
	r.body = st.body
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
		if r.since += int64(n); r.since >= enough {
			r.since, r.failed = 0, 0
		}
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, io.EOF) && r.to < 0:
			return 0, io.EOF
		case err != nil:
			if err := r.again(err); err != nil {
				return 0, err
			}
		}
	}
}

// again opens what is left after the connection broke.
func (r *reader) again(err error) error {
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
		if r.failed >= r.tempo.tries {
			return r.short(err)
		}
		if e := r.wait(r.failed, err); e != nil {
			return e
		}
		st, e := r.open(span{r.at, r.to})
		if e == nil {
			e = r.use(st)
		}
		if e == nil {
			return nil
		}
		err = e
	}
}

// short says how far the reader came.
func (r *reader) short(err error) error {
	if r.version.size < 0 {
		return weir.Wrap(weir.Upstream, err, "%s broke off after %d bytes", r.origin, r.at)
	}
	return weir.Wrap(weir.Upstream, err, "%s promised %d bytes and broke off after %d", r.origin, r.version.size, r.at)
}

// Close ends the reading, whether all was read or not.
func (r *reader) Close() error { return r.body.Close() }
