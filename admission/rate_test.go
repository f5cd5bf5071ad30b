package admission

import (
	"testing"
	"time"
)

func TestRatesAreReadable(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for want, limit := range map[string]Limit{
		"1 job a second":           {Tokens: 1, Per: time.Second},
		"2.5 jobs a second":        {Tokens: 5, Per: 2 * time.Second},
		"123457 jobs a second":     {Tokens: 1_234_567, Per: 10 * time.Second},
		"30 jobs a minute":         {Tokens: 1, Per: 2 * time.Second},
		"59.4 jobs a minute":       {Tokens: 99, Per: 100 * time.Second},
		"40 jobs an hour":          {Tokens: 1, Per: 90 * time.Second},
		"1 job an hour":            {Tokens: 1, Per: time.Hour},
		"1 job a day":              {Tokens: 1, Per: day},
		"0.0323 jobs a day":        {Tokens: 1, Per: MaxLimitPer},
		"1000000000 jobs a second": {Tokens: MaxLimitTokens, Per: time.Second},
		"0 jobs a day":             {Per: time.Second},
	} {
		if got := limit.Rate().Words("job"); got != want {
			t.Errorf("%d in %s is %q, want %q", limit.Tokens, limit.Per, got, want)
		}
	}
	// As an operator reads it from Redis, with as many digits as it is stored with.
	if got := TokensPerSecond(1.157e-05).Words("job"); got != "1 job a day" {
		t.Errorf("got %q", got)
	}
	for want, limit := range map[string]Limit{
		"100 tokens a second": PerSecond(100).WithBurst(1), "1 token a minute": {Tokens: 1, Per: time.Minute}, "2 tokens an hour": {Tokens: 2, Per: time.Hour},
		"10 tokens a day": {Tokens: 10, Per: day}, "7 tokens in 1m30s": {Tokens: 7, Per: 90 * time.Second},
	} {
		if got := limit.Words(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestALimitHoldsWhatComesInASecondUnlessItSaysMore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ got, want Limit }{
		"a second":                {PerSecond(200), Limit{Tokens: 200, Per: time.Second, Burst: 200}},
		"a minute, rounded up":    {PerMinute(500), Limit{Tokens: 500, Per: time.Minute, Burst: 9}},
		"a minute, even":          {PerMinute(600), Limit{Tokens: 600, Per: time.Minute, Burst: 10}},
		"an hour, one at least":   {PerHour(10), Limit{Tokens: 10, Per: time.Hour, Burst: 1}},
		"another burst":           {PerMinute(500).WithBurst(100), Limit{Tokens: 500, Per: time.Minute, Burst: 100}},
		"as 0.1 wrote it":         {PerSecond(200, 50), Limit{Tokens: 200, Per: time.Second, Burst: 50}},
		"no more than may be had": {PerSecond(MaxLimitTokens), Limit{Tokens: MaxLimitTokens, Per: time.Second, Burst: MaxLimitTokens}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
		if err := c.got.Validate("limit"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := (Limit{Tokens: 1e9, Per: time.Millisecond}).DefaultBurst(); got != MaxLimitTokens {
		t.Errorf("a limit of 1e12 a second holds %d", got)
	}
}
