package admin_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
)

// reserved is a call of a reservation: reserve, commit or cancel.
func reserved(what, scope, body string, args ...any) ask {
	return ask{op: "POST /api/v1/rate-limit/" + what, body: fmt.Sprintf(`{"scope":%q%s}`, scope, fmt.Sprintf(body, args...))}
}

// limitAcme puts a limit in force that brings next to nothing while a test runs.
func (p *plant) limitAcme(burst admission.Tokens) {
	p.tb.Helper()
	_, err := rollout.Change(p.tb.Context(), p.store, rollout.Edit{Author: "ada", Expected: rollout.AnyVersion}, func(current policy.Policy) (policy.Policy, error) {
		current.Tenants = map[string]policy.Tenant{"acme": {Limit: &admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: burst}}}
		return current, nil
	})
	must(p.tb, err)
}

// left is what the bucket of acme holds, in whole tokens.
func (p *plant) left() int {
	p.tb.Helper()
	status := p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/rate-limit/status/{scope}", path: map[string]string{"scope": "acme"}}).object(p.tb)
	tokens, _ := status["current_tokens"].(float64)
	return int(math.Floor(tokens)) // Next to nothing comes in.
}

func walkReservations(p *plant) {
	p.want(http.StatusOK, "producer", reserved("reserve", "acme", `,"reservation":"walk","tokens":1`))
	p.want(http.StatusOK, "producer", reserved("commit", "acme", `,"reservation":"walk","tokens":2`))
	p.want(http.StatusOK, "producer", reserved("cancel", "acme", `,"reservation":"walk"`))
}

// TestReservationsAreSettledOnce: by their id, also where an answer was lost, and whoever asks.
func TestReservationsAreSettledOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		p.limitAcme(100)
		for range 2 { // The second as after a lost answer.
			got := p.want(http.StatusOK, "producer", reserved("reserve", "acme:llm", `,"reservation":"one","tokens":60`)).object(t)
			if got["reservation"] != "one" || got["tokens"] != 60.0 || got["scope"] != "acme:llm" {
				t.Errorf("%v", got)
			}
		}
		refused := p.want(http.StatusTooManyRequests, "producer", reserved("reserve", "acme:llm", `,"reservation":"two","tokens":60`))
		if no := refused.object(t); no["allowed"] != false || refused.header.Get("Retry-After") == "" {
			t.Errorf("%v %v", no, refused.header)
		}
		p.want(http.StatusConflict, "producer", reserved("reserve", "acme:llm", `,"reservation":"one","tokens":61`))
		p.want(http.StatusConflict, "producer", reserved("reserve", "acme:mail", `,"reservation":"one","tokens":60`))
		p.want(http.StatusNotFound, "producer", reserved("commit", "acme:llm", `,"reservation":"two","tokens":1`))
		p.want(http.StatusNotFound, "producer", reserved("commit", "zeta", `,"reservation":"one","tokens":1`))
		for i, want := range []string{"committed", "committed_before", "committed_before"} {
			what, body := "commit", `,"reservation":"one","tokens":25`
			if i == 2 {
				what, body = "cancel", `,"reservation":"one"`
			}
			got := p.want(http.StatusOK, "producer", reserved(what, "acme:llm", "%s", body)).object(t)
			if got["result"] != want || got["reserved"] != 60.0 {
				t.Errorf("call %d: %v", i, got)
			}
		}
		if left := p.left(); left != 75 {
			t.Errorf("%d tokens are left, want 75", left)
		}
		own := p.want(http.StatusOK, "producer", reserved("reserve", "acme", `,"tokens":5`)).object(t)
		p.want(http.StatusOK, "producer", reserved("cancel", "acme", `,"reservation":%q`, own["reservation"]))
		p.want(http.StatusOK, "producer", reserved("reserve", "acme", `,"reservation":"over","tokens":10`))
		p.want(http.StatusOK, "producer", reserved("commit", "acme", `,"reservation":"over","tokens":160`))
		if left := p.left(); left != -85 {
			t.Errorf("%d tokens are left, want a debt of 85", left)
		}
	})
}

// TestPartsOfAReservation: a commit that is not final tells what was used so far, and gives what follows another minute.
func TestPartsOfAReservation(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		p.limitAcme(360)
		left := 360
		for _, c := range []struct {
			parts    []int
			so, last int // what it has cost after the parts, and in the end
			end      string
		}{
			{parts: []int{10, 20}, so: 60, end: `,"tokens":30`, last: 30},
			{parts: []int{80, 70, 80}, so: 80, end: `,"tokens":90,"final":true`, last: 90},
			{parts: []int{25}, so: 60, last: 25},
			{parts: []int{90}, so: 90, last: 90},
		} {
			id := fmt.Sprintf(`,"reservation":"of-%d"`, c.last+c.so)
			p.want(http.StatusOK, "producer", reserved("reserve", "acme:llm", "%s", id+`,"tokens":60`))
			for _, used := range c.parts {
				got := p.want(http.StatusOK, "producer", reserved("commit", "acme:llm", `%s,"tokens":%d,"final":false`, id, used)).object(t)
				if got["result"] != "committed" || got["tokens"] != float64(used) {
					t.Errorf("%d so far: %v", used, got)
				}
			}
			if got := p.left(); got != left-c.so {
				t.Errorf("%v: %d tokens are left after the parts, want %d", c, got, left-c.so)
			}
			what := "commit"
			if c.end == "" {
				what = "cancel"
			}
			p.want(http.StatusOK, "producer", reserved(what, "acme:llm", "%s", id+c.end))
			left -= c.last
			got := p.want(http.StatusOK, "producer", reserved("commit", "acme:llm", `%s,"tokens":500,"final":false`, id)).object(t)
			if got["result"] != "committed_before" {
				t.Errorf("a part afterwards: %v", got)
			}
			if got := p.left(); got != left {
				t.Errorf("%v: %d tokens are left, want %d", c, got, left)
			}
		}
		p.want(http.StatusBadRequest, "producer", reserved("commit", "acme:llm", `,"reservation":"of-90","tokens":1,"final":"no"`))
	})
}

// TestAReservationUnderAnotherPolicy: what lacks is taken from the limits in force; where less was used it stands, and stays so.
func TestAReservationUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.limitAcme(100)
	for _, id := range []string{"less", "more"} {
		p.want(http.StatusOK, "producer", reserved("reserve", "acme", `,"reservation":%q,"tokens":20`, id))
	}
	p.limitAcme(90)
	for _, c := range []struct {
		id     string
		tokens int
		want   string
	}{{"less", 5, "policy_changed"}, {"less", 90, "committed_before"}, {"more", 30, "committed"}, {"more", 30, "committed_before"}} {
		if got := p.want(http.StatusOK, "producer", reserved("commit", "acme", `,"reservation":%q,"tokens":%d`, c.id, c.tokens)).object(t); got["result"] != c.want {
			t.Errorf("%s told %d: %v, want %s", c.id, c.tokens, got, c.want)
		}
	}
	if left := p.left(); left != 50 { // 60 of 100 were left, and 10 lacked.
		t.Errorf("%d tokens are left, want 50", left)
	}
}

// TestAReservationKeepsTheTimeOfItsPolicy: that of its queue or of all, also where it is asked for or settled under another policy; a minute is not told.
func TestAReservationKeepsTheTimeOfItsPolicy(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		edit := func(all, llm time.Duration) {
			t.Helper()
			_, err := rollout.Change(t.Context(), p.store, rollout.Edit{Author: "ada", Expected: rollout.AnyVersion}, func(current policy.Policy) (policy.Policy, error) {
				current.Reservations.ExpireAfter, current.Queues = all, map[string]policy.Queue{"llm": {Reservations: policy.ReservationRules{ExpireAfter: llm}}}
				return current, nil
			})
			must(t, err)
		}
		reserve := func(scope, id string, want any) {
			t.Helper()
			got := p.want(http.StatusOK, "producer", reserved("reserve", scope, `,"reservation":%q,"tokens":5`, id)).object(t)
			if got["expire_after_ms"] != want {
				t.Errorf("%s: %v, want %v", id, got, want)
			}
		}
		p.limitAcme(100)
		reserve("acme:llm", "early", nil)
		edit(90*time.Second, 10*time.Minute)
		reserve("acme:llm", "long", 600_000.0)
		reserve("acme:web", "web", 90_000.0)
		edit(2*time.Hour, 0)
		reserve("acme:llm", "early", nil)
		reserve("acme:llm", "long", 600_000.0)
		reserve("acme:llm", "late", 7_200_000.0)
		for _, id := range []string{"early", "long", "late"} {
			if got := p.want(http.StatusOK, "producer", reserved("commit", "acme:llm", `,"reservation":%q,"tokens":6`, id)).object(t); got["result"] != "committed" || got["reserved"] != 5.0 {
				t.Errorf("%s: %v", id, got)
			}
		}
		if left := p.left(); left != 100-3*6-5 {
			t.Errorf("%d tokens are left, want 77", left)
		}
	})
}

// TestReservationsAreATenantsOwn: a credential of a tenant sees no other's, and the same id is another one of another tenant.
func TestReservationsAreATenantsOwn(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	for _, scope := range []string{"zeta:llm", "global"} {
		p.want(http.StatusNotFound, "acme-admin", reserved("reserve", scope, `,"reservation":"one"`))
		p.want(http.StatusOK, "producer", reserved("reserve", scope, `,"reservation":"one","tokens":7`))
		p.want(http.StatusNotFound, "acme-admin", reserved("commit", scope, `,"reservation":"one","tokens":0`))
		p.want(http.StatusNotFound, "acme-admin", reserved("cancel", scope, `,"reservation":"one"`))
	}
	p.want(http.StatusOK, "acme-admin", reserved("reserve", "acme:llm", `,"reservation":"one","tokens":9`))
	for scope, tokens := range map[string]float64{"zeta:llm": 7, "global": 7, "acme:llm": 9} {
		if got := p.want(http.StatusOK, "producer", reserved("cancel", scope, `,"reservation":"one"`)).object(t); got["reserved"] != tokens || got["result"] != "committed" {
			t.Errorf("%s: %v", scope, got)
		}
	}
	for body, member := range map[string]string{`,"reservation":"a b"`: "/reservation", `,"tokens":0`: "/tokens", `,"tokens":1000001`: "/tokens", `,"peek":true`: "peek"} {
		if got := p.want(http.StatusBadRequest, "producer", reserved("reserve", "acme", "%s", body)); !strings.Contains(string(got.body), member) {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	for body, member := range map[string]string{`,"reservation":"one","tokens":10000001`: "/tokens", `,"reservation":"one"`: "tokens", `,"tokens":1`: "reservation"} {
		if got := p.want(http.StatusBadRequest, "producer", reserved("commit", "acme", "%s", body)); !strings.Contains(string(got.body), member) {
			t.Errorf("%s: %s", body, got.body)
		}
	}
}

// TestAReservationWithoutTokensIsLearned from what commits have told, is within the burst, and is found again under its id whatever is learned meanwhile.
// Nor may a body say two things: a cost of 1 in one member and of 10,000 in another reserved 2 elsewhere (BerriAI/litellm#37001).
func TestAReservationWithoutTokensIsLearned(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		p.limitAcme(100)
		reserve := func(id string, want float64, again bool) {
			t.Helper()
			got := p.want(http.StatusOK, "producer", reserved("reserve", "acme:llm", `,"reservation":%q`, id)).object(t)
			if got["tokens"] != want || got["again"] != again {
				t.Errorf("%s: %v, want %v tokens", id, got, want)
			}
		}
		commit := func(id string, tokens int) {
			t.Helper()
			p.want(http.StatusOK, "producer", reserved("commit", "acme:llm", `,"reservation":%q,"tokens":%d`, id, tokens))
		}
		reserve("one", 100, false)
		commit("one", 30)
		commit("one", 70) // It counts once, so it is learned of once.
		reserve("one", 100, true)
		p.want(http.StatusConflict, "producer", reserved("reserve", "acme:llm", `,"reservation":"one","tokens":30`))
		p.want(http.StatusConflict, "producer", reserved("reserve", "acme:mail", `,"reservation":"one"`))
		reserve("two", 30, false)
		p.want(http.StatusOK, "producer", reserved("cancel", "acme:llm", `,"reservation":"two"`))
		reserve("three", 30, false)
		if left := p.left(); left != 40 {
			t.Errorf("%d tokens are left, want 40", left)
		}
		for _, twice := range []string{`,"tokens":1,"tokens":10000`, `,"max_tokens":1,"tokens":10000`} {
			p.want(http.StatusBadRequest, "producer", reserved("reserve", "acme:llm", "%s", twice))
		}
	})
}

// TestAJobsCostIsLearnedByItsServer, from what clients tell as they end jobs.
func TestAJobsCostIsLearnedByItsServer(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		p.limitAcme(100)
		enqueue := func(id string, want float64) {
			t.Helper()
			p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"acme","queue":"mail","type":"t","id":%q,"cost":"learned"}`, id)})
			job := p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": id}}).object(t)
			if job["cost"] != want {
				t.Errorf("%s costs %v, want %v", id, job["cost"], want)
			}
		}
		enqueue("one", 100)
		c := p.client("1m")
		c.end(http.StatusOK, "complete", c.collect(1)[0], `,"cost":12`)
		enqueue("two", 12)
		c.end(http.StatusOK, "fail", c.collect(1)[0], `,"error":"no","delay":"1h","cost":90`) // It comes back, so that is not its cost.
		enqueue("three", 12)
		c.end(http.StatusOK, "fail", c.collect(1)[0], `,"error":"no","discard":true,"cost":15`)
		enqueue("four", 15)
		for _, bad := range []string{`"guessed"`, `""`, "0", "1.5", "true"} {
			got := p.want(http.StatusBadRequest, "operator", ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"acme","queue":"mail","type":"t","cost":%s}`, bad)})
			if !strings.Contains(string(got.body), "/cost") {
				t.Errorf("%s: %s", bad, got.body)
			}
		}
	})
}
