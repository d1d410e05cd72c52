package store

import (
	"context"
	"maps"
	"sync"
	"time"
)

const batchEvery = 2 * time.Second

// batch collects writes that may happen a little later, all in one transaction, such as when a key
// was last used. Of several writes with the same name only the last one is made.
type batch struct {
	mu     sync.Mutex
	writes map[string]func(context.Context, *Tx) error
}

func (b *batch) add(name string, write func(context.Context, *Tx) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writes == nil {
		b.writes = map[string]func(context.Context, *Tx) error{}
	}
	b.writes[name] = write
}

// flush makes the collected writes. After a failure it puts them back, unless there are newer ones.
func (s *Store) flush(ctx context.Context) error {
	s.batch.mu.Lock()
	writes := s.batch.writes
	s.batch.writes = nil
	s.batch.mu.Unlock()
	if len(writes) == 0 {
		return nil
	}
	err := s.Tx(ctx, func(tx *Tx) error {
		for _, write := range writes {
			if err := write(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.batch.mu.Lock()
		defer s.batch.mu.Unlock()
		maps.Copy(writes, s.batch.writes)
		s.batch.writes = writes
	}
	return err
}
