package admin_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// torn is a plant of three partitions, and what takes some of them away: their commands find no Redis.
func torn(t *testing.T) (p *plant, away func(indexes ...int)) {
	t.Helper()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	s, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
	must(t, err)
	return newPlantOn(t, s, nil), func(indexes ...int) {
		gone := make([]string, len(indexes))
		for i, index := range indexes {
			gone[i] = strings.TrimSuffix(redisstore.KeysOf(s.Partitions()[index]).State(), "state")
		}
		proxy.Decide(func(c redistest.Command) redistest.Action {
			named := func(arg string) bool {
				return slices.ContainsFunc(gone, func(base string) bool { return strings.HasPrefix(arg, base) })
			}
			if slices.ContainsFunc(c.Args, named) {
				return redistest.Action{Cut: redistest.CutBefore}
			}
			return redistest.Action{}
		})
	}
}

// page leases and returns the answer as it is.
func (c *client) page(status int, body string) (jobs []map[string]any, partial bool) {
	c.p.tb.Helper()
	got := c.p.want(status, "operator", c.ask("leases", body))
	partial, _ = got.object(c.p.tb)["partial"].(bool)
	return got.jobs(c.p.tb), partial
}

// unanswered makes a call that Redis does not answer: 503 where it had only read, 504 where it may have written, and when to try
// again.
func (p *plant) unanswered(a ask) {
	p.tb.Helper()
	got := p.call("operator", a)
	kinds := map[int]string{http.StatusServiceUnavailable: "urn:headgate:problem:unavailable", http.StatusGatewayTimeout: "urn:headgate:problem:outcome-unknown"}
	if problem := got.object(p.tb); got.header.Get("Retry-After") != "1" || kinds[got.status] == "" || problem["type"] != kinds[got.status] {
		p.tb.Errorf("%s: %d, %v, %v", a.op, got.status, got.header, problem)
	}
}

// TestAPartitionThatIsAwayStopsNoOther: a session has the jobs of the others, and is told that these are not all. What is about
// the one that is away is not answered, an extension too, since it does not hold there.
func TestAPartitionThatIsAwayStopsNoOther(t *testing.T) {
	t.Parallel()
	p, away := torn(t)
	const slots, lost = 9, 1
	c := p.serving("mail", slots)
	for i := range 3 {
		p.enqueue(p.tenant("t", i), "held", "more")
	}
	held := map[int]map[string]any{}
	for end := time.Now().Add(time.Minute); len(held) < 3 && time.Now().Before(end); {
		for _, job := range c.lease(`{"max":1,"wait":"1s"}`) {
			at := p.store.PartitionOf(fmt.Sprint(job["tenant"]))
			if held[at] != nil {
				c.end(http.StatusOK, "complete", job, "")
				continue
			}
			held[at] = job
		}
	}
	if len(held) != 3 {
		t.Fatalf("%v", held)
	}
	p.want(http.StatusOK, "operator", c.ask("extend", ""))

	away(lost)
	p.unanswered(c.ask("extend", ""))
	jobs, partial := c.page(http.StatusOK, `{"max":9,"held":true}`)
	if !partial || len(jobs) != 2 || slices.ContainsFunc(jobs, func(job map[string]any) bool { return job["token"] == held[lost]["token"] }) {
		t.Errorf("held while one is away: partial %t, %v", partial, jobs)
	}
	p.enqueue(p.tenant("t", 2), "new")
	seen := map[string]bool{}
	for end := time.Now().Add(time.Minute); !seen["new"] && time.Now().Before(end); {
		jobs, partial := c.page(http.StatusOK, `{"max":1,"wait":"1s"}`)
		if !partial {
			t.Errorf("leased while one is away, and it is not partial: %v", jobs)
		}
		for _, job := range jobs {
			seen[fmt.Sprint(job["id"])] = true
			c.end(http.StatusOK, "complete", job, "")
		}
	}
	if !seen["new"] {
		t.Error("the job of a partition that is there was not handed out")
	}
	for _, what := range []string{"complete", "fail", "release"} {
		p.unanswered(c.ask(what, fmt.Sprintf(`{"tenant":%q,"id":%q,"token":%q}`, held[lost]["tenant"], held[lost]["id"], held[lost]["token"])))
	}
	c.end(http.StatusOK, "complete", held[0], "")
	p.unanswered(ask{op: "POST /api/v1/workers", body: `{"queues":[{"queue":"mail"}]}`})

	away(0, 1, 2)
	p.unanswered(c.ask("extend", ""))
	p.unanswered(c.ask("leases", `{"max":1}`))

	away()
	p.want(http.StatusOK, "operator", c.ask("extend", ""))
	if _, partial := c.page(http.StatusOK, `{"max":9,"held":true}`); partial {
		t.Error("partial with all partitions there")
	}
	c.end(http.StatusOK, "complete", held[lost], "")
	c.end(http.StatusOK, "complete", held[2], "")
	for jobs := c.lease(`{"max":9}`); len(jobs) > 0; jobs = c.lease(`{"max":9}`) {
		for _, job := range jobs {
			c.end(http.StatusOK, "complete", job, "")
		}
	}
	census, err := p.store.Census(t.Context())
	must(t, err)
	if census.Left["completed"] != 7 || census.Live != 0 || !census.Conserved() {
		t.Errorf("%+v", census)
	}
}
