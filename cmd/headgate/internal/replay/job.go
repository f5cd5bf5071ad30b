package replay

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/stage"
	"github.com/headgate/headgate/internal/trace"
	"github.com/headgate/headgate/worker"
)

// errFailed is what the handler of a row says that failed in the trace.
var errFailed = errors.New("the downstream failed in the trace")

// jobs makes jobs of rows.
type jobs struct {
	config  Config
	classes []admission.Class
	// text is what payloads are cut from.
	text []byte
}

func newJobs(config Config, classes []admission.Class) jobs {
	longest := 0
	for i := range config.Trace.Rows {
		longest = max(longest, config.Trace.Rows[i].Bytes)
	}
	random := rand.New(rand.NewPCG(config.Seed, 0))
	text := make([]byte, longest)
	for i := range text {
		text[i] = byte('a' + random.IntN(26))
	}
	return jobs{config: config, classes: classes, text: text}
}

func (j jobs) of(row *trace.Row) admission.Job {
	return admission.Job{
		Tenant: row.Tenant, Type: row.Type, Priority: trace.ClassOf(row.Tenant, j.config.Seed, j.classes), Cost: row.Cost,
		Downstream: row.Downstream, MaxAttempts: j.config.MaxAttempts, Payload: j.text[:row.Bytes],
	}
}

// types returns the types of all rows.
func (j jobs) types() []string {
	var all []string
	for i := range j.config.Trace.Rows {
		all = append(all, j.config.Trace.Rows[i].Type)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// handle works as long as the row did, scaled, and fails if it did.
func (j jobs) handle(ctx context.Context, task stage.Task) error {
	row := &j.config.Trace.Rows[task.Number]
	if !sleep(ctx, j.config.scaled(row.RunTime)) {
		return context.Cause(ctx)
	}
	if row.Fails {
		return errFailed
	}
	return nil
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// breakers returns the breakers' configuration: the product's, but that no run is slow, since the trace says how
// long it takes, and that a probe has time for the longest.
func breakers(config Config) breaker.Config {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(config.Seed, 1))
	return breaker.Config{
		SlowCallDuration: admission.MaxTimeout,
		ProbeTimeout:     min(max(30*time.Second, 2*config.longestRun()), time.Hour),
		Rand: func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return random.Float64()
		},
	}
}

// Backoff after a failure in a trace's own time.
const (
	firstBackoff = time.Second
	lastBackoff  = 10 * time.Minute
)

func backoff(config Config) func(int) time.Duration {
	return worker.ExponentialBackoff(max(config.scaled(firstBackoff), time.Millisecond), max(config.scaled(lastBackoff), time.Millisecond))
}
