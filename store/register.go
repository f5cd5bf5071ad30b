package store

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // a short name, not a secret
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// QueueWeight is one queue that a pool serves, with its share among them.
type QueueWeight struct {
	Queue  string
	Weight int
}

// Pool is a set of workers that registered the same queues in the same order with the same weights.
type Pool struct {
	// Queues are served in proportion to their weights, or in strict order.
	Queues []QueueWeight
	Strict bool
}

// ID names the pool after what it serves.
func (p Pool) ID() string {
	sum := sha1.Sum([]byte(p.mode() + p.text())) //nolint:gosec // as above
	return hex.EncodeToString(sum[:6])
}

func (p Pool) mode() string {
	if p.Strict {
		return "s"
	}
	return "w"
}

func (p Pool) text() string {
	parts := make([]string, len(p.Queues))
	for i, q := range p.Queues {
		parts[i] = q.Queue + "=" + strconv.Itoa(cmp.Or(q.Weight, 1))
	}
	return strings.Join(parts, ",")
}

// Register makes a worker known with its slots and its lease. The same call again only renews the lease.
func (s *Store) Register(ctx context.Context, worker string, pool Pool, slots int, lease time.Duration) (more bool, err error) {
	reply, err := s.run(ctx, "register", s.now, worker, pool.ID(), pool.mode(), pool.text(), slots, micros(lease))
	if err != nil {
		return false, err
	}
	return reply[0] == "more", nil
}

// Heartbeat extends a worker's lease. It returns ErrLeaseLost when the lease was taken back: the worker must stop
// what it runs and register under a new name.
func (s *Store) Heartbeat(ctx context.Context, worker string, lease time.Duration) (Beat, error) {
	reply, err := s.run(ctx, "heartbeat", s.now, worker, micros(lease))
	if err != nil {
		return Beat{}, err
	}
	if reply[0] == "lost" {
		return Beat{}, admission.ErrLeaseLost
	}
	beat := Beat{Promote: reply[0] == "promote"}
	for i := 1; i+1 < len(reply); i += 2 {
		beat.Cancelled = append(beat.Cancelled, Cancellation{Token: reply[i], Reason: reply[i+1]})
	}
	return beat, nil
}

// Beat is the answer to a heartbeat.
type Beat struct {
	// Promote means that no scheduler holds the timer lease.
	Promote bool
	// Cancelled are the jobs that were cancelled while the worker holds them; each is told until it is finished.
	Cancelled []Cancellation
}

// Cancellation is a running job that was cancelled.
type Cancellation struct {
	Token, Reason string
}

// Reclaim takes back what a worker holds and ends its registration; more means that it is to be called again.
func (s *Store) Reclaim(ctx context.Context, worker string) (more bool, err error) {
	reply, err := s.run(ctx, "reclaim", s.now, worker)
	if err != nil {
		return false, err
	}
	return reply[0] == "more", nil
}
