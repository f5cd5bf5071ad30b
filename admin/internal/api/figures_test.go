package api

import (
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// TestTheSummaryIsOfTheTightestBucket: of the one that refused, else of the one that holds least.
func TestTheSummaryIsOfTheTightestBucket(t *testing.T) {
	t.Parallel()
	buckets := []bucketView{{Scope: "global", TokensLeft: 7, Burst: 70}, {Scope: "acme", TokensLeft: 3, Burst: 30}, {Scope: "acme:mail", TokensLeft: 5, Burst: 50}}
	for _, row := range []struct {
		answer answerView
		left   float64
		code   string
	}{
		{answerView{Scope: "acme:mail", Allowed: true, Buckets: buckets}, 3, ""},
		{answerView{Scope: "acme:mail", RefusedBy: "acme:mail", Buckets: buckets}, 5, codeExceeded},
		{answerView{Scope: "acme:mail", RefusedBy: "global", Buckets: buckets}, 7, codeExceeded},
	} {
		s := summaryOf(&decisionView{Answers: []answerView{row.answer}}, time.Second)
		if s.TokensRemaining == nil || *s.TokensRemaining != row.left || s.WaitTimeMs != 1000 || (s.Error != nil) != (row.code != "") {
			t.Errorf("%+v: %+v", row.answer, s)
		}
	}
	if s := summaryOf(&decisionView{Answers: []answerView{{Scope: "acme", Allowed: true}}}, 0); s.TokensRemaining != nil || s.Capacity != 0 || s.Error != nil {
		t.Errorf("without a limit: %+v", s)
	}
}

// TestRatesAreOfTheLastMinutes: of what is older nothing counts, and the time is that since the first of them.
func TestRatesAreOfTheLastMinutes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 30, 0, time.UTC)
	minute := func(ago int, allowed, refused int64) store.Minute {
		return store.Minute{At: now.Truncate(time.Minute).Add(-time.Duration(ago) * time.Minute), Allowed: allowed, Refused: refused, Tokens: 9}
	}
	v := figuresOf([]store.Minute{minute(30, 1e6, 0), minute(5, 1e6, 0), minute(1, 80, 10)}, now, 250)
	if v.RequestsPerSecond != 1 || v.AllowedPerSecond != .9 || v.DeniedPerSecond != .1 || v.AverageTokens != .1 || v.P50 != 0 || v.P95 != 250 || v.P99 != 250 {
		t.Errorf("%+v", v)
	}
	if v := figuresOf([]store.Minute{minute(30, 1e6, 1e6)}, now, 250); v != (figuresView{}) {
		t.Errorf("of an hour ago: %+v", v)
	}
}
