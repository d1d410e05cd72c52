package ucan

import (
	"slices"
	"strings"
	"time"

	"weir/internal/ipld"
	"weir/internal/weir"
)

// Conditions are what a proof must fulfil.
type Conditions struct {
	Audience   string    // the DID that the proof must be for
	Now, Until time.Time // the period in which every delegation must be in force
	Abilities  []string  // what the proof must allow, all on one space
}

// The abilities of an upload service.
const (
	BlobAdd      = "space/blob/add"
	IndexAdd     = "space/index/add"
	UploadAdd    = "upload/add"
	UploadList   = "upload/list"
	UploadRemove = "upload/remove"
)

// UploadAbilities returns the abilities that an upload needs.
func UploadAbilities() []string { return []string{BlobAdd, IndexAdd, UploadAdd} }

// A Proof is a delegation that was checked: a chain of signed delegations, from the key of a space
// to this service.
type Proof struct {
	Space   string    // the did:key of the space
	Expires time.Time // when the first delegation of the chain ends; zero if none ends

	// AccountIssued says that an account (did:mailto) issued a delegation of the chain. Only the
	// service that confirmed the address of the account can verify that.
	AccountIssued bool

	archive *archive
	root    ipld.CID
	allows  []string
}

// Allows says whether the proof allows an ability on its space, during the period that it was
// checked for.
func (p Proof) Allows(ability string) bool { return slices.Contains(p.allows, ability) }

// Check reads and verifies a proof in any form that the tools of upload services write. Its errors
// are sentences about the proof, for the caller of the API.
func Check(text string, c Conditions) (Proof, error) {
	p, err := check(text, c, new(reader))
	if err != nil {
		return Proof{}, invalid(err, c)
	}
	return p, nil
}

// check is Check with a reader, which counts the work.
func check(text string, c Conditions, r *reader) (Proof, error) {
	file, err := decodeText(text)
	if err != nil {
		return Proof{}, err
	}
	a, err := readArchive(file, maxBlocks)
	if err != nil {
		return Proof{}, err
	}
	r.archive = a
	root, err := r.proofRoot()
	if err != nil {
		return Proof{}, err
	}
	l, err := r.link(root)
	if err != nil {
		return Proof{}, err
	}
	if l.aud != c.Audience {
		return Proof{}, fault(l.aud + " is its audience, but the DID of this server is " + c.Audience + " (GET /api/did)")
	}
	space, err := l.space(c.Abilities)
	if err != nil {
		return Proof{}, err
	}
	p := Proof{Space: space, archive: a, root: root}
	for _, ability := range c.Abilities {
		s := r.search(space, ability, c.Now, c.Until)
		path, err := s.path(l, 0)
		if err != nil {
			return Proof{}, err
		}
		p.AccountIssued = p.AccountIssued || path.account
		p.Expires = earlier(p.Expires, path.ends)
		p.allows = append(p.allows, ability)
	}
	for _, ability := range []string{UploadList, UploadRemove} {
		if s := r.search(space, ability, c.Now, c.Until); !p.Allows(ability) {
			if _, err := s.path(l, 0); err == nil {
				p.allows = append(p.allows, ability)
			}
		}
	}
	return p, nil
}

// proofRoot returns the CID of the delegation that an archive is about: the one that its root block
// names, or the last block if it has no root, as w3cli wrote it.
func (r *reader) proofRoot() (ipld.CID, error) {
	switch {
	case len(r.order) == 0:
		return "", errText("it is a CAR file without blocks")
	case len(r.roots) == 0:
		return r.order[len(r.order)-1], nil
	case len(r.roots) > 1:
		return "", errText("it is a CAR file with more than one root")
	}
	root := r.roots[0]
	data, ok := r.blocks[root]
	if !ok {
		return "", errText("its root block is missing")
	}
	if err := r.scan(data); err != nil || root.Codec() != ipld.DagCBOR {
		return "", errText("its root block is not that of a UCAN delegation")
	}
	value, _, err := ipld.Decode(ipld.DagCBOR, data)
	m, ok := value.(Map)
	if err != nil || !ok {
		return "", errText("its root block is not that of a UCAN delegation")
	}
	if named, ok := m["ucan@0.9.1"]; ok {
		if c, ok := named.(ipld.CID); ok {
			return c, nil
		}
		return "", errText("its root block is not that of a UCAN delegation")
	}
	return root, nil // the delegation itself
}

// space returns the only space on which l grants all abilities.
func (l *link) space(abilities []string) (string, error) {
	granted := map[string][]bool{}
	var order []string
	for _, c := range l.capabilities {
		if !strings.HasPrefix(c.with, "did:key:") || len(c.with) > maxPrincipal || !printable([]byte(c.with)) {
			continue
		}
		if granted[c.with] == nil {
			granted[c.with] = make([]bool, len(abilities))
			order = append(order, c.with)
		}
		for i, a := range abilities {
			granted[c.with][i] = granted[c.with][i] || covers(c.can, a)
		}
	}
	var complete []string
	for _, s := range order {
		if !slices.Contains(granted[s], false) {
			complete = append(complete, s)
		}
	}
	switch {
	case len(complete) == 1:
		return complete[0], nil
	case len(complete) > 1:
		return "", fault("it is about more than one space (" + complete[0] + ", " + complete[1] + "), and outputs go to one")
	case len(order) == 0:
		return "", fault("it is about no space: none of its resources is a did:key")
	}
	var missing []string
	for i, a := range abilities {
		if !granted[order[0]][i] {
			missing = append(missing, a)
		}
	}
	return "", fault("it does not allow " + strings.Join(missing, ", ") + " on the space " + order[0])
}

// A search looks for a chain of delegations that allows one ability on a space, from a link up to
// the key of the space.
type search struct {
	*reader
	space, ability string
	now, until     time.Time
	seen           map[*link]found
	invocation     *link // has arguments where delegations have caveats
}

type found struct {
	path path
	err  error
}

// A path is a chain that was found.
type path struct {
	account bool
	ends    time.Time
}

func (r *reader) search(space, ability string, now, until time.Time) *search {
	return &search{reader: r, space: space, ability: ability, now: now, until: until, seen: map[*link]found{}}
}

// path returns the chain from l to the space, or the reason why there is none.
func (s *search) path(l *link, depth int) (path, error) {
	if f, ok := s.seen[l]; ok {
		return f.path, f.err
	}
	p, err := s.findPath(l, depth)
	s.seen[l] = found{p, err}
	return p, err
}

func (s *search) findPath(l *link, depth int) (path, error) {
	name := "its delegation from " + l.iss + " to " + l.aud
	switch {
	case depth == maxDepth:
		return path{}, fault("its chain has more than 16 delegations")
	case l.grants(s.space, s.ability) == no:
		return path{}, weak(name + " does not allow " + s.ability + " on the space " + s.space)
	case l.grants(s.space, s.ability) == partly && l != s.invocation:
		return path{}, fault(name + " allows " + s.ability + " with caveats only")
	case !l.ends.IsZero() && !l.ends.After(s.now):
		return path{}, fault(name + " ended at " + l.ends.Format(time.RFC3339))
	case !l.ends.IsZero() && l.ends.Before(s.until):
		return path{}, fault(name + " ends at " + l.ends.Format(time.RFC3339) + "; it must last until " + s.until.UTC().Format(time.RFC3339) + " at least")
	case l.starts.After(s.now):
		return path{}, fault(name + " starts at " + l.starts.Format(time.RFC3339))
	}
	p := path{ends: l.ends, account: l.isAccount()}
	if l.iss != s.space {
		parent, err := s.parent(l, depth)
		if err != nil {
			return path{}, err
		}
		p.account = p.account || parent.account
		p.ends = earlier(p.ends, parent.ends)
	}
	if l.isAccount() {
		return p, nil
	}
	if !l.verifiable() {
		return path{}, fault(name + " can't be verified: only did:key issuers with Ed25519, or RSA of 2048 bits, are supported")
	}
	ok, err := s.verify(l)
	if err != nil {
		return path{}, err
	}
	if !ok {
		return path{}, fault(name + " has a wrong signature")
	}
	return p, nil
}

// parent returns the best chain among the delegations that l derives from: one without accounts if
// there is one.
func (s *search) parent(l *link, depth int) (path, error) {
	var best *path
	var reason error = fault("it has no delegation of the space " + s.space + " to " + l.iss)
	for _, c := range l.proofs {
		parent, err := s.link(c)
		if err == nil && parent.aud != l.iss {
			err = weak("a delegation in it is for " + parent.aud + ", but " + l.iss + " uses it")
		}
		var p path
		if err == nil {
			p, err = s.path(parent, depth+1)
		}
		switch {
		case err != nil:
			if _, isWeak := err.(weak); !isWeak || best == nil && len(l.proofs) == 1 {
				reason = err
			}
		case !p.account:
			return p, nil
		case best == nil:
			best = &p
		}
	}
	if best != nil {
		return *best, nil
	}
	return path{}, reason
}

// A fault is a reason to refuse a proof that is an archive of delegations.
type fault string

func (f fault) Error() string { return string(f) }

// weak is a fault of a delegation that may just not belong to the chain.
type weak string

func (w weak) Error() string { return string(w) }

// invalid makes the error for the caller of the API.
func invalid(err error, c Conditions) error {
	command := "storacha delegation create " + c.Audience + " -c " + strings.Join(c.Abilities, " -c ") + " --base64"
	if _, ok := err.(errText); ok {
		return weir.Errorf(weir.Invalid, "the proof is not a UCAN delegation archive: %v; make one with: %s", err, command)
	}
	return weir.Errorf(weir.Invalid, "the proof can't be used: %v; make another one with: %s", err, command)
}

// earlier returns the earlier of two times, of which zero is the latest.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
