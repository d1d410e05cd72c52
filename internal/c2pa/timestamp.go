package c2pa

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/veraison/go-cose"

	"weir/internal/weir"
)

// A time stamp (RFC 3161) is made for the signature of a claim, as a countersignature of COSE. It
// is a CMS message whose content is a stampInfo.

var (
	oidSHA256     = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidSHA384     = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 2}
	oidSHA512     = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 3}
	oidSignedData = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidStampInfo  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}
	oidDigest     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
)

type stampImprint struct {
	Algorithm pkix.AlgorithmIdentifier
	Hash      []byte
}

type stampRequest struct {
	Version int
	Imprint stampImprint
	Nonce   *big.Int
	Certs   bool
}

type stampResponse struct {
	Status struct {
		Status int
		Text   []string       `asn1:"optional,utf8"`
		Failed asn1.BitString `asn1:"optional"`
	}
	Token asn1.RawValue `asn1:"optional"`
}

// stampInfo is what a time stamp says.
type stampInfo struct {
	Version  int
	Policy   asn1.ObjectIdentifier
	Imprint  stampImprint
	Serial   *big.Int
	Time     asn1.RawValue // may have fractions of seconds, which package asn1 does not read
	Accuracy struct {
		Seconds int `asn1:"optional"`
		Millis  int `asn1:"optional,tag:0"`
		Micros  int `asn1:"optional,tag:1"`
	} `asn1:"optional"`
	Ordering bool     `asn1:"optional"`
	Nonce    *big.Int `asn1:"optional"`
}

func (i stampInfo) at() (time.Time, error) {
	return time.Parse("20060102150405Z", string(i.Time.Bytes))
}

type cmsMessage struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue // with the tag 0 around it
}

type cmsSigned struct {
	Version int
	Digests asn1.RawValue
	Content struct {
		Type asn1.ObjectIdentifier
		Data []byte `asn1:"explicit,tag:0"`
	}
	Certs   asn1.RawValue `asn1:"optional,tag:0"`
	CRLs    asn1.RawValue `asn1:"optional,tag:1"`
	Signers []cmsSigner   `asn1:"set"`
}

type cmsSigner struct {
	Version    int
	ID         asn1.RawValue // issuer and serial number, or the id of the key
	Digest     pkix.AlgorithmIdentifier
	Attributes asn1.RawValue `asn1:"tag:0"`
	Algorithm  pkix.AlgorithmIdentifier
	Signature  []byte
	Rest       asn1.RawValue `asn1:"optional,tag:1"`
}

// countersigned returns what the time stamp of a signature is made for.
func countersigned(m *cose.Sign1Message) ([]byte, error) {
	protected, err := m.Headers.MarshalProtected()
	if err != nil {
		return nil, err
	}
	return encode([]any{"CounterSignature", cbor.RawMessage(protected), []byte{}, encode(m.Signature)}), nil
}

// requestStamp returns a time stamp for a signature.
func (s *Signer) requestStamp(ctx context.Context, m *cose.Sign1Message) ([]byte, error) {
	signature, err := countersigned(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(signature)
	nonce, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 63))
	if err != nil {
		return nil, err
	}
	request, err := asn1.Marshal(stampRequest{
		Version: 1, Imprint: stampImprint{pkix.AlgorithmIdentifier{Algorithm: oidSHA256, Parameters: asn1.NullRawValue}, sum[:]},
		Nonce: nonce, Certs: true,
	})
	if err != nil {
		return nil, err
	}
	data, err := s.post(ctx, request)
	if err != nil {
		return nil, err
	}
	var response stampResponse
	if _, err := asn1.Unmarshal(data, &response); err != nil {
		return nil, weir.Wrap(weir.Upstream, err, "the time stamp service sent a response that can't be parsed")
	}
	if response.Status.Status > 1 {
		return nil, weir.Errorf(weir.Upstream, "the time stamp service refused the request with status %d", response.Status.Status)
	}
	_, info, err := readStamp(response.Token.FullBytes, signature)
	if err == nil && (info.Nonce == nil || info.Nonce.Cmp(nonce) != 0) {
		err = errors.New("it is the response to another request")
	}
	if err != nil {
		return nil, weir.Wrap(weir.Upstream, err, "the time stamp service sent an invalid time stamp")
	}
	return response.Token.FullBytes, nil
}

// stamp is the time stamp of a signature.
type stamp struct {
	at      time.Time
	trusted bool
}

// stamp returns the time stamp of a signature; nil = it has none.
func (s signature) stamp(trust []byte) (*stamp, error) {
	container, ok := s.message.Headers.Unprotected[headerStamp].(map[any]any)
	if !ok {
		return nil, nil
	}
	tokens, ok := container["tstTokens"].([]any)
	if !ok || len(tokens) != 1 {
		return nil, errors.New("the time stamp can't be read")
	}
	token, _ := tokens[0].(map[any]any)
	data, _ := token["val"].([]byte)
	signature, err := countersigned(s.message)
	if err != nil {
		return nil, err
	}
	chain, info, err := readStamp(data, signature)
	if err != nil {
		return nil, err
	}
	at, err := info.at()
	return &stamp{at: at, trusted: trusts(trust, chain, at)}, err
}

// readStamp reads a time stamp and checks that it was made for some bytes. The chain starts with
// the certificate of the service.
func readStamp(data, stamped []byte) (chain []*x509.Certificate, info stampInfo, err error) {
	invalid := func(why string) ([]*x509.Certificate, stampInfo, error) {
		return nil, stampInfo{}, errors.New("the time stamp is not valid: " + why)
	}
	var message cmsMessage
	var signed cmsSigned
	if _, err := asn1.Unmarshal(data, &message); err != nil || !message.Type.Equal(oidSignedData) {
		return invalid("it is not signed data")
	}
	if _, err := asn1.Unmarshal(message.Content.Bytes, &signed); err != nil {
		return invalid("its signature can't be read")
	}
	if _, err := asn1.Unmarshal(signed.Content.Data, &info); err != nil || !signed.Content.Type.Equal(oidStampInfo) {
		return invalid("its content is not a time")
	}
	of := hashNamed(info.Imprint.Algorithm.Algorithm)
	if of == 0 || subtle.ConstantTimeCompare(sumWith(of, stamped), info.Imprint.Hash) == 0 {
		return invalid("it is for other data")
	}
	certs, err := x509.ParseCertificates(signed.Certs.Bytes)
	if err != nil || len(certs) > maxChain || len(signed.Signers) != 1 {
		return invalid("its certificates can't be read")
	}
	i := slices.IndexFunc(certs, signed.Signers[0].is)
	if i < 0 {
		return invalid("the certificate of its signer is missing")
	}
	certs[0], certs[i] = certs[i], certs[0]
	leaf := certs[0]
	at, err := info.at()
	switch {
	case err != nil:
		return invalid("its time can't be read")
	case !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageTimeStamping):
		return invalid("its certificate is not for time stamps")
	case at.Before(leaf.NotBefore) || at.After(leaf.NotAfter):
		return invalid("its certificate was not valid then")
	case !signed.Signers[0].signed(signed.Content.Data, leaf):
		return invalid("its signature is wrong")
	}
	return certs, info, nil
}

// is reports whether a certificate is that of the signer.
func (s cmsSigner) is(c *x509.Certificate) bool {
	if s.ID.Class == asn1.ClassContextSpecific {
		return len(c.SubjectKeyId) > 0 && bytes.Equal(s.ID.Bytes, c.SubjectKeyId)
	}
	var id struct {
		Issuer asn1.RawValue
		Serial *big.Int
	}
	_, err := asn1.Unmarshal(s.ID.FullBytes, &id)
	return err == nil && bytes.Equal(id.Issuer.FullBytes, c.RawIssuer) && id.Serial.Cmp(c.SerialNumber) == 0
}

// signed reports whether the signer signed the content.
func (s cmsSigner) signed(content []byte, leaf *x509.Certificate) bool {
	of := hashNamed(s.Digest.Algorithm)
	if of == 0 || len(s.Attributes.FullBytes) == 0 {
		return false
	}
	var attributes []struct {
		Type   asn1.ObjectIdentifier
		Values asn1.RawValue `asn1:"set"`
	}
	set := slices.Clone(s.Attributes.FullBytes)
	set[0] = 0x31 // it is signed as a set, without its tag
	if _, err := asn1.UnmarshalWithParams(set, &attributes, "set"); err != nil {
		return false
	}
	for _, a := range attributes {
		var digest []byte
		if !a.Type.Equal(oidDigest) {
			continue
		}
		if _, err := asn1.Unmarshal(a.Values.Bytes, &digest); err != nil || subtle.ConstantTimeCompare(digest, sumWith(of, content)) == 0 {
			return false
		}
		return verifies(leaf.PublicKey, of, set)(s.Signature)
	}
	return false
}

// verifies returns a function that reports whether a signature is that of data.
func verifies(key crypto.PublicKey, of crypto.Hash, data []byte) func(signature []byte) bool {
	sum := sumWith(of, data)
	return func(signature []byte) bool {
		switch key := key.(type) {
		case *rsa.PublicKey:
			return rsa.VerifyPKCS1v15(key, of, sum, signature) == nil || rsa.VerifyPSS(key, of, sum, signature, nil) == nil
		case *ecdsa.PublicKey:
			return ecdsa.VerifyASN1(key, sum, signature)
		case ed25519.PublicKey:
			return ed25519.Verify(key, data, signature)
		}
		return false
	}
}

func hashNamed(id asn1.ObjectIdentifier) crypto.Hash {
	switch {
	case id.Equal(oidSHA256):
		return crypto.SHA256
	case id.Equal(oidSHA384):
		return crypto.SHA384
	case id.Equal(oidSHA512):
		return crypto.SHA512
	}
	return 0
}

func sumWith(of crypto.Hash, data []byte) []byte {
	h := of.New()
	h.Write(data)
	return h.Sum(nil)
}
