// Package c2patest signs and verifies for tests of packages that do neither themselves.
package c2patest

import (
	"bytes"
	"testing"
	"time"

	"weir/internal/c2pa"
)

// What tests need to name.
type (
	Content    = c2pa.Content
	Fragments  = c2pa.Fragments
	Ingredient = c2pa.Ingredient
	Manifest   = c2pa.Manifest
	Report     = c2pa.Report
	Source     = c2pa.Source
)

// The states of a Report.
const (
	Invalid = c2pa.Invalid
	Tainted = c2pa.Tainted
	Trusted = c2pa.Trusted
)

// NewSigner returns a signer and the root of its certificate, in PEM.
func NewSigner(t testing.TB) (signer *c2pa.Signer, root []byte) {
	t.Helper()
	chain, err := c2pa.NewChain(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	signer, err = c2pa.NewSigner(chain.Key, chain.Cert, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return signer, chain.Root
}

// Verify verifies a file. It trusts a root.
func Verify(t testing.TB, file, root []byte) Report {
	t.Helper()
	r, err := c2pa.Verify(bytes.NewReader(file), int64(len(file)), c2pa.Options{Trust: root, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// VerifyInit begins to verify a track. It trusts a root.
func VerifyInit(init, root []byte) *Fragments {
	return c2pa.VerifyInit(init, c2pa.Options{Trust: root, Now: time.Now()})
}
