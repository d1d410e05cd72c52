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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/internal/budget"
	"weir/internal/store"
)

// gauge is a number that is read when Prometheus collects it. If its name ends in _total, it never decreases
// and is a counter.
type gauge struct {
	name, help string
	value      func() int64
}

// metrics are the Prometheus metrics of this node.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	parts    prometheus.Histogram
	bucket   prometheus.Histogram
	failures prometheus.Counter // of the bucket
}

func newMetrics(v Version) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_requests_total",
			Help: "Requests served, by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_http_request_duration_seconds",
			Help: "Time to serve a request, by route.",
		}, []string{"route"}),
		parts: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weir_live_part_publish_seconds",
			Help:    "Time from the last frame of a part until viewers can fetch it.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5},
		}),
		bucket: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weir_storage_request_duration_seconds",
			Help:    "Time until the bucket begins its response, by request.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_storage_errors_total",
			Help: "Requests to the bucket that failed or were refused.",
		}),
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
		m.parts,
		m.bucket,
		m.failures,
	)
	return m
}

// add adds numbers. Each name may be given once.
func (m *metrics) add(gauges ...gauge) {
	for _, g := range gauges {
		value := func() float64 { return float64(g.value()) }
		if strings.HasSuffix(g.name, "_total") {
			m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: g.name, Help: g.help}, value))
		} else {
			m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, value))
		}
	}
}

// observe counts a request that was served. The route is a pattern of a mux, never a path: paths
// carry keys, and each would become a time series of its own.
func (m *metrics) observe(_ context.Context, route string, status int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// observePart counts a part of a live stream that viewers can fetch.
func (m *metrics) observePart(lag time.Duration) { m.parts.Observe(lag.Seconds()) }

// observeBucket counts a request to the bucket.
func (m *metrics) observeBucket(took time.Duration, failed bool) {
	m.bucket.Observe(took.Seconds())
	if failed {
		m.failures.Inc()
	}
}

// opsHandler serves /metrics and /debug/pprof for the operator. It does not show the command line, which may
// contain an API key.
func opsHandler(m *metrics) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		noSniffing(w)
		mux.ServeHTTP(w, r)
	})
}

// runOps serves handler on addr until ctx ends. An empty address is off.
func runOps(ctx context.Context, addr string, handler http.Handler, b *budget.Budget, log *slog.Logger) error {
	if addr == "" {
		return nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Info("serving metrics", "addr", listener.Addr().String())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	// It does not wait for a running profile.
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(b.Ops(listener)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// addMetrics shows the statistics of the parts as metrics.
func (s *server) addMetrics() {
	hook, gate, viewers, open, database := s.sender.Stats, s.gate.Stats, s.playback.Stats, s.budget.Stats, s.store.Counts
	s.metrics.add(
		gauge{"weir_database_statements_total", "Statements that this node sent to the database, without those of its job queue.", func() int64 { return database().Statements }},
		gauge{"weir_database_rows_written_total", "Rows that these statements wrote.", func() int64 { return database().RowsWritten }},
		gauge{"weir_database_transactions_total", "Transactions that this node committed.", func() int64 { return database().Transactions }},
		gauge{"weir_webhook_deliveries_pending", "Deliveries to webhooks that are still to be made; -1 = unknown.", s.counted(s.store.PendingDeliveries)},
		gauge{"weir_webhook_deliveries_in_flight", "Deliveries that this node sends now.", func() int64 { return hook().InFlight }},
		gauge{"weir_webhooks_paused", "Webhooks that are paused because they timed out again and again; -1 = unknown.", s.counted(s.store.PausedWebhooks)},
		gauge{"weir_webhook_delivered_total", "Deliveries that a webhook took.", func() int64 { return hook().Delivered }},
		gauge{"weir_webhook_failed_total", "Deliveries that were given up.", func() int64 { return hook().Failed }},
		gauge{"weir_webhook_retried_total", "Attempts that will be repeated.", func() int64 { return hook().Retried }},
		gauge{"weir_webhook_blocked_total", "Deliveries to addresses that are not allowed.", func() int64 { return hook().Blocked }},
		gauge{"weir_webhook_busy_total", "Access checks, resends and tests of webhooks refused because too many of the account wait for a response.", func() int64 { return hook().Busy }},

		gauge{"weir_heartbeat_age_seconds", "Seconds since the last heartbeat of this node was written to the database.", func() int64 { return seconds(s.store.HeartbeatAge()) }},
		gauge{"weir_tasks_waiting", "Tasks of all nodes that wait, up to 10000; -1 = unknown.", s.counted(func(ctx context.Context) (int64, error) {
			tasks, _, err := s.store.QueueLength(ctx, time.Now())
			return tasks, err
		})},
		gauge{"weir_tasks_oldest_waiting_seconds", "How long the oldest of these tasks has waited; -1 = unknown.", s.counted(func(ctx context.Context) (int64, error) {
			_, oldest, err := s.store.QueueLength(ctx, time.Now())
			return seconds(oldest), err
		})},

		gauge{"weir_connections_anonymous", "HTTP connections whose last request had no valid key.", func() int64 { return open().Anonymous }},
		gauge{"weir_connections_authenticated", "HTTP connections whose last request had a valid key.", func() int64 { return open().Authenticated }},
		gauge{"weir_connections_waiting", "Connections of encoders that have not shown a valid stream key yet.", func() int64 { return open().Waiting }},
		gauge{"weir_connections_webrtc_tcp", "Connections of WebRTC over TCP.", func() int64 { return open().Peers }},
		gauge{"weir_connections_closed_total", "Idle connections that were closed because others needed their places.", func() int64 { return open().Evicted }},
		gauge{"weir_connections_refused_total", "Connections, requests and streams that found no place.", func() int64 { return open().Refused }},
		gauge{"weir_connections_reset_total", "HTTP/2 connections that were closed because their client reset too many requests without a response.", func() int64 { return s.http.reset.Load() }},
		gauge{"weir_requests_anonymous", "Requests without a key that are being answered.", func() int64 { return open().Requests }},
		gauge{"weir_stream_files", "Open files that are kept for the streams on air.", func() int64 { return open().StreamFiles }},

		gauge{"weir_viewers", "Viewers who fetched media from this node in the last 30 seconds.", func() int64 { return viewers().Viewers }},
		gauge{"weir_playlist_requests_waiting", "Requests that wait for the next part in a live playlist.", func() int64 { return viewers().Reloads }},
		gauge{"weir_part_requests_waiting", "Requests that wait for a part of a live stream.", func() int64 { return viewers().Waits }},
		gauge{"weir_views_uncounted_total", "Requests whose view was not counted, because their address began too many.", func() int64 { return viewers().Uncounted }},
		gauge{"weir_viewers_refused_total", "Viewers refused because the account had its maximum of viewers.", func() int64 { return viewers().Refused }},
		gauge{"weir_viewer_credentials_throttled_total", "Requests refused because their address sent too many wrong credentials.", func() int64 { return gate().Throttled }},
		gauge{"weir_access_unlogged_total", "Access checks that were left out of the log of their webhook.", func() int64 { return gate().Unlogged }},
		gauge{"weir_state_stale", "Whether the database does not respond, and viewers get what this node knows: 1 = yes.", s.isStale},
		gauge{"weir_stale_responses_total", "Responses to viewers while the database did not respond.", func() int64 { return viewers().Stale }},
		gauge{"weir_edge_requests_total", "Playlists, parts and segments that this node requested from other nodes.", func() int64 { return viewers().NodeRequests }},
		gauge{"weir_edge_hits_total", "Playlists, parts and segments of other nodes that this node had.", func() int64 { return viewers().EdgeHits }},
		gauge{"weir_edge_joined_total", "Playlists, parts and segments of other nodes that another request was fetching already.", func() int64 { return viewers().EdgeJoined }},
		gauge{"weir_edge_bytes", "Size of what this node keeps of streams of other nodes.", func() int64 { return viewers().EdgeBytes }},
	)
	if _, ok := s.store.PoolStats(); ok {
		s.addPoolMetrics()
	}
	if s.work != nil {
		s.addWorkMetrics()
	}
	if s.hub != nil {
		s.addLiveMetrics()
	}
	if s.hub != nil || s.work != nil {
		s.addClipMetrics()
	}
	if s.webrtc != nil {
		s.metrics.add(
			gauge{"weir_webrtc_connections", "Connections over WebRTC, of encoders and of viewers.", func() int64 { return int64(s.webrtc.Peers()) }},
			gauge{"weir_webrtc_refused_total", "Offers of viewers that found no place.", func() int64 { return s.webrtc.Viewers().Refused }},
			gauge{"weir_webrtc_closed_total", "Viewers that were not connected yet when others needed their places.", func() int64 { return s.webrtc.Viewers().Evicted }},
		)
	}
}

// seconds are whole ones.
func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// isStale is the value of weir_state_stale.
func (s *server) isStale() int64 {
	if s.store.Away() != nil {
		return 1
	}
	return 0
}

// counted returns the value of a gauge that the store counts.
func (s *server) counted(count func(context.Context) (int64, error)) func() int64 {
	return func() int64 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		n, err := count(ctx)
		if err != nil {
			return -1
		}
		return n
	}
}

// addPoolMetrics shows how the connections to PostgreSQL are used.
func (s *server) addPoolMetrics() {
	stats := func() store.PoolStats {
		stats, _ := s.store.PoolStats()
		return stats
	}
	s.metrics.add(
		gauge{"weir_database_connections", "Connections to PostgreSQL that are in use, without the one that listens.", func() int64 { return stats().InUse }},
		gauge{"weir_database_connections_max", "Connections to PostgreSQL that this node may use at once.", func() int64 { return stats().Max }},
		gauge{"weir_database_waits_total", "How often a connection to PostgreSQL was not free at once.", func() int64 { return stats().Waits }},
	)
	s.metrics.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "weir_database_wait_seconds_total", Help: "Time waited for a connection to PostgreSQL.",
	}, func() float64 { return stats().Waited.Seconds() }))
}

func (s *server) addWorkMetrics() {
	tasks := s.work.Stats
	s.metrics.add(
		gauge{"weir_tasks_completed_total", "Tasks that were completed on this node.", func() int64 { return tasks().Completed }},
		gauge{"weir_tasks_failed_total", "Tasks that failed for good on this node.", func() int64 { return tasks().Failed }},
		gauge{"weir_ipfs_uploads_total", "Uploads to IPFS that were completed on this node.", func() int64 { return tasks().Uploads }},
		gauge{"weir_ipfs_uploaded_bytes_total", "Bytes of CAR files of these uploads.", func() int64 { return tasks().UploadedBytes }},
		gauge{"weir_tasks_retried_total", "Attempts at tasks that will be repeated.", func() int64 { return tasks().Retried }},
		gauge{"weir_task_pieces_total", "Pieces of tasks (chunks, audio tracks, thumbnails) that this node has done.", func() int64 { return tasks().Pieces }},
		gauge{"weir_task_jobs_running", "Jobs of tasks that this node does now.", func() int64 { return tasks().Running }},
	)
}

func (s *server) addClipMetrics() {
	clips := s.clips.Stats
	s.metrics.add(
		gauge{"weir_clips_completed_total", "Clips that this node has cut.", func() int64 { return clips().Completed }},
		gauge{"weir_clips_failed_total", "Clips that failed for good on this node.", func() int64 { return clips().Failed }},
		gauge{"weir_clip_frames_encoded_total", "Frames of clips that this node has encoded.", func() int64 { return clips().Encoded }},
		gauge{"weir_clip_frames_copied_total", "Frames of clips that this node has copied.", func() int64 { return clips().Copied }},
	)
}

func (s *server) addLiveMetrics() {
	onAir, encoders := s.hub.Stats, s.admission.Stats
	s.metrics.add(
		gauge{"weir_live_streams", "Streams whose encoder sends to this node.", func() int64 { return onAir().OnAir }},
		gauge{"weir_live_sessions", "Sessions that this node has open, also those whose encoder is away.", func() int64 { return onAir().Sessions }},
		gauge{"weir_live_streams_unhealthy", "Streams on air on this node that have issues.", func() int64 { return onAir().Unhealthy }},
		gauge{"weir_live_disk_step", "What live streams do without because the disk runs full: 0 = nothing, up to 4 = they are not written.", func() int64 { return onAir().DiskStep }},
		gauge{"weir_live_received_bytes_total", "Bytes of media that encoders sent.", func() int64 { return onAir().BytesIn }},
		gauge{"weir_live_parts_total", "Parts of segments that were written.", func() int64 { return onAir().Parts }},
		gauge{"weir_live_lost_frames_total", "Frames that renditions, multistream targets and viewers over WebRTC were too slow for.", func() int64 { return onAir().LostFrames }},
		gauge{"weir_live_beat_age_seconds", "Seconds since the state of the streams on this node was saved; of the session that has waited longest.", func() int64 { return seconds(onAir().BeatAge) }},
		gauge{"weir_live_rendition_lag_seconds", "Seconds by which the slowest rendition is behind its source.", func() int64 { return seconds(onAir().RungLag) }},
		gauge{"weir_live_handovers_total", "Sessions that this node continued after another one.", func() int64 { return onAir().Handovers }},
		gauge{"weir_live_skipped_numbers_total", "Segment numbers that were left out in these handovers.", func() int64 { return onAir().Skipped }},
		gauge{"weir_ingest_connections", "Connections of encoders.", func() int64 { return encoders().Connections }},
		gauge{"weir_ingest_admitted_total", "Encoders that came with a good stream key.", func() int64 { return onAir().Admitted }},
		gauge{"weir_ingest_refused_total", "Encoders refused: an invalid stream key, a suspended stream, too many reconnects, or a full disk.", func() int64 { return onAir().Refused }},
		gauge{"weir_ingest_turned_away_total", "Encoders turned away: too many invalid stream keys of their address, or no open files left for another stream.", func() int64 { return encoders().TurnedAway }},
	)
}
