package admin_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

const checkOp = "POST /api/v1/rate-limit/check"

func TestDecisionsSayWhatIsLeftAndWhenToComeBack(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.OldHeaders = true })
	p.slow() // 10 tokens a day for each tenant
	got := p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme:mail:high","tokens":4}`})
	for name, want := range map[string]string{
		"Ratelimit-Policy": `"acme";q=10;w=86400;headgate-burst=10`, "Ratelimit": `"acme";r=6;t=51840`, "Retry-After": "",
		"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "6", "X-Ratelimit-Reset": "34560",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.header.Get(name), want)
		}
	}
	refused := p.want(http.StatusTooManyRequests, "operator", ask{op: checkOp, body: `{"scope":"acme","tokens":7}`})
	wait, err := strconv.Atoi(refused.header.Get("Retry-After"))
	must(t, err)
	if wait < 8630 || wait > 8640 || refused.header.Get("Ratelimit") != `"acme";r=6;t=`+strconv.Itoa(wait) { // one token, less what the test took
		t.Errorf("%v", refused.header)
	}
	if got := refused.header.Get("X-Ratelimit-Retry-After"); got != strconv.Itoa(wait) {
		t.Errorf("X-RateLimit-Retry-After is %q, Retry-After %d", got, wait)
	}
	answers, _ := refused.object(t)["answers"].([]any)
	answer, _ := answers[0].(map[string]any)
	if answer["reason"] != "limited" || answer["refused_by"] != "acme" || answer["allowed"] != false {
		t.Errorf("%v", answer)
	}
	never := p.want(http.StatusTooManyRequests, "operator", ask{op: checkOp, body: `{"scope":"acme","tokens":11}`})
	if !bytes.Contains(never.body, []byte("too_costly")) || never.header.Get("Retry-After") != "" {
		t.Errorf("%v %s", never.header, never.body)
	}
}

// TestAJobIsToldItsLimits: each bucket on its way, and what is left in the one that refused it. A tenant's key sees none of the others'.
func TestAJobIsToldItsLimits(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"global":{"tokens":100,"per":"1s","burst":50},"tenants":{"acme":{"limit":{"tokens":1,"per":"24h","burst":1}}},` +
		`"priority_limits":{"acme:mail:high":{"tokens":5,"per":"1s","burst":20}}}`})
	job := func(id string) ask {
		return ask{op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"t","priority":"high","id":"` + id + `"}`}
	}
	const own = `"acme";q=1;w=86400;headgate-burst=1, "acme:mail:high";q=5;w=1;headgate-burst=20`
	for _, row := range []struct {
		credential, id string
		status         int
		policy, left   string
	}{
		{"operator", "a", http.StatusCreated, `"global";q=100;w=1;headgate-burst=50, ` + own, ""},
		{"acme-admin", "a", http.StatusOK, own, ""},
		{"acme-admin", "b", http.StatusTooManyRequests, own, `"acme";r=0;t=86400`},
	} {
		got := p.want(row.status, row.credential, job(row.id))
		if told := strings.Join(got.header.Values("Ratelimit-Policy"), " | "); told != row.policy || got.header.Get("Ratelimit") != row.left {
			t.Errorf("%s of %s: %q, %q", row.id, row.credential, told, got.header.Get("Ratelimit"))
		}
	}
}

// TestAJobIsToldTheLimitOfItsTenantsRecord from the first one on, which a server learns with its answer, and after each change of it.
func TestAJobIsToldTheLimitOfItsTenantsRecord(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	recording(p)
	for i, burst := range []string{"7", "9"} {
		p.want(http.StatusOK, "admin", ask{op: "PUT /api/v1/records/{tenant}", path: map[string]string{"tenant": "acme"}, header: http.Header{"If-Match": {"*"}}, body: `{"limit":{"tokens":1,"per":"24h","burst":` + burst + `}}`})
		got := p.want(http.StatusCreated, "acme-admin", ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"acme","queue":"mail","type":"t","id":"j%d"}`, i)})
		if told := got.header.Get("Ratelimit-Policy"); told != `"acme";q=1;w=86400;headgate-burst=`+burst {
			t.Errorf("of a record with a burst of %s a job is told %q", burst, told)
		}
	}
}

func TestPeeksAndRefusalsChargeNothing(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.slow()
	for _, body := range []string{
		`{"scope":"acme","tokens":9,"peek":true}`, `{"checks":[{"scope":"acme","tokens":9},{"scope":"zeta"}],"peek":true}`,
	} {
		if got := p.want(http.StatusOK, "operator", ask{op: checkOp, body: body}).object(t); got["consumed"] != false || got["allowed"] != true {
			t.Errorf("%v", got)
		}
	}
	p.want(http.StatusTooManyRequests, "operator", ask{op: checkOp, body: `{"checks":[{"scope":"acme","tokens":9},{"scope":"zeta","tokens":11}]}`})
	p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"checks":[{"scope":"acme","tokens":10},{"scope":"zeta","tokens":10}]}`})
	status := p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/rate-limit/status/{scope}", path: map[string]string{"scope": "acme:mail"}}).object(t)
	if status["limited"] != true {
		t.Errorf("%v", status)
	}
	p.want(http.StatusNoContent, "admin", ask{op: "POST /api/v1/rate-limit/reset/{scope}", path: map[string]string{"scope": "acme"}})
	p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme","tokens":10}`})
	p.want(http.StatusTooManyRequests, "operator", ask{op: checkOp, body: `{"scope":"zeta"}`})
	metrics := p.want(http.StatusOK, "viewer", ask{op: "GET /metrics"})
	for _, want := range []string{`rate_limit_requests_total{result="denied"} 2`, `rate_limit_requests_total{result="allowed"} 4`, "rate_limit_tokens_consumed_total 30"} {
		if !bytes.Contains(metrics.body, []byte(want)) {
			t.Errorf("no %s in %s", want, metrics.body)
		}
	}
}

// TestJobsAndDecisionsShareTheirBuckets, and so law L1 holds for both together: whoever asks in whichever way, no more is
// granted than a burst.
func TestJobsAndDecisionsShareTheirBuckets(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.slow()
	var granted atomic.Int64
	var all sync.WaitGroup
	for n := range 30 {
		all.Go(func() {
			a := ask{op: checkOp, body: `{"scope":"acme:mail"}`}
			if n%2 == 0 {
				a = ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"acme","queue":"mail","type":"t","id":"j%d"}`, n)}
			}
			if p.call("operator", a).status < 300 {
				granted.Add(1)
			}
		})
	}
	all.Wait()
	if granted.Load() != 10 {
		t.Errorf("%d of 10 tokens were granted", granted.Load())
	}
}

func TestANewPolicyCountsFromTheNextDecision(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.Limiter = nil })
	p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme","tokens":5}`})
	p.slow()
	got := p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme","tokens":5}`}).object(t)
	answers, _ := got["answers"].([]any)
	buckets, _ := answers[0].(map[string]any)["buckets"].([]any)
	if bucket, _ := buckets[0].(map[string]any); bucket["burst"] != 10.0 {
		t.Errorf("%v", bucket)
	}
	text, err := policy.Marshal(policy.Unlimited())
	must(t, err)
	must(t, p.store.PutPolicy(t.Context(), store.PolicyUpdate{Expected: 1, Version: 2, Text: bytes.Replace(text, []byte(`"version":0`), []byte(`"version":2`), 1), Window: time.Minute}))
	if got := p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme","tokens":1000}`}); got.header.Get("Ratelimit") != "" {
		t.Errorf("%v", got.header)
	}
}

func TestAnIDNamesOneJob(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.slow()
	header := http.Header{"Idempotency-Key": {"order-1"}}
	body := `{"tenant":"acme","queue":"mail","type":"t"}`
	first := p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: body, header: header})
	if got := first.header.Get("Location"); got != "/api/v1/jobs/acme/order-1" {
		t.Errorf("Location: %s", got)
	}
	for range 20 { // More often than there are tokens: it is charged once.
		p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/jobs", body: body, header: header})
	}
	for name, row := range map[string]struct {
		body   string
		header http.Header
		where  string
	}{
		"another id":    {`{"tenant":"acme","queue":"mail","type":"t","id":"order-2"}`, header, "/id"},
		"a bad header":  {body, http.Header{"Idempotency-Key": {"a b"}}, "Idempotency-Key"},
		"two payloads":  {`{"tenant":"acme","queue":"mail","type":"t","payload":1,"payload_base64":"AA=="}`, nil, "/payload_base64"},
		"no base64":     {`{"tenant":"acme","queue":"mail","type":"t","payload_base64":"*"}`, nil, "/payload_base64"},
		"a long delay":  {`{"tenant":"acme","queue":"mail","type":"t","delay":"9000h"}`, nil, "/delay"},
		"a class":       {`{"tenant":"acme","queue":"mail","type":"t","priority":"urgent"}`, nil, "/priority"},
		"both times":    {`{"tenant":"acme","queue":"mail","type":"t","delay":"1s","run_at":"2050-01-01T00:00:00Z"}`, nil, "/run_at"},
		"a long header": {`{"tenant":"acme","queue":"mail","type":"t","headers":{"a b":"c"}}`, nil, "/header_name"},
	} {
		got := p.want(http.StatusBadRequest, "operator", ask{op: "POST /api/v1/jobs", body: row.body, header: row.header})
		var places []string
		faults, _ := got.object(t)["errors"].([]any)
		for _, f := range faults {
			fault, _ := f.(map[string]any)
			places = append(places, fmt.Sprint(fault["pointer"], fault["parameter"]))
		}
		if !slices.ContainsFunc(places, func(place string) bool { return bytes.Contains([]byte(place), []byte(row.where)) }) {
			t.Errorf("%s: %s", name, got.body)
		}
	}
}

func TestRedriveGoesOnWhenThereAreTokens(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.enqueue("acme", "d1", "d2", "d3")
	p.work(t.Context(), 3, store.Kill)
	p.slow()
	p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme","tokens":9}`})
	const filter = `{"filter":{"queue":"mail","before":"2090-01-01T00:00:00Z"}`
	redrive := func(who, more string) reply {
		return p.want(http.StatusOK, who, ask{op: "POST /api/v1/dead-letters/redrive", body: filter + more + "}"})
	}
	got := redrive("acme-admin", "")
	view := got.object(t)
	if view["redriven"] != 1.0 || view["more"] != true || got.header.Get("Retry-After") == "" {
		t.Errorf("%v %s", got.header, got.body)
	}
	rest := redrive("operator", `,"without_limits":true`).object(t)
	if rest["redriven"] != 2.0 || rest["more"] != false {
		t.Errorf("%v", rest)
	}
	state, err := p.store.Queue(t.Context(), "mail")
	must(t, err)
	if state.Dead != 0 || state.Waiting() != 3 {
		t.Errorf("%+v", state)
	}
}

// TestWhatEverybodyTakesTogetherIsNotShownToATenant, but it is told that the deployment's limit refused it, and for how long.
func TestWhatEverybodyTakesTogetherIsNotShownToATenant(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.enqueue("acme", "dead")
	p.work(t.Context(), 1, store.Kill)
	own := policy.Unlimited()
	own.Version, own.Global = 1, admission.Limit{Tokens: 7, Per: 24 * time.Hour, Burst: 7}
	text, err := policy.Marshal(own)
	must(t, err)
	must(t, p.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: text, Window: time.Minute}))
	for who, shown := range map[string]bool{"operator": true, "acme-admin": false} {
		got := p.want(http.StatusOK, who, ask{op: checkOp, body: `{"scope":"acme","tokens":2,"peek":true}`})
		status := p.want(http.StatusOK, who, ask{op: "GET /api/v1/rate-limit/status/{scope}", path: map[string]string{"scope": "acme"}})
		for _, r := range []reply{got, status} {
			if bytes.Contains(r.body, []byte("global")) != shown || (got.header.Get("Ratelimit") != "") != shown {
				t.Errorf("%s: %v %s", who, got.header, r.body)
			}
		}
	}
	p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"global","tokens":7}`})
	refused := p.want(http.StatusTooManyRequests, "acme-admin", ask{op: checkOp, body: `{"scope":"acme"}`})
	job := p.want(http.StatusTooManyRequests, "acme-admin", ask{op: "POST /api/v1/jobs", body: someJob})
	for _, r := range []reply{refused, job} {
		if r.header.Get("Retry-After") == "" || bytes.Contains(r.body, []byte("burst")) || bytes.Contains(r.body, []byte("tokens_left")) || !bytes.Contains(r.body, []byte(`"global"`)) {
			t.Errorf("%v %s", r.header, r.body)
		}
	}
	for who, shown := range map[string]bool{"operator": true, "acme-admin": false} {
		letter := p.want(http.StatusOK, who, ask{op: "POST /api/v1/dead-letters/redrive", body: `{"keys":[{"tenant":"acme","id":"dead"}]}`})
		if bytes.Contains(letter.body, []byte("0 tokens")) != shown || !bytes.Contains(letter.body, []byte(`"limited"`)) || letter.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v %s", who, letter.header, letter.body)
		}
	}
}

func TestAScopeHasNoBucketBelowItself(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil) // By the default policy each tenant has a bucket, also one without a name.
	for scope, want := range map[string]int{"global": 0, "acme": 1, "acme:mail:high": 1} {
		got := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/status/{scope}", path: map[string]string{"scope": scope}}).object(t)
		if buckets, _ := got["buckets"].([]any); len(buckets) != want {
			t.Errorf("%s: %v", scope, got)
		}
	}
}

func TestADrainLeavesALongerSuspensionAsItIs(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.enqueue("acme", "one")
	mail := map[string]string{"queue": "mail"}
	for body, lasting := range map[string]bool{`{"reason":"for good"}`: true, `{"for":"10m","reason":"a while"}`: false} {
		p.want(http.StatusOK, "operator", ask{op: "PUT /api/v1/queues/{queue}/suspension", path: mail, body: body})
		left := p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/queues/{queue}/drain", path: mail}).object(t)
		state, err := p.store.Queue(t.Context(), "mail")
		must(t, err)
		if held := state.Suspended; held == nil || held.Until.IsZero() != lasting || (left["until"] == nil) != lasting || !lasting && time.Until(held.Until) < 9*time.Minute {
			t.Errorf("%s: %+v %v", body, held, left)
		}
	}
}

// TestAPartitionThatIsBehindIsBroughtUp: where the process of an edit has died after the first partition, decisions go on.
func TestAPartitionThatIsBehindIsBroughtUp(t *testing.T) {
	t.Parallel()
	p := newPlantOf(t, 3)
	p.slow()
	redis := redistest.Shared(t).Client(t)
	for i, part := range p.store.Partitions()[1:] { // The first is never behind.
		body := fmt.Sprintf(`{"scope":%q}`, p.tenant("t", i+1))
		p.want(http.StatusOK, "operator", ask{op: checkOp, body: body})
		must(t, redis.HSet(t.Context(), redisstore.KeysOf(part).State(), "pv", 0, "pe", "").Err())
		p.want(http.StatusOK, "operator", ask{op: checkOp, body: body})
	}
}

// TestAnAnswerHasFewHeaders: clients and proxies refuse one with more than some hundred lines of them, and the body has all.
func TestAnAnswerHasFewHeaders(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.OldHeaders = true })
	var checks []string
	for n := range 64 {
		checks = append(checks, fmt.Sprintf(`{"scope":"%s-%d","tokens":%d}`, strings.Repeat("t", 100), n, 1+n%50))
	}
	got := p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"checks":[` + strings.Join(checks, ",") + `]}`})
	lines, size := 0, 0
	for name, values := range got.header {
		lines += len(values)
		for _, value := range values {
			size += len(name) + len(value) + 4
		}
	}
	if lines > 30 || size > 4<<10 {
		t.Errorf("%d lines of %d bytes", lines, size)
	}
	if list := got.header.Get("Ratelimit"); strings.Count(list, ";r=") != 4 || !strings.Contains(list, "-49\";r=0;") {
		t.Errorf("%s", list)
	}
	// The standard tier has 200 a second and holds 50.
	one := p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme"}`})
	if policy := one.header.Get("Ratelimit-Policy"); policy != `"acme";q=200;w=1;headgate-burst=50` {
		t.Errorf("%s", policy)
	}
}
