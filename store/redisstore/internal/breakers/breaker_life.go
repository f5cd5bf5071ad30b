package breakers

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// parseLife reads what the text x of a breaker says. One that an older release made has none.
func parseLife(b *store.BreakerState, text string, ahead int64) error {
	x, err := codec.ParseExtra(text)
	if err != nil || x == nil {
		return err
	}
	b.Rules.Origin, b.Rules.Version = breaker.Origin(x[codec.ExtraOrigin]), x[codec.ExtraVersion]
	b.Life.Calls, b.Life.Failures, b.Life.Ran = codec.LifeCalls(x)
	if x[codec.ExtraFailedAt] > 0 {
		b.Life.LastFailure = time.UnixMicro(x[codec.ExtraFailedAt] - ahead)
	}
	for way, n := range x[codec.ExtraWays:codec.ExtraSize] {
		if n > 0 {
			b.Life.Transitions = append(b.Life.Transitions, store.BreakerTransitions{From: breaker.State(way / 3), To: breaker.State(way % 3), Count: n})
		}
	}
	return nil
}

// parseDiffers reads the text d of a breaker.
func parseDiffers(text string, now time.Time) *store.BreakerDiffers {
	parts := strings.SplitN(text, "|", 3)
	if len(parts) != 3 {
		return nil
	}
	at, err := strconv.ParseInt(parts[1], 10, 64)
	config, ok := parseRules(parts[2])
	if err != nil || !ok || now.Sub(time.UnixMicro(at)) > store.DiffersFor {
		return nil
	}
	return &store.BreakerDiffers{Worker: parts[0], At: time.UnixMicro(at), Config: config}
}

// parseErrors reads the text e of a breaker.
func parseErrors(text string) (all []store.CallError) {
	for line := range strings.SplitSeq(text, "\n") {
		parts := strings.SplitN(line, "\t", 3)
		if len(parts) != 3 {
			continue
		}
		n, err := codec.ParseNumbers(parts[0] + " " + parts[1])
		if err == nil && len(n) == 2 {
			all = append(all, store.CallError{Text: parts[2], Count: n[1], At: time.UnixMicro(n[0])})
		}
	}
	return all
}

// countTenants reads the fields of groups of tenants: windows in halves.
func countTenants(b *store.BreakerState, fields map[string]string, epoch string, index int64, config breaker.Config) error {
	half, kept := index/int64((config.Buckets+1)/2), int64(min(2, config.Buckets))
	for field, text := range fields {
		if !strings.HasPrefix(field, "s:") {
			continue
		}
		parts := strings.SplitN(text, "|", 3)
		if len(parts) != 3 {
			return codec.ErrBreakerText
		}
		ring, _ := parseRing(parts[2])
		own := ring.since(half - kept)
		if parts[0] != epoch || own.Ended() == 0 && own.Slow == 0 {
			continue
		}
		b.Tenants++
		if own.FailureRate() >= config.FailureRate {
			b.FailingTenants++
		}
	}
	return nil
}
