package rtmp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Markers in front of the values of AMF0, in which RTMP writes its commands.
const (
	amfNumber      = 0x00
	amfBoolean     = 0x01
	amfString      = 0x02
	amfObject      = 0x03
	amfNull        = 0x05
	amfUndefined   = 0x06
	amfECMAArray   = 0x08
	amfObjectEnd   = 0x09
	amfStrictArray = 0x0A
	amfDate        = 0x0B
	amfLongString  = 0x0C
)

// maxAMFDepth is how deep values may be nested. Commands need three levels.
const maxAMFDepth = 32

// object is an object of AMF0. Its properties keep their order.
type object []property

type property struct {
	key   string
	value any
}

// ecmaArray is written as an array with named elements, and read back as an object.
type ecmaArray object

// get returns a property; nil = there is none.
func (o object) get(key string) any {
	for _, p := range o {
		if p.key == key {
			return p.value
		}
	}
	return nil
}

func (o object) text(key string) string {
	text, _ := o.get(key).(string)
	return text
}

// appendAMF writes values: float64, bool, string, []string, object, ecmaArray, or nil.
func appendAMF(b []byte, values ...any) []byte {
	for _, value := range values {
		switch v := value.(type) {
		case float64:
			b = binary.BigEndian.AppendUint64(append(b, amfNumber), math.Float64bits(v))
		case bool:
			b = append(b, amfBoolean, 0)
			if v {
				b[len(b)-1] = 1
			}
		case string:
			if len(v) > math.MaxUint16 {
				b = append(binary.BigEndian.AppendUint32(append(b, amfLongString), uint32(len(v))), v...)
			} else {
				b = appendKey(append(b, amfString), v)
			}
		case []string:
			b = binary.BigEndian.AppendUint32(append(b, amfStrictArray), uint32(len(v)))
			for _, text := range v {
				b = appendAMF(b, text)
			}
		case object:
			b = appendProperties(append(b, amfObject), v)
		case ecmaArray:
			b = binary.BigEndian.AppendUint32(append(b, amfECMAArray), uint32(len(v)))
			b = appendProperties(b, object(v))
		default:
			b = append(b, amfNull)
		}
	}
	return b
}

func appendKey(b []byte, key string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(key))), key...)
}

func appendProperties(b []byte, o object) []byte {
	for _, p := range o {
		b = appendAMF(appendKey(b, p.key), p.value)
	}
	return append(b, 0, 0, amfObjectEnd)
}

// readAMF reads values: float64, bool, string, []any, object, or nil.
func readAMF(body []byte) (values []any, err error) {
	b := reader{rest: body}
	for len(b.rest) > 0 {
		values = append(values, b.value(0))
	}
	return values, b.err
}

func (b *reader) value(depth int) any {
	if depth == maxAMFDepth {
		b.fail(errors.New("its values are nested too deep"))
		return nil
	}
	switch marker := b.byte(); marker {
	case amfNumber:
		return b.number()
	case amfBoolean:
		return b.byte() != 0
	case amfString:
		return b.text(2)
	case amfLongString:
		return b.text(4)
	case amfObject:
		return b.properties(depth)
	case amfECMAArray:
		b.take(4) // number of properties
		return b.properties(depth)
	case amfStrictArray:
		var all []any
		for n := b.uint(4); n > 0 && b.err == nil; n-- {
			all = append(all, b.value(depth+1))
		}
		return all
	case amfDate:
		at := b.number()
		b.take(2) // time zone
		return at
	case amfNull, amfUndefined:
	default:
		b.fail(fmt.Errorf("a value has the unknown marker %#x", marker))
	}
	return nil
}

func (b *reader) number() float64 { return math.Float64frombits(b.uint(8)) }

// text reads a string behind its length, which has size bytes.
func (b *reader) text(size int) string { return string(b.take(int(b.uint(size)))) }

func (b *reader) properties(depth int) object {
	o := object{}
	for b.err == nil {
		key := b.text(2)
		if key == "" {
			if b.byte() != amfObjectEnd {
				b.fail(errors.New("an object has no end"))
			}
			break
		}
		o = append(o, property{key, b.value(depth + 1)})
	}
	return o
}
