package looking

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Demand reads what is runnable for a pool.
func (s *Looking) Demand(ctx context.Context, pool store.Pool) (store.Demand, error) {
	reply, err := s.conn.Run(ctx, "demand", pool.ID(), pool.Text())
	if err != nil {
		return store.Demand{}, err
	}
	if len(reply) != len(pool.Queues)+1 {
		return store.Demand{}, fmt.Errorf("read demand: reply has %d lines", len(reply))
	}
	d := store.Demand{Entries: int(redisconn.Whole(reply[0])), Queues: make([]store.QueueDemand, len(pool.Queues))}
	for i, line := range reply[1:] {
		if d.Queues[i], err = codec.ParseQueueDemand(strings.Fields(line)); err != nil {
			return store.Demand{}, fmt.Errorf("read demand: %w", err)
		}
	}
	return d, nil
}
