package codec

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// ByTier is behind a weight or a cap of a tenant that is that of its tier.
const ByTier = ".0"

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
		g.Limit, err = strconv.Atoi(strings.TrimSuffix(parts[0], ByTier))
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
		if g.Then, err = strconv.Atoi(strings.TrimSuffix(parts[3], ByTier)); err != nil {
			return bad(err)
		}
	}
	g.Reason, g.Author, g.Since = ParseHoldReason(parts[4])
	if !g.Paused() {
		g.Author, g.Since = "", time.Time{}
	}
	return g, nil
}

// NoDispatch is what scripts have for no bound of dispatches where a record says so (fragments/gate.lua).
const NoDispatch = "-"

// RateText writes a rate of dispatches as a gate has it: rate|burst.
func RateText(l admission.Limit) string { return Rate(l) + "|" + strconv.FormatInt(Burst(l), 10) }

// DispatchText writes what a record says of dispatches, nil for nothing, which is empty.
func DispatchText(l *admission.Limit) string {
	switch {
	case l == nil:
		return ""
	case l.Disabled:
		return NoDispatch
	}
	return RateText(*l)
}

// RecordedCaps are what records of tenants go by that say something of caps (fragments/weight.lua).
type RecordedCaps struct {
	// Tiers are the caps of tiers that differ from that of each tenant.
	Tiers map[string]int
	// Each is that of each tenant, zero for none.
	Each int
}

// ParseTierCaps reads ;TIER=CAP;TIER=CAP.
func ParseTierCaps(text string) map[string]int {
	tiers := map[string]int{}
	for one := range strings.SplitSeq(text, ";") {
		if tier, limit, is := strings.Cut(one, "="); is {
			tiers[tier], _ = strconv.Atoi(limit)
		}
	}
	return tiers
}

// Put gives the gate of a tenant, which was read from a value, the limit that is in force by the tenant's record, as it is stored.
func (c RecordedCaps) Put(g *store.GateState, value, record string) {
	own := !strings.HasPrefix(value, "*")
	limit, _, _ := strings.Cut(value, "|")
	if own && (g.Limit <= 0 || !g.Until.IsZero()) || len(record) < recordPrefix {
		return // It is a pause, or for a time.
	}
	switch limit, said := store.RecordSharesOf([]byte(record[recordPrefix:])).Cap(c.Tiers, own && !strings.HasSuffix(limit, ByTier)); {
	case !said:
	case limit == 0 && own:
		g.Limit = cmp.Or(c.Each, store.NoCap)
	case limit == 0:
		g.Limit = c.Each
	default:
		g.Limit = limit
	}
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
