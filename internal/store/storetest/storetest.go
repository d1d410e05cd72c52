// Package storetest gives tests a database that has its tables already. Making the tables takes
// longer than a usual test, so it is done once in a test process, and every test gets a copy.
//
// Callers pass store.Open and its options, because the tests of package store use this package too.
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

// sqlite is the database that all tests of the process copy.
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
	return os.ReadFile(path) // it is closed, so the one file has everything
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
