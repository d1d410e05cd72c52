package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/url"
	"strings"

	"weir/internal/weir"
)

// maxPlaylist is how long a playlist may be.
const maxPlaylist = 16 << 20

// playlist fetches what an HLS playlist lists, and writes it as one file: segments of
// MPEG-TS, or of fragmented MP4 after their init section, are one when they stand
// behind one another.
func (f *Fetcher) playlist(ctx context.Context, o origin, source string, s *sink) (Fetched, error) {
	list, base, err := f.readPlaylist(ctx, o, source)
	if err != nil {
		return Fetched{}, err
	}
	if len(list.variants) > 0 {
		at, err := resolve(base, list.best().URI)
		if err != nil {
			return Fetched{}, err
		}
		if o, err = f.origin(at); err != nil {
			return Fetched{}, err
		}
		if list, base, err = f.readPlaylist(ctx, o, at); err != nil {
			return Fetched{}, err
		}
		if len(list.variants) > 0 {
			return Fetched{}, weir.Errorf(weir.Invalid, "the HLS playlist has variants which have variants; there can be only one level of them")
		}
	}
	h := hash.Hash(sha256.New())
	for i, p := range list.pieces {
		if h, err = f.piece(ctx, base, p, s, h); err != nil {
			return Fetched{}, inPiece(err, i+1, len(list.pieces))
		}
	}
	return fetched(h, s.done, stream{contentType: "application/vnd.apple.mpegurl"}), nil
}

// inPiece says which of the files of a playlist an error is about.
func inPiece(err error, n, of int) error {
	e, ok := errors.AsType[*weir.Error](err)
	if !ok || e.Kind == weir.Full {
		return err
	}
	return weir.Wrap(e.Kind, e.Err, "file %d of %d of the HLS playlist: %s", n, of, strings.Join(e.Messages, "; "))
}

// readPlaylist returns a playlist and what its names are relative to.
func (f *Fetcher) readPlaylist(ctx context.Context, o origin, source string) (playlist, string, error) {
	t := f.tempo.orDefault()
	for restarts := 0; ; restarts++ {
		text, base, err := readText(ctx, o, t)
		if err == nil {
			if base == "" {
				base = source
			}
			list, err := parsePlaylist(text)
			return list, base, err
		}
		if ctx.Err() != nil || restarts >= maxRestarts || !errors.Is(err, errRestart) {
			return playlist{}, "", err
		}
		if e := t.wait(ctx, restarts+1, err); e != nil {
			return playlist{}, "", e
		}
	}
}

// readText returns a playlist as it is, and where it was.
func readText(ctx context.Context, o origin, t tempo) (text []byte, location string, err error) {
	r, st, err := openReader(ctx, o, span{0, -1}, version{}, t)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = r.Close() }()
	text, err = io.ReadAll(io.LimitReader(r, maxPlaylist+1))
	if err == nil && len(text) > maxPlaylist {
		err = notSupported("has more than " + bytesFor(maxPlaylist))
	}
	return text, st.location, err
}

// resolve returns where a file of a playlist is. A playlist from the web can't name
// files in a bucket.
func resolve(base, uri string) (string, error) {
	b, err1 := url.Parse(base)
	u, err2 := url.Parse(uri)
	if err1 != nil || err2 != nil {
		return "", weir.Errorf(weir.Invalid, "the HLS playlist names a file whose address can't be read")
	}
	at := b.ResolveReference(u)
	switch at.Scheme {
	case "http", "https", "ipfs", "ar":
	default:
		if at.Scheme != b.Scheme || u.User != nil || u.Host != "" {
			return "", notSupported(fmt.Sprintf("names a file with %q", cut(at.Scheme, 20)))
		}
	}
	return at.String(), nil
}

// piece writes one file of a playlist and returns the hash that goes on from there.
func (f *Fetcher) piece(ctx context.Context, base string, p hlsPiece, s *sink, h hash.Hash) (hash.Hash, error) {
	at, err := resolve(base, p.uri)
	if err != nil {
		return h, err
	}
	o, err := f.origin(at)
	if err != nil {
		return h, err
	}
	t, start := f.tempo.orDefault(), s.done
	for restarts := 0; ; restarts++ {
		before, err := h.(hash.Cloner).Clone()
		if err != nil {
			return h, fmt.Errorf("clone hash: %w", err)
		}
		err = f.onePiece(ctx, o, p.span, s, h, t)
		if err == nil || ctx.Err() != nil || restarts >= maxRestarts || !errors.Is(err, errRestart) || !s.back(start) {
			return h, err
		}
		h = before
		if e := t.wait(ctx, restarts+1, err); e != nil {
			return h, e
		}
	}
}

func (f *Fetcher) onePiece(ctx context.Context, o origin, p span, s *sink, h hash.Hash, t tempo) error {
	r, st, err := openReader(ctx, o, p, version{}, t)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	if size := st.version.size; size >= 0 && p.to > size {
		return weir.Errorf(weir.Invalid, "%s has a file of %d bytes, of which the HLS playlist wants %d", o, size, p.to)
	}
	return s.take(r, h, -1)
}
