package codec

import "math/bits"

// bitReader reads bits. After the first read past the end it returns only zeros.
type bitReader struct {
	data  []byte
	at    int
	short bool
}

func (b *bitReader) take(n int) uint32 {
	if b.at+n > 8*len(b.data) {
		b.short, b.at = true, 8*len(b.data)
		return 0
	}
	var v uint32
	for range n {
		v = v<<1 | uint32(b.data[b.at/8]>>(7-b.at%8)&1)
		b.at++
	}
	return v
}

// bytes reads whole bytes; the position must be at a whole byte.
func (b *bitReader) bytes(n int) []byte {
	if n > len(b.data)-b.at/8 {
		b.short, b.at = true, 8*len(b.data)
		return nil
	}
	taken := b.data[b.at/8:][:n]
	b.at += 8 * n
	return taken
}

func (b *bitReader) flag() bool { return b.take(1) == 1 }

// golomb reads a number in Exp-Golomb code.
func (b *bitReader) golomb() uint32 {
	zeros := 0
	for zeros <= 32 && !b.flag() {
		zeros++
	}
	if zeros > 32 { // also at the end
		b.short, b.at = true, 8*len(b.data)
		return 0
	}
	return 1<<zeros - 1 + b.take(zeros)
}

// bitWriter writes bits.
type bitWriter struct {
	data []byte
	free int // bits of the last byte
}

// add writes the lowest n bits of v.
func (w *bitWriter) add(v uint32, n int) {
	for n--; n >= 0; n-- {
		if w.free == 0 {
			w.data, w.free = append(w.data, 0), 8
		}
		w.free--
		w.data[len(w.data)-1] |= byte(v>>n&1) << w.free
	}
}

// copy writes the next n bits of a reader.
func (w *bitWriter) copy(from *bitReader, n int) {
	for ; n >= 8; n -= 8 {
		w.add(from.take(8), 8)
	}
	w.add(from.take(n), n)
}

// golomb writes a number in Exp-Golomb code.
func (w *bitWriter) golomb(v uint32) {
	digits := bits.Len32(v + 1)
	w.add(0, digits-1)
	w.add(v+1, digits)
}

// align fills the last byte with zeros.
func (w *bitWriter) align() { w.free = 0 }
