package c2pa

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"time"
)

// Chain is a root certificate of our own, a certificate that it signed and its key, all in PEM.
type Chain struct{ Root, Cert, Key []byte }

// chainYears is how long a Chain is valid. Without time stamps, no file is valid any longer.
const chainYears = 10

// NewChain makes a chain for signers that nobody else vouches for: validators call what they sign
// valid, and trusted only if they were given the root. The key of the root is thrown away.
func NewChain(now time.Time) (Chain, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Chain{}, err
	}
	return newChain(key, now, nil)
}

// newChain makes a chain for a key. change may be nil, or change the signer's certificate before
// it is signed.
func newChain(key crypto.Signer, now time.Time, change func(*x509.Certificate)) (c Chain, err error) {
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := func(name string) (*x509.Certificate, error) {
		serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
		return &x509.Certificate{
			SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{"weir"}},
			NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(chainYears, 0, 0), BasicConstraintsValid: true,
		}, err
	}
	root, err := template("weir C2PA root")
	if err != nil {
		return c, err
	}
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	if err != nil {
		return c, err
	}
	if root, err = x509.ParseCertificate(rootDER); err != nil {
		return c, err
	}
	leaf, err := template("weir C2PA signer")
	if err != nil {
		return c, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return c, err
	}
	id := sha256.Sum256(public)
	leaf.SubjectKeyId = id[:20]
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection}
	leaf.UnknownExtKeyUsage = []asn1.ObjectIdentifier{claimSigning}
	if change != nil {
		change(leaf)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), rootKey)
	if err != nil {
		return c, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, err
	}
	text := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	return Chain{Root: text("CERTIFICATE", rootDER), Cert: text("CERTIFICATE", leafDER), Key: text("PRIVATE KEY", keyDER)}, nil
}

// Root returns the root certificate of a chain, in PEM; nil = it is not there.
func Root(chain []byte) []byte {
	certs, err := readCertificates(chain)
	if err != nil {
		return nil
	}
	if last := certs[len(certs)-1]; selfSigned(last) {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: last.Raw})
	}
	return nil
}
