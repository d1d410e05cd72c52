package store

import (
	"context"
	"sync"
	"time"
)

const batchEvery = 2 * time.Second

// batch is what may be written a little later, all in one transaction: counters,
// the last time somebody was seen. Of several writes with the same name the last
// one counts.
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

// flush writes what has been put together. What could not be written is put back,
// unless there is something newer by now.
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
		for name, write := range s.batch.writes {
			writes[name] = write
		}
		s.batch.writes = writes
	}
	return err
}
