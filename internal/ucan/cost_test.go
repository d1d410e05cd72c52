package ucan

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/ipld"
	"weir/internal/weir"
)

// proofSize is the size of the proofs whose costs are compared.
const proofSize = 900_000

func testKey(n byte) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, 32)) }

func didOf(key ed25519.PrivateKey) string { return DID([32]byte(key.Seed())) }

var spaceKey, agentKey = testKey(1), testKey(2)

// A delegation is a token with all that it derives from.
type delegation struct {
	token
	parents []*delegation
	claimed string // the issuer, if it is another one than the signer
}

// delegate makes a delegation of abilities on the space.
func delegate(key ed25519.PrivateKey, to string, abilities []string, options ...func(*delegation)) *delegation {
	audience, err := principal(to)
	if err != nil {
		panic(err)
	}
	d := &delegation{token: token{audience: audience}}
	for _, a := range abilities {
		d.capabilities = append(d.capabilities, capability{given: Map{"can": a, "with": didOf(spaceKey), "nb": Map{}}})
	}
	ends := recordedAt.Add(time.Hour * 1000).Unix()
	d.expires = &ends
	for _, o := range options {
		o(d)
	}
	if _, _, err := d.sign(key); err != nil {
		panic(err)
	}
	if d.claimed != "" {
		if d.issuer, err = principal(d.claimed); err != nil {
			panic(err)
		}
	}
	return d
}

func withNonce(nonce int) func(*delegation) {
	return func(d *delegation) { d.nonce = fmt.Sprint(nonce) }
}

func withFact(value any) func(*delegation) {
	return func(d *delegation) { d.facts = append(d.facts, Map{"a": value}) }
}

func withParents(parents ...*delegation) func(*delegation) {
	return func(d *delegation) {
		for _, p := range parents {
			c, _ := p.block()
			d.proofs = append(d.proofs, c)
		}
		d.parents = parents
	}
}

// signedFor makes the signature that of another one than the issuer.
func signedFor(issuer string) func(*delegation) { return func(d *delegation) { d.claimed = issuer } }

func (d *delegation) block() (ipld.CID, []byte) {
	c, block, err := d.encode()
	if err != nil {
		panic(err)
	}
	return c, block
}

// addTo adds the blocks of the delegation to a message, those of its parents first.
func (d *delegation) addTo(m *message) {
	for _, p := range d.parents {
		p.addTo(m)
	}
	c, block := d.block()
	m.add(c, block)
}

// archive returns the file with a delegation.
func (d *delegation) archive() []byte {
	var m message
	d.addTo(&m)
	c, _ := d.block()
	root, block, err := encodeBlock(Map{"ucan@0.9.1": c})
	if err != nil {
		panic(err)
	}
	m.add(root, block)
	return append(ipld.AppendCARHeader(nil, root), m.blocks...)
}

func encode(car []byte) string { return base64.StdEncoding.EncodeToString(car) }

func encodeDelegation(d *delegation) string { return encode(d.archive()) }

// filled is a proof of the usual kind that is filled up with a fact.
func filled(value any) string {
	parent := delegate(spaceKey, didOf(agentKey), []string{"space/*", "upload/*"})
	return encodeDelegation(delegate(agentKey, DID(recordedSeed), UploadAbilities(), withParents(parent), withFact(value)))
}

// many is a list of more values than are read, with a long text at its end.
func many(value func(int) any) []any {
	var all []any
	for i := range 2 * maxValues {
		all = append(all, value(i))
	}
	return append(all, strings.Repeat("x", 630_000))
}

// goodProof is the cheapest large proof: one long text, which is only hashed and copied.
func goodProof() string { return filled(strings.Repeat("x", 660_000)) }

// hostileProofs are proofs of the same size that try to cost more. All their blocks have the right
// hashes, and their signatures are right as far as their issuers have keys.
func hostileProofs() map[string]string {
	all := map[string]string{
		"zeros":       strings.Repeat("A", proofSize),
		"white space": strings.Repeat(" \n", proofSize/2),
		"letters é":   strings.Repeat("é", proofSize/2),
		"one letter":  "m" + strings.Repeat("A", proofSize-1),
		"escapes":     filled(strings.Repeat("\x01", 2*maxValues) + strings.Repeat("x", 640_000)),
		"quotes":      filled(strings.Repeat(`"`, 2*maxValues) + strings.Repeat("x", 640_000)),
		"separators":  filled(strings.Repeat("\u2028", 2*maxValues) + strings.Repeat("x", 610_000)),
		"values":      filled(many(func(i int) any { return int64(i % 20) })),
		"texts":       filled(many(func(int) any { return "a" })),
	}
	var abilities []string
	for i := range 4000 {
		abilities = append(abilities, fmt.Sprintf("upload/%d", i))
	}
	all["capabilities"] = encodeDelegation(delegate(spaceKey, DID(recordedSeed), abilities, withFact(strings.Repeat("x", 300_000))))
	all["1000 capabilities"] = encodeDelegation(delegate(agentKey, DID(recordedSeed), append(abilities[:1000:1000], UploadAbilities()...),
		withFact(strings.Repeat("x", 550_000))))

	blocks := delegate(agentKey, DID(recordedSeed), UploadAbilities()).archive()
	for i := 0; len(blocks) < proofSize*3/4; i++ {
		block := fmt.Appendf(nil, "%c%d", 0x60+len(fmt.Sprint(i)), i)
		blocks = ipld.AppendCARBlock(blocks, ipld.Sum(ipld.DagCBOR, block), block)
	}
	all["blocks"] = encode(blocks)

	// Every delegation of these is signed.
	chain := delegate(spaceKey, didOf(agentKey), UploadAbilities())
	var parents []*delegation
	for i := range 300 {
		parents = append(parents, delegate(agentKey, didOf(agentKey), UploadAbilities(), withNonce(i), withFact(strings.Repeat("x", 1600))))
	}
	for i := range 60 {
		chain = delegate(agentKey, didOf(agentKey), UploadAbilities(), withNonce(i), withParents(chain), withFact(strings.Repeat("x", 10_500)))
	}
	all["deep"] = encodeDelegation(delegate(agentKey, DID(recordedSeed), UploadAbilities(), withParents(chain)))
	all["wide"] = encodeDelegation(delegate(agentKey, DID(recordedSeed), UploadAbilities(), withParents(parents...)))

	// These end at the bound of blocks, values or signatures: each parent is good except for its last
	// delegation, which another key signed for the space.
	parents = nil
	for i := range 120 {
		parents = append(parents, delegate(testKey(3), didOf(agentKey), UploadAbilities(), withNonce(i), signedFor(didOf(spaceKey))))
	}
	all["signatures"] = encodeDelegation(delegate(agentKey, DID(recordedSeed), UploadAbilities(), withParents(parents...), withFact(strings.Repeat("x", 600_000))))
	missing := delegate(agentKey, DID(recordedSeed), UploadAbilities(), withFact(strings.Repeat("x", 450_000)), func(d *delegation) {
		c, _ := chain.block()
		for range 3500 {
			d.proofs = append(d.proofs, c)
		}
	})
	all["missing parents"] = encodeDelegation(missing)
	return all
}

// TestHostileProofs holds the bounds of what a proof may cost; BenchmarkHostileProofs has the times.
func TestHostileProofs(t *testing.T) {
	if _, err := Check(goodProof(), conditions()); err != nil {
		t.Fatal(err)
	}
	for name, proof := range hostileProofs() {
		r := &reader{}
		_, err := check(proof, conditions(), r)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if kind := weir.KindOf(invalid(err, conditions())); kind != weir.Invalid || len(invalid(err, conditions()).Error()) > 2000 {
			t.Errorf("%s: error of kind %s with %d bytes", name, kind, len(err.Error()))
		}
		blocks := 0
		if r.archive != nil {
			blocks = len(r.order)
		}
		t.Logf("%-18s %7d bytes, %3d blocks, %4d values, %2d signatures: %s", name, len(proof), blocks, r.values, r.checks, weir.Shorten(err.Error(), 80))
		if blocks > maxBlocks || r.checks > maxChecks {
			t.Errorf("%s: %d blocks, %d values, %d signatures", name, blocks, r.values, r.checks)
		}
	}
}

// BenchmarkHostileProofs prints how many times the CPU of a good proof of the same size each hostile
// one costs.
func BenchmarkHostileProofs(b *testing.B) {
	measure := func(b *testing.B, proof string) float64 {
		for b.Loop() {
			_, _ = Check(proof, conditions())
		}
		return float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	}
	var good float64
	b.Run("good", func(b *testing.B) { good = measure(b, goodProof()) })
	for name, proof := range hostileProofs() {
		b.Run(name, func(b *testing.B) { b.ReportMetric(measure(b, proof)/good, "times-good") })
	}
}
