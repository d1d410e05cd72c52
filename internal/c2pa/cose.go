package c2pa

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"slices"

	"github.com/veraison/go-cose"

	"weir/internal/weir"
)

// Names of unprotected headers.
const (
	headerStamp = "sigTst2"
	headerPad   = "pad"
)

// message returns the signature of a claim, without its signature bytes.
func (s *Signer) message() *cose.Sign1Message {
	m := cose.NewSign1Message()
	m.Headers.Protected.SetAlgorithm(s.alg.cose)
	m.Headers.Protected[cose.HeaderLabelX5Chain] = s.chain[0].Raw
	if len(s.chain) > 1 {
		chain := make([]any, len(s.chain))
		for i, c := range s.chain {
			chain[i] = c.Raw
		}
		m.Headers.Protected[cose.HeaderLabelX5Chain] = chain
	}
	return m
}

// blank returns a signature with the size of every signature of this signer.
func (s *Signer) blank([]byte) ([]byte, error) {
	m := s.message()
	m.Signature = make([]byte, s.alg.size)
	return s.encodeSignature(m, nil)
}

// sign returns the signature of a claim.
func (s *Signer) sign(ctx context.Context, claim []byte) ([]byte, error) {
	m := s.message()
	signer, err := cose.NewSigner(s.alg.cose, s.key)
	if err != nil {
		return nil, err
	}
	m.Payload = claim
	if err := m.Sign(rand.Reader, nil, signer); err != nil {
		return nil, err
	}
	m.Payload = nil // it is in the claim box
	if s.post == nil {
		return s.encodeSignature(m, nil)
	}
	token, err := s.requestStamp(ctx, m)
	if err != nil {
		return nil, err
	}
	return s.encodeSignature(m, token)
}

// stampRoom is how much room a signature has for a time stamp.
const stampRoom = 16 << 10

// encodeSignature encodes a signature. With time stamps all signatures have the same size, by padding.
func (s *Signer) encodeSignature(m *cose.Sign1Message, token []byte) ([]byte, error) {
	if s.post == nil {
		return m.MarshalCBOR()
	}
	used := 0
	if token != nil {
		stamp := object{"tstTokens": []object{{"val": token}}}
		m.Headers.Unprotected[headerStamp] = stamp
		used = len(encode(headerStamp)) + len(encode(stamp))
	}
	// The length of the padding always takes three bytes.
	if stampRoom-used < 256 {
		return nil, weir.Errorf(weir.Upstream, "the time stamp is too large: it has %d bytes", len(token))
	}
	m.Headers.Unprotected[headerPad] = make([]byte, stampRoom-used)
	return m.MarshalCBOR()
}

// signature is a signature that was read.
type signature struct {
	alg     algorithm
	chain   []*x509.Certificate
	message *cose.Sign1Message
}

// maxChain bounds the certificates of a signature.
const maxChain = 16

// readSignature reads the signature of a claim.
func readSignature(data []byte) (signature, error) {
	damaged := func(why string) (signature, error) {
		return signature{}, weir.Errorf(weir.Invalid, "unreadable signature: %s", why)
	}
	m := cose.NewSign1Message()
	if err := m.UnmarshalCBOR(data); err != nil {
		untagged := new(cose.UntaggedSign1Message)
		if untagged.UnmarshalCBOR(data) != nil {
			return damaged(err.Error())
		}
		m = (*cose.Sign1Message)(untagged)
	}
	s := signature{message: m}
	number, err := m.Headers.Protected.Algorithm()
	if err != nil {
		return damaged(err.Error())
	}
	i := slices.IndexFunc(algorithms, func(a algorithm) bool { return a.cose == number })
	if i < 0 {
		return damaged("C2PA does not allow its algorithm")
	}
	s.alg = algorithms[i]
	x5chain := m.Headers.Protected[cose.HeaderLabelX5Chain]
	for _, other := range []any{m.Headers.Protected["x5chain"], m.Headers.Unprotected[cose.HeaderLabelX5Chain], m.Headers.Unprotected["x5chain"]} {
		if x5chain == nil {
			x5chain = other // as older versions of C2PA have it
		}
	}
	list, ok := x5chain.([]any)
	if !ok {
		list = []any{x5chain}
	}
	if len(list) > maxChain {
		return damaged("it has too many certificates")
	}
	for _, item := range list {
		der, _ := item.([]byte)
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return damaged("one of its certificates can't be read")
		}
		s.chain = append(s.chain, cert)
	}
	if len(s.chain) == 0 {
		return damaged("it has no certificate")
	}
	return s, nil
}

// verify reports whether this is the signature of a claim.
func (s signature) verify(claim []byte) error {
	verifier, err := cose.NewVerifier(s.alg.cose, s.chain[0].PublicKey)
	if err != nil {
		return err
	}
	s.message.Payload = claim
	defer func() { s.message.Payload = nil }()
	return s.message.Verify(nil, verifier)
}
