package playback

import (
	"bytes"
	"context"
	"errors"
	"io"

	"weir/internal/live"
	"weir/internal/weir"
)

// openStored opens something of a stream that another node carried before, which is in the
// storage.
func (s *Server) openStored(ctx context.Context, at live.Stored) (io.ReadSeekCloser, int64, error) {
	if at.Size < 0 {
		info, err := s.Media.Stat(ctx, at.Key)
		if err != nil {
			return nil, 0, storageError(err)
		}
		return storedPiece{&object{ctx: ctx, store: s.Media, key: at.Key, size: info.Size}}, info.Size, nil
	}
	body, _, err := s.Media.Get(ctx, at.Key, at.Offset, at.Size)
	if err != nil {
		return nil, 0, storageError(err)
	}
	part := make([]byte, at.Size) // a fraction of a second
	_, err = io.ReadFull(body, part)
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, 0, weir.Wrap(weir.Upstream, err, "the storage does not answer; try again")
	}
	return inMemory{bytes.NewReader(part)}, at.Size, nil
}

// storedPiece is an object that is closed like a file.
type storedPiece struct{ *object }

func (p storedPiece) Close() error {
	p.object.Close()
	return nil
}

// inMemory is a part that is closed like a file.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }
