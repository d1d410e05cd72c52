package blob

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"weir/internal/weir"
)

// encrypt does what a caller does.
func encrypt(t testing.TB, key, iv, plain []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	padding := aes.BlockSize - len(plain)%aes.BlockSize
	padded := append(bytes.Clone(plain), bytes.Repeat([]byte{byte(padding)}, padding)...)
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(padded, padded)
	return append(bytes.Clone(iv), padded...)
}

func TestDecrypt(t *testing.T) {
	key, iv := noise(60, 32), noise(61, 16)
	for _, size := range []int{0, 1, 15, 16, 17, 31, 32, 33, 1000, 100_000} {
		plain := noise(62, size)
		text := encrypt(t, key, iv, plain)
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(text), "by bytes": iotest.OneByteReader(bytes.NewReader(text)), "by halves": iotest.HalfReader(bytes.NewReader(text))} {
			var out bytes.Buffer
			d, err := Decrypt(&out, key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(d, r); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil || !bytes.Equal(out.Bytes(), plain) {
				t.Errorf("%d bytes, %s: %v, %d bytes came out, or others", size, name, err, out.Len())
			}
		}
	}
}

func TestDecryptErrors(t *testing.T) {
	key, iv := noise(60, 32), noise(61, 16)
	text := encrypt(t, key, iv, noise(62, 1000))
	for name, tt := range map[string]struct{ key, text []byte }{
		"nothing":        {key, nil},
		"only a vector":  {key, text[:16]},
		"cut in a block": {key, text[:len(text)-1]},
		"cut":            {key, text[:len(text)-16]},
		"wrong key":      {noise(63, 32), text},
	} {
		d, err := Decrypt(io.Discard, tt.key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Write(tt.text); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); weir.KindOf(err) != weir.Invalid {
			t.Errorf("%s: error = %v, want one of kind invalid", name, err)
		}
	}
	if _, err := Decrypt(io.Discard, key[:16]); weir.KindOf(err) != weir.Invalid {
		t.Errorf("short key: error = %v, want one of kind invalid", err)
	}
	broken := errors.New("no more room")
	d, err := Decrypt(writerFunc(func([]byte) (int, error) { return 0, broken }), key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Write(text); !errors.Is(err, broken) {
		t.Errorf("write: error = %v, want that of the writer", err)
	}
	if err := d.Close(); !errors.Is(err, broken) {
		t.Errorf("close: error = %v, want that of the writer", err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestFetchEncrypted fetches through a decrypter.
func TestFetchEncrypted(t *testing.T) {
	t.Parallel()
	key, plain := noise(60, 32), noise(62, 300_000)
	src := &source{content: encrypt(t, key, noise(61, 16), plain), etag: `"v"`}
	server := serveAt(t, public, src)
	var out bytes.Buffer
	d, err := Decrypt(&out, key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := testFetcher(t).Fetch(t.Context(), server.URL, d, nil)
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), plain) || got.Size != int64(len(src.content)) {
		t.Errorf("%d bytes came out of %d, want %d", out.Len(), got.Size, len(plain))
	}
}
