package live

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/e2e/harness"
	"weir/internal/wait"
)

// slowViewers are viewers who keep weir busy with nothing.
type slowViewers struct {
	addr    string // where weir speaks HTTP
	others  []string
	large   *liveStream // whose segments are longer than the buffers of a connection
	good    *goodStream
	offer   string // of somebody who wants to watch
	w       *harness.Weir
	client  *http.Client
	deletes bool // who does not connect says so

	mu    sync.Mutex
	times map[string]int
	errs  map[string]int
}

// slowViewing is a way to be slow.
type slowViewing struct {
	name  string
	share int // of fifty
	watch func(s *slowViewers, ctx context.Context) error
}

func slowViewings() []slowViewing {
	return []slowViewing{
		{"a few bytes a second", 15, (*slowViewers).sip},
		{"waits and does not read", 15, (*slowViewers).block},
		{"opens and says nothing", 8, (*slowViewers).silent},
		{"half a request", 4, (*slowViewers).half},
		{"wants to watch and does not connect", 8, (*slowViewers).never},
	}
}

// start keeps fifty of them at work until ctx ends; wait waits for all.
func (s *slowViewers) start(ctx context.Context) (wait func()) {
	s.times, s.errs = map[string]int{}, map[string]int{}
	var wg sync.WaitGroup
	for _, kind := range slowViewings() {
		for range kind.share {
			wg.Go(func() {
				for ctx.Err() == nil {
					err := kind.watch(s, ctx)
					s.mu.Lock()
					s.times[kind.name]++
					if err != nil && ctx.Err() == nil {
						s.errs[kind.name+": "+err.Error()]++
					}
					s.mu.Unlock()
					select {
					case <-ctx.Done():
					case <-time.After(50 * time.Millisecond):
					}
				}
			})
		}
	}
	return wg.Wait
}

// dial connects with little room for what weir sends.
func (s *slowViewers) dial(ctx context.Context, addr string) (net.Conn, func(), error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, func() {
		stop()
		_ = conn.Close()
	}, nil
}

// ask asks for something and returns the response as it comes.
func (s *slowViewers) ask(conn net.Conn, address string) (*http.Response, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", strings.TrimPrefix(address, s.w.URL)); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
}

// newest returns the newest segment of a stream and the one that comes after it.
func newest(s *liveStream) (uri string, next int64, err error) {
	response, err := http.Get(s.url("source/index.m3u8?ll=0"))
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return "", 0, errors.Join(err, fmt.Errorf("playlist: %d", response.StatusCode))
	}
	list, err := parseLive(text)
	if err != nil || len(list.segments) == 0 {
		return "", 0, errors.Join(err, errors.New("there is no segment"))
	}
	last := list.segments[len(list.segments)-1]
	return last.uri, last.number + 1, nil
}

// sip reads a segment, a few bytes a second.
func (s *slowViewers) sip(ctx context.Context) error {
	uri, _, err := newest(s.large)
	if err != nil {
		return nil // there is none yet
	}
	conn, done, err := s.dial(ctx, s.addr)
	if err != nil {
		return err
	}
	defer done()
	response, err := s.ask(conn, s.large.url("source/"+uri))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	few := make([]byte, 8)
	for end := time.Now().Add(2 * time.Minute); ; { // twice as long as weir stands it
		if _, err := response.Body.Read(few); err != nil {
			return nil
		}
		if time.Now().After(end) {
			return s.endOf(conn)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// endOf reads what the kernel still has of a response that weir must have given up.
func (s *slowViewers) endOf(conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Now().Add(wait.Limit))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		return harness.ErrConnected
	}
	return nil
}

// block waits for what comes next, and does not read it when it is there.
func (s *slowViewers) block(ctx context.Context) error {
	_, next, err := newest(s.good.liveStream)
	if err != nil {
		return nil
	}
	conn, done, err := s.dial(ctx, s.addr)
	if err != nil {
		return err
	}
	defer done()
	for i := range 20 {
		// Without reading the responses.
		address := s.good.url(fmt.Sprintf("source/index.m3u8?_HLS_msn=%d", next+int64(i%3)))
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", strings.TrimPrefix(address, s.w.URL)); err != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}

// silent opens a connection to one of the endpoints and says nothing.
func (s *slowViewers) silent(ctx context.Context) error {
	s.mu.Lock()
	n := s.times["opens and says nothing"]
	s.mu.Unlock()
	addrs := append([]string{s.addr}, s.others...)
	conn, done, err := s.dial(ctx, addrs[n%len(addrs)])
	if err != nil {
		return err
	}
	defer done()
	return harness.HungUp(conn, 10*time.Second)
}

// half asks half a question.
func (s *slowViewers) half(ctx context.Context) error {
	conn, done, err := s.dial(ctx, s.addr)
	if err != nil {
		return err
	}
	defer done()
	if _, err := io.WriteString(conn, "GET /hls/"+s.good.playback+"/index.m3u8 HTTP/1.1\r\nHost: "); err != nil {
		return err
	}
	return harness.HungUp(conn, 10*time.Second)
}

// never posts an offer to watch and does not connect.
func (s *slowViewers) never(ctx context.Context) error {
	return postOffer(ctx, s.client, s.w.URL, s.good.playback, s.offer, s.deletes)
}
