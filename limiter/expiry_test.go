package limiter

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
)

// TestAReservationExpiresByThePolicyOfItsDay: its cost counts up to the microsecond at which it expires, and no later, by what the policy says of its queue, else
// of all, else a minute; another policy since changes nothing of that.
func TestAReservationExpiresByThePolicyOfItsDay(t *testing.T) {
	t.Parallel()
	for on := range stores(t, newVirtual()) {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			for name, c := range map[string]struct {
				all   time.Duration
				queue string
				want  time.Duration
			}{
				"a minute":         {want: time.Minute},
				"of a queue alone": {queue: "llm", want: 10 * time.Minute},
				"of all":           {all: 90 * time.Second, want: 90 * time.Second},
				"of other queues":  {all: time.Second, queue: "web", want: time.Second},
				"of a queue":       {all: time.Second, queue: "llm", want: 10 * time.Minute},
			} {
				for _, edited := range []time.Duration{0, policy.MinExpireAfter, policy.MaxExpireAfter} {
					t.Run(name+", then "+edited.String(), func(t *testing.T) {
						t.Parallel()
						expires(t, on, c.all, Request{Tenant: "acme", Queue: c.queue, Cost: 40}, c.want, edited)
					})
				}
			}
		})
	}
}

func expires(t *testing.T, on string, all time.Duration, asked Request, want, edited time.Duration) {
	t.Helper()
	v := newVirtual()
	s := stores(t, v)[on](redistest.Prefix(t))
	p := beside(daily(300), map[string]policy.DimensionRules{"user": {Limit: daily(300)}, "route": {Limit: daily(300)}})
	p.Version, p.Reservations.ExpireAfter = 1, all
	p.Queues = map[string]policy.Queue{"llm": {Reservations: policy.ReservationRules{ExpireAfter: 10 * time.Minute}}}
	put(t, s, p)
	l := start(t, s, Config{Timeout: patient})

	asked.Also = also("user", "1", "route", "/a")
	reserve := func() Reservation {
		t.Helper()
		r, err := l.Reserve(t.Context(), asked)
		check(t, err)
		if r.ExpireAfter() != want {
			t.Errorf("a reservation expires after %s, want %s", r.ExpireAfter(), want)
		}
		return r
	}
	began := v.redis.Load()
	last, late, part := reserve(), reserve(), reserve()
	if edited != 0 {
		v.pass(time.Microsecond)
		p.Version, p.Reservations.ExpireAfter = 2, edited
		p.Queues = nil
		put(t, s, p)
	}
	v.pass(want - time.Duration(v.redis.Load()-began)*time.Microsecond)
	check(t, last.Commit(t.Context(), 60))
	check(t, part.CommitPart(t.Context(), 50))
	v.pass(time.Microsecond)
	if err := late.Commit(t.Context(), 60); !errors.Is(err, ErrReservationStands) || !strings.Contains(err.Error(), "more than "+want.String()) {
		t.Errorf("a microsecond too late: %v", err)
	}
	// What comes in meanwhile is less than a token.
	if got := missing(t, s, p); got != 60+40+50 && got != 60+40+50-1 {
		t.Errorf("%d tokens are missing, want 150", got)
	}
	again := start(t, s, Config{Policy: p, Timeout: patient})
	for _, d := range asked.Also {
		if got := 300 - leftIn(t, again, d.Name, d.Value, "acme"); got != 60+40+50 && got != 60+40+50-1 {
			t.Errorf("%d tokens of %s are missing, want 150", got, d.Name)
		}
	}
}

// TestExpiryOfNothing is zero.
func TestExpiryOfNothing(t *testing.T) {
	t.Parallel()
	if got := (Reservation{}).ExpireAfter(); got != 0 {
		t.Errorf("nothing expires after %s", got)
	}
}
