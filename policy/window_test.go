package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

// TestALimitOfFixedWindows is read, checked, written and compared as any other.
func TestALimitOfFixedWindows(t *testing.T) {
	t.Parallel()
	p, err := Unmarshal([]byte(`{"tenants": {"acme": {"limit": {"algorithm": "fixed_window", "tokens": 1000, "window": "24h", "anchor": "00:00", "zone": "Europe/Berlin"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want, err := admission.FixedWindow(1000, "24h", "", "Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if got := *p.Tenants["acme"].Limit; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if p.LongestFill() != 48*time.Hour {
		t.Errorf("buckets are kept for %s", p.LongestFill())
	}
	text, err := Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	const written = `"algorithm":"fixed_window","tokens":1000,"window":"24h","anchor":"00:00","zone":"Europe/Berlin"`
	if !strings.Contains(strings.NewReplacer(" ", "", "\n", "").Replace(string(text)), written) {
		t.Errorf("%s", text)
	}
	again, err := Unmarshal(text)
	if err != nil || *again.Tenants["acme"].Limit != want {
		t.Errorf("%+v, %v", again.Tenants["acme"].Limit, err)
	}
	compiled, err := p.Prepare()
	if err != nil || compiled.LimitsFor("acme", "", "")[admission.LevelTenant] != want {
		t.Errorf("%v", err)
	}
}

// TestALimitOfSlidingWindows is read, checked, written and compared as any other.
func TestALimitOfSlidingWindows(t *testing.T) {
	t.Parallel()
	for algorithm, window := range map[string]func(admission.Tokens, string) (admission.Limit, error){SlidingWindow: admission.SlidingWindow, SlidingLog: admission.SlidingLog} {
		p, err := Unmarshal([]byte(`{"tenants": {"acme": {"limit": {"algorithm": "` + algorithm + `", "tokens": 1000, "window": "60s"}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		want, err := window(1000, "1m")
		if err != nil {
			t.Fatal(err)
		}
		if got := *p.Tenants["acme"].Limit; got != want || AlgorithmOf(got) != algorithm {
			t.Errorf("%+v, want %+v", got, want)
		}
		text, err := Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		written := `{"algorithm":"` + algorithm + `","tokens":1000,"window":"1m"}`
		if !strings.Contains(strings.NewReplacer(" ", "", "\n", "").Replace(string(text)), written) {
			t.Errorf("%s", text)
		}
	}
}

// TestALeakyBucketIsATokenBucketOfBurstOne, or of the largest cost that it says, and is written as one; a dispatch may be one.
func TestALeakyBucketIsATokenBucketOfBurstOne(t *testing.T) {
	t.Parallel()
	p, err := Unmarshal([]byte(`{"global": {"algorithm": "leaky_bucket", "tokens": 500, "per": "1s", "burst": 8},
		"tenants": {"acme": {"limit": {"algorithm": "leaky_bucket", "rate_per_second": 100}}},
		"downstreams": {"smtp": {"dispatch": {"algorithm": "leaky_bucket", "tokens": 50, "per": "1s"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := admission.PerSecond(100).WithBurst(1)
	if got := *p.Tenants["acme"].Limit; got != want || p.Global.Burst != 8 || *p.Downstreams["smtp"].Dispatch != admission.PerSecond(50).WithBurst(1) {
		t.Errorf("%+v, %+v, %+v", got, p.Global, p.Downstreams["smtp"].Dispatch)
	}
	text, err := Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Unmarshal(text)
	if err != nil || strings.Contains(string(text), LeakyBucket) || *again.Tenants["acme"].Limit != want {
		t.Errorf("%s, %v", text, err)
	}
}

// TestEachBadValueOfAWindowIsOneError that names field, value and range.
func TestEachBadValueOfAWindowIsOneError(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{
		`"algorithm": "leaky", "tokens": 5, "per": "1s"`:                                    `invalid global.algorithm "leaky": allowed is "token_bucket", "fixed_window", "sliding_window", "sliding_log", "leaky_bucket"`,
		`"algorithm": "fixed_window", "tokens": 5`:                                          `invalid global.window "": allowed is 1s to 744h0m0s in whole seconds, or "month"`,
		`"algorithm": "fixed_window", "tokens": 5, "window": "day"`:                         `invalid global.window "day": allowed is 1s to 744h0m0s in whole seconds, or "month"`,
		`"algorithm": "fixed_window", "tokens": 5, "window": "900h"`:                        `invalid global.window "900h": allowed is 1s to 744h0m0s in whole seconds, or "month"`,
		`"algorithm": "fixed_window", "tokens": 5, "window": "24h", "anchor": "24:00"`:      `invalid global.anchor "24:00": allowed is a time of day from "00:00" to "23:59"`,
		`"algorithm": "fixed_window", "tokens": 5, "window": "24h", "anchor": ""`:           `invalid global.anchor "": allowed is some text; left out, a fixed window begins at midnight in UTC`,
		`"algorithm": "fixed_window", "tokens": 5, "window": "24h", "zone": "Berlin"`:       `invalid global.zone "Berlin": allowed is a zone of the IANA database such as "Europe/Berlin", or UTC`,
		`"algorithm": "fixed_window", "tokens": 5, "window": "1h", "zone": "Europe/Berlin"`: `invalid global.zone "Europe/Berlin": allowed is UTC, or a window of whole days or a month: 1h0m0s is none`,
		`"algorithm": "fixed_window", "window": "1h"`:                                       `invalid global.tokens 0: allowed is 1 to 1000000000 tokens`,
		`"algorithm": "fixed_window", "tokens": 2000000000, "window": "1h"`:                 `invalid global.tokens 2000000000: allowed is 1 to 1000000000 tokens`,
		`"algorithm": "fixed_window", "tokens": 5, "window": "1h", "burst": 5`:              `invalid global.burst 5: allowed is none with "algorithm": "fixed_window", which has "tokens" in each "window"`,
		`"algorithm": "fixed_window", "tokens": 5, "window": "1h", "per": "1h"`:             `invalid global.per "1h": allowed is none with "algorithm": "fixed_window", which has "tokens" in each "window"`,
		`"algorithm": "fixed_window", "tokens": 5, "window": "1h", "rate_per_second": 5`:    `invalid global.rate_per_second 5: allowed is none with "algorithm": "fixed_window", which has "tokens" in each "window"`,
		`"algorithm": "fixed_window", "tokens": 5, "window": "1h", "burst_capacity": 5`:     `invalid global.burst_capacity 5: allowed is none with "algorithm": "fixed_window", which has "tokens" in each "window"`,
		`"tokens": 5, "per": "1s", "window": "1h"`:                                          `invalid global.window "1h": allowed is none, unless "algorithm" is "fixed_window" or "sliding_window" or "sliding_log"`,
		`"algorithm": "sliding_window", "tokens": 5`:                                        `invalid global.window "": allowed is 1s to 744h0m0s in whole seconds`,
		`"algorithm": "sliding_window", "tokens": 5, "window": "month"`:                     `invalid global.window "month": allowed is 1s to 744h0m0s in whole seconds`,
		`"algorithm": "sliding_window", "tokens": 5, "window": "1500ms"`:                    `invalid global.window "1500ms": allowed is 1s to 744h0m0s in whole seconds`,
		`"algorithm": "sliding_window", "tokens": 5, "window": "1h", "anchor": "06:00"`:     `invalid global.anchor "06:00": allowed is none with "algorithm": "sliding_window", whose windows begin at no time`,
		`"algorithm": "sliding_log", "tokens": 5, "window": "1h", "zone": "UTC"`:            `invalid global.zone "UTC": allowed is none with "algorithm": "sliding_log", whose windows begin at no time`,
		`"algorithm": "sliding_log", "tokens": 5, "window": "1h", "burst": 5`:               `invalid global.burst 5: allowed is none with "algorithm": "sliding_log", which has "tokens" in each "window"`,
		`"algorithm": "sliding_log", "tokens": 1001, "window": "1h"`:                        `invalid global.tokens 1001: allowed is 1 to 1000 of a sliding log, which keeps 11 bytes of each: 11 kB a bucket; a sliding_window has no such bound`,
		`"algorithm": "leaky_bucket", "tokens": 5, "window": "1h"`:                          `invalid global.window "1h": allowed is none, unless "algorithm" is "fixed_window" or "sliding_window" or "sliding_log"`,
		`"tokens": 5, "per": "1s", "anchor": "06:00"`:                                       `invalid global.anchor "06:00": allowed is none, unless "algorithm" is "fixed_window"`,
		`"algorithm": "token_bucket", "tokens": 5, "per": "1s", "zone": "UTC"`:              `invalid global.zone "UTC": allowed is none, unless "algorithm" is "fixed_window"`,
	} {
		_, err := Unmarshal([]byte(`{"global": {` + limit + `}}`))
		if err == nil || !strings.HasSuffix(err.Error(), want) || strings.Count(err.Error(), "allowed is ") != 1 {
			t.Errorf("%s:\n%v, want\n%s", limit, err, want)
		}
	}
	for _, dispatch := range []string{`{"tenants": {"acme": {"dispatch": %}}}`, `{"downstreams": {"smtp": {"dispatch": %}}}`} {
		text := strings.Replace(dispatch, "%", `{"algorithm": "fixed_window", "tokens": 5, "window": "24h"}`, 1)
		if _, err := Unmarshal([]byte(text)); err == nil || !strings.Contains(err.Error(), `dispatch.algorithm "fixed_window": allowed is "token_bucket"`) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
