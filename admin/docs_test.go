package admin_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/admin"
)

// TestTheAPIsPageIsWhole: docs/API.md names every path and every metric.
func TestTheAPIsPageIsWhole(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	p := newPlant(t, func(c *admin.Config) { c.Registry = registry })
	p.enqueue("acme", "one")
	p.work(t.Context(), 1, "")
	p.want(200, "operator", ask{op: "POST /api/v1/rate-limit/check", body: `{"scope":"acme"}`})
	page, err := os.ReadFile("../docs/API.md")
	must(t, err)
	text := strings.ReplaceAll(string(page), "\n", " ")
	for path := range p.spec.Paths.Map() {
		if !strings.Contains(text, path) {
			t.Errorf("docs/API.md does not name %s", path)
		}
	}
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		if !strings.Contains(text, family.GetName()) {
			t.Errorf("docs/API.md does not name %s", family.GetName())
		}
	}
}

// papers is what the design papers name: endpoints, metrics and stores.
const papers = `/check /acquire /release /status /queue/{id} /enqueue /dequeue /clear /circuit-breaker/{id} /open /close /reset
/policies /policies/{id} /policies/{key} /rules /rules/{id} /health /metrics /config/{scope} /metrics/{scope} /status/{scope} /debug/{scope}
/admin/status /admin/metrics /admin/metrics/{key} /admin/reset/{key} /admin/policies /admin/policies/{key}
rate_limit_requests_total rate_limit_tokens_consumed_total rate_limit_config_changes_total rate_limit_decision_duration_seconds
rate_limit_wait_time_seconds rate_limit_tokens_remaining rate_limit_active_buckets rate_limit_bucket_utilization rate_limit_redis_connections
throttle_requests_total throttle_queued_requests throttle_queue_depth throttle_queue_wait_time_seconds throttle_rejected_requests_total
circuit_breaker_state circuit_breaker_transitions_total _failures_total _successes_total backpressure_ system_ concurrent_requests
concurrent_limit concurrent_requests_rejected_total throttlex_allowed_total throttlex_blocked_total throttlex_latency_ms throttlex_tokens_remaining
rl:bucket:{scope} rl:config:{scope} rl:metrics:{scope}:{timestamp} rl:global:config rl:global:defaults throttlex_usage throttlex_sw_log
throttlex_policy ThrottlePolicies CircuitBreakers throttle:request:{id} throttle:queue:{id}:p0 throttle:queue:{id}:meta
throttle:metrics:{service}:current throttle:concurrent`

// TestThePapersAreMapped: docs/API.md has each in a row.
func TestThePapersAreMapped(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/API.md")
	must(t, err)
	var rows []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| ") {
			paper, _, _ := strings.Cut(line[2:], " | ")
			rows = append(rows, paper)
		}
	}
	all := strings.Join(rows, "\n")
	for name := range strings.FieldsSeq(papers) {
		if !strings.Contains(all, name) {
			t.Errorf("docs/API.md has no row for %s of the papers", name)
		}
	}
}

var apiPath = regexp.MustCompile(`(?:\b(GET|PUT|POST|DELETE|PATCH)(?: of)? ` + "`?" + `)?(/api/v1/[A-Za-z0-9_{}/%.-]*[A-Za-z0-9_}])`)

// TestPagesNameEndpointsThatThereAre: each path of the API that a page or an alert names is one, by the method that it says.
func TestPagesNameEndpointsThatThereAre(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	pages, err := filepath.Glob("../docs/*.md")
	must(t, err)
	below, err := filepath.Glob("../docs/*/*.md")
	must(t, err)
	pages = append(pages, below...)
	found := 0
	for _, name := range append(pages, "../README.md", "../deploy/rules/headgate.yml") {
		text, err := os.ReadFile(name)
		must(t, err)
		for _, match := range apiPath.FindAllStringSubmatch(string(text), -1) {
			found++
			if !slices.ContainsFunc(slices.Collect(maps.Keys(p.spec.Paths.Map())), func(path string) bool {
				return fits(path, match[2]) && (match[1] == "" || p.spec.Paths.Value(path).GetOperation(match[1]) != nil)
			}) {
				t.Errorf("%s: there is no %s %s", filepath.Base(name), match[1], match[2])
			}
		}
	}
	if found < 70 {
		t.Errorf("%d paths were found", found)
	}
}

// fits reports whether a path is one of a template, in which anything stands for a name in braces.
func fits(template, path string) bool {
	want, have := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if !strings.HasPrefix(want[i], "{") && want[i] != have[i] {
			return false
		}
	}
	return true
}
