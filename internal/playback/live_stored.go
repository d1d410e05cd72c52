package playback

import (
	"bytes"
	"context"
	"errors"
	"io"

	"weir/internal/live"
	"weir/internal/weir"
)

// openStored opens a piece of a stream from an earlier period on another node, which is in the storage.
func (s *Server) openStored(ctx context.Context, at live.Stored) (io.ReadSeekCloser, int64, error) {
	if at.Size < 0 {
		info, err := s.Media.Stat(ctx, at.Key)
		if err != nil {
			return nil, 0, storageError(err)
		}
		return &object{ctx: ctx, store: s.Media, key: at.Key, size: info.Size}, info.Size, nil
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

// inMemory adds Close.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }
