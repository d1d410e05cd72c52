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

// text returns a property that is a string.
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
	b := reader{body}
	for len(b.rest) > 0 {
		value, err := b.value(0)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

func (b *reader) value(depth int) (any, error) {
	if depth == maxAMFDepth {
		return nil, errors.New("its values are nested too deep")
	}
	marker, err := b.byte()
	if err != nil {
		return nil, err
	}
	switch marker {
	case amfNumber:
		return b.number()
	case amfBoolean:
		v, err := b.byte()
		return v != 0, err
	case amfString:
		return b.text(2)
	case amfLongString:
		return b.text(4)
	case amfObject:
		return b.properties(depth)
	case amfECMAArray:
		if _, err := b.take(4); err != nil {
			return nil, err
		}
		return b.properties(depth)
	case amfNull, amfUndefined:
		return nil, nil
	case amfStrictArray:
		return b.array(depth)
	case amfDate:
		number, err := b.number()
		if err == nil {
			_, err = b.take(2) // time zone
		}
		return number, err
	}
	return nil, fmt.Errorf("a value has the unknown marker %#x", marker)
}

func (b *reader) number() (float64, error) {
	taken, err := b.take(8)
	if err != nil {
		return 0, err
	}
	return math.Float64frombits(binary.BigEndian.Uint64(taken)), nil
}

// text reads a string whose length has so many bytes.
func (b *reader) text(size int) (string, error) {
	taken, err := b.take(size)
	if err != nil {
		return "", err
	}
	length := 0
	for _, c := range taken {
		length = length<<8 | int(c)
	}
	taken, err = b.take(length)
	return string(taken), err
}

func (b *reader) array(depth int) (any, error) {
	taken, err := b.take(4)
	if err != nil {
		return nil, err
	}
	var all []any
	for range binary.BigEndian.Uint32(taken) {
		value, err := b.value(depth + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, nil
}

func (b *reader) properties(depth int) (any, error) {
	o := object{}
	for {
		key, err := b.text(2)
		if err != nil {
			return nil, err
		}
		if key == "" {
			break
		}
		value, err := b.value(depth + 1)
		if err != nil {
			return nil, err
		}
		o = append(o, property{key, value})
	}
	if end, err := b.byte(); err != nil || end != amfObjectEnd {
		return nil, errors.New("an object has no end")
	}
	return o, nil
}
