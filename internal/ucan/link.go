package ucan

import (
	"encoding/binary"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/ipld"
)

// Bounds of the delegations of an archive.
const (
	maxValues    = 8192 // CBOR values, and characters that JSON escapes, in the blocks that are read
	maxNesting   = 32   // of CBOR values
	maxPrincipal = 512  // bytes of a DID; an RSA key of 2048 bits has 272, and base58 takes quadratic time
	maxChecks    = 32   // signatures
	maxDepth     = 16   // delegations of a chain
)

// A link is one signed delegation of a chain.
type link struct {
	*token
	iss, aud string
	starts   time.Time // zero if it is in force since ever
	ends     time.Time // zero if it never ends
	signed   signature
}

// signature says whether a signature was verified.
type signature int

const (
	unchecked signature = iota
	good
	bad
)

// A reader reads links from an archive, each once.
type reader struct {
	*archive
	links  map[ipld.CID]*link
	values int // that were read so far
	checks int // of signatures so far
}

// link returns the delegation with this CID.
func (r *reader) link(c ipld.CID) (*link, error) {
	if l, ok := r.links[c]; ok {
		return l, nil
	}
	data, ok := r.blocks[c]
	if !ok {
		return nil, fault("it lacks a delegation that it refers to")
	}
	if c.Codec() != ipld.DagCBOR {
		return nil, errText("one of its blocks is not a UCAN delegation")
	}
	if err := r.scan(data); err != nil {
		return nil, err
	}
	t, ok := readToken(data)
	if !ok {
		return nil, errText("one of its blocks is not a UCAN delegation")
	}
	l := &link{token: t}
	var okIss, okAud bool
	l.iss, okIss = principalName(t.issuer)
	l.aud, okAud = principalName(t.audience)
	if !okIss || !okAud || !validSignature(t.signature) || !strings.HasPrefix(t.version, "0.9.") {
		return nil, errText("one of its blocks is not a UCAN delegation of version 0.9")
	}
	if t.expires != nil {
		l.ends = time.Unix(*t.expires, 0).UTC()
	}
	if t.notBefore != nil {
		l.starts = time.Unix(*t.notBefore, 0).UTC()
	}
	if r.links == nil {
		r.links = map[ipld.CID]*link{}
	}
	r.links[c] = l
	return l, nil
}

// grants says whether the link grants an ability on a space: with limits, without any, or not.
func (l *link) grants(space, ability string) grant {
	best := no
	for _, c := range l.capabilities {
		if (c.with == space || c.with == "ucan:*") && covers(c.can, ability) {
			if !limited(c.caveats) {
				return full
			}
			best = partly
		}
	}
	return best
}

type grant int

const (
	no grant = iota
	partly
	full
)

// covers says whether a granted ability includes another one.
func covers(granted, ability string) bool {
	if granted == "*" || granted == ability {
		return true
	}
	prefix, ok := strings.CutSuffix(granted, "*")
	return ok && strings.HasSuffix(prefix, "/") && strings.HasPrefix(ability, prefix)
}

// limited says whether a capability has caveats.
func limited(caveats any) bool {
	m, isMap := caveats.(Map)
	return caveats != nil && !(isMap && len(m) == 0)
}

// isAccount says whether the issuer is an account, which signs by a click in a mail.
func (l *link) isAccount() bool { return strings.HasPrefix(l.iss, "did:mailto:") }

// verify checks the signature of a link.
func (r *reader) verify(l *link) (bool, error) {
	if l.signed == unchecked {
		if r.checks == maxChecks {
			return false, fault("it has more than 32 delegations")
		}
		r.checks++
		l.signed = bad
		if l.token.verify() {
			l.signed = good
		}
	}
	return l.signed == good, nil
}

// validSignature says whether b is a signature: a code, a length and that many bytes.
func validSignature(b []byte) bool {
	_, n := binary.Uvarint(b)
	if n <= 0 {
		return false
	}
	size, m := binary.Uvarint(b[n:])
	return m > 0 && size == uint64(len(b)-n-m)
}

// scan counts the values of a CBOR block, so that decoding them has a bounded cost.
func (r *reader) scan(data []byte) error {
	rest, ok := r.scanValue(data, 0)
	if !ok || len(rest) > 0 {
		if r.values > maxValues {
			return fault("it has more than 8192 values")
		}
		return errText("one of its blocks is not a UCAN delegation")
	}
	return nil
}

// scanValue skips one value. Values of indefinite length are not allowed in DAG-CBOR.
func (r *reader) scanValue(b []byte, depth int) (rest []byte, ok bool) {
	if r.values++; r.values > maxValues || depth > maxNesting || len(b) == 0 {
		return nil, false
	}
	kind, info := b[0]>>5, b[0]&31
	b = b[1:]
	value := uint64(info)
	if info >= 24 {
		n := 1 << (info - 24)
		if info > 27 || len(b) < n {
			return nil, false
		}
		var full [8]byte
		copy(full[8-n:], b)
		value, b = binary.BigEndian.Uint64(full[:]), b[n:]
	}
	children := uint64(0)
	switch kind {
	case 2, 3: // bytes, text
		if value > uint64(len(b)) {
			return nil, false
		}
		text := b[:value]
		if kind == 3 && (!utf8.Valid(text) || !r.scanText(text)) {
			return nil, false
		}
		return b[value:], true
	case 4:
		children = value
	case 5:
		children = 2 * min(value, maxValues)
	case 6:
		children = 1
	}
	for ; children > 0; children-- {
		if b, ok = r.scanValue(b, depth+1); !ok {
			return nil, false
		}
	}
	return b, true
}

// scanText counts the characters that are escaped in JSON, which is what is signed. An escape is up
// to six times as long as its character, and slow to write.
func (r *reader) scanText(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' || c == 0xe2 { // 0xe2 starts U+2028
			r.values++
		}
	}
	return r.values <= maxValues
}
