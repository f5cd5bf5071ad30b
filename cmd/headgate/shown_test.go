package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/telemetry"
)

// deployFolder is the folder of what is deployed beside the binary.
const deployFolder = "../../deploy"

// promtool runs Prometheus's own checker, which must find no fault.
func promtool(t *testing.T, input string, args ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs promtool")
	}
	name, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is missing: apt-get install prometheus (Mac: brew install prometheus), or run make deps as root")
	}
	command := exec.CommandContext(t.Context(), name, args...) //nolint:gosec // What is run is promtool.
	command.Stdin = strings.NewReader(input)
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolPassesTheRules(t *testing.T) {
	t.Parallel()
	promtool(t, "", "check", "rules", filepath.Join(deployFolder, "rules", "headgate.yml"))
	promtool(t, "", "check", "config", "--syntax-only", filepath.Join(deployFolder, "prometheus.yml"))
	promtool(t, "", "test", "rules", filepath.Join(deployFolder, "rules", "tests", "headgate.yml"))
}

// ruleFile is what is looked at of a file of rules.
type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Record string `yaml:"record,omitempty"`
	Alert  string `yaml:"alert,omitempty"`
	Expr   string `yaml:"expr"`
}

func readRules(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployFolder, "rules", "headgate.yml"))
	must(t, err)
	var file ruleFile
	must(t, yaml.Unmarshal(text, &file))
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// readDashboard returns the queries of the dashboard, each as it is once Grafana has put in its variables.
func readDashboard(t *testing.T) (queries []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployFolder, "grafana", "dashboards", "headgate.json"))
	must(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(text, &dashboard))
	variables := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$queue", ".*")
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, variables.Replace(target.Expr))
		}
	}
	return queries
}

func TestTheDashboardsQueriesParse(t *testing.T) {
	t.Parallel()
	queries := readDashboard(t)
	if len(queries) < 20 {
		t.Fatalf("found %d queries", len(queries))
	}
	group := ruleGroup{Name: "dashboard"}
	for i, query := range queries {
		group.Rules = append(group.Rules, rule{Record: "dashboard:query:" + strconv.Itoa(i), Expr: query})
	}
	text, err := yaml.Marshal(ruleFile{Groups: []ruleGroup{group}})
	must(t, err)
	name := filepath.Join(t.TempDir(), "dashboard.yml")
	must(t, os.WriteFile(name, text, 0o600))
	promtool(t, "", "check", "rules", name)
}

var (
	notMetrics = regexp.MustCompile(`"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(by|without|on|ignoring) *\([^)]*\)|[a-z_0-9]+ *\(`)
	aMetric    = regexp.MustCompile(`[a-z][a-z0-9_:]*[_:][a-z0-9_:]+`)
)

// metricsIn returns the names of the metrics that a query reads. All of ours hold a '_' or a ':', no keyword does.
func metricsIn(query string) []string {
	return aMetric.FindAllString(notMetrics.ReplaceAllString(query, " "), -1)
}

func TestMetricsInFindsThem(t *testing.T) {
	t.Parallel()
	got := metricsIn(`topk(10, sum by (queue_id, le) (rate(a_total{route="/x_y",le=~"b_c"}[5m]))) unless on (queue_id) (d:e_f > 0) or max (g_h) / 2`)
	if !slices.Equal(got, []string{"a_total", "d:e_f", "g_h"}) {
		t.Errorf("found %q", got)
	}
}

// addressOf starts a command and returns the address that its log names.
func addressOf(d *deployment, args ...string) string {
	d.t.Helper()
	read, written := io.Pipe()
	d.start(written, args[0], args[1:]...)
	log := bufio.NewScanner(read)
	var line struct{ Address string }
	for line.Address == "" && log.Scan() {
		must(d.t, json.Unmarshal(log.Bytes(), &line))
	}
	go func() {
		for log.Scan() { // What is logged must be read for the process to go on.
		}
	}()
	return line.Address
}

// call makes a call that must be answered with a status, and returns the answer.
func call(t *testing.T, method, url, body string, status int) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	answer, err := io.ReadAll(response.Body)
	must(t, errors.Join(err, response.Body.Close()))
	if response.StatusCode != status {
		t.Fatalf("%s %s: %d %s", method, url, response.StatusCode, answer)
	}
	return string(answer)
}

// scrape returns /metrics of a server and of a worker in whose deployment everything has happened that has a metric.
func scrape(t *testing.T) (ofServer, ofWorker string) {
	t.Helper()
	d := newDeployment(t)
	d.limit()
	server := addressOf(d, "serve", "--address", "127.0.0.1:0", "--insecure-no-auth", "--set", "guard.max_goroutines=1000000", "--set", "guard.interval=100ms")
	for _, tenant := range []string{"a", "b", "c", "d"} {
		for n, jobType := range []string{"good", "good", "bad"} {
			job := `{"tenant":"` + tenant + `","queue":"q","type":"` + jobType + `","id":"` + strconv.Itoa(n) + `","max_attempts":1}`
			call(t, http.MethodPost, server+"/api/v1/jobs", job, http.StatusCreated)
		}
	}
	call(t, http.MethodPost, server+"/api/v1/jobs", `{"tenant":"a","queue":"q","type":"good"}`, http.StatusTooManyRequests)
	call(t, http.MethodPost, server+"/api/v1/rate-limit/check", `{"scope":"e"}`, http.StatusOK)
	d.must("breaker open smtp --reason test")
	second := redistest.Start(t, redistest.Options{})
	worker := addressOf(d, "worker", "--set", "redis.spill_url="+second.URL(), "--queue", "q", "--concurrency", "1", "--metrics", "127.0.0.1:0", "--exec", "sh", "-c", `[ "$HEADGATE_TYPE" = good ]`)
	d.idle()
	eventually(t, func() bool { // The worker counts a job after Redis does.
		ofWorker = call(t, http.MethodGet, worker, "", http.StatusOK)
		return strings.Contains(ofWorker, `headgate_worker_jobs_total{outcome="completed",queue_id="q"} 8`) &&
			strings.Contains(ofWorker, `headgate_worker_jobs_total{outcome="dead",queue_id="q"} 4`) &&
			strings.Contains(ofWorker, "headgate_log_lines_dropped_total 0\n")
	})
	d.unknown()
	d.asked("q")
	eventually(t, func() bool { // Its guard has looked, and the worker for spilled jobs.
		ofServer = call(t, http.MethodGet, server+"/metrics", "", http.StatusOK)
		return strings.Contains(ofServer, "headgate_second_redis_jobs 0\n") && strings.Contains(ofServer, `headgate_guard_state{kind="goroutines"} 0`)
	})
	return ofServer, ofWorker
}

// asked has a queue have been asked for the same in three days, and a server that has not looked yet.
func (d *deployment) asked(queue string) {
	d.t.Helper()
	asked(d.t, d.store, 3, func(int) map[string]store.Decided {
		return map[string]store.Decided{queue: {Allowed: 600, Refused: 60}}
	})
}

// unknown has a worker hand a job back that it has no handler for.
func (d *deployment) unknown() {
	d.t.Helper()
	ctx, job := d.t.Context(), admission.NewJob("e", "odd", "unheard", nil)
	job.ID = "odd"
	_, err := d.store.Partitions()[0].Admit(ctx, 1, []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
	must(d.t, err)
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "odd", Weight: 1}}}
	_, err = d.store.Partitions()[0].Register(ctx, "w", pool, 1, time.Minute)
	must(d.t, err)
	leases, err := d.store.Partitions()[0].Read(ctx, "w", pool.ID(), 1, -1, false)
	must(d.t, err)
	_, _, err = d.store.Partitions()[0].Finish(ctx, pool.ID(), "w", []store.Finish{{
		Token: leases[0].Token, Key: admission.Key{Tenant: "e", ID: "odd"}, Outcome: store.Release, Delay: time.Hour, Text: store.UnknownType + " unheard",
	}})
	must(d.t, err)
}

// scrapeLimiter returns the metrics of a program's limiter that was answered by Redis, by a denial, and not at all.
func scrapeLimiter(t *testing.T) string {
	t.Helper()
	proxy, registry := redistest.NewProxy(t, redistest.Shared(t).Addr()), prometheus.NewRegistry()
	s, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	limits := policy.Unlimited()
	limits.Tiers = map[string]policy.Tier{policy.StandardTier: {Limit: admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1}}}
	l, err := limiter.New(s, limiter.Config{Policy: &limits, Count: true, Outage: limiter.OutageOpen, Timeout: 10 * time.Second})
	must(t, err)
	must(t, registry.Register(telemetry.Limiter(l)))
	for _, tenant := range []string{"a", "a", "a", "b"} {
		if tenant == "b" {
			proxy.Decide(func(redistest.Command) redistest.Action { return redistest.Action{Cut: redistest.CutBefore} })
		}
		_, err := l.Check(t.Context(), limiter.Request{Tenant: tenant})
		must(t, err)
	}
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	return answer.Body.String()
}

// TestRulesAndDashboardReadWhatIsExported scrapes what they would.
func TestRulesAndDashboardReadWhatIsExported(t *testing.T) {
	t.Parallel()
	ofServer, ofWorker := scrape(t)
	ofLimiter, ofRelay, ofMirror := scrapeLimiter(t), scrapeRelay(t), scrapeMirror(t)
	promtool(t, ofServer, "check", "metrics")
	promtool(t, ofWorker, "check", "metrics")
	promtool(t, ofLimiter, "check", "metrics")
	promtool(t, ofRelay, "check", "metrics")
	promtool(t, ofMirror, "check", "metrics")
	known := map[string]bool{}
	for line := range strings.SplitSeq(ofServer+ofWorker+ofLimiter+ofRelay+ofMirror, "\n") {
		name, _, sample := strings.Cut(line, "{")
		if !sample {
			name, _, _ = strings.Cut(line, " ")
		}
		known[name] = true
	}
	rules := readRules(t)
	for _, r := range rules {
		known[r.Record] = true
	}
	queries := readDashboard(t)
	for _, r := range rules {
		queries = append(queries, r.Expr)
	}
	for _, query := range queries {
		names := metricsIn(query)
		if len(names) == 0 {
			t.Errorf("no metric is found in %s", query)
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("nobody exports %s, read by %s", name, query)
			}
		}
	}
}
