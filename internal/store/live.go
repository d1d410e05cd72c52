package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/weir"
)

// The rules of going on and off air are those of package weir (live.go there). Here
// they are applied to rows that are locked, always in the same order: the stream, what
// carries it, its session, its account, the counter of events. So whoever has the
// stream's row has all of it, and a change is written with its events or not at all.

// lapseEvery is how often a node looks for what others have left behind.
const lapseEvery = 2 * time.Second

// beatsAtOnce bounds how many rows one statement names.
const beatsAtOnce = 100

// OnAir says which node carries a stream, and with which session.
type OnAir = weir.OnAir

// Beat is what a node says of a session that it carries.
type Beat = weir.Beat

// Lost names a stream that a node must stop carrying.
type Lost struct {
	StreamID string
	Why      weir.Ending
}

// ErrLostStream says that another owner carries the stream by now, or nobody.
var ErrLostStream = errors.New("the stream belongs to another owner by now, or its session is closed")

const airColumns = `stream_id, session_id, node, epoch, connected, timeout_ms, seen_at, expires_at, closes_at, ending,
	sequence, discontinuities, next_sequence, next_discontinuities, pushes`

func scanAir(r rows) (a OnAir, err error) {
	var timeout int64
	var pushes string
	err = r.Scan(&a.StreamID, &a.SessionID, &a.Node, &a.Epoch, &a.Connected, &timeout, &a.SeenAt, &a.ExpiresAt, &a.ClosesAt, &a.Ending,
		&a.Sequence, &a.Discontinuities, &a.NextSequence, &a.NextDiscontinuities, &pushes)
	a.Timeout = time.Duration(timeout) * time.Millisecond
	if err == nil {
		a.Pushes, err = scanPushes(pushes)
	}
	return a, err
}

// saveAir writes the row of a stream, which need not be there yet.
func (tx *Tx) saveAir(ctx context.Context, a *OnAir) error {
	pushes, err := pushesJSON(a.Pushes)
	if err != nil {
		return err
	}
	_, err = tx.conn.exec(ctx, "INSERT INTO live ("+airColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
		ON CONFLICT (stream_id) DO UPDATE SET session_id = excluded.session_id, node = excluded.node, epoch = excluded.epoch,
			connected = excluded.connected, timeout_ms = excluded.timeout_ms, seen_at = excluded.seen_at, expires_at = excluded.expires_at,
			closes_at = excluded.closes_at, ending = excluded.ending, sequence = excluded.sequence, discontinuities = excluded.discontinuities,
			next_sequence = excluded.next_sequence, next_discontinuities = excluded.next_discontinuities, pushes = excluded.pushes`,
		a.StreamID, a.SessionID, a.Node, a.Epoch, a.Connected, a.Timeout.Milliseconds(), int64(a.SeenAt), int64(a.ExpiresAt), int64(a.ClosesAt),
		string(a.Ending), a.Sequence, a.Discontinuities, a.NextSequence, a.NextDiscontinuities, pushes)
	return err
}

// OnAirOf returns who carries what is played under an id; NotFound when no session is
// open.
func (q *queries) OnAirOf(ctx context.Context, playbackID string) (OnAir, error) {
	return one(ctx, q.conn, scanAir, "SELECT "+airColumns+` FROM live
		WHERE stream_id = (SELECT id FROM stream WHERE playback_id = $1) AND session_id <> ''`, playbackID)
}

// StreamForPublisher returns the stream that an encoder with the key may publish to.
func (q *queries) StreamForPublisher(ctx context.Context, key weir.Secret) (weir.Stream, error) {
	s, err := q.StreamByKey(ctx, key)
	if err != nil {
		return weir.Stream{}, err
	}
	return s, q.admit(ctx, &s)
}

// admit says why nobody can publish to a stream, if so.
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

// broadcast is a stream, who carries it and the session that is open, all locked.
type broadcast struct {
	stream  weir.Stream
	air     OnAir
	session weir.Session
	events  []weir.Event // to be told of when everything is written
}

// open reports whether there is a session.
func (b *broadcast) open() bool { return b.air.SessionID != "" }

// owned fails when somebody else has the session by now.
func (b *broadcast) owned(epoch int64) error {
	if !b.open() || b.air.Epoch != epoch {
		return ErrLostStream
	}
	return nil
}

// follow takes over what a beat says.
func (b *broadcast) follow(beat Beat) {
	b.stream.Follow(&b.session, beat)
	b.air.Follow(beat)
}

// tell keeps events for the end of the transaction.
func (b *broadcast) tell(events []weir.Event, err error) error {
	b.events = append(b.events, events...)
	return err
}

// lockBroadcast keeps everybody else from changing a broadcast.
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

// saveAndTell writes a broadcast, and then its events.
func (tx *Tx) saveAndTell(ctx context.Context, b *broadcast) error {
	if err := tx.saveBroadcast(ctx, b); err != nil {
		return err
	}
	return tx.emitAll(ctx, b.events)
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

// emitAll writes events, when all else is written.
func (tx *Tx) emitAll(ctx context.Context, events []weir.Event) error {
	for _, e := range events {
		if err := tx.Emit(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// GoOnAir lets this node carry a stream whose encoder has come. A session that is
// still open goes on, whoever carried it, with a higher epoch; otherwise a new one
// begins, which waits for timeout when its encoder is gone. Call it last in a
// transaction: it tells of events. So do GoOffAir and CloseSession.
func (tx *Tx) GoOnAir(ctx context.Context, stream weir.Stream, timeout time.Duration, now time.Time) (weir.Session, OnAir, error) {
	b, err := tx.lockBroadcast(ctx, stream.ID)
	if err != nil {
		return weir.Session{}, OnAir{}, err
	}
	if err := tx.admit(ctx, &b.stream); err != nil {
		return weir.Session{}, OnAir{}, err
	}
	if b.air.Connected && b.air.Node != tx.store.node.id {
		tx.bumpLater(TopicLive) // so that the other node hears of it soon
	}
	if b.open() && !b.air.GoesOn(&b.session, b.stream.Record, now) {
		if err := tx.closeUnheard(ctx, &b, now); err != nil {
			return weir.Session{}, OnAir{}, err
		}
	}
	if b.open() && b.air.Node != tx.store.node.id {
		b.session.Move(&b.air)
		b.air.Move()
	}
	if !b.open() {
		b.session = weir.NewSession(&b.stream, now)
		b.air.Begin(b.session.ID)
		if err := tx.CreateSession(ctx, &b.session); err != nil {
			return weir.Session{}, OnAir{}, err
		}
	}
	b.air.Take(tx.store.node.id, timeout, now)
	if err := b.tell(b.stream.GoOnAir(&b.session, now)); err != nil {
		return weir.Session{}, OnAir{}, err
	}
	if _, err := accounts.update(ctx, tx, b.stream.UserID, func(u *weir.User) error {
		u.LastStreamedAt = max(u.LastStreamedAt, weir.At(now))
		return nil
	}); err != nil {
		return weir.Session{}, OnAir{}, err
	}
	if err := tx.saveAndTell(ctx, &b); err != nil {
		return weir.Session{}, OnAir{}, err
	}
	tx.store.epochs.Store(stream.ID, b.air.Epoch) // if nothing comes of it, nobody has that epoch
	return b.session, b.air, nil
}

// closeUnheard ends the session of a node that can't be asked how far it was. The
// session is written, the rest is left to the caller.
func (tx *Tx) closeUnheard(ctx context.Context, b *broadcast, now time.Time) error {
	b.air.Leap()
	b.air.Close()
	if err := b.tell(b.stream.EndSession(&b.session, now)); err != nil {
		return err
	}
	if err := tx.keepRecording(ctx, b); err != nil {
		return err
	}
	return sessions.save(ctx, tx, b.session.ID, &b.session)
}

// GoOffAir notes that the encoder of a session has been away for too long to count as
// active. The session stays open for its timeout.
func (tx *Tx) GoOffAir(ctx context.Context, last Beat, now time.Time) error {
	b, err := tx.lockBroadcast(ctx, last.StreamID)
	if err != nil {
		return err
	}
	if err := b.owned(last.Epoch); err != nil {
		return err
	}
	b.follow(last)
	b.air.Release(now)
	if err := b.tell(b.stream.GoOffAir(&b.session, now)); err != nil {
		return err
	}
	return tx.saveAndTell(ctx, &b)
}

// CloseSession ends a session for good, also one that is on air. The stream's next
// session goes on with the numbers of the last beat.
func (tx *Tx) CloseSession(ctx context.Context, last Beat, now time.Time) (weir.Session, error) {
	b, err := tx.lockBroadcast(ctx, last.StreamID)
	if err != nil {
		return weir.Session{}, err
	}
	if err := b.owned(last.Epoch); err != nil {
		return weir.Session{}, err
	}
	tx.store.epochs.Delete(last.StreamID)
	b.follow(last)
	b.air.Close()
	if err := b.tell(b.stream.EndSession(&b.session, now)); err != nil {
		return weir.Session{}, err
	}
	if err := tx.keepRecording(ctx, &b); err != nil {
		return weir.Session{}, err
	}
	return b.session, tx.saveAndTell(ctx, &b)
}

// RenewOnAir says that this node carries the sessions of the beats, and writes how
// they do. It returns those that it must stop carrying. A stream that somebody else is
// changing at this moment is left out until the next time, so that nobody waits for a
// node with many streams and it waits for nobody.
func (tx *Tx) RenewOnAir(ctx context.Context, beats []Beat, now time.Time) ([]Lost, error) {
	var lost []Lost
	var events []weir.Event
	for some := range slices.Chunk(beats, beatsAtOnce) {
		more, told, err := tx.renew(ctx, some, now)
		if err != nil {
			return nil, err
		}
		lost, events = append(lost, more...), append(events, told...)
	}
	slices.SortFunc(lost, func(a, b Lost) int { return cmp.Compare(a.StreamID, b.StreamID) })
	return lost, tx.emitAll(ctx, events)
}

func (tx *Tx) renew(ctx context.Context, beats []Beat, now time.Time) (lost []Lost, events []weir.Event, err error) {
	all, owners, err := tx.lockBroadcasts(ctx, beats)
	if err != nil {
		return nil, nil, err
	}
	var health samples
	for _, beat := range beats {
		b := all[beat.StreamID]
		if b == nil {
			continue
		}
		if b.owned(beat.Epoch) != nil {
			if !tx.tookSince(b, beat) {
				lost = append(lost, Lost{beat.StreamID, weir.EndTakenOver})
				tx.store.epochs.Delete(beat.StreamID)
			}
			continue
		}
		var owner *weir.User
		if u, ok := owners[b.stream.UserID]; ok {
			owner = &u
		}
		if why := b.air.MustEnd(owner, now); why != "" {
			lost = append(lost, Lost{beat.StreamID, why})
		} else if b.air.Revived(beat, now) {
			b.air.Reconnect(now)
			if err := b.tell(b.stream.GoOnAir(&b.session, now)); err != nil {
				return nil, nil, err
			}
		}
		b.air.Renew(now)
		b.follow(beat)
		if err := tx.saveBroadcast(ctx, b); err != nil {
			return nil, nil, fmt.Errorf("stream %s: %w", beat.StreamID, err)
		}
		if err := health.add(beat.StreamID, beat.Samples); err != nil {
			return nil, nil, err
		}
		events = append(events, b.events...)
	}
	return lost, events, health.save(ctx, tx)
}

// tookSince reports whether this process itself has taken a stream anew since a beat
// was put together: an encoder came back in between. Then nothing is lost.
func (tx *Tx) tookSince(b *broadcast, beat Beat) bool {
	epoch, _ := tx.store.epochs.Load(beat.StreamID)
	return b.open() && b.air.Node == tx.store.node.id && epoch == b.air.Epoch && b.air.Epoch > beat.Epoch
}

// lockBroadcasts is lockBroadcast for the streams of beats that nobody has locked, with
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
	if len(ids) > 0 {
		b = &builder{}
		open, err := sessions.where(ctx, &tx.queries, "id IN ("+b.list(ids)+")", b.args...)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range open {
			all[s.ParentID].session = s
		}
	}
	slices.Sort(users)
	owners, err := tx.UsersByID(ctx, slices.Compact(users))
	return all, owners, err
}

// OpenSessions returns the sessions that this node carried in its former life, and
// takes them up: whatever is left of that life can't write to them any more.
func (s *Store) OpenSessions(ctx context.Context, node string) ([]OnAir, error) {
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
			b.air.Resume(time.Now())
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

// end asks the node that carries a stream to end its session, if one is open.
func (tx *Tx) end(ctx context.Context, streamID string, why weir.Ending) error {
	n, err := tx.conn.exec(ctx, "UPDATE live SET ending = $2 WHERE stream_id = $1 AND session_id <> '' AND ending = ''", streamID, string(why))
	if n > 0 {
		tx.bumpLater(TopicLive)
	}
	return err
}

// uncared is how long a node may say nothing of a session whose time is over, or have
// been here without having taken it up, before others close it.
const uncared = time.Minute

// left are the sessions that their nodes do not care for any more: the node is silent,
// or the session must end and the node is gone or does not know of it. $1 is now, $2 is
// uncared before.
const left = `session_id <> '' AND (connected AND expires_at <= $1 OR NOT connected AND (closes_at <= $1 OR ending <> '')
	AND NOT EXISTS (SELECT 1 FROM node WHERE node.id = live.node AND (node.started_at > $2 OR live.seen_at > $2)))`

// endLapsed takes streams off the air whose nodes are silent, and closes sessions that
// nobody cares for. A node that has come back closes its own: only it knows what is on
// its disk.
func (s *Store) endLapsed(ctx context.Context) error {
	now := time.Now()
	ids, err := many(ctx, s.conn, scanText, "SELECT stream_id FROM live WHERE "+left, weir.At(now), weir.At(now.Add(-uncared)))
	if err != nil {
		return err
	}
	var failed []error
	for _, id := range ids {
		err := s.Tx(ctx, func(tx *Tx) error { return tx.endLapsed(ctx, id, now) })
		if err != nil {
			failed = append(failed, fmt.Errorf("stream %s: %w", id, err))
		}
	}
	return errors.Join(failed...)
}

func (tx *Tx) endLapsed(ctx context.Context, streamID string, now time.Time) error {
	b, err := tx.lockBroadcast(ctx, streamID)
	if err != nil {
		return err
	}
	// Somebody else may have been here before.
	n, err := one(ctx, tx.conn, scanInt, "SELECT count(*) FROM live WHERE stream_id = $3 AND "+left, weir.At(now), weir.At(now.Add(-uncared)), streamID)
	if err != nil || n == 0 {
		return err
	}
	if b.air.Connected {
		b.air.Expire()
		err = b.tell(b.stream.GoOffAir(&b.session, now))
	} else {
		tx.adoptRecording(&b)
		err = tx.closeUnheard(ctx, &b, now)
	}
	if err != nil {
		return err
	}
	tx.store.log.WarnContext(ctx, "a stream was left by its node", "stream", streamID, "session", b.session.ID, "node", b.air.Node)
	return tx.saveAndTell(ctx, &b)
}
