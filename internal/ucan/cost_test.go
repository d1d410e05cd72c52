package ucan

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/ipld/go-ipld-prime/datamodel"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
	"github.com/ipld/go-ipld-prime/node/basicnode"
	"github.com/multiformats/go-multihash"
	"github.com/multiformats/go-varint"
	"github.com/storacha/go-ucanto/core/dag/blockstore"
	"github.com/storacha/go-ucanto/core/delegation"
	"github.com/storacha/go-ucanto/core/ipld"
	"github.com/storacha/go-ucanto/core/ipld/block"
	"github.com/storacha/go-ucanto/core/ipld/codec/cbor"
	"github.com/storacha/go-ucanto/core/ipld/hash/sha256"
	"github.com/storacha/go-ucanto/did"
	"github.com/storacha/go-ucanto/principal"
	"github.com/storacha/go-ucanto/principal/ed25519/signer"
	token "github.com/storacha/go-ucanto/ucan"
	udm "github.com/storacha/go-ucanto/ucan/datamodel/ucan"

	"weir/internal/weir"
)

// proofSize is the size of the proofs whose costs are compared.
const proofSize = 900_000

// fact is a fact with one value.
type fact struct{ node datamodel.Node }

func (f fact) ToIPLD() (map[string]datamodel.Node, error) {
	return map[string]datamodel.Node{"a": f.node}, nil
}

func testKey(n byte) principal.Signer {
	s, err := signer.FromRaw(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, 32)))
	if err != nil {
		panic(err)
	}
	return s
}

var spaceKey, agentKey = testKey(1), testKey(2)

// delegate makes a delegation of abilities on the space.
func delegate(issuer principal.Signer, audience string, abilities []string, options ...delegation.Option) delegation.Delegation {
	to, err := did.Parse(audience)
	if err != nil {
		panic(err)
	}
	var caps []token.Capability[token.NoCaveats]
	for _, a := range abilities {
		caps = append(caps, token.NewCapability(a, spaceKey.DID().String(), token.NoCaveats{}))
	}
	d, err := delegation.Delegate(issuer, to, caps, append(options, delegation.WithExpiration(int(recordedAt.Add(time.Hour*1000).Unix())))...)
	if err != nil {
		panic(err)
	}
	return d
}

func encode(car []byte) string { return base64.StdEncoding.EncodeToString(car) }

func encodeDelegation(d delegation.Delegation) string {
	b, err := io.ReadAll(d.Archive())
	if err != nil {
		panic(err)
	}
	return encode(b)
}

// appendBlock appends a block to a CAR file.
func appendBlock(car, data []byte) []byte {
	hash, err := multihash.Sum(data, multihash.SHA2_256, -1)
	if err != nil {
		panic(err)
	}
	c := cid.NewCidV1(cid.DagCBOR, hash)
	car = append(car, varint.ToUvarint(uint64(c.ByteLen()+len(data)))...)
	return append(append(car, c.Bytes()...), data...)
}

// filled is a proof of the usual kind that is filled up with a fact.
func filled(n datamodel.Node) string {
	parent := delegate(spaceKey, agentKey.DID().String(), []string{"space/*", "upload/*"})
	return encodeDelegation(delegate(agentKey, DID(recordedSeed), UploadAbilities(),
		delegation.WithProof(delegation.FromDelegation(parent)), delegation.WithFacts([]token.FactBuilder{fact{n}})))
}

func text(s string) datamodel.Node { return basicnode.NewString(s) }

// many is a list of more values than are read, with a long text at its end.
func many(value func(int) datamodel.Node) datamodel.Node {
	const n = 2 * maxValues
	b := basicnode.Prototype.Any.NewBuilder()
	l, err := b.BeginList(n)
	for i := range n {
		if err == nil {
			err = l.AssembleValue().AssignNode(value(i))
		}
	}
	if err == nil {
		err = l.AssembleValue().AssignString(strings.Repeat("x", 630_000))
	}
	if err == nil {
		err = l.Finish()
	}
	if err != nil {
		panic(err)
	}
	return b.Build()
}

// goodProof is the cheapest large proof: one long text, which is only hashed and copied.
func goodProof() string { return filled(text(strings.Repeat("x", 660_000))) }

// hostileProofs are proofs of the same size that try to cost more. All their blocks have the right
// hashes, and their signatures are right as far as their issuers have keys.
func hostileProofs() map[string]string {
	all := map[string]string{
		"zeros":       strings.Repeat("A", proofSize),
		"white space": strings.Repeat(" \n", proofSize/2),
		"letters é":   strings.Repeat("é", proofSize/2),
		"one letter":  "m" + strings.Repeat("A", proofSize-1),
		"escapes":     filled(text(strings.Repeat("\x01", 2*maxValues) + strings.Repeat("x", 640_000))),
		"quotes":      filled(text(strings.Repeat(`"`, 2*maxValues) + strings.Repeat("x", 640_000))),
		"separators":  filled(text(strings.Repeat("\u2028", 2*maxValues) + strings.Repeat("x", 610_000))),
		"values":      filled(many(func(i int) datamodel.Node { return basicnode.NewInt(int64(i % 20)) })),
		"texts":       filled(many(func(int) datamodel.Node { return text("a") })),
	}
	var abilities []string
	for i := range 4000 {
		abilities = append(abilities, fmt.Sprintf("upload/%d", i))
	}
	all["capabilities"] = encodeDelegation(delegate(spaceKey, DID(recordedSeed), abilities,
		delegation.WithFacts([]token.FactBuilder{fact{text(strings.Repeat("x", 300_000))}})))
	all["1000 capabilities"] = encodeDelegation(delegate(agentKey, DID(recordedSeed), append(abilities[:1000:1000], UploadAbilities()...),
		delegation.WithFacts([]token.FactBuilder{fact{text(strings.Repeat("x", 550_000))}})))

	base, err := io.ReadAll(delegate(agentKey, DID(recordedSeed), UploadAbilities()).Archive())
	if err != nil {
		panic(err)
	}
	blocks := base
	for i := 0; len(blocks) < proofSize*3/4; i++ {
		blocks = appendBlock(blocks, fmt.Appendf(nil, "%c%d", 0x60+len(fmt.Sprint(i)), i))
	}
	all["blocks"] = encode(blocks)

	// Every delegation of these is signed.
	chain := delegate(spaceKey, agentKey.DID().String(), UploadAbilities())
	var parents []delegation.Proof
	for i := range 300 {
		parents = append(parents, delegation.FromDelegation(delegate(agentKey, agentKey.DID().String(), UploadAbilities(), delegation.WithNonce(fmt.Sprint(i)),
			delegation.WithFacts([]token.FactBuilder{fact{text(strings.Repeat("x", 1600))}}))))
	}
	for i := range 60 {
		chain = delegate(agentKey, agentKey.DID().String(), UploadAbilities(), delegation.WithNonce(fmt.Sprint(i)), delegation.WithProof(delegation.FromDelegation(chain)),
			delegation.WithFacts([]token.FactBuilder{fact{text(strings.Repeat("x", 10_500))}}))
	}
	all["deep"] = encodeDelegation(delegate(agentKey, DID(recordedSeed), UploadAbilities(), delegation.WithProof(delegation.FromDelegation(chain))))
	all["wide"] = encodeDelegation(delegate(agentKey, DID(recordedSeed), UploadAbilities(), delegation.WithProof(parents...)))

	// These end at the bound of blocks, values or signatures: each parent is good except for its last
	// delegation, which another key signed for the space.
	parents = nil
	for i := range 120 {
		forged := delegate(testKey(3), agentKey.DID().String(), UploadAbilities(), delegation.WithNonce(fmt.Sprint(i)))
		forged.Data().Model().Iss = spaceKey.DID().Bytes()
		parents = append(parents, resigned(forged))
	}
	all["signatures"] = encodeDelegation(delegate(agentKey, DID(recordedSeed), UploadAbilities(), delegation.WithProof(parents...),
		delegation.WithFacts([]token.FactBuilder{fact{text(strings.Repeat("x", 600_000))}})))
	links := make([]delegation.Proof, 3500)
	for i := range links {
		links[i] = delegation.FromLink(cidlink.Link{Cid: cid.NewCidV1(cid.DagCBOR, chain.Link().(cidlink.Link).Cid.Hash())})
	}
	all["missing parents"] = encodeDelegation(delegate(agentKey, DID(recordedSeed), UploadAbilities(), delegation.WithProof(links...),
		delegation.WithFacts([]token.FactBuilder{fact{text(strings.Repeat("x", 450_000))}})))
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

// resigned returns a delegation whose model was changed, with a new hash and the old signature.
func resigned(d delegation.Delegation) delegation.Proof {
	b, err := block.Encode(d.Data().Model(), udm.Type(), cbor.Codec, sha256.Hasher)
	if err != nil {
		panic(err)
	}
	bs, err := blockstore.NewBlockStore(blockstore.WithBlocks([]ipld.Block{b}))
	if err != nil {
		panic(err)
	}
	d, err = delegation.NewDelegation(b, bs)
	if err != nil {
		panic(err)
	}
	return delegation.FromDelegation(d)
}
