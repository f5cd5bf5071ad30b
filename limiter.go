package headgate

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/limiter"
)

// LimiterConfig is what a Limiter needs. The zero LimiterConfig works.
type LimiterConfig struct {
	// Strict keeps every window within the burst, tokens on lease included, for an eighth of the burst.
	Strict bool
	// Timeout is how long a check waits for Redis, 1 ms to 10 s; zero means 50 ms.
	Timeout time.Duration
	// WithoutRedis is how checks are answered while Redis is away: "share" (its rate divided by the limiters that lived last), "open",
	// "closed" or "grace" (what is on lease); empty means "share".
	WithoutRedis string
	// Uncounted leaves the checks out of what metrics, forecasts and dry runs show of their scopes; reservations too. Counting costs a check some 5 ns, and Redis
	// a call a second for each 500 scopes in use.
	Uncounted bool
}

// Limiter answers requests by the limits of the policy, mostly from tokens that it has on lease. Several goroutines may use it.
type Limiter struct {
	inner    *limiter.Limiter
	observed *observed // the client's
}

// Request is what Check is asked. Which of the names are given decides which limits are asked, from the outermost on.
type Request = limiter.Request

// Dimension is one more way that a Request takes, beside its tenant's: such as a user, an address or a route, whose limits the policy declares.
type Dimension = limiter.Dimension

// Limiter returns a limiter, one for a whole process or a few. Close gives back what it has on lease; until then the client keeps it, for what it counts.
func (c *Client) Limiter(config LimiterConfig) (*Limiter, error) {
	outage := limiter.Outage(config.WithoutRedis)
	switch outage {
	case "", limiter.OutageShare, limiter.OutageOpen, limiter.OutageClosed, limiter.OutageGrace:
	default: // Package limiter has another name for it.
		return nil, fmt.Errorf("open limiter: %w", &FieldError{Field: "WithoutRedis", Value: strconv.Quote(config.WithoutRedis), Allowed: `"share", "open", "closed" or "grace"`})
	}
	inner, err := limiter.New(c.store, limiter.Config{
		Logger: c.log, Count: true, Minutes: !config.Uncounted, Strict: config.Strict, Timeout: config.Timeout, Outage: outage,
	})
	if err != nil {
		return nil, fmt.Errorf("open limiter: %w", err)
	}
	c.observed.opened(inner)
	return &Limiter{inner, &c.observed}, nil
}

// Allowed is a yes of Check: what the tightest limit on the way has left, for whoever tells a client. It is a plain value.
type Allowed struct {
	// Scope is the one whose limit that is; empty where no limit is on the way, or Redis did not answer.
	Scope Scope
	// Remaining is what its bucket has left of Burst, and Reset how long that takes to fill again, of fixed windows until the next one begins, of sliding ones at the latest. Of a check that was answered from tokens on lease
	// Remaining is what this process has of them, a lower bound.
	Remaining, Burst Tokens
	Reset            time.Duration
}

// Check takes the tokens of a request, all or none. A nil error says that it may pass; otherwise it is the same as one of Enqueue: a
// *Refusal, a *FieldError for each bad field, or what kept Redis from answering. A yes by lease allocates nothing, a no by a denial that is
// remembered its *Refusal alone, 80 bytes, which stays as it is.
func (l *Limiter) Check(ctx context.Context, r Request) (Allowed, error) {
	r.Remaining = true
	v, err := l.inner.Check(ctx, r)
	if err != nil {
		return Allowed{}, err
	}
	if v.Admitted {
		allowed := Allowed{Scope: v.Scope, Remaining: v.TokensLeft, Burst: v.Burst}
		if missing := v.Burst - v.TokensLeft; missing > 0 && !v.Window.IsZero() {
			allowed.Reset = v.Window.UntilNext(time.Now())
		} else if missing > 0 && v.Rate > 0 {
			allowed.Reset = time.Duration(min(float64(missing)/float64(v.Rate)*float64(time.Second), float64(math.MaxInt64/2)))
		}
		return allowed, nil
	}
	return Allowed{}, &Refusal{Reason: v.Reason, Scope: v.Scope, Remaining: v.TokensLeft, Burst: v.Burst, RetryAfter: v.RetryAfter}
}

// Wait is Check that waits instead of refusing: it returns as the request passes, or as ctx ends, or at once where the wait would end after the
// deadline of ctx, with an error that matches context.DeadlineExceeded and nothing taken. Those who wait for the same names in this process pass in
// the order in which they came, 10,000 at most (*OverloadedError); those of different processes compete. With a limit of burst 1 that is a leaky
// bucket: one token every 1/rate.
func (l *Limiter) Wait(ctx context.Context, r Request) error {
	_, err := l.inner.Wait(ctx, r)
	return told(err)
}

// ReserveWait is Reserve that waits as Wait does; without a Cost, for what is learned: at first for 1,000 tokens or the least burst.
func (l *Limiter) ReserveWait(ctx context.Context, r Request) (Reservation, error) {
	inner, err := l.inner.ReserveWait(ctx, r)
	return Reservation{inner}, told(err)
}

// Verdicts returns the limiter that answers with a limiter.Verdict, as package httplimit takes it. Close of l closes it.
func (l *Limiter) Verdicts() *limiter.Limiter { return l.inner }

// ErrReservationStands means that what a Reservation has cost can no longer be told: what was reserved counts.
var ErrReservationStands = limiter.ErrReservationStands

// Reservation is tokens that were taken for work whose cost is known only afterwards. The zero Reservation has nothing reserved.
type Reservation struct{ inner limiter.Reservation }

// Reserve takes the tokens of a request, all or none, for work whose cost is known only afterwards: Request.Cost is the estimate. Without
// one it is learned from what this Limiter was told of the tenant and its queue: nine in ten of the last 32 costs were not above it, at first it is
// 1,000 tokens, and it is never above the least burst on the way, so that no limit refuses it for good. Errors are those of Check. Commit tells the cost within Reservation.ExpireAfter, else what was reserved stands. It always asks Redis, and does not go by
// LimiterConfig.WithoutRedis.
func (l *Limiter) Reserve(ctx context.Context, r Request) (Reservation, error) {
	inner, err := l.inner.Reserve(ctx, r)
	return Reservation{inner}, told(err)
}

// Reserved returns how many tokens were, by the request or as learned.
func (r Reservation) Reserved() Tokens { return r.inner.Reserved() }

// ExpireAfter returns for how long after the reservation, or its latest CommitPart, its cost may be told: a minute, or what the policy in force as it was
// made says, reservations.expire_after or that of its queue. Then what was reserved stands, or more that a part has told.
func (r Reservation) ExpireAfter() time.Duration { return r.inner.ExpireAfter() }

// Commit tells what the work has cost, 0 to MaxActualCost tokens: what it did not need goes back to the limits, what it lacked is taken, up to
// one burst below zero. It counts once; after an error that is not ErrReservationStands nor a *FieldError the same call may be made again.
func (r Reservation) Commit(ctx context.Context, actual Tokens) error {
	return r.inner.Commit(ctx, actual)
}

// CommitPart tells how much work that goes on has used so far: of the whole, 0 to MaxActualCost tokens, not since the last call. It may be called any
// number of times, and again after any error: the greatest counts. What that is beyond what was reserved is taken at once, up to one burst below zero; the rest stays
// reserved until Commit or Cancel, for which there is ExpireAfter from the latest part on. Errors are those of Commit.
func (r Reservation) CommitPart(ctx context.Context, used Tokens) error {
	return r.inner.CommitPart(ctx, used)
}

// Cancel gives back what was reserved for work that did not begin; after CommitPart what that did not tell.
func (r Reservation) Cancel(ctx context.Context) error { return r.inner.Cancel(ctx) }

type (
	// Semaphore limits what is done at a time by all processes together, outside of jobs.
	Semaphore = limiter.Semaphore
	// Permits are held of a Semaphore until they are released.
	Permits = limiter.Permits
)

// ErrPermitsLost is the cause with which the context of Permits ends when their lease could not be extended in time.
var ErrPermitsLost = limiter.ErrPermitsLost

// Semaphore returns the semaphore of a name, "NAME" or "TENANT:NAME", of which the policy says how many permits there are. It asks Redis for
// nothing yet, and each of its calls waits LimiterConfig.Timeout for Redis.
func (l *Limiter) Semaphore(name string) *Semaphore { return l.inner.Semaphore(name) }

// LimiterStats is what a Limiter has counted since it was made. Admitted and Refused are checks that were answered by tokens on lease, by
// a denial that is remembered, or by Redis.
type LimiterStats struct {
	Admitted, Refused uint64
	// BlindAdmitted and BlindRefused are checks to which Redis gave no answer, so that LimiterConfig.WithoutRedis did; BlindTokens is the
	// cost of those that were admitted, which is owed to the limits.
	BlindAdmitted, BlindRefused uint64
	BlindTokens                 Tokens
	// Calls is how many calls to Redis were answered.
	Calls uint64
	// Leased is how many tokens were taken on lease, and Returned how many of them Close gave back; each scope on a way has its own.
	Leased, Returned Tokens
}

// Stats returns what was counted. It asks Redis for nothing.
func (l *Limiter) Stats() LimiterStats {
	counted := l.inner.Stats()
	s := LimiterStats{BlindTokens: counted.BlindTokens, Calls: counted.Calls, Leased: counted.Leased, Returned: counted.Returned}
	for _, c := range counted.Checks {
		if c.Admitted {
			s.Admitted += c.N
		} else {
			s.Refused += c.N
		}
	}
	for _, c := range counted.Blind {
		if c.Admitted {
			s.BlindAdmitted += c.N
		} else {
			s.BlindRefused += c.N
		}
	}
	return s
}

// Close gives back the tokens on lease, and stores what was counted, within the time that ctx has.
func (l *Limiter) Close(ctx context.Context) error {
	err := l.inner.Close(ctx)
	if err == nil {
		l.observed.left(l.inner)
	}
	return err
}
