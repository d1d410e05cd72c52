package ucan

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/ipfs/go-cid"
	"github.com/ipld/go-ipld-prime"
	"github.com/ipld/go-ipld-prime/codec/dagcbor"
	"github.com/ipld/go-ipld-prime/datamodel"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
	"github.com/ipld/go-ipld-prime/node/basicnode"
	"github.com/multiformats/go-multihash"
)

// A Map has the arguments or the result of an invocation. Its values are nil, bool, int64, float64,
// string, []byte, Link, []any or Map.
type Map = map[string]any

// A Link is the text of a CID.
type Link string

// CARLink returns the link to a CAR file with this SHA-256.
func CARLink(digest [32]byte) Link {
	return Link(cid.NewCidV1(codecCAR, multihash.Multihash(Multihash(digest))).String())
}

// Multihash returns a SHA-256 as a multihash.
func Multihash(digest [32]byte) []byte { return append([]byte{multihash.SHA2_256, 32}, digest[:]...) }

// cid returns the CID of the link.
func (l Link) cid() (cid.Cid, error) { return cid.Decode(string(l)) }

// linkTo returns the link to a CID.
func linkTo(c cid.Cid) Link { return Link(c.String()) }

// node returns a value as a node.
func node(value any) (datamodel.Node, error) {
	b := basicnode.Prototype.Any.NewBuilder()
	if err := assign(b, value); err != nil {
		return nil, err
	}
	return b.Build(), nil
}

func assign(a datamodel.NodeAssembler, value any) error {
	switch v := value.(type) {
	case nil:
		return a.AssignNull()
	case bool:
		return a.AssignBool(v)
	case int64:
		return a.AssignInt(v)
	case float64:
		return a.AssignFloat(v)
	case string:
		return a.AssignString(v)
	case []byte:
		return a.AssignBytes(v)
	case Link:
		c, err := v.cid()
		if err != nil {
			return fmt.Errorf("link %q: %w", v, err)
		}
		return a.AssignLink(cidlink.Link{Cid: c})
	case []any:
		l, err := a.BeginList(int64(len(v)))
		if err != nil {
			return err
		}
		for _, item := range v {
			if err := assign(l.AssembleValue(), item); err != nil {
				return err
			}
		}
		return l.Finish()
	case Map:
		m, err := a.BeginMap(int64(len(v)))
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			entry, err := m.AssembleEntry(key)
			if err != nil {
				return err
			}
			if err := assign(entry, v[key]); err != nil {
				return err
			}
		}
		return m.Finish()
	}
	return fmt.Errorf("%T is no value of an invocation", value)
}

// value returns what is in a node.
func value(n datamodel.Node) (any, error) {
	switch n.Kind() {
	case datamodel.Kind_Bool:
		return n.AsBool()
	case datamodel.Kind_Int:
		return n.AsInt()
	case datamodel.Kind_Float:
		return n.AsFloat()
	case datamodel.Kind_String:
		return n.AsString()
	case datamodel.Kind_Bytes:
		return n.AsBytes()
	case datamodel.Kind_Link:
		l, err := n.AsLink()
		if err != nil {
			return nil, err
		}
		c, ok := l.(cidlink.Link)
		if !ok {
			return nil, fmt.Errorf("%T is no CID", l)
		}
		return linkTo(c.Cid), nil
	case datamodel.Kind_List:
		list := []any{}
		for it := n.ListIterator(); !it.Done(); {
			_, item, err := it.Next()
			if err != nil {
				return nil, err
			}
			v, err := value(item)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case datamodel.Kind_Map:
		m := Map{}
		for it := n.MapIterator(); !it.Done(); {
			key, item, err := it.Next()
			if err != nil {
				return nil, err
			}
			name, err := key.AsString()
			if err != nil {
				return nil, err
			}
			if m[name], err = value(item); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
	return nil, nil
}

// decode returns the value of a DAG-CBOR block.
func decode(block []byte) (any, error) {
	n, err := ipld.Decode(block, dagcbor.Decode)
	if err != nil {
		return nil, err
	}
	return value(n)
}

// EncodeCAR returns a CAR file with one root and the values as DAG-CBOR blocks. The function root
// gets the links to the values and returns that of the root, which is the first block.
func EncodeCAR(values []any, root func(links []Link) any) ([]byte, error) {
	var links []Link
	var rest bytes.Buffer
	for _, v := range values {
		c, err := writeBlock(&rest, v)
		if err != nil {
			return nil, err
		}
		links = append(links, linkTo(c))
	}
	var first bytes.Buffer
	c, err := writeBlock(&first, root(links))
	if err != nil {
		return nil, err
	}
	header, err := encodeValue(Map{"version": int64(1), "roots": []any{linkTo(c)}})
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	writeSection(&file, header)
	file.Write(first.Bytes())
	file.Write(rest.Bytes())
	return file.Bytes(), nil
}
