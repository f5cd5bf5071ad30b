package admin_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// client is a worker that knows HTTP alone.
type client struct {
	p    *plant
	name string
}

func (p *plant) client(lease string) *client {
	p.tb.Helper()
	body := fmt.Sprintf(`{"queues":[{"queue":"mail","weight":3}],"slots":4,"lease":%q}`, lease)
	session := p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/workers", body: body}).object(p.tb)
	name, _ := session["worker"].(string)
	return &client{p, name}
}

func (c *client) ask(what, body string) ask {
	return ask{op: "POST /api/v1/workers/{worker}/" + what, path: map[string]string{"worker": c.name}, body: body}
}

// lease takes jobs; each is what the answer has of it.
func (c *client) lease(body string) []map[string]any {
	c.p.tb.Helper()
	return c.p.want(http.StatusOK, "operator", c.ask("leases", body)).jobs(c.p.tb)
}

// collect takes as many jobs, in as many calls as it needs.
func (c *client) collect(n int) (jobs []map[string]any) {
	c.p.tb.Helper()
	for end := time.Now().Add(time.Minute); len(jobs) < n && time.Now().Before(end); {
		jobs = append(jobs, c.lease(fmt.Sprintf(`{"max":%d,"wait":"1s"}`, n-len(jobs)))...)
	}
	if len(jobs) != n {
		c.p.tb.Fatalf("%d jobs, want %d", len(jobs), n)
	}
	return jobs
}

// jobs reads the jobs of a page.
func (r reply) jobs(tb testing.TB) []map[string]any {
	tb.Helper()
	var page struct{ Jobs []map[string]any }
	must(tb, json.Unmarshal(r.body, &page))
	return page.Jobs
}

// end ends a job; more is what the call says beside its names.
func (c *client) end(status int, what string, job map[string]any, more string) map[string]any {
	c.p.tb.Helper()
	body := fmt.Sprintf(`{"tenant":%q,"id":%q,"token":%q%s}`, job["tenant"], job["id"], job["token"], more)
	return c.p.want(status, "operator", c.ask(what, body)).object(c.p.tb)
}

func (c *client) leave() {
	c.p.tb.Helper()
	c.p.want(http.StatusNoContent, "operator", ask{op: "DELETE /api/v1/workers/{worker}", path: map[string]string{"worker": c.name}})
}

func walkSessions(p *plant) {
	for _, bad := range []string{`{"queues":[]}`, `{"queues":[{"queue":"mail"},{"queue":"mail"}]}`, `{"queues":[{"queue":"mail"}],"lease":"900ms"}`, `{"queues":[{"queue":"mail"}],"slots":0}`} {
		p.want(http.StatusBadRequest, "operator", ask{op: "POST /api/v1/workers", body: bad})
	}
	before, err := p.store.Census(p.tb.Context())
	must(p.tb, err)
	c := p.client("1m")
	for waiting := before.Waiting; waiting > 0; waiting-- { // What the walk has left.
		for _, job := range c.lease(`{"max":4}`) {
			c.end(http.StatusOK, "complete", job, "")
		}
	}
	p.enqueue("acme", "s1", "s2", "s3", "s4")
	jobs := c.lease(`{"max":4,"wait":"5s"}`)
	if len(jobs) != 4 {
		p.tb.Fatalf("%v", jobs)
	}
	for _, bad := range []string{`,"keep_result":"1h"`, `,"result_base64":"b2s=","keep_result":"1ms"`, `,"result_base64":"*"`, `,"ran":"25h"`} {
		c.end(http.StatusBadRequest, "complete", jobs[0], bad)
	}
	c.end(http.StatusBadRequest, "fail", jobs[0], `,"kind":"tired"`)
	c.end(http.StatusConflict, "complete", map[string]any{"tenant": "acme", "id": "s2", "token": jobs[0]["token"]}, "") // Another's lease.
	c.end(http.StatusConflict, "complete", map[string]any{"tenant": "acme", "id": "s1", "token": "99999999999999999999-0"}, "")
	payload, err := base64.StdEncoding.DecodeString(jobs[0]["payload_base64"].(string))
	if err != nil || string(payload) != `{"to":"ada"}` || jobs[0]["queue"] != "mail" || jobs[0]["type"] != "welcome" {
		p.tb.Errorf("%v %s %v", jobs[0], payload, err)
	}
	if again := c.lease(`{"max":4,"held":true}`); len(again) != 4 || again[0]["token"] != jobs[0]["token"] {
		p.tb.Errorf("what it holds: %v", again)
	}
	p.want(http.StatusOK, "operator", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "s4"}, query: "reason=twice"})
	extended := p.want(http.StatusOK, "operator", c.ask("extend", "")).object(p.tb)
	if told, _ := extended["cancelled"].([]any); len(told) != 1 || told[0].(map[string]any)["token"] != jobs[3]["token"] || told[0].(map[string]any)["reason"] != "twice" {
		p.tb.Errorf("%v", extended)
	}
	for i, row := range []struct{ what, more, want string }{
		{"complete", `,"ran":"1.5s","result_base64":"b2s=","keep_result":"1h"`, "done"}, {"fail", `,"error":"no such address","discard":true`, "dead"}, {"fail", `,"error":"busy"`, "retried"}, {"release", "", "cancelled"},
	} {
		if got := c.end(http.StatusOK, row.what, jobs[i], row.more); got["outcome"] != row.want {
			p.tb.Errorf("%s: %v", row.what, got)
		}
		c.end(http.StatusConflict, row.what, jobs[i], row.more)
	}
	result := ask{op: "GET /api/v1/jobs/{tenant}/{id}/result", path: map[string]string{"tenant": "acme", "id": "s1"}}
	if left := p.want(http.StatusOK, "operator", result).object(p.tb); left["result_base64"] != "b2s=" {
		p.tb.Errorf("%v", left)
	}
	letter := p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/dead-letters/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "s2"}}).object(p.tb)
	if letter["reason"] != "discarded" || letter["text"] != "no such address" {
		p.tb.Errorf("%v", letter)
	}
	retried := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "s3"}}).object(p.tb)
	if retried["attempts"] != 1.0 {
		p.tb.Errorf("%v", retried)
	}
	p.want(http.StatusOK, "operator", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "s3"}})
	p.want(http.StatusOK, "admin", ask{op: "POST /api/v1/dead-letters/purge", body: `{"keys":[{"tenant":"acme","id":"s2"}]}`})
	c.leave()
	p.want(http.StatusConflict, "operator", c.ask("leases", "{}"))
	p.enqueue("acme", "w") // What the walk does next counts three jobs in the queue.
}

// TestAStoppedClientIsFenced asserts L5 over HTTP: what a client held that was not heard of runs elsewhere, and what it
// says of it afterwards is refused and changes nothing.
func TestAStoppedClientIsFenced(t *testing.T) {
	t.Parallel()
	everywhere(t, fenceStopped)
}

func fenceStopped(t *testing.T, p *plant) {
	t.Helper()
	alive := p.client("1m")
	p.enqueue("acme", "a", "b")
	var stopped *client
	var held []map[string]any
	for held == nil { // On a slow machine it is late itself.
		stopped = p.client("1s")
		if got := p.call("operator", stopped.ask("leases", `{"max":2}`)); got.status == http.StatusOK {
			held = got.jobs(t)
		}
	}
	var again []map[string]any
	for end := time.Now().Add(time.Minute); len(again) < 2 && time.Now().Before(end); { // Its calls promote: nobody else does.
		again = append(again, alive.lease(`{"max":2,"wait":"500ms"}`)...)
	}
	if len(again) != 2 {
		t.Fatalf("%d jobs came back", len(again))
	}
	for _, job := range held {
		for _, what := range []string{"complete", "fail", "release"} {
			stopped.end(http.StatusConflict, what, job, "")
		}
	}
	p.want(http.StatusConflict, "operator", stopped.ask("extend", ""))
	p.want(http.StatusConflict, "operator", stopped.ask("leases", `{"held":true}`))
	for _, job := range again {
		alive.end(http.StatusOK, "complete", job, "")
	}
	census, err := p.store.Census(t.Context())
	must(t, err)
	if census.Left["completed"] != 2 || census.Live != 0 || !census.Conserved() {
		t.Errorf("%+v", census)
	}
}

// TestADeployHandsBack: a client that leaves burns no attempt, and another has its jobs at once.
func TestADeployHandsBack(t *testing.T) {
	t.Parallel()
	everywhere(t, handBack)
}

func handBack(t *testing.T, p *plant) {
	t.Helper()
	old, fresh := p.client("5m"), p.client("5m")
	p.enqueue("acme", "a", "b", "c")
	held := old.collect(3)
	old.leave()
	got := fresh.collect(3)
	for _, job := range got {
		if job["attempts"] != 0.0 {
			t.Errorf("%v", job)
		}
	}
	old.end(http.StatusConflict, "complete", held[0], "")
}

// TestTwoClientsRunEachJobAtLeastOnce: over two clients that work at a time, each job completes once, and the books balance.
func TestTwoClientsRunEachJobAtLeastOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, runOnce)
}

func runOnce(t *testing.T, p *plant) {
	t.Helper()
	const jobs = 60
	for i := range jobs {
		p.enqueue(fmt.Sprintf("t%d", i%7), fmt.Sprint("j", i))
	}
	var mu sync.Mutex
	ran := map[string]int{}
	var both sync.WaitGroup
	for range 2 {
		c := p.client("1m")
		both.Go(func() {
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				leased := c.lease(`{"max":4,"wait":"200ms"}`)
				for _, job := range leased {
					c.end(http.StatusOK, "complete", job, "")
					mu.Lock()
					ran[fmt.Sprint(job["tenant"], ":", job["id"])]++
					mu.Unlock()
				}
				mu.Lock()
				done := len(ran) == jobs
				mu.Unlock()
				if done {
					return
				}
			}
		})
	}
	both.Wait()
	if len(ran) != jobs || slices.Max(slices.Collect(maps.Values(ran))) != 1 {
		t.Errorf("%d of %d jobs ran: %v", len(ran), jobs, ran)
	}
	census, err := p.store.Census(t.Context())
	must(t, err)
	if census.Left["completed"] != jobs || !census.Conserved() {
		t.Errorf("%+v", census)
	}
}

// enqueueDue enqueues a job with a deadline that is near, and returns that.
func (p *plant) enqueueDue(id string) (deadline time.Time) {
	p.tb.Helper()
	for soon, admitted := 100*time.Millisecond, false; !admitted && soon < time.Minute; soon *= 2 { // A slow machine is late itself.
		now, err := p.store.Time(p.tb.Context())
		must(p.tb, err)
		deadline = now.Add(soon)
		body := fmt.Sprintf(`{"tenant":"acme","queue":"mail","type":"t","id":%q,"deadline":%q}`, id, deadline.Format(time.RFC3339Nano))
		admitted = p.call("operator", ask{op: "POST /api/v1/jobs", body: body}).status == http.StatusCreated
	}
	return deadline
}

// pass waits until a time is over by the clock of Redis.
func (p *plant) pass(at time.Time) {
	p.tb.Helper()
	for now := at; !now.After(at); {
		var err error
		now, err = p.store.Time(p.tb.Context())
		must(p.tb, err)
	}
}

// TestAJobThatRunsPastItsDeadlineRunsOn: a deadline is the latest start, and who asks for what it holds may have begun it in time.
func TestAJobThatRunsPastItsDeadlineRunsOn(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	c := p.client("1m")
	var jobs []map[string]any
	for n := 0; len(jobs) == 0; n++ { // A slow machine takes it too late.
		deadline := p.enqueueDue(fmt.Sprint("long-", n))
		jobs = c.lease(`{}`)
		p.pass(deadline)
	}
	if again := c.lease(`{"max":4,"held":true}`); len(again) != 1 || again[0]["token"] != jobs[0]["token"] {
		t.Errorf("it holds %v, and not %v any more", again, jobs)
	}
	if got := c.end(http.StatusOK, "complete", jobs[0], ""); got["outcome"] != "done" {
		t.Errorf("%v", got)
	}
}

// TestALateJobIsNotHandedOut: one whose deadline has passed in the stream expires.
func TestALateJobIsNotHandedOut(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	c := p.client("1m")
	p.pass(p.enqueueDue("late"))
	if jobs := c.lease(`{}`); len(jobs) != 0 {
		t.Errorf("%v", jobs)
	}
	sight := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "late"}}).object(t)
	if sight["place"] != string(store.PlaceDead) {
		t.Errorf("%v", sight)
	}
}

// TestAnEmptyPageTellsWhenToAskAgain: by what holds jobs back, from a second to a minute, and so that the session lives.
func TestAnEmptyPageTellsWhenToAskAgain(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	long := p.client("5m")
	told := func(c *client) int {
		t.Helper()
		answer := p.want(http.StatusOK, "operator", c.ask("leases", "{}"))
		if jobs := answer.jobs(t); len(jobs) != 0 {
			t.Fatalf("%v", jobs)
		}
		seconds, err := strconv.Atoi(answer.header.Get("Retry-After"))
		must(t, err)
		return seconds
	}
	if got := told(long); got != 1 {
		t.Errorf("an empty queue: %d s", got)
	}
	pause := func(length time.Duration) (began time.Time) {
		t.Helper()
		began = time.Now()
		_, err := p.store.Pause(t.Context(), store.QueueGate("mail"), length, store.Intervention{Reason: "maintenance"})
		must(t, err)
		return began
	}
	began := pause(50 * time.Second)
	if got := told(long); got > 50 || got < 50-int(time.Since(began).Seconds())-1 {
		t.Errorf("a pause of 50 s: %d s", got)
	}
	pause(time.Hour)
	if got := told(long); got != 60 {
		t.Errorf("a pause of an hour: %d s", got)
	}
	if got := told(p.client("15s")); got != 8 {
		t.Errorf("a pause of an hour, to a session with a lease of 15 s: %d s", got)
	}
}
