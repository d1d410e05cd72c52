package c2pa

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"time"

	"github.com/veraison/go-cose"

	"weir/internal/weir"
)

// Signer signs manifests with one key.
type Signer struct {
	key   crypto.Signer
	alg   algorithm
	chain []*x509.Certificate // the signer's first, without the root
	post  PostFunc
}

// PostFunc sends the DER of a request to a time stamp service (RFC 3161) and returns its response.
type PostFunc func(ctx context.Context, request []byte) (response []byte, err error)

// Summary says who signs, or signed.
type Summary struct {
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	Alg         string    `json:"alg"`
	Fingerprint string    `json:"fingerprint"` // SHA-256 of the certificate, in hexadecimal
	NotAfter    time.Time `json:"notAfter"`
}

// algorithm is a signature algorithm.
type algorithm struct {
	name string
	cose cose.Algorithm
	size int // bytes of a signature; 0 = as many as the key has
}

var algorithms = []algorithm{
	{"es256", cose.AlgorithmES256, 64},
	{"es384", cose.AlgorithmES384, 96},
	{"es512", cose.AlgorithmES512, 132},
	{"ps256", cose.AlgorithmPS256, 0},
	{"ps384", cose.AlgorithmPS384, 0},
	{"ps512", cose.AlgorithmPS512, 0},
	{"ed25519", cose.AlgorithmEdDSA, ed25519.SignatureSize},
}

func algorithmNamed(name string) algorithm {
	return algorithms[slices.IndexFunc(algorithms, func(a algorithm) bool { return a.name == name })]
}

// NewSigner returns the signer for a private key and its certificates, the signer's first, both in
// PEM. The error says why validators would not accept what it signs. post may be nil: then
// signatures have no time stamp, and are valid as long as the certificate.
func NewSigner(keyPEM, chainPEM []byte, now time.Time, post PostFunc) (*Signer, error) {
	key, err := readKey(keyPEM)
	if err != nil {
		return nil, err
	}
	chain, err := readCertificates(chainPEM)
	if err != nil {
		return nil, err
	}
	alg, err := algorithmOf(key.Public())
	if err != nil {
		return nil, err
	}
	leaf := chain[0]
	if public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(key.Public()) {
		return nil, weir.Errorf(weir.Invalid, "the C2PA certificate is not that of the key; put the signer's certificate first, then those that lead to the root")
	}
	if err := checkLeaf(leaf, now); err != nil {
		return nil, err
	}
	for i := 1; i < len(chain); i++ {
		if err := chain[i-1].CheckSignatureFrom(chain[i]); err != nil {
			return nil, weir.Errorf(weir.Invalid, "C2PA certificate %d is not signed by the one after it; order them from the signer to the root", i)
		}
		if now.After(chain[i].NotAfter) {
			return nil, weir.Errorf(weir.Invalid, "C2PA certificate %d expired on %s", i+1, chain[i].NotAfter.Format(time.DateOnly))
		}
	}
	// The root is known to validators, or not trusted.
	chain = slices.DeleteFunc(chain, selfSigned)
	s := &Signer{key: key, alg: alg, chain: chain, post: post}
	if s.alg.size == 0 {
		s.alg.size = key.Public().(*rsa.PublicKey).Size()
	}
	return s, nil
}

// Summary describes the signer.
func (s *Signer) Summary() Summary { return summary(s.chain[0], s.alg.name) }

func summary(cert *x509.Certificate, alg string) Summary {
	sum := sha256.Sum256(cert.Raw)
	return Summary{
		Subject: cert.Subject.String(), Issuer: cert.Issuer.String(), Alg: alg,
		Fingerprint: hex.EncodeToString(sum[:]), NotAfter: cert.NotAfter.UTC(),
	}
}

func readKey(text []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		default: // parameters of a curve
			continue
		}
		if signer, ok := key.(crypto.Signer); ok && err == nil {
			return signer, nil
		}
		if otherKind(block) {
			return nil, errKeyKind()
		}
		break
	}
	return nil, weir.Errorf(weir.Invalid, "the C2PA key is not a private key in PEM that weir can read; it must not be encrypted")
}

// ecKey is a private key as SEC 1 writes it.
type ecKey struct {
	Version int
	Key     []byte
	Curve   asn1.ObjectIdentifier `asn1:"optional,explicit,tag:0"`
}

// The kinds of keys that C2PA allows, as PKCS #8 names them, and the curves of the first.
var (
	ecPublicKey = asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}
	keyKinds    = []asn1.ObjectIdentifier{ecPublicKey, {1, 2, 840, 113549, 1, 1, 1}, {1, 3, 101, 112}}
	keyCurves   = []asn1.ObjectIdentifier{{1, 2, 840, 10045, 3, 1, 7}, {1, 3, 132, 0, 34}, {1, 3, 132, 0, 35}}
)

// otherKind reports whether a block is a private key of a kind or on a curve that C2PA does not
// allow, such as secp256k1. The standard library reads no such key.
func otherKind(block *pem.Block) bool {
	var key struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}
	var curve asn1.ObjectIdentifier
	if block.Type == "EC PRIVATE KEY" {
		var key ecKey
		if _, err := asn1.Unmarshal(block.Bytes, &key); err != nil || key.Curve == nil {
			return false
		}
		return !slices.ContainsFunc(keyCurves, key.Curve.Equal)
	}
	if _, err := asn1.Unmarshal(block.Bytes, &key); err != nil {
		return false
	}
	if !key.Algorithm.Algorithm.Equal(ecPublicKey) {
		return !slices.ContainsFunc(keyKinds, key.Algorithm.Algorithm.Equal)
	}
	_, err := asn1.Unmarshal(key.Algorithm.Parameters.FullBytes, &curve)
	return err == nil && !slices.ContainsFunc(keyCurves, curve.Equal)
}

func errKeyKind() error {
	return weir.Errorf(weir.Invalid, "C2PA does not allow such keys; use ECDSA with P-256, P-384 or P-521, RSA or Ed25519")
}

func readCertificates(text []byte) (chain []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, weir.Wrap(weir.Invalid, err, "certificate %d can't be read", len(chain)+1)
		}
		chain = append(chain, cert)
	}
	if len(chain) == 0 {
		return nil, weir.Errorf(weir.Invalid, "there is no certificate in PEM")
	}
	return chain, nil
}

// algorithmOf returns the algorithm for a key.
func algorithmOf(key crypto.PublicKey) (algorithm, error) {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return algorithmNamed("es256"), nil
		case elliptic.P384():
			return algorithmNamed("es384"), nil
		case elliptic.P521():
			return algorithmNamed("es512"), nil
		}
	case *rsa.PublicKey:
		switch bits := key.N.BitLen(); {
		case bits < 2048:
			return algorithm{}, weir.Errorf(weir.Invalid, "the C2PA key has %d bits; RSA keys need 2048 or more", bits)
		case bits < 3072:
			return algorithmNamed("ps256"), nil
		case bits < 4096:
			return algorithmNamed("ps384"), nil
		default:
			return algorithmNamed("ps512"), nil
		}
	case ed25519.PublicKey:
		return algorithmNamed("ed25519"), nil
	}
	return algorithm{}, errKeyKind()
}

// claimSigning is the purpose of certificates for C2PA alone.
var claimSigning = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 62558, 2, 1}

// documentSigning is a purpose that C2PA allows too.
var documentSigning = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 36}

// checkLeaf returns why a certificate can't sign manifests at a time; nil = it can.
func checkLeaf(c *x509.Certificate, now time.Time) error {
	unfit := func(format string, args ...any) error {
		return weir.Errorf(weir.Invalid, "the C2PA certificate "+format, args...)
	}
	purpose := func(id asn1.ObjectIdentifier) bool { return slices.ContainsFunc(c.UnknownExtKeyUsage, id.Equal) }
	switch {
	case c.Version != 3:
		return unfit("has version %d; it must have 3", c.Version)
	case selfSigned(c):
		return unfit("is self-signed; make a root certificate, and with it a certificate for the signer")
	case c.IsCA:
		return unfit("is a CA certificate; issue a certificate for the signer with it")
	case now.After(c.NotAfter):
		return unfit("expired on %s", c.NotAfter.Format(time.DateOnly))
	case now.Before(c.NotBefore):
		return unfit("is not valid before %s", c.NotBefore.Format(time.DateOnly))
	case c.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return unfit("is not for digital signatures; its key usage must have digitalSignature")
	case slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny):
		return unfit("is for any purpose; C2PA wants one with the extended key usage emailProtection")
	case !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageEmailProtection) && !purpose(claimSigning) && !purpose(documentSigning):
		return unfit("has another purpose; its extended key usage must have emailProtection (or documentSigning or %s)", claimSigning)
	}
	_, err := algorithmOf(c.PublicKey)
	return err
}

func selfSigned(c *x509.Certificate) bool {
	return bytes.Equal(c.RawSubject, c.RawIssuer) && c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}
