package ipfs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/weir"
)

// index is an Index in memory.
type index struct {
	mu     sync.Mutex
	places map[string][]weir.IPFSBlockPlace
}

func (x *index) AddIPFSBlocks(_ context.Context, upload string, blocks []weir.IPFSBlock) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.places == nil {
		x.places = map[string][]weir.IPFSBlockPlace{}
	}
	for _, b := range blocks {
		x.places[string(b.Hash)] = append(x.places[string(b.Hash)], weir.IPFSBlockPlace{Upload: upload, IPFSBlock: b})
	}
	return nil
}

func (x *index) IPFSBlocks(_ context.Context, hash []byte) ([]weir.IPFSBlockPlace, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.places[string(hash)]), nil
}

// recorder is a Remote that remembers what it got, and fails when it is told to.
type recorder struct {
	Remote                         // what really takes the shards; may be nil
	fail     func(number int) bool // refuse this shard
	puts     []int                 // numbers of shards
	finished []string              // roots
	shards   []Shard               // of the last Finish
	lose     func()                // called before Finish
}

var errKilled = errors.New("killed")

func (r *recorder) PutShard(ctx context.Context, s Shard, open func() (io.ReadCloser, error)) error {
	if r.fail != nil && r.fail(s.Number) {
		return errKilled
	}
	r.puts = append(r.puts, s.Number)
	if r.Remote != nil {
		return r.Remote.PutShard(ctx, s, open)
	}
	return nil
}

func (r *recorder) Finish(ctx context.Context, root string, shards []Shard) error {
	r.finished, r.shards = append(r.finished, root), shards
	if r.lose != nil {
		r.lose()
	}
	if r.Remote != nil {
		return r.Remote.Finish(ctx, root, shards)
	}
	return nil
}

// reads is a store that counts what is read of each key, and can fail to put some.
type reads struct {
	blob.Store
	bytes  map[string]int64
	refuse string // part of keys that can't be put
}

func (s *reads) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, blob.Info, error) {
	r, info, err := s.Store.Get(ctx, key, offset, length)
	if err == nil {
		s.bytes[key] += info.Size
	}
	return r, info, err
}

func (s *reads) Put(ctx context.Context, key string, r io.Reader, size int64, o blob.PutOptions) error {
	if s.refuse != "" && strings.Contains(key, s.refuse) {
		return errKilled
	}
	return s.Store.Put(ctx, key, r, size, o)
}

func newStore(t *testing.T) blob.Store {
	t.Helper()
	s, err := blob.Open("file:"+t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func putAll(t *testing.T, d blob.Dest, f files) {
	t.Helper()
	for name, size := range f {
		if err := d.Put(t.Context(), name, bytes.NewReader(content(name, size)), int64(size), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func keysOf(t *testing.T, s blob.Store) []string {
	t.Helper()
	keys := []string{}
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	slices.Sort(keys)
	return keys
}

// film has 6 shards of at most 2 MiB and a bit.
var film = files{"hls/index.m3u8": 200, "video.mp4": 7 << 20}.numbered("hls/720p/seg", 12, 400_000)

func TestSeal(t *testing.T) {
	want, _ := pack(t, film, nil)
	store, remote := newStore(t), &recorder{}
	var shares []float64
	d := NewDest(DestOptions{
		Staging: store, Prefix: "work/1/ipfs", Scratch: t.TempDir(), Remote: remote,
		Progress: func(share float64) { shares = append(shares, share) }, shardSize: 5 << 19,
	})
	putAll(t, d, film)
	if err := d.Put(t.Context(), "wrong.ts", strings.NewReader("x"), 1, blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if info, err := d.Stat(t.Context(), "wrong.ts"); err != nil || info.Key != "wrong.ts" || info.Size != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	if err := d.Delete(t.Context(), "wrong.ts"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if base, err := d.Seal(t.Context()); err != nil || base != "ipfs://"+want.String() {
			t.Fatalf("%s, %v; want ipfs://%s", base, err, want)
		}
	}
	if diff := cmp.Diff([]string{want.String()}, remote.finished); diff != "" {
		t.Error(diff)
	}
	if len(remote.puts) < 5 || len(remote.shards) != len(remote.puts) {
		t.Errorf("%d shards were put, %d finished", len(remote.puts), len(remote.shards))
	}
	if diff := cmp.Diff([]string{"work/1/ipfs/root"}, keysOf(t, store)); diff != "" {
		t.Errorf("left in the store:\n%s", diff)
	}
	if !slices.IsSorted(shares) || shares[len(shares)-1] != 1 || len(shares) < 20 {
		t.Errorf("progress: %v", shares)
	}
}

// A Seal that stops at any shard, before or after its state is written, goes on without sending or
// reading again what is stored.
func TestSealContinues(t *testing.T) {
	t.Parallel()
	whole := &recorder{}
	{
		d := NewDest(DestOptions{Staging: newStore(t), Prefix: "w", Scratch: t.TempDir(), Remote: whole, shardSize: 5 << 19})
		putAll(t, d, film)
		if _, err := d.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for stop := range len(whole.puts) {
		store := &reads{Store: newStore(t), bytes: map[string]int64{}}
		remote := &recorder{fail: func(n int) bool { return n == stop }}
		begin := func() blob.Dest {
			return NewDest(DestOptions{Staging: store, Prefix: "w", Scratch: t.TempDir(), Remote: remote, shardSize: 5 << 19})
		}
		putAll(t, begin(), film)
		if _, err := begin().Seal(t.Context()); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if stop > 0 {
			clear(store.bytes)
		}
		remote.fail = nil
		if _, err := begin().Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole.puts, remote.puts); diff != "" {
			t.Errorf("stopped at shard %d (-want +got):\n%s", stop, diff)
		}
		if diff := cmp.Diff(whole.finished, remote.finished); diff != "" {
			t.Errorf("stopped at shard %d (-want +got):\n%s", stop, diff)
		}
		if diff := cmp.Diff(whole.shards, remote.shards); diff != "" {
			t.Errorf("stopped at shard %d: other shards", stop)
		}
		// Only the file in which it stopped is read again.
		if again := store.bytes["w/files/hls/720p/seg-0000.ts"]; stop > 1 && again != 0 {
			t.Errorf("stopped at shard %d: the first segment was read again", stop)
		}
	}
}

func TestSealContinuesBeforeItsStateIsWritten(t *testing.T) {
	store := &reads{Store: newStore(t), bytes: map[string]int64{}, refuse: "shards/3"}
	remote := &recorder{}
	d := NewDest(DestOptions{Staging: store, Prefix: "w", Scratch: t.TempDir(), Remote: remote, shardSize: 5 << 19})
	putAll(t, d, film)
	if _, err := d.Seal(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	store.refuse = "w/root"
	if _, err := d.Seal(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	store.refuse = ""
	base, err := d.Seal(t.Context())
	if want, _ := pack(t, film, nil); err != nil || base != "ipfs://"+want.String() {
		t.Errorf("%s, %v; want %s", base, err, want)
	}
	if n := slices.Compact(slices.Sorted(slices.Values(remote.puts))); len(remote.puts) != len(n)+1 {
		t.Errorf("puts: %v", remote.puts)
	}
}

// A file that is put again with other bytes after a Seal that failed is packed again.
func TestSealAfterChange(t *testing.T) {
	remote := &recorder{fail: func(n int) bool { return n == 3 }}
	d := NewDest(DestOptions{Staging: newStore(t), Prefix: "w", Scratch: t.TempDir(), Remote: remote, shardSize: 5 << 19})
	putAll(t, d, film)
	if _, err := d.Seal(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	remote.fail = nil
	changed := maps.Clone(film)
	changed["hls/720p/seg-0000.ts"] = 400_001
	putAll(t, d, changed)
	base, err := d.Seal(t.Context())
	if want, _ := pack(t, changed, nil); err != nil || base != "ipfs://"+want.String() {
		t.Errorf("%s, %v; want %s", base, err, want)
	}
}

func TestSealNothing(t *testing.T) {
	d := NewDest(DestOptions{Staging: newStore(t), Prefix: "w", Scratch: t.TempDir(), Remote: &recorder{}})
	// The empty directory of everybody.
	if base, err := d.Seal(t.Context()); err != nil || base != "ipfs://bafybeiczsscdsbs7ffqz55asqdf3smv6klcw3gofszvwlyarci47bgf354" {
		t.Errorf("%s, %v", base, err)
	}
}

func TestFileAndDirectory(t *testing.T) {
	w := walk{packer: newPacker(t.TempDir(), nil), open: func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("x")), nil
	}}
	defer w.packer.close()
	if _, err := w.pack(t.Context(), []string{"a/b/c", "a/b"}); weir.KindOf(err) != weir.Invalid {
		t.Errorf("%v", err)
	}
}
