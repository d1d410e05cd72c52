package ipld

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// The kinds of values in CBOR, in the three bits at the top of their first byte.
const (
	kindUint = iota
	kindNegative
	kindBytes
	kindText
	kindList
	kindMap
	kindTag
	kindSimple
)

const (
	linkTag = 42

	simpleFalse = 20
	simpleTrue  = 21
	simpleNull  = 22
	float16     = 25
	float32Bits = 26
	float64Bits = 27
)

// EncodeCBOR returns a value as DAG-CBOR. There is one form of each value, so the same values have the
// same CID.
func EncodeCBOR(value any) ([]byte, error) { return appendCBOR(nil, value) }

func appendCBOR(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(b, kindSimple<<5|simpleNull), nil
	case bool:
		if v {
			return append(b, kindSimple<<5|simpleTrue), nil
		}
		return append(b, kindSimple<<5|simpleFalse), nil
	case int64:
		if v < 0 {
			return appendHead(b, kindNegative, uint64(-1-v)), nil
		}
		return appendHead(b, kindUint, uint64(v)), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%v is no value of DAG-CBOR", v)
		}
		return binary.BigEndian.AppendUint64(append(b, kindSimple<<5|float64Bits), math.Float64bits(v)), nil
	case string:
		return append(appendHead(b, kindText, uint64(len(v))), v...), nil
	case []byte:
		return append(appendHead(b, kindBytes, uint64(len(v))), v...), nil
	case CID:
		b = appendHead(appendHead(b, kindTag, linkTag), kindBytes, uint64(len(v)+1))
		return append(append(b, 0), v...), nil
	case []any:
		b = appendHead(b, kindList, uint64(len(v)))
		for _, item := range v {
			var err error
			if b, err = appendCBOR(b, item); err != nil {
				return nil, err
			}
		}
		return b, nil
	case Map:
		b = appendHead(b, kindMap, uint64(len(v)))
		shortFirst := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
		for _, key := range slices.SortedFunc(maps.Keys(v), shortFirst) {
			b = append(appendHead(b, kindText, uint64(len(key))), key...)
			var err error
			if b, err = appendCBOR(b, v[key]); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	return nil, fmt.Errorf("%T is no value of DAG-CBOR", value)
}

// appendHead appends a kind and a number, in the shortest form.
func appendHead(b []byte, kind byte, value uint64) []byte {
	kind <<= 5
	switch {
	case value < 24:
		return append(b, kind|byte(value))
	case value <= math.MaxUint8:
		return append(b, kind|24, byte(value))
	case value <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, kind|25), uint16(value))
	case value <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, kind|26), uint32(value))
	}
	return binary.BigEndian.AppendUint64(append(b, kind|27), value)
}

var errCBOR = errors.New("it is not DAG-CBOR")

// cborDecoder reads DAG-CBOR. It takes other forms of values than EncodeCBOR writes: the hash of a block
// says who wrote it, not how.
type cborDecoder struct {
	rest  []byte
	plain bool // CBOR without links
	links []CID
}

// document reads one value and nothing else.
func (d *cborDecoder) document() (any, error) {
	v, err := d.value(0)
	if err == nil && len(d.rest) > 0 {
		err = errCBOR
	}
	return v, err
}

// head reads the first bytes of a value. Lengths that are not known before the end are not allowed.
func (d *cborDecoder) head() (kind, info byte, value uint64, err error) {
	if len(d.rest) == 0 {
		return 0, 0, 0, errCBOR
	}
	kind, info = d.rest[0]>>5, d.rest[0]&31
	d.rest = d.rest[1:]
	if info < 24 {
		return kind, info, uint64(info), nil
	}
	n := 1 << (info - 24)
	if info > float64Bits || len(d.rest) < n {
		return 0, 0, 0, errCBOR
	}
	var number [8]byte
	copy(number[8-n:], d.rest)
	d.rest = d.rest[n:]
	return kind, info, binary.BigEndian.Uint64(number[:]), nil
}

func (d *cborDecoder) value(depth int) (any, error) {
	kind, info, n, err := d.head()
	if err != nil || depth > maxNesting {
		return nil, errCBOR
	}
	switch kind {
	case kindUint, kindNegative:
		if n > math.MaxInt64 {
			return nil, errCBOR
		}
		if kind == kindNegative {
			return -1 - int64(n), nil
		}
		return int64(n), nil
	case kindBytes:
		b, err := d.take(n)
		return bytes.Clone(b), err
	case kindText:
		return d.text(n)
	case kindList:
		return d.list(n, depth)
	case kindMap:
		return d.object(n, depth)
	case kindTag:
		return d.link(n)
	}
	return simple(info, n)
}

// take returns the next n bytes.
func (d *cborDecoder) take(n uint64) ([]byte, error) {
	if n > uint64(len(d.rest)) {
		return nil, errCBOR
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b, nil
}

func (d *cborDecoder) text(n uint64) (string, error) {
	b, err := d.take(n)
	if err == nil && !utf8.Valid(b) {
		err = errCBOR
	}
	return string(b), err
}

func (d *cborDecoder) list(n uint64, depth int) (any, error) {
	if n > uint64(len(d.rest)) {
		return nil, errCBOR
	}
	all := make([]any, 0, min(n, 1024))
	for range n {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func (d *cborDecoder) object(n uint64, depth int) (any, error) {
	if n > uint64(len(d.rest)) {
		return nil, errCBOR
	}
	m := make(Map, min(n, 1024))
	for range n {
		kind, _, size, err := d.head()
		if err != nil || kind != kindText {
			return nil, errCBOR
		}
		key, err := d.text(size)
		if err != nil {
			return nil, err
		}
		if _, twice := m[key]; twice {
			return nil, errCBOR
		}
		if m[key], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// link reads what follows a tag: a zero and a CID.
func (d *cborDecoder) link(tag uint64) (any, error) {
	kind, _, n, err := d.head()
	if err != nil || tag != linkTag || kind != kindBytes || d.plain {
		return nil, errCBOR
	}
	b, err := d.take(n)
	if err != nil || len(b) == 0 || b[0] != 0 {
		return nil, errCBOR
	}
	c, err := AsCID(b[1:])
	if err != nil {
		return nil, errCBOR
	}
	d.links = append(d.links, c)
	return c, nil
}

func simple(info byte, n uint64) (any, error) {
	var f float64
	switch info {
	case simpleFalse, simpleTrue:
		return info == simpleTrue, nil
	case simpleNull:
		return nil, nil
	case float16:
		f = halfFloat(uint16(n))
	case float32Bits:
		f = float64(math.Float32frombits(uint32(n)))
	case float64Bits:
		f = math.Float64frombits(n)
	default:
		return nil, errCBOR
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errCBOR
	}
	return f, nil
}

// halfFloat returns the value of a number with 5 bits of exponent and 10 of fraction.
func halfFloat(bits uint16) float64 {
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	f := math.Ldexp(fraction, -24)
	switch {
	case exponent == 31:
		f = math.Inf(1)
	case exponent > 0:
		f = math.Ldexp(1024+fraction, exponent-25)
	}
	if bits>>15 == 1 {
		return -f
	}
	return f
}
