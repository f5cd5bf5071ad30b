package store

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
	// By says who sets it and why. The reason is kept beside the gate.
	By Intervention
}

// SetGate sets, changes or removes a gate and wakes who may pass. more means that work is left for Promote. A limit that the policy
// has for the gate, or comes to have, overrules it at the next edit.
func (s *Store) SetGate(ctx context.Context, g Gate) (held int, more bool, err error) {
	_, held, more, err = s.gate(ctx, g, AuditGate, limitText(g.Limit))
	return held, more, err
}

// gate calls the script with a limit or a verb, in all partitions that the gate is about. was is false for a resume of what is not
// paused.
func (s *Store) gate(ctx context.Context, g Gate, action, limit string) (was bool, held int, more bool, err error) {
	if err := g.By.Validate(); err != nil {
		return false, 0, false, err
	}
	var mu sync.Mutex
	err = s.under(g.Name, g.By, func(part *Store, by Intervention) error {
		reply, err := part.runFor(ctx, 2, "gate", part.now, string(g.Name), limit, micros(g.For), limitText(g.Then), by.text(action))
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(reply[1])
		mu.Lock()
		defer mu.Unlock()
		was, held, more = was || reply[0] != "none", held+n, more || reply[0] == "more"
		return err
	})
	return was, held, more, err
}

func limitText(limit int) string {
	if limit < 0 {
		return ""
	}
	return strconv.Itoa(limit)
}
