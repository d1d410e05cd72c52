package faults

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// balancer sends each request to a node that is ready for viewers, and once more to another one if it got no
// response. As usual, a node is taken out after two checks that failed, and what it has not answered is broken
// off then.
type balancer struct {
	url     string
	targets []*target
	next    atomic.Int64
	none    atomic.Int64 // requests that found no node
}

// target is a node as a balancer sees it.
type target struct {
	base string

	mu     sync.Mutex
	up     bool
	failed int
	live   context.Context // ends when the node is taken out
	end    context.CancelCauseFunc
}

const (
	checkEvery = time.Second
	checkFalls = 2
)

var errOut = errors.New("the node was taken out")

func newBalancer(t *testing.T, bases []string) *balancer {
	t.Helper()
	b := &balancer{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var checks sync.WaitGroup
	for _, base := range bases {
		to := &target{base: base, up: true}
		to.live, to.end = context.WithCancelCause(ctx)
		b.targets = append(b.targets, to)
		checks.Go(func() { to.check(ctx) })
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(*httputil.ProxyRequest) {},
		Transport: b,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		FlushInterval: -1,
	}
	server := httptest.NewServer(proxy)
	b.url = server.URL
	t.Cleanup(func() {
		cancel()
		checks.Wait()
		server.CloseClientConnections()
		server.Close()
	})
	return b
}

// check asks a node again and again whether it is ready for viewers.
func (to *target) check(ctx context.Context) {
	client := &http.Client{Timeout: checkEvery, Transport: &http.Transport{DisableKeepAlives: true}}
	for tick := time.Tick(checkEvery); ; {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.base+"/readyz?for=viewers", nil)
		ready := false
		if err == nil {
			if response, err := client.Do(r); err == nil {
				ready = response.StatusCode == http.StatusOK
				_ = response.Body.Close()
			}
		}
		to.checked(ctx, ready)
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

func (to *target) checked(ctx context.Context, ready bool) {
	to.mu.Lock()
	defer to.mu.Unlock()
	if ready {
		if to.failed = 0; !to.up {
			to.up = true
			to.live, to.end = context.WithCancelCause(ctx)
		}
		return
	}
	if to.failed++; to.failed == checkFalls {
		to.up = false
		to.end(errOut)
	}
}

func (to *target) state() (up bool, live context.Context) {
	to.mu.Lock()
	defer to.mu.Unlock()
	return to.up, to.live
}

// RoundTrip sends a request on.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	first, err := b.next.Add(1), errors.New("no node is ready")
	for i := range b.targets {
		to := b.targets[(int(first)+i)%len(b.targets)]
		up, live := to.state()
		if !up {
			continue
		}
		base, _ := url.Parse(to.base)
		ctx, cancel := context.WithCancelCause(r.Context())
		stop := context.AfterFunc(live, func() { cancel(errOut) })
		context.AfterFunc(r.Context(), func() { // which ends after the body
			stop()
			cancel(nil)
		})
		again := r.Clone(ctx)
		again.URL.Scheme, again.URL.Host = base.Scheme, base.Host
		response, failed := http.DefaultTransport.RoundTrip(again)
		if failed == nil {
			return response, nil
		}
		err = failed
		if r.Context().Err() != nil {
			return nil, err
		}
	}
	b.none.Add(1)
	return nil, err
}
