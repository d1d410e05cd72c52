package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/internal/weir"
)

// The rules of going on and off air are in package weir (live.go there). Here they are applied to
// rows, which are locked in this order: the stream, its row in live, its session, its account, the
// counter of events. So the lock of a stream covers all of these, and a change is written together
// with its events.

// lapseEvery is how often a node looks for the streams of dead nodes.
const lapseEvery = 2 * time.Second

// beatsAtOnce is the maximum number of beats in one statement.
const beatsAtOnce = 100

// OnAir says which node carries a stream, and with which session.
type OnAir = weir.OnAir

// Beat is what a node reports about a session that it carries.
type Beat = weir.Beat

// Lost names a stream that a node must stop carrying.
type Lost struct {
	StreamID string
	Why      weir.Ending
}

// ErrLostStream says that another node or another session has the stream by now, or none.
var ErrLostStream = errors.New("another publisher has taken over the stream, or its session is closed")

const airColumns = `stream_id, session_id, node, epoch, connected, timeout_ms, seen_at, expires_at, closes_at, ending,
	sequence, discontinuities, next_sequence, next_discontinuities, final, pushes, url`

func scanAir(r rows) (a OnAir, err error) {
	var timeout int64
	var pushes string
	err = r.Scan(&a.StreamID, &a.SessionID, &a.Node, &a.Epoch, &a.Connected, &timeout, &a.SeenAt, &a.ExpiresAt, &a.ClosesAt, &a.Ending,
		&a.Sequence, &a.Discontinuities, &a.NextSequence, &a.NextDiscontinuities, &a.Final, &pushes, &a.URL)
	a.Timeout = time.Duration(timeout) * time.Millisecond
	if err == nil {
		a.Pushes, err = scanPushes(pushes)
	}
	return a, err
}

// saveAir writes the row of a stream, which need not exist yet.
func (tx *Tx) saveAir(ctx context.Context, a *OnAir) error {
	pushes, err := pushesJSON(a.Pushes)
	if err != nil {
		return err
	}
	_, err = tx.conn.exec(ctx, "INSERT INTO live ("+airColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
		ON CONFLICT (stream_id) DO UPDATE SET session_id = excluded.session_id, node = excluded.node, epoch = excluded.epoch,
			connected = excluded.connected, timeout_ms = excluded.timeout_ms, seen_at = excluded.seen_at, expires_at = excluded.expires_at,
			closes_at = excluded.closes_at, ending = excluded.ending, sequence = excluded.sequence, discontinuities = excluded.discontinuities,
			next_sequence = excluded.next_sequence, next_discontinuities = excluded.next_discontinuities, final = excluded.final, pushes = excluded.pushes,
			url = excluded.url`,
		a.StreamID, a.SessionID, a.Node, a.Epoch, a.Connected, a.Timeout.Milliseconds(), int64(a.SeenAt), int64(a.ExpiresAt), int64(a.ClosesAt),
		string(a.Ending), a.Sequence, a.Discontinuities, a.NextSequence, a.NextDiscontinuities, a.Final, pushes, a.URL)
	return err
}

// OnAirOf returns the state of the stream with the playback id; NotFound when no session is open.
func (q *queries) OnAirOf(ctx context.Context, playbackID string) (OnAir, error) {
	return one(ctx, q.conn, scanAir, "SELECT "+airColumns+` FROM live
		WHERE stream_id = (SELECT id FROM stream WHERE playback_id = $1) AND session_id <> ''`, playbackID)
}

// Unreported returns the node that may have shown more of a stream than it has reported, with its last
// address, if that is another node than this one; "" = there is none.
func (s *Store) Unreported(ctx context.Context, streamID string) (node, url string, err error) {
	air, _, err := found(one(ctx, s.conn, scanAir, "SELECT "+airColumns+" FROM live WHERE stream_id = $1", streamID))
	if err != nil || air.Epoch == 0 || air.Node == s.node.id {
		return "", "", err
	}
	now, err := s.onClock(ctx, s.conn, time.Now())
	if err != nil || air.Exact(now) {
		return "", "", err
	}
	url, there, err := found(s.NodeURL(ctx, air.Node))
	if !there {
		url = air.URL
	}
	return air.Node, url, err
}

// FirstSequence returns the number of the first segment of the last session of a stream.
func (q *queries) FirstSequence(ctx context.Context, streamID string) (int64, error) {
	return one(ctx, q.conn, scanInt, "SELECT sequence FROM live WHERE stream_id = $1", streamID)
}

// StreamForPublisher returns the stream that an encoder with the key may publish to.
func (q *queries) StreamForPublisher(ctx context.Context, key weir.Secret) (weir.Stream, error) {
	s, err := q.StreamByKey(ctx, key)
	if err != nil {
		return weir.Stream{}, err
	}
	return s, q.admit(ctx, &s)
}

// admit returns an error if encoders must not publish to a stream.
func (q *queries) admit(ctx context.Context, s *weir.Stream) error {
	owner, exists, err := found(q.User(ctx, s.UserID))
	switch {
	case err != nil:
		return err
	case !exists:
		return s.Admit(nil)
	}
	return s.Admit(&owner)
}

// broadcast is a stream with its row in live and its open session, all locked.
type broadcast struct {
	stream  weir.Stream
	air     OnAir
	session weir.Session
}

// open reports whether a session is open.
func (b *broadcast) open() bool { return b.air.SessionID != "" }

// owned returns an error when another node has the session by now.
func (b *broadcast) owned(epoch int64) error {
	if !b.open() || b.air.Epoch != epoch {
		return ErrLostStream
	}
	return nil
}

// applyBeat takes over a beat.
func (b *broadcast) applyBeat(beat Beat) {
	b.stream.ApplyBeat(&b.session, beat)
	b.air.ApplyBeat(beat)
}

// lockBroadcast keeps others from changing a broadcast until the transaction ends.
func (tx *Tx) lockBroadcast(ctx context.Context, streamID string) (b broadcast, err error) {
	if b.stream, err = tx.LockStream(ctx, streamID); err != nil {
		return b, err
	}
	if b.air, _, err = found(one(ctx, tx.conn, scanAir, "SELECT "+airColumns+" FROM live WHERE stream_id = $1", streamID)); err != nil {
		return b, err
	}
	b.air.StreamID = streamID
	if b.open() {
		b.session, err = tx.Session(ctx, b.air.SessionID)
	}
	return b, err
}

// saveAndEmit writes a broadcast, and then its events.
func (tx *Tx) saveAndEmit(ctx context.Context, b *broadcast, events *weir.EventBatch) error {
	if err := tx.saveBroadcast(ctx, b); err != nil {
		return err
	}
	return tx.EmitBatch(ctx, events)
}

func (tx *Tx) saveBroadcast(ctx context.Context, b *broadcast) error {
	if err := streams.save(ctx, tx, b.stream.ID, &b.stream); err != nil {
		return err
	}
	if err := tx.saveAir(ctx, &b.air); err != nil {
		return err
	}
	return sessions.save(ctx, tx, b.session.ID, &b.session)
}

// GoOnAir lets this node carry a stream to which an encoder has connected. It continues an open
// session, of any node, with a higher epoch, or begins a new one, which waits for timeout after its
// encoder has disconnected. Call it last in a transaction, as GoOffAir and CloseSession: it emits
// events.
func (tx *Tx) GoOnAir(ctx context.Context, stream weir.Stream, timeout time.Duration, now time.Time) (weir.Session, OnAir, error) {
	b, err := tx.lockBroadcast(ctx, stream.ID)
	if err != nil {
		return weir.Session{}, OnAir{}, err
	}
	if err := tx.admit(ctx, &b.stream); err != nil {
		return weir.Session{}, OnAir{}, err
	}
	if now, err = tx.onClock(ctx, now); err != nil {
		return weir.Session{}, OnAir{}, err
	}
	events := weir.NewEventBatch(weir.Base{}, now)
	if b.air.Connected && b.air.Node != tx.store.node.id {
		tx.bumpLater(TopicLive) // so that the other node notices soon
	}
	if b.open() && !b.air.Continues(&b.session, b.stream.Record, now) {
		if err := tx.closeUnreported(ctx, &b, events); err != nil {
			return weir.Session{}, OnAir{}, err
		}
	}
	if b.open() && b.air.Node != tx.store.node.id {
		b.session.Move(&b.air)
		b.air.Move(now)
	}
	if !b.open() {
		b.session = weir.NewSession(&b.stream, now)
		if b.session.Record {
			err := tx.CheckStorage(ctx, b.stream.UserID, 0)
			if err != nil && weir.KindOf(err) != weir.Denied {
				return weir.Session{}, OnAir{}, err
			}
			b.session.Unrecorded = err != nil
		}
		b.air.Begin(b.session.ID, now)
		if err := tx.CreateSession(ctx, &b.session); err != nil {
			return weir.Session{}, OnAir{}, err
		}
	}
	b.air.Take(tx.store.node.id, timeout, now)
	b.air.URL = tx.store.node.address()
	b.stream.GoOnAir(&b.session, events)
	if _, err := accounts.update(ctx, tx, b.stream.UserID, func(u *weir.User) error {
		u.LastStreamedAt = max(u.LastStreamedAt, weir.At(now))
		return nil
	}); err != nil {
		return weir.Session{}, OnAir{}, err
	}
	if err := tx.saveAndEmit(ctx, &b, events); err != nil {
		return weir.Session{}, OnAir{}, err
	}
	tx.store.epochs.Store(stream.ID, b.air.Epoch) // harmless if the transaction fails: then the epoch is unused
	return b.session, b.air, nil
}

// Reported writes how far a node is with a stream, as it has told this one. It does nothing if another
// node has taken the stream since.
func (tx *Tx) Reported(ctx context.Context, streamID string, n weir.Numbers, now time.Time) error {
	b, err := tx.lockBroadcast(ctx, streamID)
	if err != nil || b.air.Epoch != n.Epoch {
		return err
	}
	if now, err = tx.onClock(ctx, now); err != nil {
		return err
	}
	b.air.Report(n, now)
	return tx.saveAir(ctx, &b.air)
}

// closeUnreported ends the session of a node that can't report how far it was. It writes the
// session, and leaves the rest to the caller.
func (tx *Tx) closeUnreported(ctx context.Context, b *broadcast, events *weir.EventBatch) error {
	b.air.CloseUnreported()
	b.stream.EndSession(&b.session, events)
	if err := tx.keepRecording(ctx, b); err != nil {
		return err
	}
	return sessions.save(ctx, tx, b.session.ID, &b.session)
}

// GoOffAir records that the encoder of a session has been disconnected for too long to count as
// active. The session stays open for its timeout.
func (tx *Tx) GoOffAir(ctx context.Context, last Beat, now time.Time) error {
	b, err := tx.lockBroadcast(ctx, last.StreamID)
	if err != nil {
		return err
	}
	if err := b.owned(last.Epoch); err != nil {
		return err
	}
	if now, err = tx.onClock(ctx, now, &last); err != nil {
		return err
	}
	b.applyBeat(last)
	b.air.Release(now)
	events := weir.NewEventBatch(weir.Base{}, now)
	b.stream.GoOffAir(&b.session, events)
	return tx.saveAndEmit(ctx, &b, events)
}

// CloseSession ends a session for good, also one that is on air. The next session of the stream
// continues the numbers of the last beat.
func (tx *Tx) CloseSession(ctx context.Context, last Beat, now time.Time) (weir.Session, error) {
	b, err := tx.lockBroadcast(ctx, last.StreamID)
	if err != nil {
		return weir.Session{}, err
	}
	if err := b.owned(last.Epoch); err != nil {
		return weir.Session{}, err
	}
	if now, err = tx.onClock(ctx, now, &last); err != nil {
		return weir.Session{}, err
	}
	tx.store.epochs.Delete(last.StreamID)
	b.applyBeat(last)
	b.air.Close()
	events := weir.NewEventBatch(weir.Base{}, now)
	b.stream.EndSession(&b.session, events)
	if err := tx.keepRecording(ctx, &b); err != nil {
		return weir.Session{}, err
	}
	return b.session, tx.saveAndEmit(ctx, &b, events)
}

// RenewOnAir writes the beats of the sessions that this node carries, and returns the streams that
// it must stop carrying. It skips streams that are locked at this time until the next beat, so that
// a node with many streams neither waits nor makes others wait.
func (tx *Tx) RenewOnAir(ctx context.Context, beats []Beat, now time.Time) (lost []Lost, err error) {
	beats = slices.Clone(beats)
	pointers := make([]*Beat, len(beats))
	for i := range beats {
		pointers[i] = &beats[i]
	}
	if now, err = tx.onClock(ctx, now, pointers...); err != nil {
		return nil, err
	}
	events := weir.NewEventBatch(weir.Base{}, now)
	for some := range slices.Chunk(beats, beatsAtOnce) {
		more, err := tx.renew(ctx, some, events)
		if err != nil {
			return nil, err
		}
		lost = append(lost, more...)
	}
	slices.SortFunc(lost, func(a, b Lost) int { return cmp.Compare(a.StreamID, b.StreamID) })
	return lost, tx.EmitBatch(ctx, events)
}

func (tx *Tx) renew(ctx context.Context, beats []Beat, events *weir.EventBatch) (lost []Lost, err error) {
	now := events.Now
	all, owners, err := tx.lockBroadcasts(ctx, beats)
	if err != nil {
		return nil, err
	}
	forgotten, err := tx.forgotten(ctx, beats, all)
	if err != nil {
		return nil, err
	}
	var health samples
	for _, beat := range beats {
		b := all[beat.StreamID]
		if b == nil {
			if forgotten[beat.StreamID] {
				lost = append(lost, Lost{beat.StreamID, weir.EndTakenOver})
			}
			continue
		}
		if b.owned(beat.Epoch) != nil {
			if !tx.tookSince(b, beat) {
				lost = append(lost, Lost{beat.StreamID, weir.EndTakenOver})
				tx.store.epochs.Delete(beat.StreamID)
			}
			if !b.open() && b.air.Epoch == beat.Epoch && !b.air.Final {
				b.air.Linger(beat, now)
				if err := tx.saveAir(ctx, &b.air); err != nil {
					return nil, err
				}
			}
			continue
		}
		var owner *weir.User
		if u, ok := owners[b.stream.UserID]; ok {
			owner = &u
		}
		b.air.Extend(beat)
		if why := b.air.MustEnd(owner, now); why != "" {
			lost = append(lost, Lost{beat.StreamID, why})
		} else if b.air.Revived(beat, now) {
			b.air.Reconnect(now)
			b.stream.GoOnAir(&b.session, events)
		}
		b.air.Renew(now)
		b.applyBeat(beat)
		if err := tx.saveBroadcast(ctx, b); err != nil {
			return nil, fmt.Errorf("renew stream %s: %w", beat.StreamID, err)
		}
		if err := health.add(beat.StreamID, beat.Samples); err != nil {
			return nil, err
		}
	}
	return lost, health.save(ctx, tx)
}

// forgotten returns the streams of beats that do not exist any more, of those that could not be locked.
// Another node has closed the session, while this one could not report, and the account was purged.
func (tx *Tx) forgotten(ctx context.Context, beats []Beat, locked map[string]*broadcast) (map[string]bool, error) {
	gone := map[string]bool{}
	for _, beat := range beats {
		if locked[beat.StreamID] == nil {
			gone[beat.StreamID] = true
		}
	}
	if len(gone) == 0 {
		return gone, nil
	}
	b := &builder{}
	there, err := many(ctx, tx.conn, scanText, "SELECT id FROM stream WHERE id IN ("+b.list(slices.Collect(maps.Keys(gone)))+")", b.args...)
	for _, id := range there {
		delete(gone, id)
	}
	return gone, err
}

// tookSince reports whether this process itself has taken the stream again since the beat, because
// an encoder reconnected. Then the stream is not lost.
func (tx *Tx) tookSince(b *broadcast, beat Beat) bool {
	epoch, _ := tx.store.epochs.Load(beat.StreamID)
	return b.open() && b.air.Node == tx.store.node.id && epoch == b.air.Epoch && b.air.Epoch > beat.Epoch
}

// lockBroadcasts is lockBroadcast for those streams of beats that are not locked. It also returns
// their accounts.
func (tx *Tx) lockBroadcasts(ctx context.Context, beats []Beat) (map[string]*broadcast, map[string]weir.User, error) {
	all := map[string]*broadcast{}
	b := &builder{}
	ids := make([]string, len(beats))
	for i, beat := range beats {
		ids[i] = beat.StreamID
	}
	locked, err := streams.where(ctx, &tx.queries, "id IN ("+b.list(ids)+")"+tx.store.engine.forUpdateOfFree(), b.args...)
	if err != nil || len(locked) == 0 {
		return nil, nil, err
	}
	ids = ids[:0]
	var users []string
	for _, s := range locked {
		all[s.ID] = &broadcast{stream: s}
		ids, users = append(ids, s.ID), append(users, s.UserID)
	}
	b = &builder{}
	airs, err := many(ctx, tx.conn, scanAir, "SELECT "+airColumns+" FROM live WHERE stream_id IN ("+b.list(ids)+")", b.args...)
	if err != nil {
		return nil, nil, err
	}
	ids = ids[:0]
	for _, a := range airs {
		all[a.StreamID].air = a
		ids = append(ids, a.SessionID)
	}
	open, err := sessions.byID(ctx, &tx.queries, ids)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range open {
		all[s.ParentID].session = s
	}
	slices.Sort(users)
	owners, err := tx.UsersByID(ctx, slices.Compact(users))
	return all, owners, err
}

// OpenSessions returns the sessions that this node carried before a restart, and takes them again:
// a former process that still runs can't write to them any more. From now on they wait for timeout
// after their encoder has disconnected.
func (s *Store) OpenSessions(ctx context.Context, node string, timeout time.Duration) ([]OnAir, error) {
	ids, err := many(ctx, s.conn, scanText, "SELECT stream_id FROM live WHERE node = $1 AND session_id <> '' ORDER BY stream_id", node)
	if err != nil {
		return nil, err
	}
	var open []OnAir
	for _, id := range ids {
		err := s.Tx(ctx, func(tx *Tx) error {
			b, err := tx.lockBroadcast(ctx, id)
			if err != nil || !b.open() || b.air.Node != node {
				return err
			}
			now, err := tx.onClock(ctx, time.Now())
			if err != nil {
				return err
			}
			b.air.Resume(timeout, now)
			b.air.URL = tx.store.node.address()
			if err := tx.saveAir(ctx, &b.air); err != nil {
				return err
			}
			open = append(open, b.air)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return open, nil
}

// endSession asks the node that carries a stream to end its session, if one is open.
func (tx *Tx) endSession(ctx context.Context, streamID string, why weir.Ending) error {
	n, err := tx.conn.exec(ctx, "UPDATE live SET ending = $2 WHERE stream_id = $1 AND session_id <> '' AND ending = ''", streamID, string(why))
	if n > 0 {
		tx.bumpLater(TopicLive)
	}
	return err
}

// abandonedAfter is how long a node that sends heartbeats may send no beat for a session, or have
// been started without having resumed it, before other nodes take it that it does not know of it.
const abandonedAfter = time.Minute

// abandoned is the condition for sessions that their nodes no longer serve: the node is dead, or does
// not know of the session, which is on air without beats, or must end. $1 is now.
var abandoned = fmt.Sprintf(`session_id <> '' AND (connected AND expires_at <= $1
		AND NOT EXISTS (SELECT 1 FROM node WHERE node.id = live.node AND node.seen_at > $1 - %d AND live.seen_at > $1 - %d)
	OR NOT connected AND (closes_at <= $1 OR ending <> '')
		AND NOT EXISTS (SELECT 1 FROM node WHERE node.id = live.node AND (node.started_at > $1 - %[2]d OR live.seen_at > $1 - %[2]d)))`,
	weir.OnAirLease.Milliseconds(), abandonedAfter.Milliseconds())

// endLapsed takes streams of dead nodes off the air, and closes abandoned sessions. A node that has
// restarted closes its own: only it knows what is on its disk.
func (s *Store) endLapsed(ctx context.Context) error {
	now, err := s.onClock(ctx, s.conn, time.Now())
	if err != nil || !s.node.contact.covers(weir.OnAirLease, weir.At(now)) {
		return err
	}
	ids, err := many(ctx, s.conn, scanText, "SELECT stream_id FROM live WHERE "+abandoned, weir.At(now))
	if err != nil {
		return err
	}
	var failed []error
	for _, id := range ids {
		err := s.Tx(ctx, func(tx *Tx) error { return tx.endLapsed(ctx, id) })
		if err != nil {
			failed = append(failed, fmt.Errorf("end stream %s: %w", id, err))
		}
	}
	return errors.Join(failed...)
}

func (tx *Tx) endLapsed(ctx context.Context, streamID string) error {
	b, err := tx.lockBroadcast(ctx, streamID)
	if err != nil {
		return err
	}
	now, err := tx.onClock(ctx, time.Now())
	// The database may have paused since the stream was found.
	if err != nil || !tx.store.node.contact.covers(weir.OnAirLease, weir.At(now)) {
		return err
	}
	// Another node may have been faster.
	n, err := one(ctx, tx.conn, scanInt, "SELECT count(*) FROM live WHERE stream_id = $2 AND "+abandoned, weir.At(now), streamID)
	if err != nil || n == 0 {
		return err
	}
	events := weir.NewEventBatch(weir.Base{}, now)
	if b.air.Connected {
		b.air.Expire()
		b.stream.GoOffAir(&b.session, events)
	} else {
		tx.adoptRecording(&b)
		if err := tx.closeUnreported(ctx, &b, events); err != nil {
			return err
		}
	}
	tx.store.log.WarnContext(ctx, "stream ended: its node no longer reports it", "stream", streamID, "session", b.session.ID, "node", b.air.Node)
	return tx.saveAndEmit(ctx, &b, events)
}
