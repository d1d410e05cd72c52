package weir

import (
	"net/url"
	"slices"
	"time"
)

// Pulling is the request that weir fetches a stream from its source. It stands until the
// owner ends it, the source is through, or an encoder takes the stream over; whatever
// fails meanwhile is tried again. The node that has it is known by its claim: everybody
// who takes it gets a higher one, and whoever has an older one is not heard.
type Pulling struct {
	StreamID string
	Request  int64 // grows with every start
	Wanted   bool
	Plays    bool   // media of this request was on air
	Failures int64  // in a row
	Issue    string // why it failed last, for people
	Position int64  // how far the source was read, as its reader counts

	Node, Boot string // who has it, in which of its lives; "" = nobody
	Claim      int64
	ExpiresAt  Millis // from then on the node is taken for dead
	DueAt      Millis // until then nobody takes it
}

const (
	// PullLease is how long a node that pulls may be silent before another goes on.
	PullLease = 10 * time.Second
	// A source that fails is asked again after a second, then after twice as long each
	// time, up to this.
	maxPullPause = 30 * time.Second
	// steadyPull is how long a source must have played to be as good as new.
	steadyPull = 30 * time.Second
)

// Start begins anew: nothing that was known of the source counts any more.
func (p *Pulling) Start(now time.Time) {
	*p = Pulling{StreamID: p.StreamID, Request: p.Request + 1, Wanted: true, Claim: p.Claim + 1, DueAt: At(now)}
}

// Stop ends it. Whoever has it is not heard any more.
func (p *Pulling) Stop() {
	p.Wanted, p.Node, p.Boot = false, "", ""
	p.Claim++
}

// Take gives it to a node.
func (p *Pulling) Take(node, boot string, now time.Time) {
	p.Node, p.Boot = node, boot
	p.Claim++
	p.ExpiresAt = At(now.Add(PullLease))
}

// Renew says that the node is alive, and how far it is.
func (p *Pulling) Renew(position int64, now time.Time) {
	p.Position, p.ExpiresAt = position, At(now.Add(PullLease))
}

// Play notes that the source is on air.
func (p *Pulling) Play() { p.Plays, p.Issue = true, "" }

// Fail notes that the source could not be read any more after it had played for a while.
// Somebody tries again later.
func (p *Pulling) Fail(issue string, position int64, played time.Duration, now time.Time) {
	if played >= steadyPull {
		p.Failures = 0
	}
	p.Failures++
	pause := min(time.Second<<min(p.Failures-1, 10), maxPullPause)
	p.Issue, p.Position, p.Node, p.Boot, p.DueAt = issue, position, "", "", At(now.Add(pause))
	p.Claim++
}

// Release lets another node go on.
func (p *Pulling) Release(position int64, now time.Time) {
	p.Position, p.Node, p.Boot, p.DueAt = position, "", "", At(now)
	p.Claim++
}

// Check says why a source can't be pulled from, if that can be seen without asking it.
func (p *Pull) Check() error {
	u, err := url.Parse(p.Source)
	if err != nil {
		return Errorf(Invalid, "the pull source is not a URL")
	}
	switch u.Scheme {
	case "http", "https", "rtmp", "rtmps", "srt":
	default:
		return Errorf(Invalid, "the pull source must begin with http://, https://, rtmp://, rtmps:// or srt://")
	}
	if u.Hostname() == "" {
		return Errorf(Invalid, "the pull source names no host")
	}
	return nil
}

// Replace makes s the stream that the body of n asks for, as far as its owner says what
// it is: its id, its key and what it carried stay. Its multistream targets are left to the
// caller: they need the store.
func (n NewStream) Replace(s *Stream, caller *Caller, now time.Time) error {
	made, err := n.Stream(caller, now)
	s.Name, s.CreatorID, s.UserTags, s.Record, s.RecordingSpec = made.Name, made.CreatorID, made.UserTags, made.Record, made.RecordingSpec
	s.Profiles, s.PlaybackPolicy, s.Pull, s.ObjectStoreID = made.Profiles, made.PlaybackPolicy, made.Pull, made.ObjectStoreID
	s.Multistream, s.Suspended = made.Multistream, false
	return err
}

// SetPullIssue shows among the issues why the source of a pull fails, also while nothing
// is on air because of it; "" = it does not.
func (s *Stream) SetPullIssue(issue string) {
	s.Issues = slices.DeleteFunc(slices.Clone(s.Issues), func(i string) bool { return i == s.PullIssue })
	s.PullIssue = issue
	if issue != "" {
		s.Issues = append(s.Issues, issue)
	}
	switch {
	case len(s.Issues) > 0:
		s.IsHealthy = new(false)
	case s.IsActive:
		s.Issues, s.IsHealthy = nil, new(true)
	default:
		s.Issues, s.IsHealthy = nil, nil
	}
}
