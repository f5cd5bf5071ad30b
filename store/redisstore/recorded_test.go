package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestTheLastHourHasAllThatWasCounted: every scope of every minute of the hour and none from before, in order; without time to
// read, nothing.
func TestTheLastHourHasAllThatWasCounted(t *testing.T) {
	t.Parallel()
	s, err := openOnly(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	now, err := s.Time(t.Context())
	check(t, err)
	const scopes = 40
	for _, ago := range []time.Duration{90 * time.Minute, 30 * time.Minute, 3 * time.Minute, 0} {
		s.conn.Now = strconv.FormatInt(now.Add(-ago).UnixMicro(), 10)
		var counts []store.ScopeCount
		for n := range scopes {
			counts = append(counts, store.ScopeCount{Scope: admission.Scope(fmt.Sprint("t", n)), Allowed: int64(ago / time.Minute), Refused: 1, Tokens: 5})
		}
		_, err := s.Count(t.Context(), counts)
		check(t, err)
	}
	hour, err := s.LastHour(t.Context(), time.Minute)
	check(t, err)
	if len(hour) != 3 {
		t.Fatalf("%d minutes", len(hour))
	}
	for i, ago := range []time.Duration{30 * time.Minute, 3 * time.Minute, 0} {
		m := hour[i]
		if at := now.Add(-ago).Truncate(time.Minute); !m.At.Equal(at) || len(m.Scopes) != scopes || m.Lasted > time.Minute || m.Lasted <= 0 {
			t.Errorf("%s ago: at %s, %d scopes, lasted %s", ago, m.At, len(m.Scopes), m.Lasted)
		}
		if got := m.Scopes["t39"]; got.Allowed != int64(ago/time.Minute) || got.Refused != 1 || got.Tokens != 5 {
			t.Errorf("%s ago: %+v", ago, got)
		}
	}
	if hour[0].Lasted != time.Minute {
		t.Errorf("a minute that is over lasted %s", hour[0].Lasted)
	}
	if hour, err := s.LastHour(t.Context(), 0); err != nil || len(hour) != 0 {
		t.Errorf("in no time: %d minutes, %v", len(hour), err)
	}
}
