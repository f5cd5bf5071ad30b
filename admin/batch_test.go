package admin_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admission"
)

const batchOp = "POST /api/v1/jobs/batch"

// batchOf is the body of a batch of mails of acme, one for each id.
func batchOf(ids ...string) string {
	jobs := make([]string, len(ids))
	for i, id := range ids {
		jobs[i] = fmt.Sprintf(`{"tenant":"acme","queue":"mail","type":"welcome","id":%q}`, id)
	}
	return `{"jobs":[` + strings.Join(jobs, ",") + `]}`
}

// numbered returns names from 0 to n.
func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	return names
}

// TestABatchHasAVerdictForEachJob: in their order, what had entered is not charged again, and a refused job keeps no other out.
func TestABatchHasAVerdictForEachJob(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) { //nolint:thelper // It is a test.
		p.slow() // Ten tokens a day.
		first := p.want(http.StatusOK, "operator", ask{op: batchOp, body: batchOf(numbered(8)...)}).object(t)
		if first["admitted"] != 8.0 || first["refused"] != 0.0 {
			t.Errorf("%v", first)
		}
		again := p.want(http.StatusOK, "operator", ask{op: batchOp, body: batchOf(numbered(12)...)}).object(t)
		if again["admitted"] != 2.0 || again["duplicates"] != 8.0 || again["refused"] != 2.0 || again["failed"] != 0.0 {
			t.Errorf("%v", again)
		}
		results, _ := again["results"].([]any)
		for i, result := range results {
			want := map[bool]float64{true: http.StatusOK}[i < 8]
			if i >= 8 {
				want = map[bool]float64{true: http.StatusCreated, false: http.StatusTooManyRequests}[i < 10]
			}
			one, _ := result.(map[string]any)
			if one["id"] != fmt.Sprint("n", i) || one["status"] != want {
				t.Errorf("%d: %v", i, one)
			}
			if refused, _ := one["problem"].(map[string]any); i >= 10 && (refused["reason"] != "limited" || refused["scope"] != "acme" || refused["retry_after_ms"].(float64) <= 0) {
				t.Errorf("%d: %v", i, one)
			}
		}
		census, err := p.store.Census(t.Context())
		must(t, err)
		if census.Accepted != 10 {
			t.Errorf("%d jobs were accepted, want 10", census.Accepted)
		}
	})
}

// TestABatchWithAFaultEntersNothing: each fault is told at its place, and nothing is enqueued. So it is with a tenant that the
// credential does not reach, and with more than a batch holds.
func TestABatchWithAFaultEntersNothing(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	good := `{"tenant":"acme","queue":"mail","type":"t","id":"good"}`
	for name, row := range map[string]struct {
		jobs, want string
		who        string
		status     int
	}{
		"no id":          {good + `,{"tenant":"acme","queue":"mail","type":"t"}`, `"/jobs/1/id"`, "operator", 400},
		"a bad name":     {good + `,{"tenant":"acme","queue":"m m","type":"t","id":"b"}`, `"/jobs/1/queue"`, "operator", 400},
		"no base64":      {good + `,{"tenant":"acme","queue":"mail","type":"t","id":"b","payload_base64":"?"}`, `"/jobs/1/payload_base64"`, "operator", 400},
		"a long delay":   {good + `,{"tenant":"acme","queue":"mail","type":"t","id":"b","delay":"90000h"}`, `"/jobs/1/delay"`, "operator", 400},
		"unknown":        {good + `,{"tenant":"acme","queue":"mail","type":"t","id":"b","retries":1}`, `"/jobs/1/retries"`, "operator", 400},
		"none":           {"", `"/jobs"`, "operator", 400},
		"too many":       {strings.Repeat(good+",", 64) + good, `"/jobs"`, "operator", 400},
		"another tenant": {strings.ReplaceAll(good, "acme", "zeta") + "," + strings.ReplaceAll(good, "good", "other"), "nothing is known", "zeta-admin", 404},
	} {
		got := p.want(row.status, row.who, ask{op: batchOp, body: `{"jobs":[` + row.jobs + `]}`})
		if !strings.Contains(string(got.body), row.want) {
			t.Errorf("%s: %s", name, got.body)
		}
	}
	census, err := p.store.Census(t.Context())
	must(t, err)
	if census.Accepted != 0 {
		t.Errorf("%d jobs were accepted, want none", census.Accepted)
	}
}

// TestFaultsThatTheProducerFindsAreOfTheirJob: what only it knows, such as the classes of a queue, is told of the job alone.
func TestFaultsThatTheProducerFindsAreOfTheirJob(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	large := base64.StdEncoding.EncodeToString(make([]byte, admission.DefaultMaxPayload+1))
	body := `{"jobs":[{"tenant":"acme","queue":"mail","type":"t","id":"a"},{"tenant":"acme","queue":"mail","type":"t","id":"b","payload_base64":"` + large + `"}]}`
	got := p.want(http.StatusOK, "operator", ask{op: batchOp, body: body})
	if text := string(got.body); !strings.Contains(text, `"admitted":1`) || !strings.Contains(text, `"failed":1`) || !strings.Contains(text, `"status":400`) || !strings.Contains(text, `"pointer":"/jobs/1/payload"`) {
		t.Errorf("%s", text)
	}
}

// atOnce is an Enqueuer that has heard of a batch.
type atOnce struct {
	admin.Enqueuer

	batches chan int
	err     error
}

func (e atOnce) EnqueueBatch(_ context.Context, jobs []admission.Job) ([]admission.EnqueueResult, error) {
	e.batches <- len(jobs)
	results := make([]admission.EnqueueResult, len(jobs))
	for i := range results {
		results[i] = admission.EnqueueResult{Verdict: admission.Verdict{ID: jobs[i].ID}, Err: e.err}
	}
	return results, e.err
}

// TestABatchIsOneCallOfTheProducer: and where no answer came, each job says so, with when to send it again.
func TestABatchIsOneCallOfTheProducer(t *testing.T) {
	t.Parallel()
	e := atOnce{batches: make(chan int, 2), err: admission.ErrOutcomeUnknown}
	p := newPlant(t, func(c *admin.Config) { e.Enqueuer = c.Enqueuer; c.Enqueuer = e })
	got := p.want(http.StatusOK, "operator", ask{op: batchOp, body: batchOf(numbered(64)...), header: http.Header{"Idempotency-Key": {"one"}}}).object(t)
	if n := <-e.batches; n != 64 || len(e.batches) != 0 {
		t.Errorf("%d jobs, and %d calls more", n, len(e.batches))
	}
	results, _ := got["results"].([]any)
	for i, result := range results {
		one, _ := result.(map[string]any)
		if one["id"] != fmt.Sprint("n", i) || one["status"] != 504.0 {
			t.Errorf("%v", one)
		}
	}
	if got["failed"] != 64.0 {
		t.Errorf("%v", got["failed"])
	}
}

// TestJobsOfABatchCountAgainstTheTenantsRate: a batch is no way around the calls that a tenant may make.
func TestJobsOfABatchCountAgainstTheTenantsRate(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.TenantLimit = admission.PerSecond(1).WithBurst(100) })
	p.want(http.StatusOK, "acme-admin", ask{op: batchOp, body: batchOf(numbered(64)...)})
	got := p.call("acme-admin", ask{op: batchOp, body: batchOf(numbered(64)...)})
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
}
