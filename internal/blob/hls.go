package blob

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/url"
	"strings"
	"time"

	"weir/internal/weir"
)

const maxPlaylist = 16 << 20

// playlist fetches the segments of an HLS playlist, and writes them as one file: MPEG-TS segments, or
// an init section and segments of fragmented MP4, can be concatenated.
func (f *Fetcher) playlist(ctx context.Context, o origin, source string, s *sink) (Fetched, error) {
	list, base, err := f.readPlaylist(ctx, o, source)
	if err != nil {
		return Fetched{}, err
	}
	if list.best != nil {
		at, err := resolve(base, list.best.URI)
		if err != nil {
			return Fetched{}, err
		}
		if o, err = f.origin(at); err != nil {
			return Fetched{}, err
		}
		if list, base, err = f.readPlaylist(ctx, o, at); err != nil {
			return Fetched{}, err
		}
		if list.best != nil {
			return Fetched{}, weir.Errorf(weir.Invalid, "a variant of the HLS playlist is a master playlist itself; variants must be media playlists")
		}
	}
	if limit := cmp.Or(f.MaxDuration, defaultMaxDuration); list.length > limit {
		return Fetched{}, weir.Errorf(weir.Invalid, "the HLS playlist lasts %v; at most %v are allowed", list.length.Round(time.Second), limit)
	}
	h := hash.Hash(sha256.New())
	for i, p := range list.files {
		if h, err = f.fetchFile(ctx, base, p, s, h); err != nil {
			return Fetched{}, inFile(err, i+1, len(list.files))
		}
	}
	return fetched(h, s.done), nil
}

// inFile adds the number of the file in a playlist to its error.
func inFile(err error, n, of int) error {
	e, ok := errors.AsType[*weir.Error](err)
	if !ok || e.Kind == weir.Full {
		return err
	}
	return weir.Wrap(e.Kind, e.Err, "file %d of %d of the HLS playlist: %s", n, of, strings.Join(e.Messages, "; "))
}

// readPlaylist returns a playlist and the URL that its names are relative to.
func (f *Fetcher) readPlaylist(ctx context.Context, o origin, source string) (list playlist, base string, err error) {
	var text []byte
	err = f.withRestarts(ctx, func() (err error) {
		text, base, err = readText(ctx, o, f.timing.orDefault())
		return err
	}, func(bool) bool { return true })
	if err == nil {
		list, err = parsePlaylist(text)
	}
	return list, cmp.Or(base, source), err
}

// readText returns the text of a playlist, and its URL after redirects.
func readText(ctx context.Context, o origin, t timing) (text []byte, location string, err error) {
	r, res, err := openReader(ctx, o, span{0, -1}, version{}, t)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = r.Close() }()
	text, err = io.ReadAll(io.LimitReader(r, maxPlaylist+1))
	if err == nil && len(text) > maxPlaylist {
		err = notSupported("has more than " + bytesFor(maxPlaylist))
	}
	return text, res.location, err
}

// resolve returns the URL of a file of a playlist. A playlist from the web can't refer to files in a
// bucket.
func resolve(base, uri string) (string, error) {
	b, err1 := url.Parse(base)
	u, err2 := url.Parse(uri)
	if err1 != nil || err2 != nil {
		return "", weir.Errorf(weir.Invalid, "the HLS playlist has a URI that is not valid")
	}
	at := b.ResolveReference(u)
	switch at.Scheme {
	case "http", "https", "ipfs", "ar":
	default:
		if at.Scheme != b.Scheme || u.User != nil || u.Host != "" {
			return "", notSupported(fmt.Sprintf("has a URI with the scheme %q", cut(at.Scheme, 20)))
		}
	}
	return at.String(), nil
}

// fetchFile writes one file of a playlist and returns the hash with its bytes added.
func (f *Fetcher) fetchFile(ctx context.Context, base string, p playlistFile, s *sink, h hash.Hash) (hash.Hash, error) {
	at, err := resolve(base, p.uri)
	if err != nil {
		return h, err
	}
	o, err := f.origin(at)
	if err != nil {
		return h, err
	}
	start, before := s.done, h.(hash.Cloner)
	err = f.withRestarts(ctx, func() error {
		clone, err := before.Clone()
		if err != nil {
			return fmt.Errorf("clone hash: %w", err)
		}
		h = clone
		return f.fetchRange(ctx, o, p.span, s, h)
	}, func(trusted bool) bool {
		if !trusted {
			o = plain{o}
		}
		return s.truncate(start)
	})
	return h, err
}

func (f *Fetcher) fetchRange(ctx context.Context, o origin, p span, s *sink, h hash.Hash) error {
	r, res, err := openReader(ctx, o, p, version{}, f.timing.orDefault())
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	if size := res.version.size; size >= 0 && p.to > size {
		return weir.Errorf(weir.Invalid, "a file at %s has %d bytes, but the HLS playlist has a byte range of it up to %d", o, size, p.to)
	}
	return s.readFrom(r, h, -1)
}
