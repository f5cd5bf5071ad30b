package gauge

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/guard"
)

// TestFiguresAreThoseOfTheCalls: whatever was called when, the figures since the start, of the last five minutes and of the last minute
// are what a list of all calls says; percentiles within a hundredth.
func TestFiguresAreThoseOfTheCalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		began := time.Unix(1_700_000_010, 0) // It begins a slice.
		c := newCalls(began)
		type one struct {
			at     time.Time
			status int
			took   time.Duration
		}
		var all []one
		at := began
		for range rapid.IntRange(0, 60).Draw(t, "calls") {
			at = at.Add(rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, 29 * time.Second, 31 * time.Second, 170 * time.Second}).Draw(t, "pause"))
			o := one{at, rapid.SampledFrom([]int{200, 200, 204, 400, 401, 404, 429, 500, 503, 504}).Draw(t, "status"), time.Duration(rapid.Int64Range(1000, int64(time.Minute)).Draw(t, "took"))}
			c.note(o.at, o.status, o.took)
			all = append(all, o)
		}
		now := at.Add(time.Duration(rapid.Int64Range(0, int64(8*time.Minute)).Draw(t, "then")))
		got := c.told(now)
		check := func(what string, p Performance, calls []one, lasted time.Duration) {
			failed, sum := int64(0), time.Duration(0)
			var took []time.Duration
			for _, o := range calls {
				if o.status == 500 || o.status == 504 {
					failed++
				}
				sum, took = sum+o.took.Truncate(time.Microsecond), append(took, o.took)
			}
			n := int64(len(calls))
			if p.Total != n || p.Failed != failed || p.Successful != n-failed || math.Abs(p.PerSecond-float64(n)/max(lasted.Seconds(), 1)) > 1e-9 {
				t.Fatalf("%s: %+v of %d calls, %d failed, in %v", what, p, n, failed, lasted)
			}
			if n == 0 {
				if p.Average != nil || p.P99 != nil {
					t.Fatalf("%s: %+v of none", what, p)
				}
				return
			}
			slices.Sort(took)
			for percentile, told := range map[float64]*float64{50: p.P50, 95: p.P95, 99: p.P99} {
				want := float64(took[max(int(percentile/100*float64(n)+.5)-1, 0)].Microseconds()) / 1e3
				if math.Abs(*told-want) > want/100+.002 {
					t.Fatalf("%s: percentile %v is %v, want %v", what, percentile, *told, want)
				}
			}
			if want := float64(sum.Microseconds()) / 1e3 / float64(n); math.Abs(*p.Average-want) > 1e-6*want {
				t.Fatalf("%s: mean %v, want %v", what, *p.Average, want)
			}
		}
		check("since the start", got.since, all, now.Sub(began))
		first := now.Truncate(30 * time.Second).Add(-Recent)
		if began.After(first) {
			first = began
		}
		var recent []one
		minute, rejected, invalid := int64(0), int64(0), int64(0)
		for _, o := range all {
			if !o.at.Before(first) {
				recent = append(recent, o)
			}
			if o.at.Unix() > now.Unix()-60 {
				minute++
			}
			switch o.status {
			case 401, 429, 503:
				rejected++
			case 400:
				invalid++
			}
		}
		check("lately", got.recent, recent, now.Sub(first))
		if got.minute != minute || got.rejected != rejected || got.invalid != invalid {
			t.Fatalf("%d of a minute, %d rejected, %d invalid: %+v", minute, rejected, invalid, got)
		}
	})
}

// steps is a sampler that goes through samples, and fails where there is none.
type steps []guard.Sample

func (s *steps) Sample(time.Time) (guard.Sample, error) {
	if len(*s) == 0 {
		return guard.Sample{}, errors.New("nothing there")
	}
	one := (*s)[0]
	*s = (*s)[1:]
	return one, nil
}

// TestASummaryHasPeaks, with the figures of the last five minutes, and is not written where a guard writes its own; what the guard found is
// in the answer.
func TestASummaryHasPeaks(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	samples := steps{{Memory: 100 << 20, CPU: .5}, {Memory: 300 << 20, CPU: 1.25}, {Memory: 200 << 20, CPU: .25}}
	var log bytes.Buffer
	config := StatsConfig{
		Logger: zerolog.New(&log), Version: "v1", Sampler: &samples, UnderWay: func() int { return 3 },
		Connections: func() Connections { return Connections{Total: 9, Active: 4, Stale: 1, TurnedAway: 2} },
	}
	s := NewStats(config, now)
	if v := s.View(now); v.Resources.Memory != nil {
		t.Errorf("before it was measured: %+v", v.Resources)
	}
	for range 4 { // The last cannot be measured.
		s.look(now)
	}
	s.calls.note(now, http.StatusInternalServerError, time.Millisecond)
	s.calls.note(now, http.StatusTooManyRequests, time.Millisecond)
	s.Changed(guard.Change{Reading: guard.Reading{Kind: guard.Memory, Value: 300 << 20, Limit: 200 << 20}, To: guard.Violation})
	s.Changed(guard.Change{Reading: guard.Reading{Kind: guard.CPU, Value: .9, Limit: 1}, To: guard.Warning})
	v := s.View(now.Add(90 * time.Second))
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"daemon_info":{"version":"v1","uptime_seconds":90,"uptime_formatted":"1m30s"}`,
		`"memory_mb":200,"cpu_percent":25,"peak_memory_mb":300,"peak_cpu_percent":125,"requests_per_minute":0,"concurrent_requests":3`,
		`"violations":["memory usage 300.0MB exceeds limit 200.0MB"],"warnings":["cpu usage 90.0% approaches limit 100.0%"]`,
		`"total_requests":2,"successful_requests":1,"failed_requests":1`,
		`"total_security_events":3,"validation_failures":0,"requests_rejected":1`, `"total":9,"active":4,"stale":1`,
	} {
		if !strings.Contains(string(text), part) {
			t.Errorf("no %s in %s", part, text)
		}
	}
	s.summarize(now)
	for _, part := range []string{`"level":"info"`, `"memory_mb":200`, `"peak_memory_mb":300`, `"peak_cpu_percent":125`, `"requests":2`, `"failed":1`, "resource summary"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("no %s in %s", part, log.String())
		}
	}
	log.Reset()
	s.config.Guarded = true
	if s.summarize(now); log.Len() > 0 {
		t.Errorf("beside a guard's: %s", log.String())
	}
}
