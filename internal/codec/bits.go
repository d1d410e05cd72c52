package codec

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
