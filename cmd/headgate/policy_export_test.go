package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/redistest"
)

// TestPolicyExportWritesEnvoysBuckets: so many of them together hold and get no more than the limit, at an interval that Envoy takes, and hardly less.
func TestPolicyExportWritesEnvoysBuckets(t *testing.T) {
	t.Parallel()
	on := []string{"--redis", redistest.Shared(t).Addr(), "--prefix", redistest.Prefix(t)}
	run := func(want int, args ...string) string {
		t.Helper()
		var out, notes bytes.Buffer
		if code := execute(t.Context(), append(args, on...), strings.NewReader(""), &out, &notes); code != want {
			t.Fatalf("%v: exit code %d: %s%s", args, code, out.String(), notes.String())
		}
		return out.String() + notes.String()
	}
	file := filepath.Join(t.TempDir(), "policy.json")
	must(t, os.WriteFile(file, []byte(`{"global": {"tokens": 1000, "per": "1s"}, "tenants": {
		"slow": {"limit": {"tokens": 7, "per": "1h", "burst": 3}}, "odd": {"limit": {"tokens": 333, "per": "10s", "burst": 40}}, "fast": {"limit": {"tokens": 123457, "per": "1s", "burst": 10}},
		"daily": {"limit": {"algorithm": "fixed_window", "tokens": 5, "window": "24h"}}}}`), 0o600))
	run(0, "policy", "set", file)
	for scope, limit := range map[string]struct {
		rate  float64
		burst int64
	}{"global": {1000, 1000}, "slow": {7.0 / 3600, 3}, "odd": {33.3, 40}, "fast": {123457, 10}} {
		for _, envoys := range []int64{1, 3} {
			var filter struct {
				Name   string `yaml:"name"`
				Config struct {
					Type   string `yaml:"@type"`
					Bucket struct {
						Max      int64  `yaml:"max_tokens"`
						Fill     int64  `yaml:"tokens_per_fill"`
						Interval string `yaml:"fill_interval"`
					} `yaml:"token_bucket"`
				} `yaml:"typed_config"`
			}
			text := run(0, "policy", "export", "envoy", "--scope", scope, "--envoys", strconv.FormatInt(envoys, 10))
			must(t, yaml.Unmarshal([]byte(text), &filter))
			bucket := filter.Config.Bucket
			interval, err := time.ParseDuration(bucket.Interval)
			must(t, err)
			rate := float64(envoys*bucket.Fill) / interval.Seconds()
			if filter.Name != "envoy.filters.http.local_ratelimit" || envoys*bucket.Max > limit.burst || bucket.Max != limit.burst/envoys || interval < 50*time.Millisecond ||
				rate > limit.rate*(1+1e-12) || rate < limit.rate*(1-1e-6) {
				t.Errorf("%s of %d: %+v, which is %g a second", scope, envoys, bucket, rate)
			}
		}
	}
	for _, row := range []struct {
		code int
		want string
		args []string
	}{
		{1, "no limit in force", []string{"--scope", "nobody:mail"}},
		{1, "fixed_window", []string{"--scope", "daily"}},
		{1, "less than one for each of 4", []string{"--scope", "slow", "--envoys", "4"}},
		{2, "--envoys", []string{"--scope", "slow", "--envoys", "0"}},
		{2, "--scope", nil},
		{2, "scope", []string{"--scope", "a:b:c:d"}},
	} {
		if said := run(row.code, append([]string{"policy", "export", "envoy"}, row.args...)...); !strings.Contains(said, row.want) {
			t.Errorf("%v: %q", row.args, said)
		}
	}
	if said := run(2, "policy", "export", "nginx", "--scope", "slow"); !strings.Contains(said, "envoy") {
		t.Error(said)
	}
}
