package ucan

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"weir/internal/ipld"
)

// A Map has the arguments or the result of an invocation.
type Map = ipld.Map

// version is that of the tokens that are signed here.
const version = "0.9.1"

// What signatures begin with, as a varint.
const (
	codeEdDSA = 0xd0ed
	codeRS256 = 0xd01205
)

// A token is a delegation or an invocation: what is signed, and the signature.
type token struct {
	version            string
	issuer, audience   []byte
	capabilities       []capability
	proofs             []ipld.CID
	expires, notBefore *int64 // seconds since 1970; nil = never, always
	facts              []any
	nonce              string
	signature          []byte
}

type capability struct {
	can, with string
	caveats   any
	given     Map // all of it, because that is signed
}

// readToken reads a token. It is one in form only: the principals and the signature are any bytes.
func readToken(block []byte) (*token, bool) {
	value, _, err := ipld.Decode(ipld.DagCBOR, block)
	m, ok := value.(Map)
	if err != nil || !ok || !onlyHas(m, "v", "s", "iss", "aud", "att", "prf", "exp", "nbf", "fct", "nnc") {
		return nil, false
	}
	t := new(token)
	valid := is(m["v"], &t.version) && is(m["s"], &t.signature) && is(m["iss"], &t.issuer) && is(m["aud"], &t.audience) &&
		t.readCapabilities(m["att"]) && t.readProofs(m) && readTime(m, "exp", &t.expires) && readTime(m, "nbf", &t.notBefore)
	if facts, given := m["fct"]; given {
		valid = valid && is(facts, &t.facts)
	}
	for _, fact := range t.facts {
		_, isMap := fact.(Map)
		valid = valid && isMap
	}
	if nonce, given := m["nnc"]; given {
		valid = valid && is(nonce, &t.nonce)
	}
	_, hasEnd := m["exp"]
	return t, valid && hasEnd
}

func (t *token) readCapabilities(value any) bool {
	list, ok := value.([]any)
	for _, item := range list {
		m, isMap := item.(Map)
		c := capability{given: m, caveats: m["nb"]}
		if !isMap || !onlyHas(m, "can", "with", "nb") || !is(m["can"], &c.can) || !is(m["with"], &c.with) {
			return false
		}
		t.capabilities = append(t.capabilities, c)
	}
	return ok
}

func (t *token) readProofs(m Map) bool {
	value, given := m["prf"]
	list, ok := value.([]any)
	for _, item := range list {
		c, isLink := item.(ipld.CID)
		if !isLink {
			return false
		}
		t.proofs = append(t.proofs, c)
	}
	return ok || !given
}

// readTime reads a time, which may be missing or null.
func readTime(m Map, name string, to **int64) bool {
	seconds, ok := m[name].(int64)
	if ok {
		*to = &seconds
	}
	return ok || m[name] == nil
}

// is sets to and returns true if a value has its type.
func is[T any](value any, to *T) bool {
	v, ok := value.(T)
	*to = v
	return ok
}

// onlyHas says whether all keys of a map are among these.
func onlyHas(m Map, keys ...string) bool {
	for key := range m {
		if !slices.Contains(keys, key) {
			return false
		}
	}
	return true
}

// signed returns the bytes that are signed: those of a JWT.
func (t *token) signed(algorithm string) ([]byte, error) {
	issuer, _ := principalName(t.issuer)
	audience, _ := principalName(t.audience)
	capabilities, proofs := []any{}, []any{}
	for _, c := range t.capabilities {
		capabilities = append(capabilities, c.given)
	}
	for _, c := range t.proofs {
		proofs = append(proofs, c.String())
	}
	payload := Map{"iss": issuer, "aud": audience, "att": capabilities, "prf": proofs, "exp": nil}
	t.addOptional(payload)
	var signed []byte
	for _, part := range []Map{{"alg": algorithm, "typ": "JWT", "ucv": t.version}, payload} {
		text, err := ipld.EncodeJSON(part)
		if err != nil {
			return nil, err
		}
		signed = append(base64.RawURLEncoding.AppendEncode(signed, text), '.')
	}
	return signed[:len(signed)-1], nil
}

// addOptional adds those members that are not in every token.
func (t *token) addOptional(to Map) {
	if t.expires != nil {
		to["exp"] = *t.expires
	}
	if t.notBefore != nil && *t.notBefore != 0 {
		to["nbf"] = *t.notBefore
	}
	if len(t.facts) > 0 {
		to["fct"] = t.facts
	}
	if t.nonce != "" {
		to["nnc"] = t.nonce
	}
}

// sign signs the token and returns its block.
func (t *token) sign(key ed25519.PrivateKey) (ipld.CID, []byte, error) {
	t.version = version
	t.issuer = principalOf(key.Public().(ed25519.PublicKey))
	signed, err := t.signed("EdDSA")
	if err != nil {
		return "", nil, err
	}
	t.signature = sign(key, signed)
	return t.encode()
}

// sign returns a signature with what it begins with.
func sign(key ed25519.PrivateKey, signed []byte) []byte {
	head := binary.AppendUvarint(binary.AppendUvarint(nil, codeEdDSA), ed25519.SignatureSize)
	return append(head, ed25519.Sign(key, signed)...)
}

// encode returns the block of the token.
func (t *token) encode() (ipld.CID, []byte, error) {
	capabilities, proofs := []any{}, []any{}
	for _, c := range t.capabilities {
		capabilities = append(capabilities, c.given)
	}
	for _, c := range t.proofs {
		proofs = append(proofs, c)
	}
	m := Map{"v": t.version, "s": t.signature, "iss": t.issuer, "aud": t.audience, "att": capabilities, "prf": proofs, "exp": nil}
	t.addOptional(m)
	return encodeBlock(m)
}

// encodeBlock returns a value as a block.
func encodeBlock(value any) (ipld.CID, []byte, error) {
	block, err := ipld.EncodeCBOR(value)
	return ipld.Sum(ipld.DagCBOR, block), block, err
}

// verifiable says whether the issuer is a key whose signatures can be verified.
func (t *token) verifiable() bool {
	code, n := binary.Uvarint(t.issuer)
	return code == codeEd25519 && len(t.issuer) == n+ed25519.PublicKeySize || t.rsaKey() != nil
}

// rsaKey returns the key of the issuer if it is of this kind. Browsers have keys of 2048 bits. Larger
// ones cost much more.
func (t *token) rsaKey() *rsa.PublicKey {
	code, n := binary.Uvarint(t.issuer)
	if code != codeRSA || len(t.issuer) > 280 {
		return nil
	}
	key, err := x509.ParsePKCS1PublicKey(t.issuer[n:])
	if err != nil {
		return nil
	}
	return key
}

// verify says whether the signature is that of the issuer.
func (t *token) verify() bool {
	code, n := binary.Uvarint(t.signature)
	_, m := binary.Uvarint(t.signature[n:])
	raw := t.signature[n+m:]
	if !t.verifiable() {
		return false
	}
	if key := t.rsaKey(); key != nil {
		signed, err := t.signed("RS256")
		digest := sha256.Sum256(signed)
		return err == nil && code == codeRS256 && rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], raw) == nil
	}
	signed, err := t.signed("EdDSA")
	_, head := binary.Uvarint(t.issuer)
	return err == nil && code == codeEdDSA && ed25519.Verify(t.issuer[head:], signed, raw)
}
