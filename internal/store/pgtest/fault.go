package pgtest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"weir/internal/wait"
)

// Cut makes the database of a URL refuse connections and ends those that there are, until the
// returned function is called, or the test ends.
func Cut(tb testing.TB, url string) (undo func()) {
	tb.Helper()
	name := nameOf(tb, url)
	run := func(statement string) {
		tb.Helper()
		if err := shared.cluster.exec(statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
	run("alter database " + name + " allow_connections false")
	run("select pg_terminate_backend(pid) from pg_stat_activity where datname = '" + name + "'")
	undo = sync.OnceFunc(func() { run("alter database " + name + " allow_connections true") })
	tb.Cleanup(undo)
	return undo
}

// Hang makes every statement on the tables of a database wait, until the returned function is called,
// or the test ends.
func Hang(tb testing.TB, url string) (undo func()) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatal(err)
	}
	undo = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		if err := conn.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(undo)
	tables, err := conn.Query(ctx, "select quote_ident(tablename) from pg_tables where schemaname = current_schema()")
	if err != nil {
		tb.Fatal(err)
	}
	names, err := pgx.CollectRows(tables, pgx.RowTo[string])
	if err != nil {
		tb.Fatal(err)
	}
	// Others may hold some of them at this moment, in another order: a deadlock ends the attempt.
	wait.NoError(tb, func() error {
		_, err := conn.Exec(ctx, "rollback; begin; lock table "+strings.Join(names, ", ")+" in access exclusive mode")
		return err
	})
	return undo
}

func nameOf(tb testing.TB, url string) string {
	tb.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	return cfg.Database
}
