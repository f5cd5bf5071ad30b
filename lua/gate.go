package lua

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// GateName names what a gate guards.
type GateName string

// QueueGate names the gate of a queue.
func QueueGate(queue string) GateName { return GateName("q:" + queue) }

// TenantGate names the gate of a tenant.
func TenantGate(tenant string) GateName { return GateName("t:" + tenant) }

// TenantQueueGate names the gate of a tenant in a queue.
func TenantQueueGate(tenant, queue string) GateName { return GateName("u:" + tenant + ":" + queue) }

// DownstreamGate names the gate of a downstream.
func DownstreamGate(downstream string) GateName { return GateName("d:" + downstream) }

// TenantRateGate names the rate of dispatches of a tenant.
func TenantRateGate(tenant string) GateName { return GateName("r:" + tenant) }

// DownstreamRateGate names the rate of dispatches to a downstream.
func DownstreamRateGate(downstream string) GateName { return GateName("s:" + downstream) }

// Every is the tenant or downstream of a cap that is each one's own.
const Every = "*"

// Unlimited is the limit of no gate.
const Unlimited = -1

// Gate is a limit of jobs in workers' hands.
type Gate struct {
	Name GateName
	// Limit is the number of jobs at a time: 0 is shut, Unlimited removes the gate.
	Limit int
	// For is how long the limit holds; zero means until it is changed. Then applies after that.
	For  time.Duration
	Then int
	// Reason is kept beside the gate.
	Reason string
}

// SetGate sets, changes or removes a gate and wakes who may pass. more means that work is left for Promote.
func (s *Store) SetGate(ctx context.Context, g Gate) (held int, more bool, err error) {
	if s.all != nil {
		var mu sync.Mutex
		err = s.under(g.Name, func(part *Store) error {
			n, left, err := part.SetGate(ctx, g)
			mu.Lock()
			defer mu.Unlock()
			held, more = held+n, more || left
			return err
		})
		return held, more, err
	}
	reply, err := s.runFor(ctx, 2, "gate", s.now, string(g.Name), limitText(g.Limit), micros(g.For), limitText(g.Then), g.Reason)
	if err != nil {
		return 0, false, err
	}
	held, err = strconv.Atoi(reply[1])
	return held, reply[0] == "more", err
}

func limitText(limit int) string {
	if limit < 0 {
		return ""
	}
	return strconv.Itoa(limit)
}
