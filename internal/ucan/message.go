package ucan

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"weir/internal/ipld"
)

// MessageType is the media type of messages.
const MessageType = "application/vnd.ipld.car"

// maxResponseBlocks bounds the response of an upload service, which the operator trusts.
const maxResponseBlocks = 1 << 14

// A Command is what an invocation asks for.
type Command struct {
	Audience  string // DID of the service
	Can, With string
	Args      Map
	Nonce     string
	Expires   time.Time // never if zero
}

// An Invocation is a signed command, ready to be sent.
type Invocation struct {
	Link    ipld.CID
	Message []byte // the CAR file to POST
}

// Invoke signs a command. The proof shows that this service may give it; it may be nil for commands
// about the service itself.
func (i Identity) Invoke(o Command, proof *Proof) (Invocation, error) {
	if proof == nil {
		return i.invoke(o, new(token), new(message))
	}
	if proof.archive == nil {
		return Invocation{}, errors.New("the proof was not checked")
	}
	// All blocks of its archive are sent: confirmations of accounts may be among them.
	m := new(message)
	for _, c := range proof.archive.order {
		m.add(c, proof.archive.blocks[c])
	}
	return i.invoke(o, &token{proofs: []ipld.CID{proof.root}}, m)
}

// invoke completes and signs a token, and returns the message with it.
func (i Identity) invoke(o Command, t *token, m *message) (Invocation, error) {
	var err error
	if t.audience, err = principal(o.Audience); err != nil {
		return Invocation{}, err
	}
	t.capabilities = []capability{{given: Map{"can": o.Can, "with": o.With, "nb": o.Args}}}
	t.nonce = o.Nonce
	if !o.Expires.IsZero() {
		seconds := o.Expires.Unix()
		t.expires = &seconds
	}
	c, block, err := t.sign(i.key())
	if err != nil {
		return Invocation{}, err
	}
	m.add(c, block)
	m.invocations = append(m.invocations, c)
	file, err := m.encode()
	return Invocation{c, file}, err
}

// Conclude signs the report that a task of the service is done: an invocation of ucan/conclude with
// a receipt, which is signed with the key that came with the task.
func (i Identity) Conclude(service string, task ipld.CID, key []byte) (Invocation, error) {
	signer, err := privateKey(key)
	if err != nil {
		return Invocation{}, fmt.Errorf("key of the task: %w", err)
	}
	c, block, err := receipt(signer, task, Map{"ok": Map{}})
	if err != nil {
		return Invocation{}, err
	}
	m := new(message)
	m.add(c, block)
	// The service takes those attached blocks that a fact links to.
	t := &token{facts: []any{Map{"0": c}}}
	return i.invoke(Command{Audience: service, Can: "ucan/conclude", With: i.DID(), Args: Map{"receipt": c}}, t, m)
}

// privateKey decodes an Ed25519 key with its public half.
func privateKey(b []byte) (ed25519.PrivateKey, error) {
	const codePrivate = 0x1300
	code, n := binary.Uvarint(b)
	if code != codePrivate || len(b) < n+ed25519.SeedSize {
		return nil, errors.New("it is not an Ed25519 key")
	}
	key := ed25519.NewKeyFromSeed(b[n : n+ed25519.SeedSize])
	if !bytes.Equal(b[n+ed25519.SeedSize:], principalOf(key.Public().(ed25519.PublicKey))) {
		return nil, errors.New("its public key belongs to another private key")
	}
	return key, nil
}

// receipt signs the result of an invocation.
func receipt(key ed25519.PrivateKey, invocation ipld.CID, out Map) (ipld.CID, []byte, error) {
	outcome := Map{
		"ran": invocation, "out": out, "fx": Map{"fork": []any{}}, "meta": Map{},
		"iss": keyDID(principalOf(key.Public().(ed25519.PublicKey))), "prf": []any{},
	}
	signed, err := ipld.EncodeCBOR(outcome)
	if err != nil {
		return "", nil, err
	}
	return encodeBlock(Map{"ocm": outcome, "sig": sign(key, signed)})
}

// A message is a CAR file that is being made: invocations or receipts, and what they refer to.
type message struct {
	invocations []ipld.CID
	receipts    Map // links, by the text of the invocation
	blocks      []byte
	has         map[ipld.CID]bool
}

// add adds a block.
func (m *message) add(c ipld.CID, block []byte) {
	if m.has == nil {
		m.has = map[ipld.CID]bool{}
	}
	if !m.has[c] {
		m.has[c] = true
		m.blocks = ipld.AppendCARBlock(m.blocks, c, block)
	}
}

func (m *message) addReceipt(key ed25519.PrivateKey, invocation ipld.CID, out Map) error {
	c, block, err := receipt(key, invocation, out)
	if err != nil {
		return err
	}
	m.add(c, block)
	if m.receipts == nil {
		m.receipts = Map{}
	}
	if _, twice := m.receipts[invocation.String()]; !twice {
		m.receipts[invocation.String()] = c
	}
	return nil
}

// encode returns the file.
func (m *message) encode() ([]byte, error) {
	execute := []any{}
	for _, c := range m.invocations {
		execute = append(execute, c)
	}
	body := Map{"execute": execute}
	if m.receipts != nil {
		body["report"] = m.receipts
	}
	c, block, err := encodeBlock(Map{"ucanto/message@7.0.0": body})
	if err != nil {
		return nil, err
	}
	return append(ipld.AppendCARBlock(ipld.AppendCARHeader(nil, c), c, block), m.blocks...), nil
}

// A Response is a message of a service with receipts.
type Response struct {
	receipts map[ipld.CID]Receipt
	tasks    map[ipld.CID]Task
}

// A Receipt is the result of a task.
type Receipt struct {
	OK    any
	Error Map // nil if the task succeeded
	Next  []ipld.CID
}

// A Task is an invocation inside a response.
type Task struct {
	Link      ipld.CID
	Can, With string
	Args      Map
	Facts     []any
}

// ReadResponse reads the response of a service. It does not verify the signatures of receipts, since the
// service is the one that the connection leads to.
func ReadResponse(file []byte) (*Response, error) {
	a, err := readArchive(file, maxResponseBlocks)
	if err != nil {
		return nil, fmt.Errorf("response of the service: %w", err)
	}
	response := &Response{map[ipld.CID]Receipt{}, map[ipld.CID]Task{}}
	for _, c := range a.order {
		if c.Codec() != ipld.DagCBOR {
			continue
		}
		v, _, err := ipld.Decode(ipld.DagCBOR, a.blocks[c])
		if err != nil {
			return nil, fmt.Errorf("response of the service: %w", err)
		}
		m, ok := v.(Map)
		if !ok {
			continue
		}
		if outcome, ok := m["ocm"].(Map); ok {
			response.addReceipt(outcome)
		} else if att, ok := m["att"].([]any); ok && len(att) == 1 {
			response.addTask(c, att[0], m["fct"])
		}
	}
	return response, nil
}

func (a *Response) addReceipt(outcome Map) {
	of, _ := outcome["ran"].(ipld.CID)
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
		if l, ok := f.(ipld.CID); ok {
			r.Next = append(r.Next, l)
		}
	}
	a.receipts[of] = r
}

func (a *Response) addTask(l ipld.CID, capability, facts any) {
	c, _ := capability.(Map)
	t := Task{Link: l}
	t.Can, _ = c["can"].(string)
	t.With, _ = c["with"].(string)
	t.Args, _ = c["nb"].(Map)
	t.Facts, _ = facts.([]any)
	a.tasks[l] = t
}

// Receipt returns the receipt of a task, if it is in the response.
func (a *Response) Receipt(task ipld.CID) (Receipt, bool) {
	r, ok := a.receipts[task]
	return r, ok
}

// Task returns the task that follows from a receipt and has this ability.
func (a *Response) Task(r Receipt, can string) (Task, bool) {
	for _, l := range r.Next {
		if t, ok := a.tasks[l]; ok && t.Can == can {
			return t, true
		}
	}
	return Task{}, false
}
