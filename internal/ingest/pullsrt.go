package ingest

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	srt "github.com/datarhei/gosrt"

	"weir/internal/codec"
	"weir/internal/weir"
)

const (
	// maxSRTLatency is what a source may ask for.
	maxSRTLatency = 8 * time.Second
	// srtParting is how long the reader of the library may sleep. It must have ended before
	// its socket is closed, or it never does.
	srtParting = 3100 * time.Millisecond
)

// srtCall returns what an address of the form srt://host:port?streamid=… asks for.
func srtCall(u *url.URL) (srt.Config, error) {
	config := srt.DefaultConfig()
	wrong := weir.Errorf(weir.Invalid, "the pull source must be srt://<host>:<port>?streamid=<id>; passphrase, pbkeylen and latency (in milliseconds) may follow")
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Port() == "" {
		return config, wrong
	}
	if mode := query.Get("mode"); mode != "" && mode != "caller" {
		return config, weir.Errorf(weir.Invalid, "weir calls the pull source: leave out mode, or write mode=caller")
	}
	config.StreamId, config.Passphrase = query.Get("streamid"), query.Get("passphrase")
	config.ConnectionTimeout, config.PeerIdleTimeout = handshakeTime/2, srtIdleTime
	if text := query.Get("pbkeylen"); text != "" {
		if config.PBKeylen, err = strconv.Atoi(text); err != nil {
			return config, wrong
		}
	}
	if text := query.Get("latency"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms < 0 || time.Duration(ms)*time.Millisecond > maxSRTLatency {
			return config, weir.Errorf(weir.Invalid, "the latency of the pull source must be given in milliseconds, at most %d", maxSRTLatency.Milliseconds())
		}
		config.Latency = time.Duration(ms) * time.Millisecond
	}
	if config.Validate() != nil { // its text may repeat what it is about
		return config, wrong
	}
	return config, nil
}

// readSRT calls a source and reads what it sends for as long as it does.
func (s *pullSource) readSRT(ctx context.Context, u *url.URL) error {
	config, err := srtCall(u)
	if err != nil {
		return err
	}
	addr, err := s.Guard.Resolve(ctx, u.Hostname())
	if err != nil {
		return err
	}
	config.Logger = lateSRT{}
	conn, err := srt.DialWithContext(ctx, "srt", net.JoinHostPort(addr.String(), u.Port()), config)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return weir.Wrap(weir.Upstream, err, "%s did not take the call over SRT; check the address, the streamid and the passphrase", s.host)
	}
	// Closing takes as long as the library sleeps: nobody waits for it but the end.
	closing := sync.OnceFunc(func() { s.closing.Go(func() { _ = conn.Close() }) })
	defer closing()
	silent := time.AfterFunc(firstMediaTime, closing)
	defer silent.Stop()
	stop := context.AfterFunc(ctx, closing)
	defer stop()
	take := func(p codec.Packet, at time.Duration) error {
		silent.Reset(idleTime)
		return s.addNow(ctx, p, at)
	}
	if err := s.demuxTS(ctx, conn, take); err != nil {
		if _, ok := errors.AsType[*weir.Error](err); ok || ctx.Err() != nil {
			return err
		}
		return weir.Wrap(weir.Upstream, err, "nothing more came from %s", s.host)
	}
	return weir.Errorf(weir.Upstream, "the stream at %s has ended, or nothing came from it for %d seconds", s.host, int(idleTime.Seconds()))
}

// lateSRT is a log that keeps nothing. The library waits for it between saying that a
// connection is over and closing its socket; see srtParting.
type lateSRT struct{}

func (lateSRT) HasTopic(string) bool { return false }

func (lateSRT) Print(topic string, _ uint32, _ int, message func() string) {
	if topic == "dial" && message() == "closing socket" {
		time.Sleep(srtParting)
	}
}

func (lateSRT) Listen() <-chan srt.Log { return nil }

func (lateSRT) Close() {}
