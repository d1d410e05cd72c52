package mediatest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"weir/internal/blob"
	"weir/internal/weir"
)

// Destination notes what is put to it, and can fail.
type Destination struct {
	blob.Dest
	Parts  int64 // size of parts; 0 = as the destination has it
	FailAt int   // the request that fails, counting from 1; 0 = none

	mu    sync.Mutex
	store blob.Store
	puts  []string
	count int
}

// ErrInjected is the error of a request that fails.
var ErrInjected = weir.Errorf(weir.Upstream, "the store has a bad day")

// NewDestination returns an empty folder as a destination.
func NewDestination(t *testing.T) (dir string, dest *Destination) {
	t.Helper()
	dir = t.TempDir()
	disk, err := blob.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	return dir, &Destination{Dest: blob.NewDest(disk, "file://"+dir), store: disk}
}

// Contents returns the objects of a destination that is a folder.
func (d *Destination) Contents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for info, err := range d.store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := d.store.Get(t.Context(), info.Key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil {
			t.Fatal(err)
		}
		all[info.Key] = string(data)
	}
	return all
}

// Puts returns what was put, in order.
func (d *Destination) Puts() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.puts)
}

// Count returns the number of requests.
func (d *Destination) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

func (d *Destination) step(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	if d.count == d.FailAt {
		return ErrInjected
	}
	d.puts = append(d.puts, name)
	return nil
}

func (d *Destination) PartSize() int64 {
	if d.Parts > 0 {
		return d.Parts
	}
	return d.Dest.PartSize()
}

func (d *Destination) Put(ctx context.Context, key string, body io.Reader, size int64, o blob.PutOptions) error {
	if err := d.step(key); err != nil {
		return err
	}
	return d.Dest.Put(ctx, key, body, size, o)
}

func (d *Destination) Upload(ctx context.Context, key string, o blob.PutOptions) (blob.Upload, error) {
	if err := d.step(key + " begin"); err != nil {
		return nil, err
	}
	u, err := d.Dest.Upload(ctx, key, o)
	return notedUpload{u, d, key}, err
}

func (d *Destination) Resume(ctx context.Context, key, id string) (blob.Upload, error) {
	u, err := d.Dest.Resume(ctx, key, id)
	return notedUpload{u, d, key}, err
}

type notedUpload struct {
	blob.Upload
	dest *Destination
	key  string
}

func (u notedUpload) Part(ctx context.Context, n int, body io.ReadSeeker, size int64) (blob.PartInfo, error) {
	if err := u.dest.step(fmt.Sprintf("%s part %d: %d", u.key, n, size)); err != nil {
		return blob.PartInfo{}, err
	}
	return u.Upload.Part(ctx, n, body, size)
}

func (u notedUpload) Complete(ctx context.Context, parts []blob.PartInfo) error {
	if err := u.dest.step(u.key + " complete"); err != nil {
		return err
	}
	return u.Upload.Complete(ctx, parts)
}
