package blob

import (
	"context"
	"io"
)

// A Dest receives the outputs of a task, under keys like those of a Store, and is sealed when it is
// complete. Only Seal returns its URL, to which all keys are relative: storage that is addressed by
// its content has no URL before. All methods but Seal and Close are safe for concurrent use.
type Dest interface {
	// Put, Upload, Resume, Stat and Delete are those of a Store. Stat need only know objects that
	// were put here.
	Put(ctx context.Context, key string, r io.Reader, size int64, o PutOptions) error
	Upload(ctx context.Context, key string, o PutOptions) (Upload, error)
	Resume(ctx context.Context, key, uploadID string) (Upload, error)
	Stat(ctx context.Context, key string) (Info, error)
	Delete(ctx context.Context, key string) error

	// PartSize returns the best size of the parts of large objects; 0 = they are not uploaded in
	// parts.
	PartSize() int64

	// Seal completes the destination and returns the URL that keys are relative to. A second call
	// returns the same.
	Seal(ctx context.Context) (baseURL string, err error)

	// Close closes connections and handles.
	Close() error
}

// destPart is the size of parts in a bucket. It is not far above MinPart, because parts are held in
// memory and connections to callers' buckets may be slow.
const destPart = 8 << 20

// OpenDest returns the storage of a caller as a destination, by its URL with credentials; see Open.
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

// NewDest returns a store as a destination; keys are relative to baseURL. Closing the destination
// closes the store.
func NewDest(s Store, baseURL string) Dest { return storeDest{s, baseURL} }

type storeDest struct {
	Store
	base string
}

// PartSize is 0 for a disk, where an upload in parts would write everything twice.
func (d storeDest) PartSize() int64 {
	if _, disk := d.Path("object"); disk {
		return 0
	}
	return destPart
}

func (d storeDest) Seal(context.Context) (string, error) { return d.base, nil }
