package pgtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"weir/internal/wait"
)

// Pair are two PostgreSQL: a primary and its synchronous standby. A write is answered when both have
// it.
type Pair struct {
	Primary, Standby *Server

	tb testing.TB
}

// StartPair starts a pair, which is removed when the test ends.
func StartPair(tb testing.TB) *Pair {
	tb.Helper()
	p := &Pair{tb: tb, Primary: NewServer(tb)}
	p.Standby = p.Primary.Standby(tb)
	p.Primary.Exec(tb, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	return p
}

// Demote makes the primary read-only. It keeps its connections: they can read, and writes fail.
func (p *Pair) Demote() {
	p.tb.Helper()
	p.Primary.Exec(p.tb, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	// A write that comes before all of its processes know it would wait for the standby for ever.
	wait.NoError(p.tb, func() error {
		if _, err := p.query(p.Primary.Address(), "SELECT 1::text"); err == nil {
			return errors.New("the demoted one can still be written")
		}
		return nil
	})
}

// URL returns the URL of the database on both, through whatever listens on these addresses instead: that
// on which it can be written.
func (p *Pair) URL(addrs ...string) string {
	if len(addrs) == 0 {
		addrs = []string{p.Primary.Address(), p.Standby.Address()}
	}
	return "postgres://" + superuser + "@" + strings.Join(addrs, ",") + "/postgres?sslmode=disable&target_session_attrs=read-write&connect_timeout=3"
}

// Exec runs a statement, past everything between weir and the pair.
func (p *Pair) Exec(statement string) error {
	_, err := p.Query(statement)
	return err
}

// Query returns the first column of a query as text.
func (p *Pair) Query(statement string) (column []string, err error) {
	return p.query("", statement)
}

// query is Query on the one of the two that has this address.
func (p *Pair) query(addr, statement string) (column []string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.tb.Context()), wait.Limit)
	defer cancel()
	url := p.URL()
	if addr != "" {
		url = p.URL(addr)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, statement, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
