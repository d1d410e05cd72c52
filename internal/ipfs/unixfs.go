package ipfs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"weir/internal/ipld"
)

// The kinds of UnixFS nodes.
const (
	kindBytes     = 0 // a leaf of a file, as old tools made it
	kindDirectory = 1
	kindFile      = 2
	kindShard     = 5 // a node of a large directory
)

// A unixNode is a node of a file or directory: a DAG-PB block with UnixFS data in it.
type unixNode struct {
	kind       uint64
	data       []byte // of a file: its first bytes; of a shard: which links it has
	links      []unixLink
	fileSize   uint64
	blockSizes []uint64 // bytes of the file below each link
	hashType   uint64   // of a shard
	fanout     uint64   // of a shard: how many links it may have
}

type unixLink struct {
	name   string
	cid    ipld.CID
	stored uint64 // size of all blocks below, which is called Tsize
}

// The numbers of fields.
const (
	nodeData, nodeLink = 1, 2

	linkCID, linkName, linkStored = 1, 2, 3

	dataKind, dataBytes, dataFileSize, dataBlockSize, dataHashType, dataFanout = 1, 2, 3, 4, 5, 6
)

// encode returns the block of a node. Links are sorted by their names.
func (n *unixNode) encode() []byte {
	data := appendNumber(nil, dataKind, n.kind)
	if len(n.data) > 0 {
		data = appendBytes(data, dataBytes, n.data)
	}
	if n.kind == kindFile {
		data = appendNumber(data, dataFileSize, n.fileSize)
	}
	for _, size := range n.blockSizes {
		data = appendNumber(data, dataBlockSize, size)
	}
	if n.kind == kindShard {
		data = appendNumber(appendNumber(data, dataHashType, n.hashType), dataFanout, n.fanout)
	}
	links := slices.Clone(n.links)
	slices.SortStableFunc(links, func(a, b unixLink) int { return cmp.Compare(a.name, b.name) })
	var block []byte
	for _, l := range links {
		link := appendBytes(nil, linkCID, []byte(l.cid))
		link = appendBytes(link, linkName, []byte(l.name))
		block = appendBytes(block, nodeLink, appendNumber(link, linkStored, l.stored))
	}
	return appendBytes(block, nodeData, data)
}

var errNode = errors.New("it can't be decoded")

// decodeNode reads a block, which anybody may have made.
func decodeNode(block []byte) (*unixNode, error) {
	n := new(unixNode)
	hasData := false
	err := eachField(block, func(f field) error {
		switch {
		case f.number == nodeLink && f.isBytes:
			l, err := decodeLink(f.bytes)
			n.links = append(n.links, l)
			return err
		case f.number == nodeData && f.isBytes && !hasData:
			hasData = true
			return n.decodeData(f.bytes)
		}
		return errNode
	})
	if err == nil && !hasData {
		err = errNode
	}
	return n, err
}

func decodeLink(b []byte) (l unixLink, err error) {
	err = eachField(b, func(f field) error {
		switch {
		case f.number == linkCID && f.isBytes:
			var err error
			l.cid, err = ipld.AsCID(f.bytes)
			return err
		case f.number == linkName && f.isBytes:
			l.name = string(f.bytes)
		case f.number == linkStored && !f.isBytes:
			l.stored = f.value
		default:
			return errNode
		}
		return nil
	})
	if err == nil && l.cid == "" {
		err = errNode
	}
	return l, err
}

// decodeData reads what is special to UnixFS. Mode and time of a file are of no use here.
func (n *unixNode) decodeData(b []byte) error {
	hasKind := false
	err := eachField(b, func(f field) error {
		switch {
		case f.number == dataBytes && f.isBytes:
			n.data = f.bytes
		case f.number == dataBlockSize && f.isBytes: // many in one field
			for rest := f.bytes; len(rest) > 0; {
				size, m := binary.Uvarint(rest)
				if m <= 0 {
					return errNode
				}
				n.blockSizes, rest = append(n.blockSizes, size), rest[m:]
			}
		case f.isBytes:
		case f.number == dataKind:
			n.kind, hasKind = f.value, true
		case f.number == dataFileSize:
			n.fileSize = f.value
		case f.number == dataBlockSize:
			n.blockSizes = append(n.blockSizes, f.value)
		case f.number == dataHashType:
			n.hashType = f.value
		case f.number == dataFanout:
			n.fanout = f.value
		}
		return nil
	})
	if err == nil && !hasKind {
		err = errNode
	}
	return err
}

// A field is a part of a message of Protocol Buffers: a number or bytes.
type field struct {
	number  uint64
	isBytes bool
	value   uint64
	bytes   []byte
}

// The types of fields.
const (
	typeNumber = 0
	typeBytes  = 2
)

// eachField calls use with each field of a message.
func eachField(b []byte, use func(field) error) error {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return errNode
		}
		value, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return errNode
		}
		b = b[n+m:]
		f := field{number: key >> 3, isBytes: key&7 == typeBytes, value: value}
		switch {
		case f.isBytes && value <= uint64(len(b)):
			f.bytes, b = b[:value:value], b[value:]
		case key&7 != typeNumber:
			return errNode
		}
		if err := use(f); err != nil {
			return err
		}
	}
	return nil
}

func appendNumber(b []byte, number int, value uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(number)<<3|typeNumber), value)
}

func appendBytes(b []byte, number int, value []byte) []byte {
	b = binary.AppendUvarint(b, uint64(number)<<3|typeBytes)
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}
