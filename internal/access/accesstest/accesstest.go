// Package accesstest makes gates for the tests of packages that use one.
package accesstest

import (
	"log/slog"
	"net/netip"
	"testing"

	"weir/internal/access"
	"weir/internal/guard"
	"weir/internal/store"
	"weir/internal/webhook"
)

// NewGate returns a gate that asks access webhooks on this machine.
func NewGate(tb testing.TB, st *store.Store) *access.Gate {
	tb.Helper()
	log := slog.New(slog.DiscardHandler)
	g := guard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")})
	tb.Cleanup(g.Client(0).CloseIdleConnections)
	return access.New(st, webhook.New(st, g, "test", log), log)
}
