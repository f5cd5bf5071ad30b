package httplimit

import (
	"errors"
	"math/bits"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/limitheader"
	"github.com/headgate/headgate/limiter"
)

// toldKey is what the headers of an admitted request follow from.
type toldKey struct {
	kind        string // admission.Scope.Kind
	rate        admission.TokensPerSecond
	burst, left admission.Tokens
}

// told is the headers' values, each in a slice that has no room for more, so that the answers they stand in may share them.
type told struct {
	policy, limit, burst, remaining, reset []string
	untilFull                              time.Duration
}

func one(value string) []string { return []string{value} }

func (k *toldKey) text(window admission.Window, retryAfter time.Duration) *told {
	bucket := limitheader.Bucket{Name: k.kind, Rate: k.rate, Burst: k.burst, Left: float64(k.left), Window: window}
	full := bucket.UntilFull()
	return &told{
		policy: one(bucket.Policy()), limit: one(bucket.Limit(retryAfter)),
		burst: one(strconv.FormatInt(int64(k.burst), 10)), remaining: one(strconv.FormatInt(bucket.Remaining(), 10)),
		reset: one(strconv.FormatInt(limitheader.Seconds(full), 10)), untilFull: full,
	}
}

// tell sets the headers that tell of the tightest limit, if there is one to be told.
func (m *Middleware) tell(w http.ResponseWriter, verdict limiter.Verdict, retryAfter time.Duration) {
	c := &m.config
	if c.Shadow || verdict.Rate == 0 || c.NoRateLimit && c.XRateLimit == "" {
		return
	}
	if verdict.Scope == admission.Global && c.Tenant != nil {
		return
	}
	key := toldKey{verdict.Scope.Kind(), verdict.Rate, verdict.Burst, verdict.TokensLeft}
	if verdict.Source == limiter.Leased {
		key.left = coarse(key.left)
	}
	var t *told
	if !verdict.Window.IsZero() { // Its text changes with the time.
		t = key.text(verdict.Window, retryAfter)
	} else if known, ok := m.told.get(key); ok && retryAfter == 0 {
		t = known
	} else if t = key.text(admission.Window{}, retryAfter); retryAfter == 0 {
		m.told.put(key, t)
	}
	header := w.Header()
	if !c.NoRateLimit {
		header[limitheader.PolicyField], header[limitheader.LimitField] = t.policy, t.limit
	}
	if c.XRateLimit == "" {
		return
	}
	header[limitheader.OldLimitField], header[limitheader.OldRemainingField] = t.burst, t.remaining
	header[limitheader.OldResetField] = t.reset
	if c.XRateLimit == ResetEpoch {
		full := time.Now().Add(t.untilFull + time.Second - 1)
		header[limitheader.OldResetField] = one(strconv.FormatInt(full.Unix(), 10))
	}
}

// coarse rounds a lower bound down to its first six binary digits, so that there are few texts of it.
func coarse(left admission.Tokens) admission.Tokens {
	if left <= 0 {
		return 0
	}
	below := max(0, bits.Len64(uint64(left))-6)
	return left >> below << below
}

// isInvalid reports an error of names or costs.
func isInvalid(err error) bool {
	_, ok := errors.AsType[*admission.FieldError](err)
	return ok
}
