package ipfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/ipld"
	"weir/internal/weir"
)

// files is a directory for tests: sizes of files by path.
type files map[string]int

// content returns the bytes of a file, which depend on its path and size.
func content(name string, size int) []byte {
	data := make([]byte, 0, size+sha256.Size)
	sum := sha256.Sum256([]byte(name))
	for len(data) < size {
		data = append(data, sum[:]...)
		sum = sha256.Sum256(sum[:])
	}
	return data[:size]
}

// numbered adds files like hls/seg-0007.ts.
func (f files) numbered(start string, count, size int) files {
	for i := range count {
		f[fmt.Sprintf("%s-%04d.ts", start, i)] = size
	}
	return f
}

// shown is a shard and its bytes.
type shown struct {
	Shard
	data []byte
}

// pack packs files with a packer that change may alter, and returns the root and the shards.
func pack(t *testing.T, f files, change func(*packer)) (ipld.CID, []shown) {
	t.Helper()
	var shards []shown
	p := newPacker(t.TempDir(), func(_ context.Context, s Shard, o open) error {
		r, err := o()
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		shards = append(shards, shown{s, data})
		return errors.Join(err, r.Close())
	})
	if change != nil {
		change(p)
	}
	defer p.close()
	w := walk{packer: p, open: func(_ context.Context, name string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content(name, f[name]))), nil
	}}
	root, err := w.pack(t.Context(), slices.Collect(maps.Keys(f)))
	if err == nil {
		err = p.flush(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return root.cid, shards
}

// small makes deep trees of small files.
func small(p *packer) { p.leafSize, p.links = 16, 4 }

// The roots were made with ipfs-car 3.1.0: "pack --no-wrap" on the same files, and for small its
// library, with withMaxChunkSize(16) and withWidth(4). WEIR_TREES=folder writes the files there.
var trees = []struct {
	name   string
	files  files
	change func(*packer)
	root   string
}{
	{"one", files{"a.txt": 5, "b.txt": 7}, nil, "bafybeicyvx4k5ommqxllqbnnr5m5qj72ibi4uc4kt72ailjy32kei3eqpi"},
	{
		"outputs", files{
			"hls/index.m3u8": 300, "hls/720p/index.m3u8": 500, "hls/720p/0.ts": 1_500_000, "hls/720p/1.ts": 1 << 20,
			"mp4/720p.mp4": 5<<20 + 1, "mp4/360p.mp4": 2 << 20,
		}, nil, "bafybeifg6z3avigfph4wx4yv4iwur4vyy26v2div4fawwmrypwcwuxbnse",
	},
	{"names", files{"empty": 0, "ä/ü.txt": 10, "a": 1, "a-b/c": 1, "a.b": 2, "Z z/%41+&.ts": 3}, nil, "bafybeihp25sdemgduu23qdv3hsoedcftfhf3mqscydplnllheb33eggrtm"},
	{"many", files{"index.m3u8": 100}.numbered("seg/seg", 900, 40), nil, "bafybeihs6y2pbuqfzwkl2hrvdp7ksz3tpe5zoq6h765sgmpqpijirjjfye"},
	{
		"deep", files{
			"a": 0, "b": 1, "c": 16, "d": 17, "e": 64, "f": 65, "g": 80, "h": 255, "i": 256, "j": 257, "k": 321, "l": 1024, "m": 1025,
			"n": 1030, "o": 4097, "p": 5000,
		}, small, "bafybeiajq3ap2mb27lmt7ukmawovr47ek34sjraamt7bpmb3pdtsgdshfe",
	},
}

func TestRoots(t *testing.T) {
	for _, tree := range trees {
		t.Run(tree.name, func(t *testing.T) {
			if dir := os.Getenv("WEIR_TREES"); dir != "" {
				for name, size := range tree.files {
					name, data := filepath.Join(dir, tree.name, name), content(name, size)
					if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data, 0o644)); err != nil {
						t.Fatal(err)
					}
				}
			}
			root, _ := pack(t, tree.files, tree.change)
			if root.String() != tree.root {
				t.Errorf("root %s, but ipfs-car makes %s", root, tree.root)
			}
		})
	}
}

func TestShards(t *testing.T) {
	t.Parallel()
	f := files{"same/1": 3000, "big": 200_000, "other": 70_000}.numbered("hls/seg", 300, 700)
	change := func(p *packer) { p.leafSize, p.max = 10_000, 64_000 }
	root, shards := pack(t, f, change)
	if len(shards) < 7 {
		t.Fatalf("%d shards", len(shards))
	}
	seen := map[string]bool{}
	for i, s := range shards {
		if s.Number != i || s.Size != int64(len(s.data)) || s.Size > 64_000 || s.Digest != sha256.Sum256(s.data) {
			t.Errorf("shard %d is described as number %d, %d bytes, %x", i, s.Number, s.Size, s.Digest)
		}
		r, err := ipld.NewCARReader(bytes.NewReader(s.data), carSectionLimit)
		if err != nil {
			t.Fatal(err)
		}
		var got []weir.IPFSBlock
		for {
			c, block, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || !c.Verify(block) {
				t.Fatal(c, err)
			}
			hash := string(c.Hash())
			if seen[hash] {
				t.Errorf("block %s is there twice", c)
			}
			seen[hash] = true
			at := bytes.Index(s.data, append([]byte(c), block...))
			got = append(got, weir.IPFSBlock{Hash: []byte(hash), Shard: i, Offset: int64(at + len(c)), Size: int64(len(block))})
		}
		if diff := cmp.Diff(got, s.Blocks); diff != "" {
			t.Errorf("shard %d (-read +described):\n%s", i, diff)
		}
	}
	if !seen[string(root.Hash())] {
		t.Error("the root is in no shard")
	}
	again, same := pack(t, f, change)
	if again != root || !cmp.Equal(same, shards, cmp.AllowUnexported(shown{})) {
		t.Error("the same files made other shards")
	}
}

func TestLargeDirectoryIsDeterministic(t *testing.T) {
	f := files{}.numbered("hls/seg", 6000, 20)
	root, shards := pack(t, f, nil)
	again, same := pack(t, f, nil)
	if again != root || !bytes.Equal(shards[0].data, same[0].data) {
		t.Error("the same files made other shards")
	}
	var nodes int
	for _, b := range shards[0].Blocks {
		if b.Size > 20 {
			nodes++
		}
	}
	if nodes < 10 {
		t.Errorf("a directory with 6000 names has %d nodes", nodes)
	}
}

func TestScratchFileHasNoName(t *testing.T) {
	dir := t.TempDir()
	calls := 0
	p := newPacker(dir, func(context.Context, Shard, open) error {
		calls++
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 0 {
			t.Errorf("%v, %v", left, err)
		}
		return nil
	})
	p.leafSize, p.max = 1000, 5000
	if _, err := p.file(t.Context(), strings.NewReader(strings.Repeat("abcdefg", 3000))); err != nil {
		t.Fatal(err)
	}
	if calls == 0 {
		t.Error("no shard was made")
	}
	p.close()
}
