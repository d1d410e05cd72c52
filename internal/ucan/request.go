package ucan

import (
	"strings"
	"time"

	"weir/internal/ipld"
	"weir/internal/weir"
)

// maxInvocations is the number of invocations of a message.
const maxInvocations = 16

// A Request is an invocation that somebody sent to this service. Refused is the reason not to do it.
type Request struct {
	Link    ipld.CID
	Space   string
	Can     string
	Args    Map
	Ends    time.Time // zero if never
	Refused error
}

// ReadRequests reads the invocations of a message and verifies each: it must be for the audience and
// in force, and a chain of delegations must lead from the key of the space to its issuer.
func ReadRequests(file []byte, audience string, now time.Time) ([]Request, error) {
	a, err := readArchive(file, maxBlocks)
	if err != nil {
		return nil, weir.Errorf(weir.Refused, "the body is not a message with UCAN invocations: %v", err)
	}
	r := &reader{archive: a}
	invocations, err := r.invocations()
	if err != nil {
		return nil, weir.Errorf(weir.Refused, "the body is not a message with UCAN invocations: %v", err)
	}
	var all []Request
	for _, c := range invocations {
		request := Request{Link: c}
		request.Refused = r.request(c, audience, now, &request)
		all = append(all, request)
	}
	return all, nil
}

// invocations returns the CIDs of the invocations of a message.
func (r *reader) invocations() ([]ipld.CID, error) {
	if len(r.roots) != 1 || r.blocks[r.roots[0]] == nil {
		return nil, errText("it has no root block")
	}
	data := r.blocks[r.roots[0]]
	if err := r.scan(data); err != nil {
		return nil, err
	}
	v, _, err := ipld.Decode(ipld.DagCBOR, data)
	if err != nil {
		return nil, errText("its root block can't be read")
	}
	m, _ := v.(Map)
	body, _ := m["ucanto/message@7.0.0"].(Map)
	execute, _ := body["execute"].([]any)
	if len(execute) == 0 || len(execute) > maxInvocations {
		return nil, errText("it must have 1 to 16 invocations")
	}
	var all []ipld.CID
	for _, e := range execute {
		c, ok := e.(ipld.CID)
		if !ok || r.blocks[c] == nil {
			return nil, errText("it lacks an invocation")
		}
		all = append(all, c)
	}
	return all, nil
}

// request fills a request with what an invocation says, and returns what is wrong with it.
func (r *reader) request(c ipld.CID, audience string, now time.Time, request *Request) error {
	l, err := r.link(c)
	if err != nil {
		return err
	}
	if l.aud != audience {
		return fault("the invocation is for " + l.aud + ", but this server is " + audience)
	}
	if len(l.capabilities) != 1 {
		return fault("the invocation must have one capability")
	}
	asked := l.capabilities[0]
	request.Space, request.Can, request.Ends = asked.with, asked.can, l.ends
	if !strings.HasPrefix(request.Space, "did:key:") {
		return fault("the resource of the invocation must be a space, a did:key")
	}
	request.Args, _ = asked.caveats.(Map)
	s := r.search(request.Space, request.Can, now, now)
	s.invocation = l
	p, err := s.path(l, 0)
	if err != nil {
		return err
	}
	if p.account {
		return fault("an account issued a delegation of its chain, which this server can't verify")
	}
	return nil
}

// A Reply is the result of a request: a value, or an error with a name and a message.
type Reply struct {
	Request ipld.CID
	OK      any
	Error   Map
}

// Failure returns the error of a reply.
func Failure(name, text string) Map { return Map{"name": name, "message": text} }

// Reply returns the message with the receipts of requests.
func (i Identity) Reply(replies []Reply) ([]byte, error) {
	var m message
	for _, r := range replies {
		out := Map{"ok": r.OK}
		if r.Error != nil {
			out = Map{"error": r.Error}
		}
		if err := m.addReceipt(i.key(), r.Request, out); err != nil {
			return nil, err
		}
	}
	return m.encode()
}
