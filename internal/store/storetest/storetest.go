// Package storetest gives tests a database that has its tables already. Making them takes
// longer than most tests do, so it is done once in a test process, and every test gets a copy.
//
// What makes them is given by the caller, because the tests of package store are among the
// callers: open is store.Open, and options are what the test opens the copy with.
//
// Only tests import this package.
package storetest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"weir/internal/store/pgtest"
)

// The original belongs to the process: all tests of it copy the same.
var sqlite struct {
	once    sync.Once
	content []byte
	err     error
}

// SQLite returns the URL of a database.
func SQLite[S interface{ Close() }, O any](tb testing.TB, open func(context.Context, string, O) (S, error), options O) string {
	tb.Helper()
	sqlite.once.Do(func() { sqlite.content, sqlite.err = filled(filler(open, options)) })
	if sqlite.err != nil {
		tb.Fatalf("make the database that tests copy: %v", sqlite.err)
	}
	path := filepath.Join(tb.TempDir(), "weir.db")
	if err := os.WriteFile(path, sqlite.content, 0o600); err != nil {
		tb.Fatal(err)
	}
	return "sqlite:" + path
}

func filled(fill func(url string) error) ([]byte, error) {
	dir, err := os.MkdirTemp("", "weir-storetest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "weir.db")
	if err := fill("sqlite:" + path); err != nil {
		return nil, err
	}
	return os.ReadFile(path) // closed, so that all is in the one file
}

// PostgreSQL is SQLite for the other engine.
func PostgreSQL[S interface{ Close() }, O any](tb testing.TB, open func(context.Context, string, O) (S, error), options O) string {
	tb.Helper()
	return pgtest.Copy(tb, filler(open, options))
}

// filler makes the tables of a database by opening it, and closes it again.
func filler[S interface{ Close() }, O any](open func(context.Context, string, O) (S, error), options O) func(url string) error {
	return func(url string) error {
		st, err := open(context.Background(), url, options)
		if err == nil {
			st.Close()
		}
		return err
	}
}
