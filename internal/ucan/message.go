package ucan

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/ipld/go-ipld-prime"
	"github.com/ipld/go-ipld-prime/codec/dagcbor"
	"github.com/ipld/go-ipld-prime/datamodel"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
	"github.com/multiformats/go-multihash"
	"github.com/storacha/go-ucanto/core/car"
	"github.com/storacha/go-ucanto/core/dag/blockstore"
	"github.com/storacha/go-ucanto/core/delegation"
	"github.com/storacha/go-ucanto/core/invocation"
	ucanto "github.com/storacha/go-ucanto/core/ipld"
	"github.com/storacha/go-ucanto/core/ipld/block"
	"github.com/storacha/go-ucanto/core/message"
	"github.com/storacha/go-ucanto/core/receipt"
	"github.com/storacha/go-ucanto/core/receipt/ran"
	"github.com/storacha/go-ucanto/core/result"
	"github.com/storacha/go-ucanto/did"
	"github.com/storacha/go-ucanto/principal"
	"github.com/storacha/go-ucanto/principal/ed25519/signer"
	token "github.com/storacha/go-ucanto/ucan"
)

// MessageType is the media type of messages.
const MessageType = "application/vnd.ipld.car"

// maxAnswerBlocks bounds the answer of an upload service, which the operator trusts.
const maxAnswerBlocks = 1 << 14

// An Order is what an invocation asks for.
type Order struct {
	Audience  string // DID of the service
	Can, With string
	Args      Map
	Nonce     string
	Expires   time.Time // never if zero
}

// An Invocation is a signed order, ready to be sent.
type Invocation struct {
	Link    Link
	Message []byte // the CAR file to POST
}

// Invoke signs an order. The proof shows that this service may give it; it may be nil for orders
// about the service itself.
func (i Identity) Invoke(o Order, proof *Proof) (Invocation, error) {
	var options []delegation.Option
	if proof != nil {
		d, err := proof.delegation()
		if err != nil {
			return Invocation{}, err
		}
		options = append(options, delegation.WithProof(delegation.FromDelegation(d)))
	}
	return i.invoke(o, options...)
}

func (i Identity) invoke(o Order, options ...delegation.Option) (Invocation, error) {
	inv, err := i.sign(o, options...)
	if err != nil {
		return Invocation{}, err
	}
	return asMessage(inv)
}

func (i Identity) sign(o Order, options ...delegation.Option) (invocation.Invocation, error) {
	audience, err := did.Parse(o.Audience)
	if err != nil {
		return nil, fmt.Errorf("DID %q: %w", o.Audience, err)
	}
	args, err := node(o.Args)
	if err != nil {
		return nil, err
	}
	if o.Expires.IsZero() {
		options = append(options, delegation.WithNoExpiration())
	} else {
		options = append(options, delegation.WithExpiration(int(o.Expires.Unix())))
	}
	options = append(options, delegation.WithNonce(o.Nonce))
	return invocation.Invoke(i.signer(), audience, token.NewCapability(o.Can, o.With, built{args}), options...)
}

func asMessage(inv invocation.Invocation) (Invocation, error) {
	m, err := message.Build([]invocation.Invocation{inv}, nil)
	if err != nil {
		return Invocation{}, err
	}
	b, err := encodeMessage(m)
	return Invocation{Link(inv.Link().String()), b}, err
}

func encodeMessage(m message.AgentMessage) ([]byte, error) {
	return io.ReadAll(car.Encode([]ucanto.Link{m.Root().Link()}, m.Blocks()))
}

// Conclude signs the report that a task of the service is done: an invocation of ucan/conclude with
// a receipt, which is signed with the key that came with the task.
func (i Identity) Conclude(service string, task Link, key []byte) (Invocation, error) {
	s, err := signer.Decode(key)
	if err != nil {
		return Invocation{}, fmt.Errorf("key of the task: %w", err)
	}
	c, err := task.cid()
	if err != nil {
		return Invocation{}, err
	}
	empty, err := node(Map{})
	if err != nil {
		return Invocation{}, err
	}
	done, err := receipt.Issue(s, result.Ok[built, built](built{empty}), ran.FromLink(cidlink.Link{Cid: c}))
	if err != nil {
		return Invocation{}, err
	}
	// The service takes those attached blocks that a fact links to.
	links := map[string]datamodel.Node{}
	var attached []block.Block
	for b, err := range done.Blocks() {
		if err != nil {
			return Invocation{}, err
		}
		l, err := node(Link(b.Link().String()))
		if err != nil {
			return Invocation{}, err
		}
		links[strconv.Itoa(len(attached))] = l
		attached = append(attached, b)
	}
	inv, err := i.sign(Order{Audience: service, Can: "ucan/conclude", With: i.DID(), Args: Map{"receipt": Link(done.Root().Link().String())}},
		delegation.WithFacts([]token.FactBuilder{facts(links)}))
	if err != nil {
		return Invocation{}, err
	}
	for _, b := range attached {
		if err := inv.Attach(b); err != nil {
			return Invocation{}, err
		}
	}
	return asMessage(inv)
}

func (i Identity) signer() principal.Signer {
	s, err := signer.FromRaw(ed25519.NewKeyFromSeed(i.seed[:]))
	if err != nil {
		panic(err) // the key has the right length
	}
	return s
}

// built is a value that is a node already.
type built struct{ datamodel.Node }

func (b built) ToIPLD() (datamodel.Node, error) { return b.Node, nil }

type facts map[string]datamodel.Node

func (f facts) ToIPLD() (map[string]datamodel.Node, error) { return f, nil }

// delegation returns the proof for go-ucanto, with all blocks of its archive: confirmations of
// accounts may be among them.
func (p *Proof) delegation() (delegation.Delegation, error) {
	if p.archive == nil {
		return nil, errors.New("the proof was not checked")
	}
	var blocks []ucanto.Block
	for _, c := range p.archive.order {
		blocks = append(blocks, block.NewBlock(cidlink.Link{Cid: c}, p.archive.blocks[c]))
	}
	all, err := blockstore.NewBlockReader(blockstore.WithBlocks(blocks))
	if err != nil {
		return nil, err
	}
	return delegation.NewDelegationView(cidlink.Link{Cid: p.root}, all)
}

// An Answer is a message of a service with receipts.
type Answer struct {
	receipts map[Link]Receipt
	tasks    map[Link]Task
}

// A Receipt is the result of a task.
type Receipt struct {
	OK    any
	Error Map // nil if the task succeeded
	Next  []Link
}

// A Task is an invocation inside an answer.
type Task struct {
	Link      Link
	Can, With string
	Args      Map
	Facts     []any
}

// ReadAnswer reads the answer of a service. It does not verify the signatures of receipts, since the
// service is the one that the connection leads to.
func ReadAnswer(file []byte) (*Answer, error) {
	a, err := readArchive(file, maxAnswerBlocks)
	if err != nil {
		return nil, fmt.Errorf("answer of the service: %w", err)
	}
	answer := &Answer{map[Link]Receipt{}, map[Link]Task{}}
	for _, c := range a.order {
		if c.Type() != cid.DagCBOR {
			continue
		}
		v, err := decode(a.blocks[c])
		if err != nil {
			return nil, fmt.Errorf("answer of the service: %w", err)
		}
		m, ok := v.(Map)
		if !ok {
			continue
		}
		if outcome, ok := m["ocm"].(Map); ok {
			answer.addReceipt(outcome)
		} else if att, ok := m["att"].([]any); ok && len(att) == 1 {
			answer.addTask(linkTo(c), att[0], m["fct"])
		}
	}
	return answer, nil
}

func (a *Answer) addReceipt(outcome Map) {
	of, _ := outcome["ran"].(Link)
	out, _ := outcome["out"].(Map)
	fx, _ := outcome["fx"].(Map)
	forks, _ := fx["fork"].([]any)
	r := Receipt{OK: out["ok"]}
	if failure, failed := out["error"]; failed {
		if r.Error, _ = failure.(Map); r.Error == nil {
			r.Error = Map{}
		}
	}
	for _, f := range forks {
		if l, ok := f.(Link); ok {
			r.Next = append(r.Next, l)
		}
	}
	a.receipts[of] = r
}

func (a *Answer) addTask(l Link, capability, facts any) {
	c, _ := capability.(Map)
	t := Task{Link: l}
	t.Can, _ = c["can"].(string)
	t.With, _ = c["with"].(string)
	t.Args, _ = c["nb"].(Map)
	t.Facts, _ = facts.([]any)
	a.tasks[l] = t
}

// Receipt returns the receipt of a task, if it is in the answer.
func (a *Answer) Receipt(task Link) (Receipt, bool) {
	r, ok := a.receipts[task]
	return r, ok
}

// Task returns the task that follows from a receipt and has this ability.
func (a *Answer) Task(r Receipt, can string) (Task, bool) {
	for _, l := range r.Next {
		if t, ok := a.tasks[l]; ok && t.Can == can {
			return t, true
		}
	}
	return Task{}, false
}

// encodeValue returns a value as DAG-CBOR.
func encodeValue(v any) ([]byte, error) {
	n, err := node(v)
	if err != nil {
		return nil, err
	}
	return ipld.Encode(n, dagcbor.Encode)
}

// writeBlock appends a value to a CAR file.
func writeBlock(file *bytes.Buffer, v any) (cid.Cid, error) {
	data, err := encodeValue(v)
	if err != nil {
		return cid.Undef, err
	}
	c := cid.NewCidV1(cid.DagCBOR, multihash.Multihash(Multihash(sha256.Sum256(data))))
	writeSection(file, c.Bytes(), data)
	return c, nil
}

func writeSection(file *bytes.Buffer, parts ...[]byte) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	file.Write(binary.AppendUvarint(nil, uint64(size)))
	for _, p := range parts {
		file.Write(p)
	}
}
