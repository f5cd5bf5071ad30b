package calls

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
)

// How many calls there are beside the checks, together below what serve lets one credential make.
const (
	readsPerSecond   = 20
	updatesPerSecond = 5
	// updated is how many scopes get limits of their own for the time of a run.
	updated = 10
	// editAttempts is how often an update is tried that somebody else's is faster than.
	editAttempts = 5
	// connections are kept open, and callTimeout bounds a call.
	connections = 256
	callTimeout = 10 * time.Second
)

// Result is what calls came to.
type Result struct {
	// Checks are decisions, Reads calls about a limit, Updates the read and the change of one.
	// Each time counts from when the call was due.
	Checks  figures.Latency `json:"checks"`
	Reads   figures.Latency `json:"reads"`
	Updates figures.Latency `json:"updates"`
	// PerSecond is how many checks were answered a second.
	PerSecond float64 `json:"checks_per_s"`
	// Denied counts checks that were answered by 429, Failed all calls by what went wrong.
	Denied int            `json:"denied"`
	Failed map[string]int `json:"failed"`
	// Late is how late the generator itself was.
	Late figures.Latency `json:"generator_late"`
}

// kind is a kind of call.
type kind struct {
	arrivals []load.Arrival
	request  func(number int) (method, path, body string)
	took     *figures.Times
}

// run is one under way.
type run struct {
	server Server
	client *http.Client
	start  time.Time
	late   *figures.Times

	mu struct {
		sync.Mutex

		denied int
		failed map[string]int
	}
}

// Run makes the checks of a plan, one for each of its arrivals, and what is beside them. When ctx ends no more are made.
func Run(ctx context.Context, server Server, plan *load.Plan) (*Result, error) {
	transport := &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections}
	defer transport.CloseIdleConnections()
	r := &run{server: server, client: &http.Client{Transport: transport, Timeout: callTimeout}, late: figures.NewTimes()}
	r.mu.failed = map[string]int{}
	status, _, err := r.call(ctx, http.MethodGet, "/api/v1/health/ready", "", "")
	if err != nil {
		return nil, fmt.Errorf("ask whether the server is ready: %w", err)
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("the server at %s is not ready: it answers %d", server.Address, status)
	}
	scope := func(a *load.Arrival) string {
		return string(admission.ScopeAt(admission.LevelPriority, plan.Tenants[a.Tenant], plan.Queues[a.Queue], plan.Classes[a.Class].Name))
	}
	checks := kind{arrivals: plan.Arrivals, took: figures.NewTimes(), request: func(number int) (method, path, body string) {
		return http.MethodPost, "/api/v1/rate-limit/check", `{"scope":"` + scope(&plan.Arrivals[number]) + `"}`
	}}
	reads := kind{arrivals: evenly(readsPerSecond, plan.Duration), took: figures.NewTimes(), request: func(number int) (method, path, body string) {
		return http.MethodGet, configPath(number), ""
	}}
	updates := kind{arrivals: evenly(updatesPerSecond, plan.Duration), took: figures.NewTimes(), request: func(number int) (method, path, body string) {
		return http.MethodPut, configPath(number), fmt.Sprintf(`{"tokens":%d,"per":"1s","burst":%d}`, 1000+number, 1000+number)
	}}
	r.start = time.Now()
	var all sync.WaitGroup
	for _, k := range []kind{checks, reads, updates} {
		all.Go(func() {
			load.Pace(ctx, k.arrivals, r.start, func(number int) { r.one(context.WithoutCancel(ctx), k, number) })
		})
	}
	all.Wait()
	wall := time.Since(r.start)
	r.tidy(context.WithoutCancel(ctx))
	result := &Result{
		Checks: checks.took.Latency(), Reads: reads.took.Latency(), Updates: updates.took.Latency(), Late: r.late.Latency(),
		Denied: r.mu.denied, Failed: r.mu.failed,
	}
	result.PerSecond = float64(result.Checks.Count) / wall.Seconds()
	return result, nil
}

// evenly are arrivals at even distances.
func evenly(perSecond int, duration time.Duration) (all []load.Arrival) {
	for at := time.Duration(0); at < duration; at += time.Second / time.Duration(perSecond) {
		all = append(all, load.Arrival{At: at})
	}
	return all
}

func configPath(number int) string {
	return fmt.Sprintf("/api/v1/rate-limit/config/loadtest:queue-%d", number%updated)
}

// one makes a call and counts it.
func (r *run) one(ctx context.Context, k kind, number int) {
	due := r.start.Add(k.arrivals[number].At)
	r.late.Add(time.Since(due))
	method, path, body := k.request(number)
	var status int
	var err error
	if method == http.MethodPut {
		status, err = r.edit(ctx, method, path, body)
	} else {
		status, _, err = r.call(ctx, method, path, body, "")
	}
	took := time.Since(due)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.mu.failed["no answer"]++
		return
	case status == http.StatusTooManyRequests && method == http.MethodPost:
		r.mu.denied++
	case status != http.StatusOK:
		r.mu.failed[fmt.Sprintf("%s %d", method, status)]++
		return
	}
	k.took.Add(took)
}

// edit changes a limit as a client has to: it reads the version that it changes, and again if somebody else was faster.
func (r *run) edit(ctx context.Context, method, path, body string) (status int, err error) {
	for range editAttempts {
		var tag string
		if status, tag, err = r.call(ctx, http.MethodGet, path, "", ""); err != nil || status != http.StatusOK {
			return status, err
		}
		if status, _, err = r.call(ctx, method, path, body, tag); err != nil || status != http.StatusPreconditionFailed {
			return status, err
		}
	}
	return status, err
}

func (r *run) call(ctx context.Context, method, path, body, match string) (status int, tag string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, r.server.Address+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+r.server.Key)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if match != "" {
		request.Header.Set("If-Match", match)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header.Get("ETag"), err
}

// tidy takes away the limits of the run, as far as it can: some may never have been set.
func (r *run) tidy(ctx context.Context) {
	for number := range updated {
		_, _ = r.edit(ctx, http.MethodDelete, configPath(number), "")
	}
}
