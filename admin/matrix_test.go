package admin_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
)

// bodies are those of operations that need one; they name the tenant %s.
var bodies = map[string]string{
	"POST /api/v1/jobs":                       `{"tenant":%q,"queue":"mail","type":"welcome","id":"one"}`,
	"POST /api/v1/jobs/batch":                 `{"jobs":[{"tenant":%q,"queue":"mail","type":"welcome","id":"one"}]}`,
	"POST /api/v1/rate-limit/check":           `{"checks":[{"scope":%q}],"peek":true}`,
	"POST /api/v1/rate-limit/reserve":         `{"scope":%q}`,
	"POST /api/v1/rate-limit/commit":          `{"scope":%q,"reservation":"none","tokens":1}`,
	"POST /api/v1/rate-limit/cancel":          `{"scope":%q,"reservation":"none"}`,
	"POST /api/v1/dead-letters/redrive":       `{"keys":[{"tenant":%q,"id":"dead"}]}`,
	"POST /api/v1/dead-letters/purge":         `{"keys":[{"tenant":%q,"id":"dead"}]}`,
	"POST /api/v1/queues/{queue}/purge":       `{"confirm":"none"}`,
	"PUT /api/v1/queues/{queue}/pause":        `{}`,
	"PUT /api/v1/queues/{queue}/suspension":   `{}`,
	"PUT /api/v1/tenants/{tenant}/pause":      `{}`,
	"PUT /api/v1/tenants/{tenant}/suspension": `{}`,
	"PUT /api/v1/tenants/{tenant}":            `{"tier":"premium"}`,
	"PUT /api/v1/tiers/{tier}":                `{"limit":{"tokens":1,"per":"1s","burst":1}}`,
	"PUT /api/v1/rate-limit/config/{scope}":   `{"tokens":1,"per":"1s","burst":1}`,
	"PUT /api/v1/queues/{queue}/settings":     `{"max_running":5}`,
	"PUT /api/v1/downstreams/{downstream}":    `{"max_running":5}`,
	"PUT /api/v1/triggers/{trigger}":          `{"when":{"metric":"queue_depth","above":9},"do":"pause","of":"queue mail"}`,
	"POST /api/v1/triggers/{trigger}/dry-run": `{"when":{"metric":"queue_depth","above":9},"do":"pause","of":"queue mail"}`,
	"PUT /api/v1/policy":                      `{}`,
	"POST /api/v1/policy/dry-run":             `{}`,
	"POST /api/v1/policy/rollback":            `{"version":1}`,

	"POST /api/v1/breakers/{downstream}/force": `{"state":"open","for":"1m","reason":"moving"}`,
	"POST /api/v1/breakers/{downstream}/reset": `{"reason":"back"}`,

	"POST /api/v1/semaphores/{name}/acquire": `{}`,
	"POST /api/v1/semaphores/{name}/extend":  `{"token":"none"}`,
	"POST /api/v1/semaphores/{name}/release": `{"token":"none"}`,

	"POST /api/v1/workers":                   `{"queues":[{"queue":"none"}]}`,
	"POST /api/v1/workers/{worker}/leases":   `{}`,
	"POST /api/v1/workers/{worker}/complete": `{"tenant":%q,"id":"one","token":"1-1"}`,
	"POST /api/v1/workers/{worker}/fail":     `{"tenant":%q,"id":"one","token":"1-1"}`,
	"POST /api/v1/workers/{worker}/release":  `{"tenant":%q,"id":"one","token":"1-1"}`,
}

// about is a call of an operation that concerns a tenant, and its job "one".
func (p *plant) about(op, tenant string) ask {
	a := ask{op: op, path: map[string]string{"tenant": tenant, "queue": "none", "id": "one", "scope": tenant, "tier": "standard", "version": "1", "downstream": "none", "kind": "job", "name": tenant + ":one", "worker": "none", "trigger": "none"}}
	if body := bodies[op]; strings.Contains(body, "%q") {
		a.body = fmt.Sprintf(body, tenant)
	} else {
		a.body = body
	}
	if strings.HasPrefix(op, "GET ") && p.hasTenantFilter(op) {
		a.query = "tenant=" + tenant
	}
	return a
}

func (p *plant) hasTenantFilter(op string) bool {
	method, path, _ := strings.Cut(op, " ")
	for _, parameter := range p.spec.Paths.Value(path).GetOperation(method).Parameters {
		if parameter.Value.In == "query" && parameter.Value.Name == "tenant" {
			return true
		}
	}
	return false
}

// extension returns x-headgate-NAME of an operation.
func (p *plant) extension(op, name string) string {
	method, path, _ := strings.Cut(op, " ")
	text, _ := p.spec.Paths.Value(path).GetOperation(method).Extensions["x-headgate-"+name].(string)
	return text
}

// addTokens makes credentials out of tokens: those of roles, and others that must not be taken.
func addTokens(tb testing.TB, credentials map[string]string) *access.TokenVerifier {
	tb.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(tb, err)
	key, err := jwk.Import(private)
	must(tb, err)
	must(tb, key.Set(jwk.KeyIDKey, "k1"))
	must(tb, key.Set(jwk.AlgorithmKey, jwa.EdDSA()))
	open, err := key.PublicKey()
	must(tb, err)
	jwks, err := json.Marshal(map[string]any{"keys": []any{open}})
	must(tb, err)
	confused, err := jwk.Import([]byte(public))
	must(tb, err)
	must(tb, confused.Set(jwk.KeyIDKey, "k1"))
	sign := func(alg jwa.SignatureAlgorithm, by jwk.Key, change map[string]any) string {
		all := map[string]any{"iss": "us", "aud": "headgate", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix(), access.RoleClaim: "admin"}
		maps.Copy(all, change)
		token := jwt.New()
		for name, value := range all {
			must(tb, token.Set(name, value))
		}
		text, err := jwt.Sign(token, jwt.WithKey(alg, by))
		must(tb, err)
		return "Bearer " + string(text)
	}
	edwards := jwa.EdDSA()
	for _, role := range []string{"viewer", "operator", "admin", "producer", "worker"} {
		credentials[role+" by token"] = sign(edwards, key, map[string]any{access.RoleClaim: role})
	}
	credentials["zeta-admin by token"] = sign(edwards, key, map[string]any{access.TenantClaim: "zeta"})
	credentials["token expired"] = sign(edwards, key, map[string]any{"exp": time.Now().Add(-time.Second).Unix()})
	credentials["token too early"] = sign(edwards, key, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})
	credentials["token of others"] = sign(edwards, key, map[string]any{"iss": "them"})
	credentials["token for others"] = sign(edwards, key, map[string]any{"aud": "them"})
	credentials["token of a wrong alg"] = sign(jwa.HS256(), confused, nil)
	credentials["token of no alg"] = "Bearer eyJhbGciOiJub25lIiwia2lkIjoiazEifQ." + strings.Split(credentials["admin by token"], ".")[1] + "."
	tokens, err := access.NewTokens(access.TokenConfig{JWKS: jwks, Issuer: "us", Audience: "headgate"})
	must(tb, err)
	return tokens
}

// mayCall are the roles of an operation that each role of a credential may call.
var mayCall = map[string]string{
	"viewer": "anyone viewer", "operator": "anyone viewer operator producer worker", "admin": "anyone viewer operator admin producer worker",
	"producer": "anyone producer", "worker": "anyone worker",
}

// TestAccessMatrix calls every operation of the description with every kind of credential. Which may do what comes from
// the description, so that a new operation is in it by itself.
func TestAccessMatrix(t *testing.T) {
	t.Parallel()
	tokens := map[string]string{}
	p := newPlant(t, func(c *admin.Config) { c.Credentials.Tokens = addTokens(t, tokens) })
	maps.Copy(p.keys, tokens)
	bad := map[string]string{
		"none": "", "a key that nobody has": "Bearer hgk_" + strings.Repeat("A", 43), "no bearer": "Basic YWRtaW46YWRtaW4=",
		"expired": p.keys["expired"],
	}
	for name, value := range tokens {
		if strings.HasPrefix(name, "token") {
			bad[name] = value
		}
	}
	cells := 0
	refused := map[string]bool{}
	for _, op := range p.operations() {
		role, reach := p.extension(op, "role"), p.extension(op, "reach")
		a := p.about(op, "acme")
		for name, credential := range bad {
			cells++
			got := p.call(credential, a)
			if wrong := got.status == http.StatusUnauthorized; wrong == (role == "anyone") {
				t.Errorf("%s with %s: %d", op, name, got.status)
			}
			if role != "anyone" {
				refused[withoutNames(t, got)] = true
				if got.header.Get("Www-Authenticate") == "" {
					t.Errorf("%s with %s: no WWW-Authenticate", op, name)
				}
			}
		}
		for _, who := range []string{"viewer", "operator", "admin", "producer", "worker", "viewer by token", "operator by token", "admin by token", "producer by token", "worker by token"} {
			cells++
			got := p.call(who, a)
			may := slices.Contains(strings.Fields(mayCall[strings.Fields(who)[0]]), role)
			if (got.status == http.StatusForbidden) == may || got.status == http.StatusUnauthorized || got.status >= 500 {
				t.Errorf("%s as %s: %d\n%s", op, who, got.status, got.body)
			}
		}
		for _, who := range []string{"zeta-admin", "zeta-admin by token"} {
			cells++
			want := map[string]int{"deployment": http.StatusForbidden, "tenant": http.StatusNotFound, "public": http.StatusOK}[reach]
			if got := p.call(who, a); got.status != want {
				t.Errorf("%s of acme as %s: %d, want %d\n%s", op, who, got.status, want, got.body)
			}
		}
	}
	if len(refused) != 1 {
		t.Errorf("answers to bad credentials differ: %v", refused)
	}
	t.Logf("%d cells", cells)
}

// withoutNames returns a problem without what differs from call to call: its id and its path.
func withoutNames(tb testing.TB, r reply) string {
	tb.Helper()
	object := r.object(tb)
	delete(object, "request_id")
	delete(object, "instance")
	text, err := json.Marshal(object)
	must(tb, err)
	return string(text)
}

// TestAnotherTenantLooksLikeNone: what a tenant is told of another's things is the same whether they exist or not, to the
// byte, and nothing of them changes.
func TestAnotherTenantLooksLikeNone(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.enqueue("acme", "dead", "one")
	p.work(t.Context(), 1, "dead")
	before, err := p.store.Census(t.Context())
	must(t, err)
	for _, op := range p.operations() {
		if p.extension(op, "reach") != "tenant" {
			continue
		}
		// The second tenant has nothing, nor has anybody heard of it.
		there, nowhere := p.call("zeta-admin", p.about(op, "acme")), p.call("zeta-admin", p.about(op, "nobody"))
		if there.status != http.StatusNotFound || there.status != nowhere.status || withoutNames(t, there) != withoutNames(t, nowhere) {
			t.Errorf("%s: %d %s\nand of none: %d %s", op, there.status, there.body, nowhere.status, nowhere.body)
		}
		if strings.Contains(op, "{id}") { // It is also the answer to a job of its own that is not there.
			if own := p.call("zeta-admin", p.about(op, "zeta")); own.status != there.status || withoutNames(t, own) != withoutNames(t, there) {
				t.Errorf("%s: %d %s\nand of its own: %d %s", op, there.status, there.body, own.status, own.body)
			}
		}
	}
	after, err := p.store.Census(t.Context())
	must(t, err)
	if before.Accepted != after.Accepted || before.Dead != after.Dead || before.Waiting != after.Waiting {
		t.Errorf("%+v became %+v", before, after)
	}
}

// TestAProducerAndAWorkerDoTheirWorkAndNothingElse: what they may call is written down here, beside the description.
func TestAProducerAndAWorkerDoTheirWorkAndNothingElse(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	may := map[string]string{}
	for _, op := range p.operations() {
		role := p.extension(op, "role")
		if may[role] += " " + op; role == "producer" || role == "worker" {
			continue
		}
		for _, who := range []string{"producer", "worker"} {
			if got := p.call(who, p.about(op, "acme")); (got.status == http.StatusForbidden) == (role == "anyone") {
				t.Errorf("%s as %s: %d", op, who, got.status)
			}
		}
	}
	const worker, semaphore = "/api/v1/workers/{worker}", "/api/v1/semaphores/{name}"
	want := map[string]string{
		"producer": "POST /api/v1/jobs POST /api/v1/jobs/batch POST /api/v1/rate-limit/check POST /api/v1/rate-limit/reserve " +
			"POST /api/v1/rate-limit/commit POST /api/v1/rate-limit/cancel POST " + semaphore + "/acquire POST " + semaphore +
			"/extend POST " + semaphore + "/release",
		"worker": "POST /api/v1/workers DELETE " + worker + " POST " + worker + "/complete POST " + worker + "/extend POST " + worker +
			"/fail POST " + worker + "/leases POST " + worker + "/release",
	}
	for role, ops := range want {
		have, wanted := strings.Split(strings.TrimSpace(may[role]), " "), strings.Split(ops, " ")
		slices.Sort(have)
		slices.Sort(wanted)
		if !slices.Equal(have, wanted) {
			t.Errorf("a %s may call %v, want %v", role, have, wanted)
		}
	}
	p.want(http.StatusCreated, "producer", ask{op: "POST /api/v1/jobs", body: someJob})
	p.want(http.StatusOK, "producer", ask{op: batchOp, body: batchOf("a", "b")})
	p.want(http.StatusCreated, "worker", ask{op: "POST /api/v1/workers", body: `{"queues":[{"queue":"mail"}]}`})
}

func TestATenantSeesAndTouchesItsOwn(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.enqueue("acme", "d1")
	p.enqueue("zeta", "d1")
	p.work(t.Context(), 2, "dead")
	p.enqueue("acme", "a1")
	p.enqueue("zeta", "z1")
	for _, list := range []string{"GET /api/v1/jobs", "GET /api/v1/dead-letters"} {
		for _, query := range []string{"", "tenant=acme", "queue=mail"} {
			got := p.want(http.StatusOK, "acme-viewer", ask{op: list, query: query})
			if text := string(got.body); strings.Contains(text, "zeta") || !strings.Contains(text, `"acme"`) {
				t.Errorf("%s?%s: %s", list, query, text)
			}
		}
	}
	const filter = `{"filter":{"queue":"mail","before":"2090-01-01T00:00:00Z"}`
	if got := p.want(http.StatusForbidden, "acme-admin", ask{op: "POST /api/v1/dead-letters/redrive", body: filter + `,"without_limits":true}`}); !strings.Contains(string(got.body), "limits") {
		t.Errorf("%s", got.body)
	}
	if got := p.want(http.StatusOK, "acme-admin", ask{op: "POST /api/v1/dead-letters/purge", body: filter + `}`}).object(t); got["purged"] != 1.0 {
		t.Errorf("%v", got)
	}
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/dead-letters/{tenant}/{id}", path: map[string]string{"tenant": "zeta", "id": "d1"}})
	p.want(http.StatusCreated, "acme-admin", ask{op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"t"}`})
	mixed := `{"checks":[{"scope":"acme","tokens":1},{"scope":"zeta","tokens":1}]}`
	p.want(http.StatusNotFound, "acme-admin", ask{op: "POST /api/v1/rate-limit/check", body: mixed})
	p.want(http.StatusNotFound, "acme-admin", ask{op: "POST /api/v1/rate-limit/check", body: `{"scope":"global"}`})
	job := p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "a1"}}).object(t)
	for _, name := range []string{"worker", "pool"} {
		if job[name] != nil {
			t.Errorf("a tenant is shown the %s: %v", name, job)
		}
	}
}
