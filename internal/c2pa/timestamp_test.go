package c2pa

import (
	"context"
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
	"strings"
	"testing"
	"time"
)

// stampService is a time stamp service.
type stampService struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	root []byte // PEM
	at   time.Time
	lie  func(*stampInfo)
}

func newStampService(t testing.TB, at time.Time) *stampService {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := newChain(key, at, func(c *x509.Certificate) {
		c.Subject.CommonName = "time stamps"
		c.ExtKeyUsage, c.UnknownExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(chain.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &stampService{key: key, cert: cert, root: chain.Root, at: at}
}

// post answers a request.
func (s *stampService) post(_ context.Context, data []byte) ([]byte, error) {
	var request stampRequest
	if _, err := asn1.Unmarshal(data, &request); err != nil {
		return nil, err
	}
	info := stampInfo{
		Version: 1, Policy: asn1.ObjectIdentifier{1, 2, 3, 4}, Imprint: request.Imprint, Serial: big.NewInt(7),
		Time: generalized(s.at), Nonce: request.Nonce,
	}
	info.Accuracy.Millis = 500
	if s.lie != nil {
		s.lie(&info)
	}
	type attribute struct {
		Type   asn1.ObjectIdentifier
		Values []asn1.RawValue `asn1:"set"`
	}
	must := func(v any, params ...string) []byte {
		der, err := asn1.MarshalWithParams(v, strings.Join(params, ","))
		if err != nil {
			panic(err)
		}
		return der
	}
	content := must(info)
	sum := sha256.Sum256(content)
	certSum := sha256.Sum256(s.cert.Raw)
	signingCert := must(struct{ Certs []struct{ Hash []byte } }{[]struct{ Hash []byte }{{certSum[:]}}})
	attributes := must([]attribute{
		{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}, []asn1.RawValue{{FullBytes: must(oidStampInfo)}}},
		{oidDigest, []asn1.RawValue{{FullBytes: must(sum[:])}}},
		{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 47}, []asn1.RawValue{{FullBytes: signingCert}}},
	}, "set")
	digest := sha256.Sum256(attributes)
	signature, err := s.key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	attributes[0] = 0xa0
	sha := pkix.AlgorithmIdentifier{Algorithm: oidSHA256}
	signed := must(struct {
		Version int
		Digests []pkix.AlgorithmIdentifier `asn1:"set"`
		Content struct {
			Type asn1.ObjectIdentifier
			Data []byte `asn1:"explicit,tag:0"`
		}
		Certs   asn1.RawValue
		Signers []cmsSigner `asn1:"set"`
	}{
		3,
		[]pkix.AlgorithmIdentifier{sha},
		struct {
			Type asn1.ObjectIdentifier
			Data []byte `asn1:"explicit,tag:0"`
		}{oidStampInfo, content},
		asn1.RawValue{Class: 2, Tag: 0, IsCompound: true, Bytes: s.cert.Raw},
		[]cmsSigner{{
			Version: 1, ID: asn1.RawValue{FullBytes: must(struct {
				Issuer asn1.RawValue
				Serial *big.Int
			}{asn1.RawValue{FullBytes: s.cert.RawIssuer}, s.cert.SerialNumber})},
			Digest: sha, Attributes: asn1.RawValue{FullBytes: attributes},
			Algorithm: pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}}, Signature: signature,
		}},
	})
	token := must(cmsMessage{oidSignedData, asn1.RawValue{FullBytes: explicit(signed)}})
	return must(struct {
		Status struct{ Status int }
		Token  asn1.RawValue
	}{Token: asn1.RawValue{FullBytes: token}}), nil
}

// generalized returns a time as services write it.
func generalized(at time.Time) asn1.RawValue {
	return asn1.RawValue{Tag: asn1.TagGeneralizedTime, Bytes: []byte(at.UTC().Format("20060102150405.000Z"))}
}

// explicit puts DER into a context-specific tag 0.
func explicit(der []byte) []byte {
	out, err := asn1.Marshal(asn1.RawValue{Class: 2, Tag: 0, IsCompound: true, Bytes: der})
	if err != nil {
		panic(err)
	}
	return out
}

func TestTimestamp(t *testing.T) {
	t.Parallel()
	service := newStampService(t, now)
	chain, err := NewChain(now)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(chain.Key, chain.Cert, now, service.post)
	if err != nil {
		t.Fatal(err)
	}
	file := signFile(t, s, mp4File(), content())
	later := now.AddDate(11, 0, 0) // the certificate is not valid any more
	both := append(append([]byte{}, chain.Root...), service.root...)
	for _, tt := range []struct {
		name  string
		trust []byte
		at    time.Time
		want  State
	}{
		{"now", nil, now, Valid},
		{"later", nil, later, Invalid},
		{"later, trusting the signer alone", chain.Root, later, Invalid},
		{"later, trusting both", both, later, Trusted},
	} {
		r := verifyFile(t, file, Options{Now: tt.at, Trust: tt.trust})
		if r.State != tt.want || r.Manifest.SignedAt == nil || !r.Manifest.SignedAt.Equal(now) {
			t.Errorf("%s: %s, signed at %v: %+v", tt.name, r.State, r.Manifest.SignedAt, r.Problems)
		}
	}
	for name, lie := range map[string]func(*stampInfo){
		"another request":   func(i *stampInfo) { i.Nonce = big.NewInt(1) },
		"another signature": func(i *stampInfo) { i.Imprint.Hash = make([]byte, 32) },
		"another time":      func(i *stampInfo) { i.Time = generalized(now.AddDate(-1, 0, 0)) },
	} {
		service.lie = lie
		f, err := s.File(content())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.Sign(t.Context(), make([]byte, 32)); err == nil {
			t.Errorf("%s: it was signed", name)
		}
	}
}
