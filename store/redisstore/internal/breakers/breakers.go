package breakers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Breaker returns the breaker of a downstream, of an account that of its service; ErrNoBreaker where nothing is known of it.
func (s *Fleet) Breaker(ctx context.Context, downstream string) (store.BreakerState, error) {
	downstream, _ = admission.ServiceOf(downstream)
	all, err := s.readBreakers(ctx, []string{downstream})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("breaker of %s: %w", downstream, store.ErrNoBreaker)
	}
	if err != nil {
		return store.BreakerState{}, err
	}
	return all[0], nil
}

// Breakers returns every breaker that is known, by downstream. What it returns is not of one instant.
func (s *Fleet) Breakers(ctx context.Context) ([]store.BreakerState, error) {
	names, err := redisconn.Client(s.conn).SMembers(ctx, s.conn.Partition.Breakers()).Result()
	if err != nil {
		return nil, fmt.Errorf("list breakers: %w", redisconn.Unread(err))
	}
	slices.Sort(names)
	var all []store.BreakerState
	for portion := range slices.Chunk(names, store.ListPortion) {
		found, err := s.readBreakers(ctx, portion)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (s *Fleet) readBreakers(ctx context.Context, downstreams []string) ([]store.BreakerState, error) {
	pipe := redisconn.Client(s.conn).Pipeline()
	read := pipe.Time(ctx)
	clocks := redisconn.ReadState(ctx, pipe, s.conn.Partition, "t", "bt")
	waiting := pipe.HMGet(ctx, s.conn.Partition.Waits(), downstreams...)
	reads := make([]*redis.MapStringStringCmd, len(downstreams))
	for i, name := range downstreams {
		reads[i] = pipe.HGetAll(ctx, s.conn.Partition.Breaker(name))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read breakers: %w", redisconn.Unread(err))
	}
	clock, ahead, err := codec.ParseClocks(clocks.Val())
	if err != nil {
		return nil, fmt.Errorf("read breakers: %w", err)
	}
	var all []store.BreakerState
	for i, fields := range reads {
		if len(fields.Val()) == 0 {
			continue
		}
		state, err := ParseBreaker(downstreams[i], fields.Val(), clock, ahead)
		if state.For = -1; !state.Until.IsZero() {
			state.For = max(0, state.Until.Sub(read.Val()))
		}
		if err == nil {
			state.Waiting, err = strconv.ParseInt(cmp.Or(redisconn.TextAt(waiting.Val(), i), "0"), 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("read breaker of %s: %w", downstreams[i], err)
		}
		all = append(all, state)
	}
	return all, nil
}

// ParseBreaker reads a breaker as it stands at an instant of the breakers' clock, which is ahead of that of Redis by so
// many microseconds.
func ParseBreaker(downstream string, fields map[string]string, clock, ahead int64) (store.BreakerState, error) {
	b, m, err := codec.ParseMeta(fields["m"], ahead)
	if err != nil {
		return store.BreakerState{}, err
	}
	config, ok := parseRules(fields["c"])
	if !ok {
		return store.BreakerState{}, codec.ErrBreakerText
	}
	b.Downstream, b.Reason, b.Limit, b.ProbeTimeout = downstream, fields["r"], store.Unlimited, config.ProbeTimeout
	switch {
	case b.State == breaker.Open:
		b.Limit = 0
	case b.State == breaker.HalfOpen:
		b.Limit = config.MaxProbes
	case b.Ramp > 0:
		b.Limit = config.MaxProbes << b.Ramp
	}
	b.Rules.Config, b.Errors = config, parseErrors(fields["e"])
	b.Rules.Differs = parseDiffers(fields["d"], time.UnixMicro(clock-ahead))
	if err := parseLife(&b, fields["x"], ahead); err != nil {
		return store.BreakerState{}, err
	}
	window, newest := parseRing(fields["t"])
	index := clock / (config.Window.Microseconds() / int64(config.Buckets))
	if b.State != breaker.Closed {
		index = newest
	}
	oldest := index - int64(config.Buckets)
	b.Window = window.since(oldest)
	if err := countTenants(&b, fields, strconv.FormatInt(m[codec.MetaEpoch], 10), index, config); err != nil {
		return store.BreakerState{}, err
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		worker, ok := strings.CutPrefix(field, "w:")
		if !ok {
			continue
		}
		parts := strings.SplitN(fields[field], "|", 5)
		if len(parts) != 5 {
			return store.BreakerState{}, codec.ErrBreakerText
		}
		streak, err := strconv.ParseUint(parts[3], 10, 64)
		if err != nil {
			return store.BreakerState{}, codec.ErrBreakerText
		}
		ring, _ := parseRing(parts[4])
		own := ring.since(oldest)
		if parts[2] != strconv.FormatInt(m[codec.MetaEpoch], 10) || own.Ended() == 0 && own.Slow == 0 {
			continue
		}
		b.Callers = append(b.Callers, worker)
		inRow := own.Ended() > 0 && streak >= min(own.Ended(), uint64(config.FailureThreshold))
		if inRow || own.FailureRate() >= config.FailureRate || own.SlowCallRate() >= config.SlowCallRate {
			b.Voters = append(b.Voters, worker)
		}
	}
	return b, nil
}

// parseRules reads of a config what rulesText wrote.
func parseRules(text string) (c breaker.Config, ok bool) {
	var window, probe, base, most, reset int64
	n, err := fmt.Sscanf(strings.ReplaceAll(text, "|", " "), "%d %d %d %g %d %g %d %d %d %d %d %d", &window, &c.Buckets, &c.MinCalls,
		&c.FailureRate, &c.FailureThreshold, &c.SlowCallRate, &c.SuccessThreshold, &c.MaxProbes, &probe, &base, &most, &reset)
	for to, value := range map[*time.Duration]int64{
		&c.Window: window, &c.ProbeTimeout: probe, &c.OpenBase: base, &c.OpenMax: most, &c.ResetAfter: reset,
	} {
		*to = time.Duration(value) * time.Microsecond
	}
	return c, err == nil && n == 12 && c.Buckets > 0 && window >= int64(c.Buckets) && c.MaxProbes >= 0 && c.MaxProbes <= math.MaxInt32
}

// ring is what slices of a window counted, by their numbers.
type ring map[int64]breaker.Counts

// parseRing also returns the number of the newest slice.
func parseRing(text string) (r ring, newest int64) {
	r = ring{}
	for part := range strings.SplitSeq(text, ";") {
		n, err := codec.ParseNumbers(strings.ReplaceAll(part, ",", " "))
		if err != nil || len(n) != 5 {
			continue
		}
		r[n[0]] = breaker.Counts{Successes: uint64(n[1]), Failures: uint64(n[2]), Slow: uint64(n[3]), SlowEnds: uint64(n[4])}
		newest = n[0]
	}
	return r, newest
}

// since adds up the slices above a number.
func (r ring) since(oldest int64) (all breaker.Counts) {
	for index, c := range r {
		if index > oldest {
			all.Successes += c.Successes
			all.Failures += c.Failures
			all.Slow += c.Slow
			all.SlowEnds += c.SlowEnds
		}
	}
	return all
}
