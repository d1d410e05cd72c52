package c2pa

import (
	"crypto/sha256"
	"slices"
)

// Tree is the Merkle tree of the hashes of a track's segments. The manifest has one row of it, the
// box of each segment has the hashes that lead from the segment to the row.
//
// Segments come in groups, each below one hash of the row: a group of one segment if the manifest
// has the hashes of all segments, else of a power of two. A segment can be sent when the hashes of
// its group are known. The fields are its state; they may be stored.
type Tree struct {
	Track int    `json:"track"`           // number of the track in the manifest, from 1
	Local int    `json:"local"`           // number of the track in its init segment
	Depth int    `json:"depth,omitempty"` // of the row: groups have 1<<Depth segments
	Count int    `json:"count,omitempty"` // segments that were added
	Row   []byte `json:"row,omitempty"`   // the hashes of the row, one after the other
}

// maxRow is how many hashes of a track a manifest has at most, if the number of segments is as
// expected.
const maxRow = 256

// NewTree returns the tree of a track: of the one with the given number in the manifest, from 1,
// and the given init segment, for about as many segments as are expected.
func NewTree(track int, init []byte, expected int) (*Tree, error) {
	local, err := trackID(init)
	t := &Tree{Track: track, Local: local}
	for expected>>t.Depth > maxRow {
		t.Depth++
	}
	return t, err
}

// Group returns how many segments a group has; the last group of a track may have less.
func (t *Tree) Group() int { return 1 << t.Depth }

// Blank returns the box of the i-th segment of the next group, which has the given number of
// segments. Only its hashes are missing; in a group of one segment there are none. The hash of a
// segment includes the size of its box, so it is computed with this one. The box is placed before
// the only moof box of the segment.
func (t *Tree) Blank(i, group int) []byte {
	return t.boxes(make([][]byte, group))[i]
}

// Add adds the next group, the hashes of its segments. It returns the boxes of the segments.
func (t *Tree) Add(group [][]byte) (boxes [][]byte) {
	boxes = t.boxes(group)
	rows := merkleRows(group)
	t.Row = append(t.Row, rows[len(rows)-1][0]...)
	t.Count += len(group)
	return boxes
}

// fragment is the content of the box of a segment.
type fragment struct {
	Track    int      `cbor:"uniqueId"`
	Local    int      `cbor:"localId"`
	Location int      `cbor:"location"`
	Hashes   [][]byte `cbor:"hashes,omitempty"`
}

func (t *Tree) boxes(group [][]byte) [][]byte {
	rows := merkleRows(group)
	boxes := make([][]byte, len(group))
	for i := range group {
		f := fragment{Track: t.Track, Local: t.Local, Location: t.Count + i}
		at := i
		for _, row := range rows[:len(rows)-1] {
			if other := at ^ 1; other < len(row) {
				f.Hashes = append(f.Hashes, row[other])
			}
			at /= 2
		}
		boxes[i] = uuidBox(purposeMerkle, encode(f))
	}
	return boxes
}

// merkleRows returns the rows of a tree from its leaves up. A last node without a neighbour is in
// the next row as it is. A leaf that is nil counts as a hash of zeros.
func merkleRows(leaves [][]byte) [][][]byte {
	row := slices.Clone(leaves)
	for i := range row {
		if row[i] == nil {
			row[i] = make([]byte, sha256.Size)
		}
	}
	rows := [][][]byte{row}
	for len(row) > 1 {
		var next [][]byte
		for i := 0; i < len(row); i += 2 {
			if i+1 == len(row) {
				next = append(next, row[i])
				continue
			}
			sum := sha256.Sum256(slices.Concat(row[i], row[i+1]))
			next = append(next, sum[:])
		}
		rows, row = append(rows, next), next
	}
	return rows
}
