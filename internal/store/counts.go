package store

import (
	"context"
	"sync/atomic"
)

// Counts are the counts of a Store, without what River does.
type Counts struct {
	Statements   int64 // without those that begin and end transactions
	RowsWritten  int64
	Transactions int64 // that were committed
}

type counts struct{ statements, rows, transactions atomic.Int64 }

// Counts returns the current counts.
func (s *Store) Counts() Counts {
	return Counts{Statements: s.counts.statements.Load(), RowsWritten: s.counts.rows.Load(), Transactions: s.counts.transactions.Load()}
}

// counted is a conn that counts.
type counted struct {
	conn
	*counts
}

func (c counted) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	c.statements.Add(1)
	n, err := c.conn.exec(ctx, sql, args...)
	c.rows.Add(n)
	return n, err
}

func (c counted) query(ctx context.Context, sql string, args ...any) (rows, error) {
	c.statements.Add(1)
	return c.conn.query(ctx, sql, args...)
}
