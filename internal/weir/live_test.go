package weir

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var airTime = time.UnixMilli(1_800_000_000_000)

func liveStream(t *testing.T, record bool) Stream {
	t.Helper()
	s, err := NewStream{Name: "s", Record: record}.Stream(testCaller, airTime.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func names(events []Event) string {
	var all []string
	for _, e := range events {
		all = append(all, string(e.Name))
	}
	return strings.Join(all, " ")
}

// TestBroadcast checks the state and the events of a stream for every relevant order of calls.
func TestBroadcast(t *testing.T) {
	for _, tt := range []struct {
		name   string
		record bool
		calls  string // n a new session, + on air, - off air, x the session ends, b a beat with media
		want   string
		active bool
	}{
		{"start", false, "n+", "stream.started", true},
		{"start with a recording", true, "n+", "stream.started recording.started", true},
		{"return before anybody noticed", true, "n++", "stream.started recording.started", true},
		{"gap", true, "n+b-+", "stream.started recording.started stream.idle stream.started", true},
		{"away twice", false, "n+--", "stream.started stream.idle", false},
		{"end after a gap", true, "n+b-x", "stream.started recording.started stream.idle recording.waiting", false},
		{"end straight from on air", true, "n+bx", "stream.started recording.started stream.idle recording.waiting", false},
		{"end without media", true, "n+x", "stream.started recording.started stream.idle", false},
		{"end without recording", false, "n+bx", "stream.started stream.idle", false},
		{"two sessions", true, "n+bxn+", "stream.started recording.started stream.idle recording.waiting stream.started recording.started", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := liveStream(t, tt.record)
			var session Session
			batch := NewEventBatch(Base{}, airTime)
			for _, call := range tt.calls {
				batch.Now = batch.Now.Add(time.Second)
				switch call {
				case 'n':
					session = NewSession(&s, batch.Now)
				case '+':
					s.GoOnAir(&session, batch)
				case '-':
					s.GoOffAir(&session, batch)
				case 'x':
					s.EndSession(&session, batch)
				case 'b':
					s.ApplyBeat(&session, Beat{SeenAt: At(batch.Now), Counters: Counters{SourceBytes: 5, IngestRate: 7}, Issues: []string{"late"}})
				}
			}
			events, err := batch.Events()
			if err != nil || names(events) != tt.want {
				t.Errorf("events %q, %v; want %q", names(events), err, tt.want)
			}
			if s.IsActive != tt.active || (s.IsHealthy != nil) != tt.active || (session.IsHealthy != nil) != tt.active {
				t.Errorf("active %t, healthy %v and %v; want active %t, and health only then", s.IsActive, s.IsHealthy, session.IsHealthy, tt.active)
			}
			if !tt.active && (s.IngestRate != 0 || session.IngestRate != 0 || s.Issues != nil || session.Issues != nil) {
				t.Errorf("rates %v and %v, issues %q and %q off air; want none", s.IngestRate, session.IngestRate, s.Issues, session.Issues)
			}
		})
	}
}

// TestBroadcastEvents checks the content of the events.
func TestBroadcastEvents(t *testing.T) {
	s := liveStream(t, true)
	session := NewSession(&s, airTime)
	batch := NewEventBatch(Base{}, airTime)
	s.GoOnAir(&session, batch)
	s.ApplyBeat(&session, Beat{SeenAt: At(airTime.Add(2 * time.Second)), Counters: Counters{SourceBytes: 9}})
	batch.Now = airTime.Add(3 * time.Second)
	s.EndSession(&session, batch)
	events, err := batch.Events()
	if err != nil || len(events) != 4 {
		t.Fatalf("events %q, %v; want 4", names(events), err)
	}
	for i, want := range []struct {
		name   EventName
		active bool
		asset  string
		bytes  int64
	}{
		{StreamStarted, true, "", 0},
		{RecordingStartedEvent, true, "", 0},
		{StreamIdle, false, "", 9},
		{RecordingWaitingEvent, false, session.ID, 9},
	} {
		e := events[i]
		var stream struct {
			ID       string `json:"id"`
			IsActive bool   `json:"isActive"`
		}
		var payload struct {
			Session struct {
				ID              string `json:"id"`
				ParentID        string `json:"parentId"`
				RecordingStatus string `json:"recordingStatus"`
				SourceBytes     int64  `json:"sourceBytes"`
				AssetID         string `json:"assetId"`
			} `json:"session"`
		}
		if err := json.Unmarshal(e.Stream, &stream); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			t.Fatal(err)
		}
		got := payload.Session
		if e.Name != want.name || stream.ID != s.ID || stream.IsActive != want.active || e.StreamID != s.ID {
			t.Errorf("event %d is %s of %s, active %t; want %s of %s, active %t", i, e.Name, stream.ID, stream.IsActive, want.name, s.ID, want.active)
		}
		if got.ID != session.ID || got.ParentID != s.ID || got.RecordingStatus != RecordingWaiting || got.SourceBytes != want.bytes || got.AssetID != want.asset {
			t.Errorf("session of %s = %+v; want %s, waiting, %d bytes, asset %q", e.Name, got, session.ID, want.bytes, want.asset)
		}
		if text := string(e.Stream) + string(e.Payload); strings.Contains(text, s.StreamKey.Reveal()) {
			t.Errorf("%s shows the stream key", e.Name)
		}
	}
	if session.RecordingStatus != "" {
		t.Errorf("the session itself says %q of its recording; that is found out when it is read", session.RecordingStatus)
	}
}

func TestFollow(t *testing.T) {
	s := liveStream(t, false)
	s.Counters = Counters{SourceSegments: 100, SourceBytes: 1000, SourceSegmentsDuration: 200, TranscodedSegments: 7} // of earlier sessions
	session := NewSession(&s, airTime)
	s.GoOnAir(&session, NewEventBatch(Base{}, airTime))
	beat := Beat{
		SeenAt:   At(airTime.Add(2 * time.Second)),
		Counters: Counters{SourceSegments: 3, TranscodedSegments: 6, SourceSegmentsDuration: 6.5, TranscodedSegmentsDuration: 13, SourceBytes: 50, TranscodedBytes: 90, IngestRate: 8, OutgoingRate: 9},
		Received: Received{Protocols: []string{"srt"}},
	}
	s.ApplyBeat(&session, beat)
	s.ApplyBeat(&session, beat) // written twice, counted once
	want := Counters{SourceSegments: 103, TranscodedSegments: 13, SourceSegmentsDuration: 206.5, TranscodedSegmentsDuration: 13, SourceBytes: 1050, TranscodedBytes: 90, IngestRate: 8, OutgoingRate: 9}
	if diff := cmp.Diff(want, s.Counters); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(beat.Counters, session.Counters); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
	if s.LastSeen != beat.SeenAt || session.LastSeen != beat.SeenAt || !*s.IsHealthy || !*session.IsHealthy {
		t.Errorf("seen %d and %d, healthy %t and %t; want %d and healthy", s.LastSeen, session.LastSeen, *s.IsHealthy, *session.IsHealthy, beat.SeenAt)
	}
	// Nothing falls: neither a sum nor a time.
	s.ApplyBeat(&session, Beat{Counters: Counters{SourceSegments: 1}, Issues: []string{"no audio"}, Received: Received{Protocols: []string{"whip"}, Encoded: true}})
	if diff := cmp.Diff(Received{Protocols: []string{"srt", "whip"}, Encoded: true}, session.Received); diff != "" {
		t.Errorf("received, also by another node (-want +got):\n%s", diff)
	}
	if s.SourceSegments != 103 || session.SourceSegments != 3 || s.LastSeen != beat.SeenAt {
		t.Errorf("segments %d and %d, seen %d after an older beat; want 103, 3, %d", s.SourceSegments, session.SourceSegments, s.LastSeen, beat.SeenAt)
	}
	if *s.IsHealthy || *session.IsHealthy || len(s.Issues) != 1 || len(session.Issues) != 1 || s.IngestRate != 0 {
		t.Errorf("healthy %t and %t with %q, rate %v; want unhealthy, rate 0", *s.IsHealthy, *session.IsHealthy, s.Issues, s.IngestRate)
	}
	// Off air the sums still grow, but there are no rates and no health.
	s.GoOffAir(&session, NewEventBatch(Base{}, airTime.Add(9*time.Second)))
	beat.Counters.SourceBytes = 60
	s.ApplyBeat(&session, beat)
	if s.SourceBytes != 1060 || s.IngestRate != 0 || s.IsHealthy != nil || session.IsHealthy != nil {
		t.Errorf("bytes %d, rate %v, healthy %v and %v off air; want 1060, 0, nil", s.SourceBytes, s.IngestRate, s.IsHealthy, session.IsHealthy)
	}
}

func TestSessionTakesSettingsOfTheStream(t *testing.T) {
	s := liveStream(t, true)
	s.RecordingSpec, s.C2PA = &RecordingSpec{}, true
	session := NewSession(&s, airTime)
	s.GoOnAir(&session, NewEventBatch(Base{}, airTime))
	want := Session{
		ID: session.ID, Kind: "session", Name: "s", ParentID: s.ID, UserID: "u1", ProjectID: "p1", PlaybackID: s.PlaybackID,
		CreatedAt: At(airTime), LastSeen: At(airTime), IsHealthy: new(true), Record: true, RecordingSpec: s.RecordingSpec, C2PA: true, Profiles: s.Profiles,
	}
	if diff := cmp.Diff(want, session); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
	s.Profiles = s.Profiles[:1] // changed in a gap
	if err := (StreamPatch{C2PA: new(false)}).Apply(&s); err != nil {
		t.Fatal(err)
	}
	s.GoOnAir(&session, NewEventBatch(Base{}, airTime.Add(time.Minute)))
	if len(session.Profiles) != 1 {
		t.Errorf("%d profiles after the return, want the stream's one", len(session.Profiles))
	}
	if next := NewSession(&s, airTime); !session.C2PA || next.C2PA {
		t.Errorf("signed: %v, the next session: %v", session.C2PA, next.C2PA)
	}
}

// TestOnAirTimes follows the times of a lease.
func TestOnAirTimes(t *testing.T) {
	at := func(seconds int) time.Time { return airTime.Add(time.Duration(seconds) * time.Second) }
	var a OnAir
	a.Begin("one", airTime)
	a.Take("node-a", time.Minute, at(0))
	type state struct {
		Epoch             int64
		Connected         bool
		Expires, ClosesAt int // seconds after airTime
	}
	check := func(step string, want state) {
		t.Helper()
		got := state{a.Epoch, a.Connected, int(a.ExpiresAt.Time().Sub(airTime).Seconds()), int(a.ClosesAt.Time().Sub(airTime).Seconds())}
		if got != want {
			t.Errorf("after %s: %+v, want %+v", step, got, want)
		}
	}
	check("the start", state{1, true, 10, 70})
	a.Renew(at(4))
	check("a beat", state{1, true, 14, 74})
	a.Release(at(10))
	check("the end of the connection", state{1, false, 14, 70})
	a.Renew(at(12))
	a.Release(at(20))
	check("a beat in the gap, and another end", state{1, false, 22, 70})
	a.Take("node-b", time.Minute, at(30))
	check("a return", state{2, true, 40, 100})
	a.Expire()
	check("silence", state{2, false, 40, 100})
	if !a.Revived(Beat{SeenAt: At(at(45))}, at(45)) || a.Revived(Beat{SeenAt: At(at(12))}, at(45)) || a.Revived(Beat{SeenAt: At(at(101))}, at(101)) {
		t.Error("media that is newer than the silence revives a stream, and only in time")
	}
	a.Reconnect(at(45))
	check("the end of silence", state{2, true, 55, 115})
	a.Resume(time.Minute, at(100))
	check("a restart in time", state{3, true, 110, 170})
	a.Release(at(110))
	a.Resume(time.Minute, at(150))
	check("a restart in the gap", state{4, false, 160, 210})
	a.Resume(time.Minute, at(210))
	check("a restart too late", state{5, false, 220, 210})
	if !a.Overdue(at(210)) || a.Overdue(at(209)) {
		t.Error("the session's time is over exactly at its end")
	}
	a.Take("node-a", time.Minute, at(220)) // a new session, after Begin
	a.Resume(time.Minute, at(300))
	a.Renew(at(302))
	check("a restart too late of what was on air", state{7, true, 312, 290})
	a.Take("node-a", time.Minute, at(400))
	a.Resume(10*time.Second, at(410))
	check("a restart with a shorter timeout", state{9, true, 420, 430})
	a.Release(at(418))
	check("the end of the connection then", state{9, false, 420, 428})
}

func TestOnAirNumbers(t *testing.T) {
	var a OnAir
	a.Begin("one", airTime)
	a.ApplyBeat(Beat{NextSequence: 7, NextDiscontinuities: 2})
	a.ApplyBeat(Beat{NextSequence: 5, NextDiscontinuities: 1})
	if a.Sequence != 0 || a.NextSequence != 7 || a.NextDiscontinuities != 2 {
		t.Errorf("%+v after beats; want 0 to 7, 2 discontinuities", a)
	}
	a.Ending = EndTerminated
	a.Close()
	a.Begin("two", airTime)
	if a.Sequence != 7 || a.Discontinuities != 2 || a.Ending != "" || a.SessionID != "two" {
		t.Errorf("second session %+v; want from 7 and 2", a)
	}
	a.Take("node-a", time.Minute, airTime)
	a.SkipUnreported(airTime)
	if a.NextSequence <= 7 || a.NextDiscontinuities <= 2 || a.Sequence != 7 {
		t.Errorf("%+v after a skip; want numbers that no viewer has seen", a)
	}
	before, session := a, Session{}
	session.Move(&a)
	a.Move(airTime)
	period := session.Earlier[0]
	if period.First != before.Sequence || period.Next != before.NextSequence || period.Discontinuities != before.Discontinuities {
		t.Errorf("the period %+v of %+v", period, before)
	}
	if a.Sequence <= before.NextSequence || a.Discontinuities != before.NextDiscontinuities-1 {
		t.Errorf("%+v continues as %+v on another node", before, a)
	}
	a.Take("node-a", time.Minute, airTime)
	a.ApplyBeat(Beat{NextSequence: 100, NextDiscontinuities: 30, Final: true})
	exact := a
	if exact.Move(airTime); exact.Sequence != 100 || exact.Discontinuities != 29 {
		t.Errorf("%+v continues as %+v on another node, although its numbers are exact", a, exact)
	}
	exact = a
	if exact.Move(airTime.Add(OnAirLease + time.Second)); exact.Sequence != 100+16+5 {
		t.Errorf("%+v continues as %+v on another node; an encoder may have returned without the store", a, exact)
	}
	a.Take("node-a", time.Minute, airTime)
	if a.Move(airTime); a.Sequence <= 100 {
		t.Errorf("%+v: the numbers were exact only until the next encoder", a)
	}
}

// TestSkippedNumbers shows how many numbers are skipped that a node may have used without having
// reported them: more, the longer it could not report.
func TestSkippedNumbers(t *testing.T) {
	for _, tt := range []struct {
		silent                               time.Duration
		move, moveDiscontinuities, nextBegin int64 // skipped
	}{
		{-time.Second, 16, 0, 16},
		{0, 16, 0, 16},
		{3 * time.Second, 17, 0, 17},
		{time.Minute, 46, 0, 46},
		{70 * time.Second, 51, 5, 51},
		{10 * time.Minute, 316, 270, 316},
	} {
		var a OnAir
		a.Begin("one", airTime)
		a.Take("node-a", time.Minute, airTime)
		a.ApplyBeat(Beat{NextSequence: 100, NextDiscontinuities: 10})
		now, moved, closed, told := airTime.Add(tt.silent), a, a, a
		moved.Move(now)
		if moved.Sequence != 100+tt.move || moved.Discontinuities != 9+tt.moveDiscontinuities {
			t.Errorf("after %v another node continues with %d and %d", tt.silent, moved.Sequence, moved.Discontinuities)
		}
		closed.CloseUnreported()
		closed.Begin("two", now)
		if closed.Sequence != 100+tt.nextBegin || closed.Discontinuities != 10+tt.nextBegin {
			t.Errorf("after %v the next session begins with %d and %d", tt.silent, closed.Sequence, closed.Discontinuities)
		}
		told.Report(Numbers{Sequence: 103, Discontinuities: 9}, now)
		told.Move(now)
		if told.Sequence != 103 || told.Discontinuities != 9 {
			t.Errorf("after %v, and the node's word, another continues with %d and %d", tt.silent, told.Sequence, told.Discontinuities)
		}
		a.Close()
		a.Begin("two", now)
		if a.Sequence != 100 || a.Discontinuities != 10 {
			t.Errorf("%v after its end by its node, the next session begins with %d and %d", tt.silent, a.Sequence, a.Discontinuities)
		}
	}
}

// What a node may show that can't report is below what another one continues with, at any time.
func TestMayShow(t *testing.T) {
	for silent := time.Duration(0); silent < 10*time.Minute; silent += 700 * time.Millisecond {
		var a OnAir
		a.Begin("one", airTime)
		a.Take("node-a", time.Minute, airTime)
		a.ApplyBeat(Beat{NextSequence: 100})
		a.Move(airTime.Add(silent))
		if MayShow(a.Sequence, 100, silent) || !MayShow(100+int64(silent/(2*time.Second)), 100, silent) {
			t.Fatalf("after %v another node continues with %d", silent, a.Sequence)
		}
	}
}

// A session whose node could not report for longer than its timeout, and whose encoder was there all the
// time, goes on.
func TestExtend(t *testing.T) {
	var a OnAir
	a.Begin("one", airTime)
	a.Take("node-a", time.Minute, airTime)
	now := airTime.Add(7 * time.Minute)
	a.Extend(Beat{})
	if a.MustEnd(&User{}, now) != EndTimeout {
		t.Error("a session without media does not end")
	}
	a.Extend(Beat{SeenAt: At(now.Add(-30 * time.Second))})
	if why := a.MustEnd(&User{}, now); why != "" {
		t.Errorf("a session with media half a minute ago ends: %s", why)
	}
	if a.MustEnd(&User{}, now.Add(30*time.Second)) != EndTimeout {
		t.Error("it does not end when its timeout is over since then")
	}
}

func TestContinuesAndMustEnd(t *testing.T) {
	owner := &User{}
	for _, tt := range []struct {
		name      string
		change    func(*OnAir, *User)
		record    bool // of the stream; the session is not recorded
		after     time.Duration
		continues bool
		mustEnd   Ending
	}{
		{name: "on air", continues: true},
		{name: "in the gap", change: func(a *OnAir, _ *User) { a.Release(airTime) }, after: 59 * time.Second, continues: true},
		{name: "too late", change: func(a *OnAir, _ *User) { a.Release(airTime) }, after: time.Minute, mustEnd: EndTimeout},
		{name: "terminated", change: func(a *OnAir, _ *User) { a.Ending = EndTerminated }, mustEnd: EndTerminated},
		{name: "record changed", record: true},
		{name: "account suspended", change: func(_ *OnAir, u *User) { u.Suspended = true }, continues: true, mustEnd: EndBlocked},
		{name: "account disabled", change: func(_ *OnAir, u *User) { u.Disabled = true }, continues: true, mustEnd: EndBlocked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var a OnAir
			u := *owner
			a.Begin("one", airTime)
			a.Take("node", time.Minute, airTime)
			if tt.change != nil {
				tt.change(&a, &u)
			}
			now := airTime.Add(tt.after)
			if got := a.Continues(&Session{}, tt.record, now); got != tt.continues {
				t.Errorf("Continues = %t, want %t", got, tt.continues)
			}
			if got := a.MustEnd(&u, now); got != tt.mustEnd {
				t.Errorf("MustEnd = %q, want %q", got, tt.mustEnd)
			}
			if got := a.MustEnd(nil, now); got == "" {
				t.Error("MustEnd of a stream whose account is deleted = nothing")
			}
		})
	}
}

func TestAdmit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stream Stream
		owner  *User
		want   Kind // "" = admitted
	}{
		{"welcome", Stream{}, &User{}, ""},
		{"deleted", Stream{Deleted: true, Suspended: true}, &User{}, NotFound},
		{"account deleted", Stream{}, nil, NotFound},
		{"suspended", Stream{Suspended: true}, &User{}, Refused},
		{"account suspended", Stream{}, &User{Suspended: true}, Refused},
		{"account disabled", Stream{}, &User{Disabled: true}, Refused},
	} {
		err := tt.stream.Admit(tt.owner)
		if got := KindOf(err); err != nil && got != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestEndedBy(t *testing.T) {
	earlier := At(airTime)
	for _, tt := range []struct {
		name   string
		before Stream
		change func(*Stream)
		want   Ending
	}{
		{"nothing", Stream{LastTerminatedAt: &earlier, Suspended: true, Deleted: true}, func(*Stream) {}, ""},
		{"name", Stream{}, func(s *Stream) { s.Name = "b" }, ""},
		{"terminated", Stream{}, func(s *Stream) { s.LastTerminatedAt = new(At(airTime)) }, EndTerminated},
		{"terminated again", Stream{LastTerminatedAt: &earlier}, func(s *Stream) { s.LastTerminatedAt = new(earlier + 1) }, EndTerminated},
		{"suspended", Stream{}, func(s *Stream) { s.Suspended = true }, EndSuspended},
		{"resumed", Stream{Suspended: true}, func(s *Stream) { s.Suspended = false }, ""},
		{"deleted", Stream{Suspended: true}, func(s *Stream) { s.Deleted = true }, EndDeleted},
	} {
		after := tt.before
		tt.change(&after)
		if got := after.EndedBy(&tt.before); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
