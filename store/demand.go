package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/redisconn"
)

// Demand is what is runnable for a pool in one partition.
type Demand struct {
	// Entries is how many jobs stand in the pool's ready stream, those in workers' hands included.
	Entries int
	// Queues are those of the pool, in order.
	Queues []QueueDemand
}

// QueueDemand is what is runnable in a queue, by class.
type QueueDemand []ClassDemand

// ClassDemand is what is runnable in a class.
type ClassDemand struct {
	// Weight is the class's in its queue's pattern.
	Weight int
	// Runnable is the sum of the weights of its runnable tenants, whatever the number of their jobs; that of many tenants with
	// weights of their own is an estimate. It is 0 while the queue is paused.
	Runnable float64
}

// Demand reads what is runnable for a pool.
func (s *Store) Demand(ctx context.Context, pool Pool) (Demand, error) {
	reply, err := s.run(ctx, "demand", pool.ID(), pool.text())
	if err != nil {
		return Demand{}, err
	}
	if len(reply) != len(pool.Queues)+1 {
		return Demand{}, fmt.Errorf("read demand: reply has %d lines", len(reply))
	}
	d := Demand{Entries: int(redisconn.Whole(reply[0])), Queues: make([]QueueDemand, len(pool.Queues))}
	for i, line := range reply[1:] {
		if d.Queues[i], err = parseQueueDemand(strings.Fields(line)); err != nil {
			return Demand{}, fmt.Errorf("read demand: %w", err)
		}
	}
	return d, nil
}

// parseQueueDemand reads weight:runnable of each class.
func parseQueueDemand(fields []string) (q QueueDemand, err error) {
	for _, field := range fields {
		weight, runnable, _ := strings.Cut(field, ":")
		class := ClassDemand{Weight: int(redisconn.Whole(weight))}
		if class.Runnable, err = strconv.ParseFloat(runnable, 64); err != nil {
			return nil, err
		}
		q = append(q, class)
	}
	return q, nil
}
