package redisstore_test

import (
	"context"
	"slices"
	"strings"

	"github.com/headgate/headgate/store/redisstore/internal/breakers"
)

// breakers writes what Redis holds of breakers in the same words.
func (d *redisDump) breakers(ctx context.Context) {
	clock, now := int64(number(d.tb, "0"+d.state["bt"])), int64(number(d.tb, "0"+d.state["t"]))
	events, _, err := d.store.BreakerEvents(ctx, "0-0", -1)
	check(d.tb, err)
	for _, e := range events {
		e.ID = ""
		d.add("event %+v", e)
	}
	known := 0
	for name := range d.keys {
		downstream, ok := strings.CutPrefix(name, "br:")
		if !ok {
			continue
		}
		known++
		b, err := breakers.ParseBreaker(downstream, d.hash(name), clock, clock-now)
		check(d.tb, err)
		until := int64(0)
		if !b.Until.IsZero() {
			until = b.Until.UnixMicro()
		}
		d.add("breaker %s %s for %s since %d period %d until %d forced %t %q window %v streak %d callers %d voters %d tenants %d of %d passed %d slow %d ramp %d limit %d trips %d in a row %d",
			downstream, b.State, b.Cause, b.Since.UnixMicro(), b.Period, until, b.Forced, b.Reason, b.Window, b.FailureStreak,
			len(b.Callers), len(b.Voters), b.FailingTenants, b.Tenants, b.ProbesPassed, b.SlowProbes, b.Ramp, b.Limit, b.Trips, b.TripsInRow)
	}
	if set := d.set("breakers"); len(set) != known {
		d.add("BROKEN breakers %v of %d", set, known)
	}
}

// depths writes what Redis holds of depths and spilled jobs.
func (d *redisDump) depths() {
	for name, value := range d.hash("depth") {
		d.add("depth %s %s", name, value)
	}
	if n := d.state["nl"]; n != "" && n != "0" {
		d.add("counted %s", n)
	}
	for key, at := range d.hash("starts") {
		d.add("start %s %s", key, at)
	}
	spills := d.set("spills")
	for name := range d.keys {
		if tenantQueue, ok := strings.CutPrefix(name, "spill:"); ok {
			if !slices.Contains(spills, tenantQueue) {
				d.add("BROKEN %s is not among the spills", name)
			}
			for i, z := range d.zset(name) {
				d.add("spill %s %d %s", tenantQueue, i, z.Member)
			}
		}
		if tenantQueue, ok := strings.CutPrefix(name, "old:"); ok {
			for _, z := range d.zset(name) {
				score := int64(z.Score)
				d.add("old %s %s class %d seq %d", tenantQueue, z.Member, 127-score>>45, score&(1<<45-1))
			}
		}
	}
}

// leases writes what Redis holds of limiters.
func (d *redisDump) leases() {
	for key := range d.keys {
		scope, ok := strings.CutPrefix(key, "lease:")
		for member, text := range d.hash(key) {
			if ok {
				d.add("lease of %s by %s %s", scope, member, text)
			}
		}
	}
	for _, z := range d.zset("limiters") {
		d.add("limiter %s until %.0f", z.Member, z.Score)
	}
}
