package store

import "context"

// Size is how large the database is.
type Size struct {
	Rows  map[string]int64 // by table
	Bytes int64            // in use, without free pages
}

// Size counts all rows. That takes long in a large database: it is for `weir doctor`.
func (s *Store) Size(ctx context.Context) (Size, error) {
	size := Size{Rows: map[string]int64{}}
	tables, err := many(ctx, s.conn, scanText, s.engine.tables())
	if err != nil {
		return size, err
	}
	for _, table := range tables {
		if size.Rows[table], err = one(ctx, s.conn, scanInt, "SELECT count(*) FROM "+table); err != nil {
			return size, err
		}
	}
	size.Bytes, err = one(ctx, s.conn, scanInt, s.engine.bytesInUse())
	return size, err
}
