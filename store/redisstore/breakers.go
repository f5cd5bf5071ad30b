package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Breaker returns the breaker of a downstream; ErrNoBreaker where nothing is known of it.
func (s *Partition) Breaker(ctx context.Context, downstream string) (store.BreakerState, error) {
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
func (s *Partition) Breakers(ctx context.Context) ([]store.BreakerState, error) {
	names, err := connection(s).SMembers(ctx, s.partition.Breakers()).Result()
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

func (s *Partition) readBreakers(ctx context.Context, downstreams []string) ([]store.BreakerState, error) {
	pipe := connection(s).Pipeline()
	read := pipe.Time(ctx)
	clocks := pipe.HMGet(ctx, s.partition.State(), "t", "bt")
	waiting := pipe.HMGet(ctx, s.partition.Waits(), downstreams...)
	reads := make([]*redis.MapStringStringCmd, len(downstreams))
	for i, name := range downstreams {
		reads[i] = pipe.HGetAll(ctx, s.partition.Breaker(name))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read breakers: %w", redisconn.Unread(err))
	}
	clock, ahead, err := parseClocks(clocks.Val())
	if err != nil {
		return nil, fmt.Errorf("read breakers: %w", err)
	}
	var all []store.BreakerState
	for i, fields := range reads {
		if len(fields.Val()) == 0 {
			continue
		}
		state, err := parseBreaker(downstreams[i], fields.Val(), clock, ahead)
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

// parseClocks reads the fields t and bt of the state: the breakers' clock, and by how much it is ahead of that of Redis.
func parseClocks(fields []any) (clock, ahead int64, err error) {
	n, err := parseNumbers(cmp.Or(redisconn.TextAt(fields, 0), "0") + " " + cmp.Or(redisconn.TextAt(fields, 1), "0"))
	if err == nil && len(n) != 2 {
		err = errBreakerText
	}
	if err != nil {
		return 0, 0, err
	}
	return n[1], n[1] - n[0], nil
}

// The places in the text m of fragments/breaker.lua.
const (
	metaState = iota
	metaCause
	metaSince
	metaPeriod
	metaForced
	metaEnds
	metaUntil
	metaStreak
	metaEpoch
	metaPassed
	metaSlow
	metaRamp
	metaTrips
	metaRow
	metaHeard
	metaConfirmed
	metaWorkers
	metaBegun
	metaDoubt
	metaSize
)

var errBreakerText = errors.New("what is stored cannot be read")

// parseBreaker reads a breaker as it stands at an instant of the breakers' clock, which is ahead of that of Redis by so
// many microseconds.
func parseBreaker(downstream string, fields map[string]string, clock, ahead int64) (store.BreakerState, error) {
	b, m, err := parseMeta(fields["m"], ahead)
	if err != nil {
		return store.BreakerState{}, err
	}
	config, ok := parseRules(fields["c"])
	if !ok {
		return store.BreakerState{}, errBreakerText
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
	if err := countTenants(&b, fields, strconv.FormatInt(m[metaEpoch], 10), index, config); err != nil {
		return store.BreakerState{}, err
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		worker, ok := strings.CutPrefix(field, "w:")
		if !ok {
			continue
		}
		parts := strings.SplitN(fields[field], "|", 5)
		if len(parts) != 5 {
			return store.BreakerState{}, errBreakerText
		}
		streak, err := strconv.ParseUint(parts[3], 10, 64)
		if err != nil {
			return store.BreakerState{}, errBreakerText
		}
		ring, _ := parseRing(parts[4])
		own := ring.since(oldest)
		if parts[2] != strconv.FormatInt(m[metaEpoch], 10) || own.Ended() == 0 && own.Slow == 0 {
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

// parseMeta reads what the text m of a breaker says.
func parseMeta(text string, ahead int64) (b store.BreakerState, m []int64, err error) {
	m, err = parseNumbers(strings.ReplaceAll(text, "|", " "))
	if err != nil {
		return store.BreakerState{}, nil, err
	}
	if len(m) != metaSize || m[metaRamp] < 0 || m[metaRamp] > breaker.RampSteps {
		return store.BreakerState{}, nil, errBreakerText
	}
	b = store.BreakerState{
		State: breaker.State(m[metaState]), Cause: breaker.Cause(m[metaCause]), Period: uint64(m[metaPeriod]),
		Since: time.UnixMicro(m[metaSince] - ahead), Forced: m[metaForced] == 1,
		FailureStreak: uint64(m[metaStreak]), ProbesPassed: uint64(m[metaPassed]), SlowProbes: uint64(m[metaSlow]),
		Ramp: int(m[metaRamp]), Trips: uint64(m[metaTrips]), TripsInRow: uint64(m[metaRow]),
	}
	if m[metaEnds] == 1 {
		b.Until = time.UnixMicro(m[metaUntil] - ahead)
	}
	return b, m, nil
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
		n, err := parseNumbers(strings.ReplaceAll(part, ",", " "))
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
