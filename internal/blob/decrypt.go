package blob

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"io"

	"weir/internal/weir"
)

// Decrypt returns a writer that decrypts AES-256 in CBC mode, with the initialization vector in front
// and PKCS #7 padding at the end, to w. Only Close, which does not close w, checks the end. CBC does
// not detect changed bytes.
func Decrypt(w io.Writer, key []byte) (io.WriteCloser, error) {
	if len(key) != 32 {
		return nil, weir.Errorf(weir.Invalid, "the key of the encrypted file has %d bytes; AES-256 needs 32", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("decrypt: %w", err)
	}
	return &decrypter{w: w, block: block}, nil
}

// decrypter keeps the last whole block: it may be the one with the padding.
type decrypter struct {
	w       io.Writer
	block   cipher.Block
	mode    cipher.BlockMode // nil until the vector was read
	pending []byte           // encrypted
	err     error
}

func (d *decrypter) Write(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	d.pending = append(d.pending, p...)
	if d.mode == nil && len(d.pending) >= aes.BlockSize {
		d.mode = cipher.NewCBCDecrypter(d.block, d.pending[:aes.BlockSize])
		d.pending = append([]byte(nil), d.pending[aes.BlockSize:]...)
	}
	if d.mode == nil || len(d.pending) <= aes.BlockSize {
		return len(p), nil
	}
	ready := (len(d.pending) - 1) / aes.BlockSize * aes.BlockSize
	d.mode.CryptBlocks(d.pending[:ready], d.pending[:ready])
	if _, d.err = d.w.Write(d.pending[:ready]); d.err != nil {
		return 0, d.err
	}
	d.pending = append(d.pending[:0], d.pending[ready:]...)
	return len(p), nil
}

func (d *decrypter) Close() error {
	if d.err != nil {
		return d.err
	}
	if d.mode == nil || len(d.pending) != aes.BlockSize {
		return weir.Errorf(weir.Invalid, "the encrypted file is truncated: after the initialization vector it must have whole AES blocks")
	}
	last := d.pending
	d.mode.CryptBlocks(last, last)
	padding := int(last[len(last)-1])
	if padding == 0 || padding > aes.BlockSize || !bytes.HasSuffix(last, bytes.Repeat(last[len(last)-1:], padding)) {
		return weir.Errorf(weir.Invalid, "the encrypted file can't be decrypted: the key is not that of the file, or its end is missing")
	}
	_, err := d.w.Write(last[:len(last)-padding])
	return err
}
