package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"weir/internal/weir"
)

// A collector sends spans to an OpenTelemetry collector: protobuf over HTTP. It implements
// otlptrace.Client. The usual client for this protocol brings that for gRPC with it.
type collector struct {
	url     string
	headers map[string]string
	gzip    bool
	http    *http.Client
	wait    time.Duration // before the first repetition
	stopped chan struct{}
}

const (
	collectorTimeout = 10 * time.Second // of a request
	collectorWait    = 5 * time.Second
	collectorBody    = 4 << 20 // bytes of a response that are read
)

// newCollector reads the variables that say where and how to send spans: OTEL_EXPORTER_OTLP_NAME, and
// before them OTEL_EXPORTER_OTLP_TRACES_NAME.
func newCollector(env func(string) (string, bool)) (*collector, error) {
	get := func(name string) (value, from string) {
		for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
			if text, _ := env(prefix + name); strings.TrimSpace(text) != "" {
				return strings.TrimSpace(text), prefix + name
			}
		}
		return "", ""
	}
	c := &collector{wait: collectorWait, stopped: make(chan struct{})}
	compression, _ := get("COMPRESSION")
	c.gzip = compression == "gzip"
	transport := http.DefaultTransport.(*http.Transport).Clone()
	c.http = &http.Client{Transport: transport, Timeout: collectorTimeout}
	var err error
	if text, from := get("TIMEOUT"); text != "" {
		ms, parseErr := strconv.ParseUint(text, 10, 31)
		if parseErr != nil {
			err = fmt.Errorf("%s: %q is not a number of milliseconds", from, text)
		}
		c.http.Timeout = time.Duration(ms) * time.Millisecond
	}
	// Both lists count; the more special one wins.
	general, _ := env("OTEL_EXPORTER_OTLP_HEADERS")
	special, _ := env("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
	c.headers = collectorHeaders(general)
	maps.Copy(c.headers, collectorHeaders(special))
	return c, errors.Join(err, c.setURL(get), setTLS(transport, get))
}

// setURL sets the address. A general one is a base, a special one is used as it is.
func (c *collector) setURL(get func(string) (string, string)) error {
	text, from := get("ENDPOINT")
	if text == "" {
		text, from = "https://localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT"
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%s is not the address of a collector, such as http://collector:4318", from)
	}
	if insecure, _ := get("INSECURE"); insecure != "" {
		u.Scheme = "https"
		if strings.EqualFold(insecure, "true") {
			u.Scheme = "http"
		}
	}
	if from == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		u.Path = path.Join("/", u.Path, "v1/traces")
	} else if u.Path == "" {
		u.Path = "/"
	}
	c.url = u.String()
	return nil
}

func setTLS(transport *http.Transport, get func(string) (string, string)) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file, from := get("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		config.RootCAs = x509.NewCertPool()
		if err != nil || !config.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s: %s has no certificates in PEM format", from, file)
		}
	}
	certificate, from := get("CLIENT_CERTIFICATE")
	key, _ := get("CLIENT_KEY")
	if certificate != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport.TLSClientConfig = config
	return nil
}

// collectorHeaders reads a list such as a=b,c=d%20e.
func collectorHeaders(text string) map[string]string {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		name, err := url.PathUnescape(strings.TrimSpace(name))
		value, err2 := url.PathUnescape(strings.TrimSpace(value))
		if ok && err == nil && err2 == nil && name != "" {
			all[name] = value
		}
	}
	return all
}

// Start implements otlptrace.Client.
func (*collector) Start(context.Context) error { return nil }

// Stop ends what is being sent.
func (c *collector) Stop(context.Context) error {
	close(c.stopped)
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans. It tries again, as long as the context allows, if the collector may take them
// later.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// A request has the form of stored spans.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if c.gzip {
		var small bytes.Buffer
		w := gzip.NewWriter(&small)
		_, err := w.Write(body)
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		body = small.Bytes()
	}
	for wait := c.wait; ; wait *= 2 {
		later, err := c.post(ctx, body)
		if err == nil || later < 0 {
			return err
		}
		select {
		case <-time.After(max(wait, later)):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-c.stopped:
			return err
		}
	}
}

// post sends a request once. later is negative if the error will not go away, else the time that the
// collector wants.
func (c *collector) post(ctx context.Context, body []byte) (later time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("User-Agent", "weir")
	r.Header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(r)
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return 0, e.Err
		}
		return -1, e.Err // without the address, which may have a password
	}
	if err != nil {
		return -1, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, collectorBody))
	switch {
	case err != nil:
		return -1, err
	case resp.StatusCode >= 200 && resp.StatusCode <= 299:
		return -1, refusedSpans(text)
	}
	err = fmt.Errorf("the collector answered %s: %q", resp.Status, weir.Shorten(string(text), 200))
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
		return time.Duration(seconds) * time.Second, err
	}
	return -1, err
}

// refusedSpans returns an error if a collector has taken only some of the spans. Its response then has a
// message with their number and a reason.
func refusedSpans(response []byte) error {
	const partial, number, reason = 1, 1, 2
	fields := func(b []byte) map[protowire.Number][]byte {
		all := map[protowire.Number][]byte{}
		for len(b) > 0 {
			field, kind, n := protowire.ConsumeTag(b)
			size := protowire.ConsumeFieldValue(field, kind, b[max(n, 0):])
			if n < 0 || size < 0 {
				return nil // it is no message of this protocol
			}
			value := b[n : n+size]
			if kind == protowire.BytesType {
				value, _ = protowire.ConsumeBytes(value)
			}
			all[field], b = value, b[n+size:]
		}
		return all
	}
	in := fields(fields(response)[partial])
	count, _ := protowire.ConsumeVarint(in[number])
	if count == 0 && len(in[reason]) == 0 {
		return nil
	}
	return fmt.Errorf("the collector refused %d spans: %q", count, weir.Shorten(string(in[reason]), 200))
}
