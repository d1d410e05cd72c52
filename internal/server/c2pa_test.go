package server

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/c2pa"
)

// The files of the chain are readable for their owner alone, and follow the database.
func TestChainFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c2pa")
	for _, chain := range []c2pa.Chain{
		{Root: []byte("root"), Cert: []byte("cert"), Key: []byte("key")},
		{Root: []byte("root"), Cert: []byte("cert"), Key: []byte("key")},
		{Root: []byte("other root"), Cert: []byte("other cert"), Key: []byte("other key")},
	} {
		if err := writeChain(dir, chain); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]byte{"root.pem": chain.Root, "cert.pem": chain.Cert, "key.pem": chain.Key} {
			path := filepath.Join(dir, name)
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %q, %v, want %q", name, got, err, want)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	}
}
