package console

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// line is a TCP connection to weir that a test makes slow, and cuts.
type line struct {
	listener net.Listener
	mu       sync.Mutex
	to       string
	cut      bool
	slow     bool
	open     map[net.Conn]bool
}

// newLine listens. leadTo sets where connections go.
func newLine(t *testing.T) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{listener: listener, open: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = listener.Close()
		l.set(true, false)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.carry(conn)
		}
	}()
	return l
}

func (l *line) url() string { return "http://" + l.listener.Addr().String() }

// leadTo sets the address of weir.
func (l *line) leadTo(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = addr
}

// set cuts or mends the line, and makes what goes to weir slow.
func (l *line) set(cut, slow bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.slow = cut, slow
	if cut {
		for conn := range l.open {
			_ = conn.Close()
		}
		clear(l.open)
	}
}

func (l *line) carry(client net.Conn) {
	defer client.Close()
	l.mu.Lock()
	to, cut := l.to, l.cut
	l.mu.Unlock()
	if cut {
		return
	}
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	l.mu.Lock()
	if l.cut {
		l.mu.Unlock()
		return
	}
	l.open[client], l.open[server] = true, true
	l.mu.Unlock()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(server, slowReader{l, client})
	l.mu.Lock()
	delete(l.open, client)
	delete(l.open, server)
	l.mu.Unlock()
}

// slowReader reads about 1 MB a second while the line is slow.
type slowReader struct {
	l *line
	r io.Reader
}

func (s slowReader) Read(p []byte) (int, error) {
	s.l.mu.Lock()
	slow := s.l.slow
	s.l.mu.Unlock()
	if !slow {
		return s.r.Read(p)
	}
	time.Sleep(16 * time.Millisecond)
	return s.r.Read(p[:min(len(p), 16<<10)])
}

const prefix = "/video"

// prefixed is a proxy that has weir below a prefix, which it takes away. weir learns of it only by the
// setting public-url.
type prefixed struct {
	*httptest.Server
	target    atomic.Pointer[url.URL]
	following atomic.Int32 // requests for events that are open
	followers atomic.Int32 // the most of them at the same time
}

func newPrefix(t *testing.T) *prefixed {
	t.Helper()
	p := &prefixed{}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(p.target.Load())
		r.Out.Host = r.In.Host
	}}
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, proxy))
	mux.HandleFunc(prefix+"/api/events", func(w http.ResponseWriter, r *http.Request) {
		p.followers.Store(max(p.followers.Load(), p.following.Add(1)))
		defer p.following.Add(-1)
		http.StripPrefix(prefix, proxy).ServeHTTP(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s is outside the prefix", r.Method, r.URL.Path)
		http.NotFound(w, r)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// to sets the address of weir.
func (p *prefixed) to(address string) {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	p.target.Store(u)
}
