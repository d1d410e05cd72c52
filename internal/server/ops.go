package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// gauge is a number that is read when Prometheus asks for it. One whose name ends in _total
// never shrinks, and is shown as a counter.
type gauge struct {
	name, help string
	value      func() float64
}

// metrics is everything that Prometheus can read from this node.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(v Version) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_requests_total",
			Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_http_request_duration_seconds",
			Help: "Time to answer a request, by route.",
		}, []string{"route"}),
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "weir_build_info",
			Help:        "Always 1; the labels say which weir this is.",
			ConstLabels: prometheus.Labels{"tag": v.Tag, "commit": v.Commit, "go": v.Go},
		}, func() float64 { return 1 }),
		m.requests,
		m.seconds,
	)
	return m
}

// add adds numbers. Each name may be given once.
func (m *metrics) add(gauges ...gauge) {
	for _, g := range gauges {
		if strings.HasSuffix(g.name, "_total") {
			m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: g.name, Help: g.help}, g.value))
		} else {
			m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, g.value))
		}
	}
}

// observe counts an answered request. The route is a pattern of a mux, never a path: paths
// carry keys, and each would become a time series of its own.
func (m *metrics) observe(_ context.Context, route string, status int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// opsHandler serves what only the operator may see: /metrics and /debug/pprof. It does not
// show the command line, which may hold an API key.
func opsHandler(m *metrics) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// runOps serves the operator on addr until ctx ends. An empty address is off.
func runOps(ctx context.Context, addr string, handler http.Handler, log *slog.Logger) error {
	if addr == "" {
		return nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Info("serving metrics", "addr", listener.Addr().String())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	ctx, cancel := context.WithCancel(ctx)
	var closing sync.WaitGroup
	closing.Go(func() {
		<-ctx.Done()
		_ = server.Close() // the rest of a profile is not needed when weir ends
	})
	err = server.Serve(listener)
	cancel()
	closing.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
