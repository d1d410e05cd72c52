package ipfs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"weir/internal/blob"
	"weir/internal/ipld"
	"weir/internal/weir"
)

// DestOptions configure a destination on IPFS.
type DestOptions struct {
	Staging  blob.Store          // where objects are kept until Seal
	Prefix   string              // folder of the destination in Staging
	Scratch  string              // folder on disk for one shard
	Remote   Remote              // what takes the shards
	Progress func(share float64) // of Seal, from 0 to 1; may be nil
	Single   bool                // the root is the only object itself, not a directory with it

	shardSize int64 // for tests
}

// NewDest returns a destination whose Seal makes one directory on IPFS of all objects and returns
// ipfs://<cid>. Close does not close the staging store.
//
// Objects wait below Prefix/files. Each shard that the remote has taken leaves an object below
// Prefix/shards, with all that is needed to go on after it: a Seal that was interrupted reads no file
// again that is in these shards, and sends none of them again. Prefix/root is the result; it stays
// when the others are deleted, so the owner of the prefix deletes it.
func NewDest(o DestOptions) blob.Dest {
	if o.Progress == nil {
		o.Progress = func(float64) {}
	}
	return &dest{o, blob.NewDest(o.Staging, "").PartSize()}
}

type dest struct {
	DestOptions
	partSize int64
}

func (d *dest) file(key string) string { return d.Prefix + "/files/" + key }

func (d *dest) Put(ctx context.Context, key string, r io.Reader, size int64, o blob.PutOptions) error {
	return d.Staging.Put(ctx, d.file(key), r, size, o)
}

func (d *dest) Upload(ctx context.Context, key string, o blob.PutOptions) (blob.Upload, error) {
	return d.Staging.Upload(ctx, d.file(key), o)
}

func (d *dest) Resume(ctx context.Context, key, uploadID string) (blob.Upload, error) {
	return d.Staging.Resume(ctx, d.file(key), uploadID)
}

func (d *dest) Stat(ctx context.Context, key string) (blob.Info, error) {
	info, err := d.Staging.Stat(ctx, d.file(key))
	info.Key = key
	return info, err
}

func (d *dest) Delete(ctx context.Context, key string) error {
	return d.Staging.Delete(ctx, d.file(key))
}

func (d *dest) PartSize() int64 { return d.partSize }

func (d *dest) Close() error { return nil }

// result is the object at Prefix/root.
type result struct {
	Root string `json:"root"`
}

// stored is the object of a shard that the remote has.
type stored struct {
	Shard Shard        `json:"shard"`
	Files []packedFile `json:"files"` // that were packed since the shard before
}

// packedFile is a file whose blocks are all in stored shards.
type packedFile struct {
	Key   string `json:"key"`
	Size  int64  `json:"size"`
	ETag  string `json:"etag"`
	CID   string `json:"cid"`
	Tsize uint64 `json:"tsize"`
}

func (d *dest) Seal(ctx context.Context) (string, error) {
	var r result
	err := d.load(ctx, "root", &r)
	if weir.IsNotFound(err) {
		if r.Root, err = d.pack(ctx); err == nil {
			err = d.save(ctx, "root", r)
		}
	}
	if err != nil {
		return "", err
	}
	for _, folder := range []string{"/files", "/shards"} {
		if err := d.Staging.DeletePrefix(ctx, d.Prefix+folder); err != nil {
			return "", err
		}
	}
	d.Progress(1)
	return "ipfs://" + r.Root, nil
}

// pack packs all objects into shards, gives the remote those that it does not have, and returns the
// root.
func (d *dest) pack(ctx context.Context) (string, error) {
	infos, total, err := d.list(ctx)
	if err != nil {
		return "", err
	}
	var shards []Shard
	var fresh []packedFile // since the last shard
	p := newPacker(d.Scratch, func(ctx context.Context, s Shard, o open) error {
		if err := d.Remote.PutShard(ctx, s, o); err != nil {
			return err
		}
		shards = append(shards, s)
		err := d.save(ctx, shardKey(s.Number), stored{s, fresh})
		fresh = nil
		return err
	})
	defer p.close()
	if d.shardSize > 0 {
		p.max = d.shardSize
	}
	packed, shards, err := d.continueAfter(ctx, p)
	if err != nil {
		return "", err
	}
	var done int64
	read := func(n int) {
		done += int64(n)
		d.Progress(float64(done) / float64(max(total, 1)))
	}
	w := walk{
		packer: p,
		open: func(ctx context.Context, key string) (io.ReadCloser, error) {
			r, _, err := d.Staging.Get(ctx, d.file(key), 0, -1)
			return counted{r, read}, err
		},
		packed: func(key string) (node, bool) {
			f, ok := packed[key]
			if !ok || f.Size != infos[key].Size || f.ETag != infos[key].ETag {
				return node{}, false // a task that was repeated may have put another file
			}
			c, err := ipld.ParseCID(f.CID)
			if err == nil {
				read(int(f.Size))
			}
			return node{cid: c, bytes: uint64(f.Size), stored: f.Tsize}, err == nil
		},
		done: func(key string, n node) {
			i := infos[key]
			fresh = append(fresh, packedFile{Key: key, Size: i.Size, ETag: i.ETag, CID: n.cid.String(), Tsize: n.stored})
		},
	}
	keys := make([]string, 0, len(infos))
	for key := range infos {
		keys = append(keys, key)
	}
	var root node
	if d.Single && len(keys) == 1 {
		root, err = w.file(ctx, keys[0])
	} else {
		root, err = w.pack(ctx, keys)
	}
	if err == nil {
		err = p.flush(ctx)
	}
	if err == nil {
		err = d.Remote.Finish(ctx, root.cid.String(), shards)
	}
	if errors.Is(err, errLost) {
		err = errors.Join(err, d.Staging.DeletePrefix(ctx, d.Prefix+"/shards"))
	}
	return root.cid.String(), err
}

func (d *dest) list(ctx context.Context) (infos map[string]blob.Info, total int64, err error) {
	infos = map[string]blob.Info{}
	for info, err := range d.Staging.List(ctx, d.Prefix+"/files") {
		if err != nil {
			return nil, 0, err
		}
		infos[strings.TrimPrefix(info.Key, d.file(""))] = info
		total += info.Size
	}
	return infos, total, nil
}

// continueAfter tells the packer of the shards that the remote has. It returns them, and the files
// that need not be packed again.
func (d *dest) continueAfter(ctx context.Context, p *packer) (map[string]packedFile, []Shard, error) {
	packed := map[string]packedFile{}
	var shards []Shard
	for {
		var s stored
		err := d.load(ctx, shardKey(len(shards)), &s)
		if weir.IsNotFound(err) {
			return packed, shards, nil
		}
		if err == nil {
			err = p.skip(s.Shard)
		}
		if err != nil {
			return nil, nil, err
		}
		shards = append(shards, s.Shard)
		for _, f := range s.Files {
			packed[f.Key] = f
		}
	}
}

func shardKey(number int) string { return fmt.Sprintf("shards/%d", number) }

func (d *dest) save(ctx context.Context, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return d.Staging.Put(ctx, d.Prefix+"/"+name, bytes.NewReader(data), int64(len(data)), blob.PutOptions{ContentType: "application/json"})
}

func (d *dest) load(ctx context.Context, name string, v any) error {
	r, _, err := d.Staging.Get(ctx, d.Prefix+"/"+name, 0, -1)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	if err := json.NewDecoder(r).Decode(v); err != nil {
		return fmt.Errorf("%s/%s: %w", d.Prefix, name, err)
	}
	return nil
}

// counted reports the bytes that are read.
type counted struct {
	io.ReadCloser
	read func(n int)
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.read(n)
	return n, err
}

// walk packs files into directories.
type walk struct {
	packer *packer
	open   func(ctx context.Context, key string) (io.ReadCloser, error)
	packed func(key string) (node, bool) // files that are in shards already; may be nil
	done   func(key string, n node)      // called for every other file; may be nil
}

// pack packs the files with these keys in the order of their names and returns the directory with
// all of them.
func (w *walk) pack(ctx context.Context, keys []string) (node, error) {
	paths := make([][]string, 0, len(keys))
	for _, key := range keys {
		paths = append(paths, strings.Split(key, "/"))
	}
	slices.SortFunc(paths, slices.Compare)
	return w.directory(ctx, paths, 0)
}

// directory packs the files whose paths have the first depth names in common.
func (w *walk) directory(ctx context.Context, paths [][]string, depth int) (node, error) {
	var entries []entry
	for len(paths) > 0 {
		name := paths[0][depth]
		same := 1
		for same < len(paths) && paths[same][depth] == name {
			same++
		}
		var n node
		var err error
		if isFile := len(paths[0]) == depth+1; isFile && same > 1 {
			return node{}, weir.Errorf(weir.Invalid, "%q is both a file and a directory; use different paths", strings.Join(paths[0], "/"))
		} else if isFile {
			n, err = w.file(ctx, strings.Join(paths[0], "/"))
		} else {
			n, err = w.directory(ctx, paths[:same], depth+1)
		}
		if err != nil {
			return node{}, err
		}
		entries = append(entries, entry{name, n})
		paths = paths[same:]
	}
	return w.packer.directory(ctx, entries)
}

func (w *walk) file(ctx context.Context, key string) (node, error) {
	if w.packed != nil {
		if n, ok := w.packed(key); ok {
			return n, nil
		}
	}
	r, err := w.open(ctx, key)
	if err != nil {
		return node{}, err
	}
	n, err := w.packer.file(ctx, r)
	_ = r.Close()
	if err == nil && w.done != nil {
		w.done(key, n)
	}
	return n, err
}
