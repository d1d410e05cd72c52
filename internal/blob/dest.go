package blob

import (
	"context"
	"io"
)

// A Dest is a place for what was made for a caller. It is written to, by keys like those of a
// Store, and sealed when everything is there. Only then its address is known: that of a
// bucket always was, but what is addressed by its content has none before it is complete.
// So nobody asks for a URL before Seal, and all paths are relative to what that returns.
// All methods but Seal and Close may be called at the same time.
type Dest interface {
	// Put, Upload, Resume, Stat and Delete are those of a Store. Stat need only know what was
	// put here.
	Put(ctx context.Context, key string, r io.Reader, size int64, o PutOptions) error
	Upload(ctx context.Context, key string, o PutOptions) (Upload, error)
	Resume(ctx context.Context, key, uploadID string) (Upload, error)
	Stat(ctx context.Context, key string) (Info, error)
	Delete(ctx context.Context, key string) error

	// PartSize returns the size of the parts in which large objects are uploaded best; 0 says
	// that they are put whole.
	PartSize() int64

	// Seal says that everything is there and returns the URL that keys are relative to. To
	// seal what is sealed gives the same.
	Seal(ctx context.Context) (baseURL string, err error)

	// Close gives up connections and handles.
	Close() error
}

// destPart is the size of parts in a bucket. Uploads to callers' buckets go through memory
// and over slow lines, so it is not far above MinPart.
const destPart = 8 << 20

// OpenDest returns the storage of a caller as a destination, by the URL that has its
// credentials; see Open.
func OpenDest(url string, o Options) (Dest, error) {
	store, err := Open(url, o)
	if err != nil {
		return nil, err
	}
	base := baseURL(url)
	if base == "" {
		base = url // of a folder, which has no credentials
	}
	return NewDest(store, base), nil
}

// NewDest returns a store as a destination; baseURL is what its keys are relative to. Closing
// the one closes the other.
func NewDest(s Store, baseURL string) Dest { return storeDest{s, baseURL} }

type storeDest struct {
	Store
	base string
}

// PartSize is 0 for a disk, where an upload in parts would only be writing twice.
func (d storeDest) PartSize() int64 {
	if _, disk := d.Path("object"); disk {
		return 0
	}
	return destPart
}

func (d storeDest) Seal(context.Context) (string, error) { return d.base, nil }
