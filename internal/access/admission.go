package access

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// admissions remembers the viewers that access webhooks have admitted, and until when. Otherwise a
// player that sends its access key with every request would cause a call for every segment. Those
// that were refused are remembered for a moment, because players try again.
type admissions struct {
	calls    singleflight.Group
	admitted outcomes
	refused  outcomes
}

// admission is the hash of an access key and the policy that it was checked against.
type admission [sha256.Size]byte

const (
	maxAdmissions    = 10_000 // of an account, and as many refusals
	maxAllAdmissions = 100_000
	refusalLife      = 10 * time.Second
)

func newAdmissions() admissions {
	return admissions{
		admitted: outcomes{max: maxAdmissions, maxAll: maxAllAdmissions},
		refused:  outcomes{max: maxAdmissions, maxAll: maxAllAdmissions},
	}
}

func admissionOf(c content, accessKey string) admission {
	p := c.policy
	return sha256.Sum256([]byte(c.playbackID + "\x00" + p.WebhookID + "\x00" + string(p.WebhookContext) + "\x00" + accessKey))
}

// find reports whether an admission is valid, and returns the error if it was refused.
func (a *admissions) find(userID string, one admission, now time.Time) (admitted bool, refused error) {
	if r, ok := a.refused.find(userID, one, now); ok {
		return false, r
	}
	_, admitted = a.admitted.find(userID, one, now)
	return admitted, nil
}

func (a *admissions) note(userID string, one admission, till time.Time) {
	a.admitted.note(userID, one, outcome{till: till})
	a.refused.drop(userID, one)
}

func (a *admissions) refuse(userID string, one admission, err error, till time.Time) {
	a.refused.note(userID, one, outcome{err, till})
}

// outcomes are what access webhooks have said, by account. What the viewers of one account cause
// takes nothing from those of another: the account that has the most forgets them.
type outcomes struct {
	max, maxAll int

	mu    sync.Mutex
	all   int
	users map[string]map[admission]outcome
}

type outcome struct {
	err  error // nil = the viewer was admitted
	till time.Time
}

func (o *outcomes) find(userID string, one admission, now time.Time) (error, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := o.users[userID][one]
	return found.err, now.Before(found.till)
}

func (o *outcomes) note(userID string, one admission, is outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.users[userID][one]; !known {
		o.makeRoom(userID, time.Now())
		o.all++
	}
	if o.users == nil {
		o.users = map[string]map[admission]outcome{}
	}
	if o.users[userID] == nil {
		o.users[userID] = map[admission]outcome{}
	}
	o.users[userID][one] = is
}

func (o *outcomes) drop(userID string, one admission) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.users[userID][one]; known {
		delete(o.users[userID], one)
		o.all--
	}
}

// makeRoom makes room for another outcome of an account. What is forgotten is asked for again. It
// forgets much, so that it rarely runs.
func (o *outcomes) makeRoom(userID string, now time.Time) {
	full, fullAll := len(o.users[userID]) >= o.max, o.all >= o.maxAll
	if !full && !fullAll {
		return
	}
	o.all = 0
	most := ""
	for id, of := range o.users {
		maps.DeleteFunc(of, func(_ admission, is outcome) bool { return !now.Before(is.till) })
		if len(of) == 0 || full && id == userID && len(of) > o.max/2 {
			delete(o.users, id)
			continue
		}
		o.all += len(of)
		if len(of) > len(o.users[most]) {
			most = id
		}
	}
	if fullAll && o.all > o.maxAll/2 {
		o.all -= len(o.users[most])
		delete(o.users, most)
	}
}
