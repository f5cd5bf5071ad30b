package codec

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// ParseClocks reads the fields t and bt of the state: the breakers' clock, and by how much it is ahead of that of Redis.
func ParseClocks(fields []any) (clock, ahead int64, err error) {
	n, err := ParseNumbers(cmp.Or(redisconn.TextAt(fields, 0), "0") + " " + cmp.Or(redisconn.TextAt(fields, 1), "0"))
	if err == nil && len(n) != 2 {
		err = ErrBreakerText
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
	MetaEpoch
	metaPassed
	metaSlow
	metaRamp
	metaTrips
	metaRow
	MetaHeard
	metaConfirmed
	metaWorkers
	metaBegun
	metaDoubt
	MetaSize
)

// ErrBreakerText is a text of a breaker that no release wrote.
var ErrBreakerText = errors.New("what is stored cannot be read")

// ParseMeta reads what the text m of a breaker says.
func ParseMeta(text string, ahead int64) (b store.BreakerState, m []int64, err error) {
	m, err = ParseNumbers(strings.ReplaceAll(text, "|", " "))
	if err != nil {
		return store.BreakerState{}, nil, err
	}
	if len(m) != MetaSize || m[metaRamp] < 0 || m[metaRamp] > breaker.RampSteps {
		return store.BreakerState{}, nil, ErrBreakerText
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

// The places in the text x of fragments/breaker.lua.
const (
	ExtraOrigin = iota
	ExtraVersion
	extraTried
	extraFailer
	extraFailed
	extraPasser
	extraPasserToo
	extraCalls
	extraFailures
	extraRan
	ExtraFailedAt
	ExtraWays
	ExtraSize = ExtraWays + 9
)

// ParseExtra reads the text x of a breaker. One that an older release made has none.
func ParseExtra(text string) (x []int64, err error) {
	if text == "" {
		return nil, nil
	}
	if x, err = ParseNumbers(strings.ReplaceAll(text, "|", " ")); err == nil && len(x) < ExtraSize {
		err = ErrBreakerText
	}
	return x, err
}

// LifeCalls returns what a breaker's x counts of calls.
func LifeCalls(x []int64) (calls, failures int64, ran time.Duration) {
	if x == nil {
		return 0, 0, 0
	}
	return x[extraCalls], x[extraFailures], time.Duration(x[extraRan]) * time.Microsecond
}
