package ucan

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/ipld"
)

var service = NewIdentity([32]byte{5})

// agent returns an identity whose key is testKey(n).
func agent(n byte) Identity { return NewIdentity([32]byte(bytes.Repeat([]byte{n}, 32))) }

func command(space string) Command {
	return Command{Audience: service.DID(), Can: UploadList, With: space, Args: Map{"size": int64(10)}, Nonce: "1", Expires: recordedAt.Add(time.Minute)}
}

// TestRequests sends invocations from one Identity to another.
func TestRequests(t *testing.T) {
	space := agent(1).DID()
	proof := func(d string, audience Identity, abilities ...string) *Proof {
		p, err := Check(d, Conditions{audience.DID(), recordedAt, recordedAt, abilities})
		if err != nil {
			t.Fatal(err)
		}
		return &p
	}
	recordedProof := func(name string) *Proof {
		return proof(recorded(t, "good")[name], NewIdentity(recordedSeed), UploadAbilities()...)
	}
	toAgent := encodeDelegation(delegate(spaceKey, didOf(agentKey), []string{"upload/*"}))
	change := func(f func(*Command)) Command {
		o := command(space)
		f(&o)
		return o
	}
	for name, tt := range map[string]struct {
		by      Identity
		command Command
		proof   *Proof
		refused string
	}{
		"space":             {agent(1), command(space), nil, ""},
		"agent":             {agent(2), command(space), proof(toAgent, agent(2), UploadList), ""},
		"recorded":          {NewIdentity(recordedSeed), command(recordedProof("all").Space), recordedProof("all"), ""},
		"no ability":        {NewIdentity(recordedSeed), command(recordedProof("w3").Space), recordedProof("w3"), "does not allow upload/list"},
		"account":           {NewIdentity(recordedSeed), change(func(o *Command) { o.Can = UploadAdd }), recordedProof("account"), "an account issued a delegation"},
		"stranger":          {agent(3), command(space), nil, "it has no delegation of the space"},
		"proof of another":  {agent(3), command(space), proof(toAgent, agent(2), UploadList), "but " + agent(3).DID() + " uses it"},
		"other ability":     {agent(2), change(func(o *Command) { o.Can = "space/blob/add" }), proof(toAgent, agent(2), UploadList), "does not allow space/blob/add"},
		"other audience":    {agent(1), change(func(o *Command) { o.Audience = agent(4).DID() }), nil, "the invocation is for"},
		"expired":           {agent(1), change(func(o *Command) { o.Expires = recordedAt }), nil, "ended at"},
		"no space":          {agent(1), change(func(o *Command) { o.With = "did:web:example.com" }), nil, "must be a space"},
		"without an end":    {agent(1), change(func(o *Command) { o.Expires = time.Time{} }), nil, ""},
		"without arguments": {agent(1), change(func(o *Command) { o.Args = nil }), nil, ""},
	} {
		inv, err := tt.by.Invoke(tt.command, tt.proof)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		requests, err := ReadRequests(inv.Message, service.DID(), recordedAt)
		if err != nil || len(requests) != 1 {
			t.Fatalf("%s: %v, %d requests", name, err, len(requests))
		}
		r := requests[0]
		if tt.refused != "" {
			if r.Refused == nil || !strings.Contains(r.Refused.Error(), tt.refused) {
				t.Errorf("%s: refused with %v", name, r.Refused)
			}
			continue
		}
		args := tt.command.Args
		if args == nil {
			args = Map{}
		}
		want := Request{Link: inv.Link, Space: tt.command.With, Can: tt.command.Can, Args: args, Ends: tt.command.Expires}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestBadMessages(t *testing.T) {
	inv, err := agent(1).Invoke(command(agent(1).DID()), nil)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(inv.Message)
	changed[len(changed)/2] ^= 1
	reply, err := service.Reply(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{
		"empty": nil, "text": []byte("hello"), "changed": changed, "cut off": inv.Message[:200], "no invocations": reply,
	} {
		if requests, err := ReadRequests(body, service.DID(), recordedAt); err == nil {
			t.Errorf("%s: %+v", name, requests)
		}
	}
}

func TestReply(t *testing.T) {
	one, err := agent(1).Invoke(command(agent(1).DID()), nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := agent(2).Invoke(command(agent(1).DID()), nil)
	if err != nil {
		t.Fatal(err)
	}
	ok := Map{"results": []any{Map{"root": one.Link, "b": []byte{1}, "f": 1.5, "n": nil, "t": true, "i": int64(-7)}}, "text": "x"}
	body, err := service.Reply([]Reply{{Request: one.Link, OK: ok}, {Request: two.Link, Error: Failure("Unauthorized", "no")}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ReadResponse(body)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := a.Receipt(one.Link)
	if diff := cmp.Diff(Receipt{OK: ok}, first); diff != "" {
		t.Error(diff)
	}
	second, _ := a.Receipt(two.Link)
	if diff := cmp.Diff(Receipt{Error: Map{"name": "Unauthorized", "message": "no"}}, second); diff != "" {
		t.Error(diff)
	}
	if _, ok := a.Receipt(ipld.Sum(ipld.CAR, nil)); ok {
		t.Error("a receipt of nothing")
	}
}

// FuzzMessage has messages from both sides.
func FuzzMessage(f *testing.F) {
	inv, err := agent(1).Invoke(command(agent(1).DID()), nil)
	if err != nil {
		f.Fatal(err)
	}
	reply, err := service.Reply([]Reply{{Request: inv.Link, OK: Map{}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(inv.Message)
	f.Add(reply)
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = ReadResponse(body)
		requests, err := ReadRequests(body, service.DID(), recordedAt)
		if err == nil && len(requests) == 0 {
			t.Error("no requests and no error")
		}
	})
}
