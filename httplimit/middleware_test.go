package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
)

// TestAServerSaysWhatIsLeftAndWhenToComeBack, over a real server with a real client.
func TestAServerSaysWhatIsLeftAndWhenToComeBack(t *testing.T) {
	t.Parallel()
	f := filter(t, limits(t, each(slow)), httplimit.Config{Tenant: httplimit.FromHeader("x-api-key"), XRateLimit: httplimit.ResetDelta})
	server := httptest.NewServer(f.Wrap(passed))
	defer server.Close()
	ask := func(method string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL, http.NoBody)
		check(t, err)
		r.Header.Set("X-API-Key", "secret")
		answer, err := server.Client().Do(r)
		check(t, err)
		body, err := io.ReadAll(answer.Body)
		check(t, err)
		check(t, answer.Body.Close())
		return answer, string(body)
	}
	for _, row := range []struct {
		method        string
		status        int
		limit         string
		left, reset   string
		body, comment string
	}{
		{http.MethodGet, 200, `"tenant";r=1;t=60`, "1", "60", "passed", "first"},
		{http.MethodHead, 200, `"tenant";r=0;t=60`, "0", "120", "", "second"},
	} {
		answer, body := ask(row.method)
		for name, want := range map[string]string{
			"RateLimit-Policy": `"tenant";q=1;w=60;headgate-burst=2`, "RateLimit": row.limit, "Retry-After": "",
			"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": row.left, "X-RateLimit-Reset": row.reset,
		} {
			if got := answer.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", row.comment, name, got, want)
			}
		}
		if answer.StatusCode != row.status || body != row.body {
			t.Errorf("%s: %d %q", row.comment, answer.StatusCode, body)
		}
	}
	refused, body := ask(http.MethodGet)
	after, err := strconv.Atoi(refused.Header.Get("Retry-After"))
	if err != nil || after < 50 || after > 60 || refused.StatusCode != 429 || refused.Header.Get("RateLimit") != `"tenant";r=0;t=`+strconv.Itoa(after) {
		t.Errorf("%d %v", refused.StatusCode, refused.Header)
	}
	var problem map[string]any
	check(t, json.Unmarshal([]byte(body), &problem))
	violated, _ := problem["violated-policies"].([]any)
	if refused.Header.Get("Content-Type") != "application/problem+json" || problem["status"] != 429.0 || problem["reason"] != "limited" ||
		problem["type"] != "https://iana.org/assignments/http-problem-types#quota-exceeded" || len(violated) != 1 || violated[0] != "tenant" {
		t.Errorf("%v %s", refused.Header, body)
	}
	head, none := ask(http.MethodHead)
	if head.StatusCode != 429 || none != "" || head.ContentLength != int64(len(body)) || head.Header.Get("Retry-After") == "" {
		t.Errorf("HEAD: %d %q %d %v", head.StatusCode, none, head.ContentLength, head.Header)
	}
}

// TestWhatNeverPassesSaysSo: there is no time at which it helps to come back.
func TestWhatNeverPassesSaysSo(t *testing.T) {
	t.Parallel()
	f := filter(t, limits(t, each(slow)), httplimit.Config{Tenant: acme, Cost: func(*http.Request) admission.Tokens { return 3 }})
	if got := get(t, f.Wrap(passed), nil); got.Code != 429 || got.Header().Get("Retry-After") != "" || got.Header().Get("RateLimit-Policy") == "" {
		t.Errorf("%d %v", got.Code, got.Header())
	}
}

// TestEachWayIsAsked: the queue by its limit and the class by its own, and what is not given is not asked.
func TestEachWayIsAsked(t *testing.T) {
	t.Parallel()
	p := each(admission.PerSecond(1000))
	p.QueueLimits = map[admission.Scope]admission.Limit{"acme:search": {Tokens: 60, Per: time.Hour, Burst: 3}}
	p.PriorityLimits = map[admission.Scope]admission.Limit{"acme:search:low": slow}
	l := limits(t, p)
	low := func(*http.Request) admission.Priority { return admission.Low }
	for _, row := range []struct {
		config httplimit.Config
		status int
		policy string
	}{
		{httplimit.Config{Tenant: acme, Queue: httplimit.Fixed("search"), Class: low}, 200, `"priority";q=1;w=60;headgate-burst=2`},
		{httplimit.Config{Tenant: acme, Queue: httplimit.Fixed("search"), Class: low}, 200, `"priority";q=1;w=60;headgate-burst=2`},
		{httplimit.Config{Tenant: acme, Queue: httplimit.Fixed("search"), Class: low}, 429, `"priority";q=1;w=60;headgate-burst=2`},
		{httplimit.Config{Tenant: acme, Queue: httplimit.Fixed("search")}, 200, `"queue";q=1;w=60;headgate-burst=3`},
		{httplimit.Config{Tenant: acme, Queue: httplimit.Fixed("search")}, 429, `"queue";q=1;w=60;headgate-burst=3`},
		{httplimit.Config{Tenant: acme, Queue: httplimit.Fixed("")}, 200, `"tenant";q=1000;w=1;headgate-burst=1000`},
		{httplimit.Config{Tenant: httplimit.Fixed("")}, 200, `"tenant";q=1000;w=1;headgate-burst=1000`},
		{httplimit.Config{}, 200, ""},
	} {
		if got := get(t, filter(t, l, row.config).Wrap(passed), nil); got.Code != row.status || got.Header().Get("RateLimit-Policy") != row.policy {
			t.Errorf("%d %q, want %d %q", got.Code, got.Header().Get("RateLimit-Policy"), row.status, row.policy)
		}
	}
}

// TestTheGlobalLimitIsNotATenantsToKnow but for when it is to come back.
func TestTheGlobalLimitIsNotATenantsToKnow(t *testing.T) {
	t.Parallel()
	p := each(admission.PerSecond(1000))
	p.Global = slow
	l := limits(t, p)
	whole := get(t, filter(t, l, httplimit.Config{}).Wrap(passed), nil)
	if whole.Code != 200 || whole.Header().Get("RateLimit") != `"global";r=1;t=60` {
		t.Errorf("of all: %d %v", whole.Code, whole.Header())
	}
	h := filter(t, l, httplimit.Config{Tenant: acme}).Wrap(passed)
	for _, status := range []int{200, 429} {
		got := get(t, h, nil)
		if got.Code != status || got.Header().Get("RateLimit") != "" || got.Header().Get("RateLimit-Policy") != "" || (got.Header().Get("Retry-After") != "") != (status == 429) {
			t.Errorf("%d %v, want %d", got.Code, got.Header(), status)
		}
	}
}

func TestHeadersAreSentAsConfigured(t *testing.T) {
	t.Parallel()
	silent := get(t, filter(t, limits(t, each(slow)), httplimit.Config{Tenant: acme, NoRateLimit: true}).Wrap(passed), nil)
	if len(silent.Header()) > 1 { // Content-Type
		t.Errorf("%v", silent.Header())
	}
	before := time.Now().Add(time.Minute).Unix()
	old := get(t, filter(t, limits(t, each(slow)), httplimit.Config{Tenant: acme, NoRateLimit: true, XRateLimit: httplimit.ResetEpoch}).Wrap(passed), nil)
	reset, err := strconv.ParseInt(old.Header().Get("X-RateLimit-Reset"), 10, 64)
	if err != nil || reset < before || reset > time.Now().Add(time.Minute).Unix()+1 || old.Header().Get("RateLimit") != "" || old.Header().Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("%v, full again a minute after %d", old.Header(), before)
	}
}

// TestShadowRefusesNothing, counts all the same, and sends no header.
func TestShadowRefusesNothing(t *testing.T) {
	t.Parallel()
	var heard []httplimit.Refusal
	f := filter(t, limits(t, each(slow)), httplimit.Config{
		Tenant: acme, Shadow: true, XRateLimit: httplimit.ResetDelta, OnRefused: func(_ *http.Request, refusal httplimit.Refusal) { heard = append(heard, refusal) },
		Skip: func(r *http.Request) bool { return r.URL.Path == "/health" }, InContext: true,
	})
	verdicts := []bool{}
	h := f.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if v, ok := httplimit.VerdictOf(r.Context()); ok {
			verdicts = append(verdicts, v.Admitted)
		}
	}))
	for range 3 {
		if got := get(t, h, nil); got.Code != 200 || len(got.Header()) != 0 {
			t.Errorf("%d %v", got.Code, got.Header())
		}
	}
	get(t, h, func(r *http.Request) { r.URL.Path = "/health" })
	if got := f.Stats(); got != (httplimit.Stats{Admitted: 2, Refused: 1, Skipped: 1}) {
		t.Errorf("%+v", got)
	}
	if len(heard) != 1 || heard[0].Status != 429 || heard[0].Verdict.Scope != "acme" || heard[0].RetryAfter <= 0 {
		t.Errorf("%+v", heard)
	}
	if len(verdicts) != 3 || !verdicts[0] || verdicts[2] {
		t.Errorf("in ctx: %v", verdicts)
	}
}

func TestTheVerdictIsInTheContextIfAsked(t *testing.T) {
	t.Parallel()
	l := limits(t, each(slow))
	var v limiter.Verdict
	var ok bool
	look := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { v, ok = httplimit.VerdictOf(r.Context()) })
	get(t, filter(t, l, httplimit.Config{Tenant: acme, InContext: true, NoRateLimit: true}).Wrap(look), nil)
	if !ok || !v.Admitted || v.Scope != "acme" || v.TokensLeft != 1 || v.Burst != 2 {
		t.Errorf("%+v, %t", v, ok)
	}
	get(t, filter(t, l, httplimit.Config{Tenant: acme}).Wrap(look), nil)
	if ok {
		t.Errorf("unasked: %+v", v)
	}
}

// TestWithoutRedisTheOutageModeAnswers: closed is a 503 with a time to come back, and no limit is told, as nobody knows it.
func TestWithoutRedisTheOutageModeAnswers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	hg, err := headgate.Open(t.Context(), redis.URL(), headgate.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, hg.Close()) })
	filters := map[string]*httplimit.Middleware{}
	for _, mode := range []string{"closed", "open"} {
		l, err := hg.Limiter(headgate.LimiterConfig{WithoutRedis: mode, Timeout: 10 * time.Second})
		check(t, err)
		filters[mode] = filter(t, l.Verdicts(), httplimit.Config{Tenant: acme})
		if got := get(t, filters[mode].Wrap(passed), nil); got.Code != 200 || got.Header().Get("RateLimit") == "" {
			t.Errorf("%s with Redis: %d %v", mode, got.Code, got.Header())
		}
	}
	redis.Kill(t)
	away := get(t, filters["closed"].Wrap(passed), nil)
	after, err := strconv.Atoi(away.Header().Get("Retry-After"))
	var problem struct{ Type, Reason string }
	check(t, json.Unmarshal(away.Body.Bytes(), &problem))
	if away.Code != 503 || err != nil || after < 1 || away.Header().Get("RateLimit") != "" || problem.Reason != "unavailable" ||
		problem.Type != "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity" {
		t.Errorf("closed: %d %v %s", away.Code, away.Header(), away.Body)
	}
	if got := get(t, filters["open"].Wrap(passed), nil); got.Code != 200 || got.Header().Get("RateLimit") != "" {
		t.Errorf("open: %d %v", got.Code, got.Header())
	}
}

// TestWhatHasNoVerdictDoesNotPass: names and costs that the Config makes up, a limiter that is closed, a client that has gone.
func TestWhatHasNoVerdictDoesNotPass(t *testing.T) {
	t.Parallel()
	closed := limits(t, each(slow))
	check(t, closed.Close(t.Context()))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, row := range map[string]struct {
		limits *limiter.Limiter
		config httplimit.Config
		ctx    context.Context //nolint:containedctx // a row of a table
		status int
	}{
		"tenant": {limits(t, each(slow)), httplimit.Config{Tenant: httplimit.Fixed("a b")}, t.Context(), 500},
		"cost":   {limits(t, each(slow)), httplimit.Config{Cost: func(*http.Request) admission.Tokens { return -1 }}, t.Context(), 500},
		"class":  {limits(t, each(slow)), httplimit.Config{Tenant: acme, Queue: acme, Class: func(*http.Request) admission.Priority { return "vip" }}, t.Context(), 500},
		"closed": {closed, httplimit.Config{Tenant: acme}, t.Context(), 503},
		"gone":   {limits(t, each(slow)), httplimit.Config{Tenant: acme}, gone, 503},
	} {
		var heard error
		row.config.OnRefused = func(_ *http.Request, refusal httplimit.Refusal) { heard = refusal.Err }
		f := filter(t, row.limits, row.config)
		got := get(t, f.Wrap(passed), func(r *http.Request) { *r = *r.WithContext(row.ctx) })
		if got.Code != row.status || heard == nil || got.Body.String() == "passed" || f.Stats().Failed != 1 {
			t.Errorf("%s: %d %s, %v", name, got.Code, got.Body, heard)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := httplimit.New(nil, httplimit.Config{
		Queue: acme, XRateLimit: "yes", Class: func(*http.Request) admission.Priority { return "" },
	})
	const want = "configure http limit: invalid limiter nil: allowed is a limiter\ninvalid tenant nil: allowed is a key where there is a queue\n" +
		"invalid x-ratelimit \"yes\": allowed is empty, delta or epoch"
	if err == nil || err.Error() != want || !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := httplimit.New(limits(t, each(slow)), httplimit.Config{Tenant: acme, Class: func(*http.Request) admission.Priority { return "" }}); err == nil {
		t.Error("a class without a queue")
	}
}
