package admin_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// decided is what was decided on a scope, as counted or as told.
type decided struct {
	allowed, refused int64
	tokens           admission.Tokens
}

func (p *plant) counted(scope admission.Scope) (all decided) {
	p.tb.Helper()
	minutes, err := p.store.Minutes(p.tb.Context(), scope)
	must(p.tb, err)
	for _, m := range minutes {
		all.allowed, all.refused, all.tokens = all.allowed+m.Allowed, all.refused+m.Refused, all.tokens+m.Tokens
	}
	return all
}

// checks is what callers were told, by scope.
type checks struct {
	sync.Mutex

	told map[admission.Scope]decided
}

// tell counts a question at its scope and at those above it.
func (c *checks) tell(scope admission.Scope, one decided) {
	c.Lock()
	defer c.Unlock()
	at := []admission.Scope{admission.Global}
	if scope != admission.Global {
		parts := strings.Split(string(scope), ":")
		for n := range parts {
			at = append(at, admission.Scope(strings.Join(parts[:n+1], ":")))
		}
	}
	for _, scope := range at {
		was := c.told[scope]
		c.told[scope] = decided{was.allowed + one.allowed, was.refused + one.refused, was.tokens + one.tokens}
	}
}

// TestEachCheckIsCountedOnce: whatever is asked, of scopes of all levels, by many at once, up to the last call before the
// server's end, the minutes of each scope sum up to the questions asked there and below; a peek asks for no tokens. What a
// candidate in shadow would refuse is counted beside, and refuses nobody.
func TestEachCheckIsCountedOnce(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenants":{"acme":{"limit":{"tokens":1,"per":"24h","burst":200}}},` +
		`"rollout":{"id":"strict","percent":100,"shadow":true,"rules":{"tenants":{"acme":{"limit":{"tokens":1,"per":"24h","burst":1}}}}}}`})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, ended := p.listen(ctx)
	var books checks
	books.told = map[admission.Scope]decided{}
	for end := time.Now().Add(time.Minute); p.counted("probe") == (decided{}); { // Nothing is counted before the server has begun to.
		if time.Now().After(end) {
			t.Fatal("nothing is counted")
		}
		p.call("operator", ask{op: "POST /api/v1/rate-limit/check", body: `{"scope":"probe","peek":true}`})
		books.tell("probe", decided{})
	}
	const callers, calls = 8, 40
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range calls {
				p.checkSome(&books)
			}
		})
	}
	all.Wait()
	stop()
	must(t, <-ended)
	must(t, p.limits.Close(t.Context()))
	for scope, want := range books.told {
		if got := p.counted(scope); got != want && scope != admission.Global && scope != "probe" {
			t.Errorf("%s has %+v, and callers were told %+v", scope, got, want)
		}
	}
	probes, global, told := p.counted("probe"), p.counted(admission.Global), books.told[admission.Global]
	if n := probes.allowed + probes.refused; global.allowed+global.refused != told.allowed+told.refused+n || global.tokens != told.tokens {
		t.Errorf("all have %+v, callers were told %+v, %d were to find out whether it counts", global, told, n)
	}
	shadow, err := p.store.ShadowCounts(t.Context())
	must(t, err)
	if refused := shadow.Refused[admission.LevelTenant]; shadow.Allowed == 0 || refused == 0 || books.told["acme"].allowed < 2 {
		t.Errorf("in shadow: %+v, in force: %+v", shadow, books.told["acme"])
	}
}

// checkSome asks a random call of one to three questions and tells the books.
func (p *plant) checkSome(books *checks) {
	scopes := []string{"acme", "acme:mail", "acme:mail:high", "bolt:mail:10", "bolt:report", "zeta", "global"}
	var asked []store.ScopeCount
	var parts []string
	for range 1 + rand.N(3) {
		q := store.ScopeCount{Scope: admission.Scope(scopes[rand.N(len(scopes))]), Tokens: admission.Tokens(1 + rand.N(3))}
		asked = append(asked, q)
		parts = append(parts, fmt.Sprintf(`{"scope":%q,"tokens":%d}`, q.Scope, q.Tokens))
	}
	peek := rand.N(4) == 0
	got := p.call("operator", ask{op: "POST /api/v1/rate-limit/check", body: fmt.Sprintf(`{"checks":[%s],"peek":%t}`, strings.Join(parts, ","), peek)})
	for _, q := range asked {
		one := decided{refused: 1, tokens: q.Tokens}
		if got.status == http.StatusOK {
			one = decided{allowed: 1, tokens: q.Tokens}
		}
		if peek {
			one.tokens = 0
		}
		if q.Scope == "bolt:mail:10" { // The number stands for a class.
			q.Scope = "bolt:mail:high"
		}
		books.tell(q.Scope, one)
	}
}
