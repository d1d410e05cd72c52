package weir

import (
	"net/url"
	"slices"
	"time"
)

// Pulling is a request that weir pulls a stream from its source. It lasts until the owner ends it,
// the source ends, or an encoder takes the stream over; failures are retried. Each node that takes
// it gets a higher claim, and writes with an older claim are refused.
type Pulling struct {
	StreamID string
	Request  int64 // grows with every start
	Wanted   bool
	Plays    bool   // media of this request has been on air
	Failures int64  // in a row
	Issue    string // why it last failed, for people
	Position int64  // how far the source has been read, in units of its reader

	Node, Boot string // the node that pulls, and its start; "" = none
	Claim      int64
	ExpiresAt  Millis // from then on other nodes take the node for dead
	DueAt      Millis // until then no node takes it
}

const (
	// PullLease is how long a node that pulls may report nothing before another node takes over.
	PullLease = 10 * time.Second
	// maxPullPause bounds the pause before a source that failed is tried again. It starts at a
	// second and doubles each time.
	maxPullPause = 30 * time.Second
	// steadyPull is how long a source must play before earlier failures are forgotten.
	steadyPull = 30 * time.Second
)

// Start begins a new request, without the state of the last one.
func (p *Pulling) Start(now time.Time) {
	*p = Pulling{StreamID: p.StreamID, Request: p.Request + 1, Wanted: true, Claim: p.Claim + 1, DueAt: At(now)}
}

// Stop ends the request. The node that pulls can't write to it any more.
func (p *Pulling) Stop() {
	p.Wanted, p.Node, p.Boot = false, "", ""
	p.Claim++
}

// Take gives the request to a node.
func (p *Pulling) Take(node, boot string, now time.Time) {
	p.Node, p.Boot = node, boot
	p.Claim++
	p.ExpiresAt = At(now.Add(PullLease))
}

// Play records that the source is on air.
func (p *Pulling) Play() { p.Plays, p.Issue = true, "" }

// Fail records that the source failed after it had played for a while. A node tries again later.
func (p *Pulling) Fail(issue string, position int64, played time.Duration, now time.Time) {
	if played >= steadyPull {
		p.Failures = 0
	}
	p.Failures++
	pause := min(time.Second<<min(p.Failures-1, 10), maxPullPause)
	p.Issue, p.Position, p.Node, p.Boot, p.DueAt = issue, position, "", "", At(now.Add(pause))
	p.Claim++
}

// Release lets another node take over.
func (p *Pulling) Release(position int64, now time.Time) {
	p.Position, p.Node, p.Boot, p.DueAt = position, "", "", At(now)
	p.Claim++
}

// Check returns an error if the URL of the source is unusable.
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

// Replace gives s the settings of n. Its id, its key and its counters stay. The multistream targets
// are left to the caller: they need the store.
func (n NewStream) Replace(s *Stream, caller *Caller, now time.Time) error {
	made, err := n.Stream(caller, now)
	s.Name, s.CreatorID, s.UserTags, s.Record, s.RecordingSpec = made.Name, made.CreatorID, made.UserTags, made.Record, made.RecordingSpec
	s.Profiles, s.PlaybackPolicy, s.Pull, s.ObjectStoreID = made.Profiles, made.PlaybackPolicy, made.Pull, made.ObjectStoreID
	s.Multistream, s.Suspended, s.PublicClips, s.C2PA, s.PartDuration = made.Multistream, false, made.PublicClips, made.C2PA, made.PartDuration
	return err
}

// SetPullIssue lists among the issues why the pull source fails, also while the stream is off air;
// "" = it does not fail.
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
