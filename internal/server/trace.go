package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// tracer sends a span for each request to an OpenTelemetry collector. A nil tracer does nothing.
//
// It makes the spans itself: the usual middleware records the path of the request, and paths
// of weir carry keys.
type tracer struct {
	provider *sdktrace.TracerProvider
	spans    trace.Tracer
}

func (s *server) openTracer(ctx context.Context) (err error) {
	if s.tracer, err = newTracer(ctx, os.LookupEnv, s.version, s.log); err != nil {
		return err
	}
	s.onClose(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.tracer.close(ctx); err != nil {
			s.log.Warn("spans not sent", "err", err)
		}
	})
	return nil
}

// newTracer returns a tracer if the usual OTEL_* variables say where to send spans, and nil
// otherwise. The sampler and the resource read other variables themselves.
func newTracer(ctx context.Context, env func(string) (string, bool), v Version, log *slog.Logger) (*tracer, error) {
	wanted, err := tracesWanted(env)
	if err != nil || !wanted {
		return nil, err
	}
	to, err := newCollector(env)
	if err != nil {
		return nil, fmt.Errorf("start OpenTelemetry: %w", err)
	}
	exporter, err := otlptrace.New(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("start OpenTelemetry: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "weir"), attribute.String("service.version", v.Tag)),
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithFromEnv()) // last, so that OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	if err != nil {
		return nil, fmt.Errorf("start OpenTelemetry: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("spans not sent", "err", err) }))
	return tracerOf(sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))), nil
}

func tracerOf(provider *sdktrace.TracerProvider) *tracer {
	return &tracer{provider: provider, spans: provider.Tracer("weir")}
}

// tracesWanted reads the variables that turn tracing on and off.
func tracesWanted(env func(string) (string, bool)) (bool, error) {
	value := func(names ...string) string {
		for _, name := range names {
			if text, _ := env(name); text != "" {
				return text
			}
		}
		return ""
	}
	exporter := value("OTEL_TRACES_EXPORTER")
	endpoint := value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	protocol := value("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	switch {
	case value("OTEL_SDK_DISABLED") == "true", exporter == "none", exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not supported; use otlp or none", exporter)
	case protocol != "" && protocol != "http/protobuf":
		return false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not supported; use http/protobuf", protocol)
	}
	return true, nil
}

// wrap starts a span for each request. observe adds the route, when it is known.
func (t *tracer) wrap(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.spans.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// observe adds the route and the status of the response to the span in ctx.
func (t *tracer) observe(ctx context.Context, route string, status int) {
	if t == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	if route != "" {
		span.SetName(route)
		span.SetAttributes(attribute.String("http.route", route))
	}
	span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}

// close sends the spans that are left.
func (t *tracer) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}
