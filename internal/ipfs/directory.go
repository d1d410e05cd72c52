package ipfs

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strconv"

	"github.com/spaolacci/murmur3"

	"weir/internal/ipld"
	"weir/internal/weir"
)

// A directory is one node, or a tree of shards by the hashes of names if one node would be too large.
// The layout is that of all tools.
const (
	nodeNames   = 256 << 10 // bytes of names and CIDs in one node
	shardFanout = 256
	shardLevels = 8    // 64 bits, 8 in each
	shardHash   = 0x22 // MurmurHash3, 64 of 128 bits
	maxFanout   = 1024 // of shards of others
)

// A getBlock returns a block, which it has verified. Its error is of kind NotFound if it is not there.
type getBlock = func(ctx context.Context, c ipld.CID) ([]byte, error)

// encodeDirectory returns the nodes of a directory with these entries, and its root with the size of
// all that is stored.
func encodeDirectory(entries []unixLink) (blocks [][]byte, root node, err error) {
	size := 0
	for _, e := range entries {
		size += len(e.name) + len(e.cid)
	}
	if size <= nodeNames {
		block, root := encodeEntries(&unixNode{kind: kindDirectory, links: entries})
		return [][]byte{block}, root, nil
	}
	return encodeShard(entries, 0)
}

// encodeEntries encodes a node of a directory.
func encodeEntries(n *unixNode) ([]byte, node) {
	block := n.encode()
	stored := uint64(len(block))
	for _, l := range n.links {
		stored += l.stored
	}
	return block, node{cid: ipld.Sum(ipld.DagPB, block), stored: stored}
}

// encodeShard encodes a shard and all below it. A place for which there are several names is a shard.
func encodeShard(entries []unixLink, depth int) (blocks [][]byte, root node, err error) {
	if depth == shardLevels {
		return nil, node{}, weir.Errorf(weir.Invalid, "%q and %q can't be in one directory: their names have the same hash", entries[0].name, entries[1].name)
	}
	var places [shardFanout][]unixLink
	for _, e := range entries {
		i := placeIn(shardFanout, murmur3.Sum64([]byte(e.name)), depth)
		places[i] = append(places[i], e)
	}
	shard := &unixNode{kind: kindShard, hashType: shardHash, fanout: shardFanout}
	var used [shardFanout / 8]byte // a number of 256 bits
	for i, at := range places {
		if len(at) == 0 {
			continue
		}
		used[len(used)-1-i/8] |= 1 << (i % 8)
		link := unixLink{name: placeName(shardFanout, i)}
		if len(at) == 1 {
			link.name += at[0].name
			link.cid, link.stored = at[0].cid, at[0].stored
		} else {
			below, child, err := encodeShard(at, depth+1)
			if err != nil {
				return nil, node{}, err
			}
			blocks = append(blocks, below...)
			link.cid, link.stored = child.cid, child.stored
		}
		shard.links = append(shard.links, link)
	}
	first := slices.IndexFunc(used[:], func(b byte) bool { return b != 0 })
	shard.data = used[first:]
	block, root := encodeEntries(shard)
	return append(blocks, block), root, nil
}

// placeIn returns the place of a hash in a shard with this fanout, which is a power of 2.
func placeIn(fanout, hash uint64, depth int) int {
	width := bits.TrailingZeros64(fanout)
	return int(hash << (depth * width) >> (64 - width))
}

// placeName returns what the names of links for a place begin with.
func placeName(fanout uint64, place int) string {
	return fmt.Sprintf("%0*X", placeDigits(fanout), place)
}

func placeDigits(fanout uint64) int { return len(fmt.Sprintf("%X", fanout-1)) }

// checkShard returns an error if a shard is of a kind that is not known.
func checkShard(n *unixNode) error {
	if n.hashType != shardHash || n.fanout < 2 || n.fanout > maxFanout || bits.OnesCount64(n.fanout) != 1 {
		return errNode
	}
	return nil
}

// errNoEntry means that a directory does not have a name, or that a block is none.
var errNoEntry = weir.Errorf(weir.NotFound, "no entry")

// findEntry returns the block of a name in a directory.
func findEntry(ctx context.Context, get getBlock, n *unixNode, name string) (ipld.CID, error) {
	hash := murmur3.Sum64([]byte(name))
	for depth := 0; ; depth++ {
		want := name
		place := ""
		switch n.kind {
		case kindDirectory:
		case kindShard:
			if err := checkShard(n); err != nil {
				return "", err
			}
			if (depth+1)*bits.TrailingZeros64(n.fanout) > 64 {
				return "", errNode
			}
			place = placeName(n.fanout, placeIn(n.fanout, hash, depth))
			want = place + name
		default:
			return "", errNoEntry
		}
		i := slices.IndexFunc(n.links, func(l unixLink) bool { return l.name == want })
		if i >= 0 {
			return n.links[i].cid, nil
		}
		i = slices.IndexFunc(n.links, func(l unixLink) bool { return l.name == place })
		if n.kind != kindShard || i < 0 {
			return "", errNoEntry
		}
		block, err := get(ctx, n.links[i].cid)
		if err == nil {
			n, err = decodeNode(block)
		}
		if err == nil && n.kind != kindShard {
			err = errNode
		}
		if err != nil {
			return "", err
		}
	}
}

// eachEntry calls use with each entry of a directory.
func eachEntry(ctx context.Context, get getBlock, n *unixNode, use func(unixLink) error) error {
	return eachShardEntry(ctx, get, n, 0, use)
}

func eachShardEntry(ctx context.Context, get getBlock, n *unixNode, depth int, use func(unixLink) error) error {
	digits := 0
	if n.kind == kindShard {
		if err := checkShard(n); err != nil {
			return err
		}
		digits = placeDigits(n.fanout)
	}
	for _, l := range n.links {
		if len(l.name) < digits || depth > 64 {
			return errNode
		}
		if digits == 0 || len(l.name) > digits {
			l.name = l.name[digits:]
			if err := use(l); err != nil {
				return err
			}
			continue
		}
		block, err := get(ctx, l.cid)
		if err != nil {
			return err
		}
		child, err := decodeNode(block)
		if err == nil && child.kind != kindShard {
			err = errNode
		}
		if err == nil {
			err = eachShardEntry(ctx, get, child, depth+1, use)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// links returns the blocks that a block links to, in its order.
func links(c ipld.CID, block []byte) ([]ipld.CID, error) {
	switch c.Codec() {
	case ipld.Raw:
		return nil, nil
	case ipld.DagPB:
		n, err := decodeNode(block)
		if err != nil {
			return nil, err
		}
		var all []ipld.CID
		for _, l := range n.links {
			all = append(all, l.cid)
		}
		return all, nil
	}
	_, all, err := ipld.Decode(c.Codec(), block)
	return all, err
}

// A place is where a path leads to.
type place struct {
	blocks []ipld.CID // of each name of the path, the root first
	rest   []string   // names inside of the last block, which is a document
}

// last returns the block at the end.
func (p place) last() ipld.CID { return p.blocks[len(p.blocks)-1] }

// missingError means that a name of a path is not there.
type missingError struct {
	name  string
	under ipld.CID
}

func (e *missingError) Error() string {
	return fmt.Sprintf("no link named %q under %s", e.name, e.under)
}

// resolve follows a path. It reads no block for its last name, unless that is inside of a document.
func resolve(ctx context.Context, get getBlock, root ipld.CID, names []string) (place, error) {
	p := place{blocks: []ipld.CID{root}}
	var value any // where the path is in the last block, if rest is not empty
	for _, name := range names {
		at := p.last()
		next, inside, err := step(ctx, get, at, value, len(p.rest) > 0, name)
		switch {
		case weir.IsNotFound(err):
			return p, &missingError{name, at}
		case err != nil:
			return p, err
		}
		value = inside
		if next == "" {
			p.rest, next = append(p.rest, name), at
		} else {
			p.rest = nil
		}
		p.blocks = append(p.blocks, next)
	}
	return p, nil
}

// step returns the block that a name leads to, or the value in the same block.
func step(ctx context.Context, get getBlock, at ipld.CID, value any, inside bool, name string) (ipld.CID, any, error) {
	if !inside {
		block, err := get(ctx, at)
		if err != nil {
			return "", nil, err
		}
		switch at.Codec() {
		case ipld.Raw:
			return "", nil, errNoEntry
		case ipld.DagPB:
			n, err := decodeNode(block)
			if err != nil {
				return "", nil, errNoEntry
			}
			c, err := findEntry(ctx, get, n, name)
			return c, nil, err
		}
		if value, _, err = ipld.Decode(at.Codec(), block); err != nil {
			return "", nil, err
		}
	}
	return valueAt(value, name)
}

// valueAt returns what has a name, or a number, in a value of a document.
func valueAt(of any, name string) (ipld.CID, any, error) {
	var v any
	switch of := of.(type) {
	case ipld.Map:
		var ok bool
		if v, ok = of[name]; !ok {
			return "", nil, errNoEntry
		}
	case []any:
		i, err := strconv.ParseUint(name, 10, 32)
		if err != nil || i >= uint64(len(of)) {
			return "", nil, errNoEntry
		}
		v = of[i]
	default:
		return "", nil, errNoEntry
	}
	if c, ok := v.(ipld.CID); ok {
		return c, nil, nil
	}
	return "", v, nil
}
