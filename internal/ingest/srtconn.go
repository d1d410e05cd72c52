package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	srt "github.com/datarhei/gosrt"
	"github.com/datarhei/gosrt/circular"
	srtpacket "github.com/datarhei/gosrt/packet"

	"weir/internal/codec"
	"weir/internal/live"
	"weir/internal/mpegts"
	"weir/internal/weir"
)

const (
	// srtQueue is how many packets wait for the hub, beside a thousand in the library:
	// more than a second of 50 Mbit/s, if the disk is slow for a moment. What comes
	// beyond is lost.
	srtQueue = 4096
	// srtLookEvery is how often that is looked at.
	srtLookEvery = 250 * time.Millisecond
	// srtDrainEvery is how often it is looked at whether everything was delivered, when
	// the encoder has said goodbye, and srtDrainMore how much longer than the latency that
	// may take.
	srtDrainEvery = 10 * time.Millisecond
	srtDrainMore  = 500 * time.Millisecond
)

// srtConnection takes what one encoder sends.
type srtConnection struct {
	log       *slog.Logger
	publisher publisher
	feed      *feed
	stream    *mpegts.Demuxer
	maxAhead  int // packets that wait for their time

	goodbyes sync.Once
	goodbye  chan struct{} // closed when the encoder has said it
	gone     chan struct{} // closed when nothing is read any more

	media time.Time // when some came last, or it was connected
	next  circular.Number
	begun bool   // there is a next
	read  uint64 // packets
}

func newSRTConnection(p publisher, maxAhead int, log *slog.Logger) *srtConnection {
	c := &srtConnection{log: log, publisher: p, maxAhead: maxAhead, goodbye: make(chan struct{}), gone: make(chan struct{}), media: time.Now()}
	c.feed = newFeed(p, bounded(log))
	return c
}

// hearGoodbye notes that the encoder ends the connection, and returns when all that it
// sent has been read.
func (c *srtConnection) hearGoodbye() {
	c.goodbyes.Do(func() { close(c.goodbye) })
	<-c.gone
}

// run reads until the end and returns why it is there.
func (c *srtConnection) run(ctx context.Context, conn srt.Conn) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = conn.Close() }()
	defer close(c.gone)
	packets := make(chan srtpacket.Packet, srtQueue)
	reading.Go(func() {
		defer close(packets)
		for {
			p, err := conn.ReadPacket()
			if err != nil {
				return
			}
			select {
			case packets <- p:
			case <-c.gone:
				return
			}
		}
	})
	c.stream = mpegts.NewDemuxer(func(p codec.Packet, at time.Duration) error {
		c.media = time.Now()
		return c.feed.add(ctx, p, at)
	}, c.feed.promise, c.feed.log)
	return c.follow(ctx, conn, packets)
}

// follow takes packets until there are no more.
func (c *srtConnection) follow(ctx context.Context, conn srt.Conn, packets <-chan srtpacket.Packet) error {
	look := time.NewTicker(srtLookEvery)
	defer look.Stop()
	goodbye := c.goodbye
	var until time.Time // all must be read by then; zero = the encoder has not said goodbye
	for {
		select {
		case p, ok := <-packets:
			if !ok {
				return c.over()
			}
			if err := c.take(p); err != nil {
				return err
			}
		case <-goodbye:
			goodbye = nil
			until = time.Now().Add(srtLatency(conn) + srtDrainMore)
			look.Reset(srtDrainEvery)
		case now := <-look.C:
			if err := c.look(conn, now); err != nil {
				return err
			}
			if !until.IsZero() && (now.After(until) || c.hasAll(conn)) {
				return c.over()
			}
		case <-c.publisher.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take takes a packet.
func (c *srtConnection) take(p srtpacket.Packet) error {
	defer p.Decommission()
	c.read++
	number := p.Header().PacketSequenceNumber
	if c.begun && !number.Equals(c.next) {
		c.stream.Lost()
	}
	c.next, c.begun = number.Inc(), true
	return c.stream.Write(p.Data())
}

// over says how the connection has ended.
func (c *srtConnection) over() error {
	select {
	case <-c.goodbye:
		return errors.Join(errUnpublished, c.stream.Flush())
	default:
		return errors.New("nothing came any more")
	}
}

// look sees to it that the encoder does not use more than it may.
func (c *srtConnection) look(conn srt.Conn, now time.Time) error {
	var stats srt.Statistics
	conn.Stats(&stats)
	switch waits := stats.Instantaneous; {
	case waits.PktRecvBuf > uint64(c.maxAhead):
		return weir.Errorf(weir.Invalid, "more than %d packets wait for their time; set a lower latency at the encoder", c.maxAhead)
	case now.Sub(c.media) > idleTime+srtLatency(conn):
		return errors.New("no picture and no sound came in time")
	}
	return nil
}

// srtLatency returns how long packets wait before they are delivered.
func srtLatency(conn srt.Conn) time.Duration {
	var stats srt.Statistics
	conn.Stats(&stats)
	return time.Duration(stats.Instantaneous.MsRecvTsbPdDelay) * time.Millisecond
}

// hasAll reports whether everything has been read that came.
func (c *srtConnection) hasAll(conn srt.Conn) bool {
	var stats srt.Statistics
	conn.Stats(&stats)
	return stats.Instantaneous.PktRecvBuf == 0 && c.read >= stats.Accumulated.PktRecvUnique
}

// end lets the publisher go and says why in the log.
func (c *srtConnection) end(ctx context.Context, err error) {
	var ended error // by the hub
	select {
	case <-c.publisher.Done():
		ended = c.publisher.Write(live.Frame{})
	default:
		err = errors.Join(err, c.feed.finish(ctx))
	}
	clean := errors.Is(err, errUnpublished)
	c.leave(clean)
	logEnd(c.log, ending{stopping: errors.Is(err, context.Canceled), ended: ended, clean: clean, why: err, lost: fmt.Sprint(err)})
}

// leave lets the publisher go.
func (c *srtConnection) leave(clean bool) {
	if p := c.publisher; p != nil {
		c.publisher = nil
		p.Close(clean)
	}
}
