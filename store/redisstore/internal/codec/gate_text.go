package codec

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// ParseGate reads what gate.lua describes. limits are those of the gates of all that have none of their own.
func ParseGate(name, value string, limits map[string]int) (store.GateState, error) {
	g := store.GateState{Name: store.GateName(name), Then: store.Unlimited}
	parts := strings.SplitN(value, "|", 5)
	bad := func(err error) (store.GateState, error) {
		return store.GateState{}, fmt.Errorf("read gate %s: %w", name, cmp.Or(err, redisconn.ErrUnknownReply))
	}
	kind, _ := g.Name.Split()
	var err error
	switch {
	case len(parts) < 2:
		return bad(nil)
	case kind == store.KindTenantRate || kind == store.KindDownstreamRate:
		return parseRate(g, parts)
	case parts[0] == "*":
		g.Limit = limits[store.DefaultGate(g.Name)]
	default:
		g.Limit, err = strconv.Atoi(parts[0])
		g.NoShare, g.Limit = g.Limit < 0, max(0, g.Limit)
	}
	if err != nil {
		return bad(err)
	}
	if g.Held, err = strconv.Atoi(parts[1]); err != nil || len(parts) < 5 {
		return g, err
	}
	if g.Until, err = ParseMicros(parts[2]); err != nil {
		return bad(err)
	}
	if parts[3] != "" {
		if g.Then, err = strconv.Atoi(parts[3]); err != nil {
			return bad(err)
		}
	}
	g.Reason, g.Author, g.Since = ParseHoldReason(parts[4])
	if !g.Paused() {
		g.Author, g.Since = "", time.Time{}
	}
	return g, nil
}

// parseRate reads rate|burst and what follows: a bucket, or from a Sighting the time until the next token.
func parseRate(g store.GateState, parts []string) (store.GateState, error) {
	perMicrosecond, err := strconv.ParseFloat(parts[0], 64)
	if err != nil {
		return store.GateState{}, fmt.Errorf("read gate %s: %w", g.Name, err)
	}
	burst, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return store.GateState{}, fmt.Errorf("read gate %s: %w", g.Name, err)
	}
	g.Rate, g.Burst = perMicrosecond, int(burst/microsPerToken)
	if len(parts) > 2 && !strings.Contains(parts[2], ":") {
		g.Until, err = ParseMicros(parts[2])
	}
	return g, err
}

// ParseSuspension reads until|reason.
func ParseSuspension(name, text string) (store.Suspension, error) {
	end, reason, _ := strings.Cut(text, "|")
	p := store.Suspension{Name: store.GateName(name)}
	var err error
	if p.Until, err = ParseMicros(end); err != nil {
		return p, fmt.Errorf("read suspension %s: %w", name, err)
	}
	p.Reason, p.Author, p.Since = ParseHoldReason(reason)
	return p, nil
}

// PoolState is a pool and who holds what of its stream.
type PoolState struct {
	Pool  store.Pool
	Slots int
	// held counts entries by worker.
	Held map[string]int
}

// ParsePool reads slots|mode|cur|left|queue=weight,….
func ParsePool(value string) *PoolState {
	parts := strings.SplitN(value, "|", 5)
	p := &PoolState{Held: map[string]int{}}
	if len(parts) < 5 {
		return p
	}
	p.Slots, _ = strconv.Atoi(parts[0])
	p.Pool.Strict = parts[1] == "s"
	for part := range strings.SplitSeq(parts[4], ",") {
		queue, weight, _ := strings.Cut(part, "=")
		n, _ := strconv.Atoi(weight)
		p.Pool.Queues = append(p.Pool.Queues, store.QueueWeight{Queue: queue, Weight: n})
	}
	return p
}
