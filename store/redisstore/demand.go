package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Demand reads what is runnable for a pool.
func (s *Partition) Demand(ctx context.Context, pool store.Pool) (store.Demand, error) {
	reply, err := s.run(ctx, "demand", pool.ID(), pool.Text())
	if err != nil {
		return store.Demand{}, err
	}
	if len(reply) != len(pool.Queues)+1 {
		return store.Demand{}, fmt.Errorf("read demand: reply has %d lines", len(reply))
	}
	d := store.Demand{Entries: int(redisconn.Whole(reply[0])), Queues: make([]store.QueueDemand, len(pool.Queues))}
	for i, line := range reply[1:] {
		if d.Queues[i], err = parseQueueDemand(strings.Fields(line)); err != nil {
			return store.Demand{}, fmt.Errorf("read demand: %w", err)
		}
	}
	return d, nil
}

// parseQueueDemand reads weight:runnable of each class.
func parseQueueDemand(fields []string) (q store.QueueDemand, err error) {
	for _, field := range fields {
		weight, runnable, _ := strings.Cut(field, ":")
		class := store.ClassDemand{Weight: int(redisconn.Whole(weight))}
		if class.Runnable, err = strconv.ParseFloat(runnable, 64); err != nil {
			return nil, err
		}
		q = append(q, class)
	}
	return q, nil
}
