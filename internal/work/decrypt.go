package work

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"io"

	"weir/internal/weir"
)

// decrypter reads a source that was encrypted with AES-256 in CBC mode, with its
// initialization vector in front and padded as PKCS 7 says.
type decrypter struct {
	r     io.Reader
	block cipher.Block
	mode  cipher.BlockMode // nil = the vector is still to be read
	buf   []byte           // as it was read
	plain []byte           // decrypted, and not the last block
	ended bool
}

// decryptBlocks is how many blocks are decrypted at a time.
const decryptBlocks = 4096

const messageUndecryptable = "the file can't be decrypted with the key that was given; it must be AES-256-CBC with the initialization vector in front"

func newDecrypter(r io.Reader, key []byte) (*decrypter, error) {
	if len(key) != 32 {
		return nil, weir.Errorf(weir.Invalid, "the key of the file has %d bytes, AES-256 needs 32", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return &decrypter{r: r, block: block}, nil
}

func (d *decrypter) Read(p []byte) (int, error) {
	for len(d.plain) == 0 {
		if d.ended {
			return 0, io.EOF
		}
		if err := d.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.plain)
	d.plain = d.plain[n:]
	return n, nil
}

// fill decrypts what comes next. The last block is kept back until it is known to be
// the last, because it has the padding.
func (d *decrypter) fill() error {
	if d.mode == nil {
		vector := make([]byte, aes.BlockSize)
		if _, err := io.ReadFull(d.r, vector); err != nil {
			return d.broken(err)
		}
		d.mode = cipher.NewCBCDecrypter(d.block, vector)
	}
	kept := len(d.buf)
	d.buf = append(make([]byte, 0, decryptBlocks*aes.BlockSize), d.buf...)
	n, err := io.ReadFull(d.r, d.buf[kept:cap(d.buf)])
	d.buf = d.buf[:kept+n]
	last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !last {
		return err
	}
	whole := len(d.buf)
	if !last {
		whole -= aes.BlockSize
	}
	if whole%aes.BlockSize != 0 || last && whole == 0 {
		return weir.Errorf(weir.Invalid, "%s", messageUndecryptable)
	}
	d.mode.CryptBlocks(d.buf[:whole], d.buf[:whole])
	d.plain, d.buf, d.ended = d.buf[:whole], d.buf[whole:], last
	if last {
		return d.unpad()
	}
	return nil
}

func (d *decrypter) unpad() error {
	pad := int(d.plain[len(d.plain)-1])
	if pad == 0 || pad > aes.BlockSize {
		return weir.Errorf(weir.Invalid, "%s", messageUndecryptable)
	}
	for _, b := range d.plain[len(d.plain)-pad:] {
		if int(b) != pad {
			return weir.Errorf(weir.Invalid, "%s", messageUndecryptable)
		}
	}
	d.plain = d.plain[:len(d.plain)-pad]
	return nil
}

// broken turns an end that came too early into an error about the file.
func (d *decrypter) broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return weir.Errorf(weir.Invalid, "%s", messageUndecryptable)
	}
	return err
}
