package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// adoptable has something of acme at each of its scopes, by each algorithm, none of which has a token more before the test ends, and of others what records
// cannot have, or have already.
const adoptable = `{"tenant_records": true, "tiers": {"standard": {"limit": {"enabled": false}}, "premium": {"limit": {"enabled": false}}, "gold": {"limit": {"tokens": 1, "per": "24h", "burst": 50}, "priority_weights": {"high": 5}}},
	"tenants": {
		"acme": {"tier": "gold", "limit": {"tokens": 1, "per": "24h", "burst": 9}, "max_running": 2, "queues": {"mail": {"type_limits": {"*": {"algorithm": "sliding_log", "tokens": 8, "window": "744h"}}}}},
		"bolt": {"tier": "gold", "dispatch": {"tokens": 1, "per": "24h"}}, "edge": {"dispatch": {"enabled": false}},
		"core": {"limit": {"tokens": 3, "per": "24h"}, "priority_weights": {"low": 3}},
		"dust": {}},
	"queue_limits": {"acme:mail": {"algorithm": "fixed_window", "tokens": 7, "window": "month"}, "acme:fax": {"enabled": false}},
	"priority_limits": {"acme:mail:high": {"algorithm": "sliding_window", "tokens": 6, "window": "744h"}},
	"overflows": {"acme:mail": {"policy": "reject", "max_jobs": 100}}, "max_running": {"core:mail": 4}, "semaphores": {"core:lock": {"max": 1}}}`

// acmeScopes are those of acme with limits, and how many tokens each holds.
var acmeScopes = []struct {
	scope string
	holds int
}{{"acme", 9}, {"acme:mail", 7}, {"acme:mail:high", 6}, {"acme:mail:type=report", 8}}

// send lets jobs of acme in, of class high and type report, and returns how many were.
func (p *plant) send(with *producer.Producer, n int) (admitted int) {
	p.t.Helper()
	for range n {
		j := admission.NewJob("acme", "mail", "report", []byte("hello"))
		j.Priority = admission.High
		_, err := with.Enqueue(p.t.Context(), j)
		switch {
		case err == nil:
			admitted++
		case !errors.Is(err, admission.ErrRefused):
			p.t.Fatal(err)
		}
	}
	return admitted
}

// read has a worker of mail take what it may have, and returns the leases.
func (p *plant) read() []store.Lease {
	p.t.Helper()
	partition := p.store.Partitions()[0]
	_, err := partition.Register(p.t.Context(), "w", mailPool, 10, time.Minute)
	must(p.t, err)
	leases, err := partition.Read(p.t.Context(), "w", mailPool.ID(), 10, -1, false)
	must(p.t, err)
	return leases
}

// levels tells what is left at each scope of acme.
func (p *plant) levels(taken int) {
	p.t.Helper()
	for _, s := range acmeScopes {
		want := fmt.Sprintf("%s has %d of %d tokens left", s.scope, s.holds-taken, s.holds)
		if out := p.run(cli.ExitOK, "explain scope "+s.scope); !strings.Contains(out.stdout, want) {
			p.t.Errorf("no %q in %s", want, out.stdout)
		}
	}
}

// TestAdoptionKeepsTokensAndJobs: buckets of all algorithms have after it what they had before, to the token, those who ask are refused at the same one, and as many
// jobs run at a time.
func TestAdoptionKeepsTokensAndJobs(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, adoptable, "policy set -")
	running, err := producer.New(p.store, producer.Config{Timeout: 20 * time.Second}) // It goes by the policy of before until it hears.
	must(t, err)
	if n := p.send(running, 4); n != 4 {
		t.Fatalf("%d were let in", n)
	}
	held := p.read()
	if len(held) != 2 {
		t.Fatalf("%d run, want 2", len(held))
	}
	p.levels(4)
	p.run(cli.ExitOK, "record adopt --dry-run")
	p.run(cli.ExitNothing, "record get acme")
	done := p.object(cli.ExitOK, "record adopt --reason records")
	checkKeys(t, "an adoption", done, strings.Fields("bytes bytes_before from left overruled stored tenants version"))
	if done["stored"] != 4.0 || done["tenants"] != 5.0 || done["version"] != 2.0 || len(done["left"].([]any)) != 0 {
		t.Errorf("%v", done)
	}
	p.levels(4)
	if more := p.read(); len(more) != 0 {
		t.Errorf("%d more run than may", len(more))
	}
	if n := p.send(running, 4); n != 2 { // The class had 6.
		t.Errorf("%d more were let in, want 2", n)
	}
	p.levels(6)
	end := store.Finish{Token: held[0].Token, Key: admission.Key{Tenant: "acme", ID: held[0].Job.ID}, Outcome: store.Complete}
	_, _, err = p.store.Partitions()[0].Finish(t.Context(), mailPool.ID(), "w", []store.Finish{end})
	must(t, err)
	if next := p.read(); len(next) != 1 {
		t.Errorf("%d run where one has ended, want 1", len(next))
	}
	for line, want := range map[string]string{
		"record get bolt":     `{"tier":"gold","dispatch":{"tokens":1,"per":"24h","burst":1}}`,
		"record get edge":     `{"dispatch":{"enabled":false}}`,
		"explain tenant bolt": "tenant bolt starts 1 job a day, 1 at once",
		"tenant show bolt":    "gold",
		"record get acme":     `{"tier":"gold","max_running":2,"limit":{"tokens":1,"per":"24h","burst":9},"queues":{"fax":{"limit":{"enabled":false}},"mail":{`,
		"record get core":     `{"priority_weights":{"low":3},"limit":{"tokens":3,"per":"24h","burst":1},"queues":{"mail":{"max_running":4}},"semaphores":{"lock":{"max":1}}}`,
		"audit --json":        `"reason": "records"`,
		"policy history":      "records",
		"explain tenant acme": "its tier is gold",
	} {
		if out := p.run(cli.ExitOK, line); !strings.Contains(out.stdout, want) {
			t.Errorf("%s: no %q in %s", line, want, out.stdout)
		}
	}
	if out := p.run(cli.ExitOK, "policy get"); strings.Contains(out.stdout, `"queue_limits"`) || strings.Contains(out.stdout, `"dust"`) || strings.Contains(out.stdout, `"dispatch"`) || strings.Contains(out.stdout, `"limit": {"tokens": 3`) {
		t.Errorf("the policy still has %s", out.stdout)
	}
	p.run(cli.ExitOK, "policy rollback 1") // The way back.
	p.run(cli.ExitOK, "record delete --all --yes")
	p.levels(6)
	p.run(cli.ExitNothing, "record get acme")
}

// TestAnAdoptionIsTold: what moves, what stays and why, what records overrule; again there is nothing to do; what is refused is told in words.
func TestAnAdoptionIsTold(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitFailure, "record adopt"); !strings.Contains(out.stderr, `"tenant_records": false`) {
		t.Errorf("%s", out.stderr)
	}
	many := make([]string, policy.MaxRecordSemaphores+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"full:s%02d": {"max": 1}`, i)
	}
	p.in(cli.ExitOK, strings.Replace(adoptable, `"semaphores": {`, `"semaphores": {`+strings.Join(many, ", ")+", ", 1), "policy set -")
	p.refuses(map[string]string{
		"record adopt --tenants a:b":    `--tenants: invalid tenant "a:b"`,
		"record adopt --tenants=":       "names of tenants, acme,bolt, or no --tenants for all",
		"record adopt extra":            "takes no argument",
		"record adopt --tenants global": `invalid tenant "global"`,
	})
	p.run(cli.ExitOK, "record set core --tokens 5 --per 24h")
	p.run(cli.ExitOK, "record set acme:mail:type=* --tokens 8 --per 1h")
	tried := p.run(cli.ExitOK, "record adopt --dry-run").stdout
	for _, want := range []string{
		"nothing was stored: of 5 tenants 4 records would be, and version 2 of the policy with ", " would follow version 1 with ",
		"2 are not in force, because the record says otherwise, and would be gone:\n  /tenants/acme/queues/mail/type_limits/*\n  /tenants/core/limit\n",
		"65 would stay in the policy:\n  /semaphores/full:s00  its record would not be valid: invalid semaphores 65 names: allowed is up to 64\n",
	} {
		if !strings.Contains(tried, want) {
			t.Errorf("no %q in\n%s", want, tried)
		}
	}
	if out := p.run(cli.ExitOK, "record adopt --tenants bolt,zeta").stdout; !strings.HasPrefix(out, "1 tenants have by their records what they had by the policy: 1 records stored, version 2 of the policy has ") {
		t.Errorf("%s", out)
	}
	if out := p.run(cli.ExitOK, "policy get").stdout; !strings.Contains(out, `"acme:fax"`) {
		t.Errorf("acme was not asked for: %s", out)
	}
	p.in(cli.ExitOK, `{"tenants": {"acme": {"tier": "premium"}}}`, "policy rollout start - --id half --percent 50")
	if out := p.run(cli.ExitFailure, "record adopt"); !strings.Contains(out.stderr, "a roll-out is under way") || !strings.Contains(out.stderr, "half") {
		t.Errorf("%s", out.stderr)
	}
	p.run(cli.ExitOK, "policy rollout abandon")
	p.run(cli.ExitOK, "record adopt")
	version := p.object(cli.ExitOK, "policy get")["version"]
	if out := p.run(cli.ExitOK, "record adopt").stdout; !strings.HasPrefix(out, "the policy has nothing of these tenants that a record can have\n65 stay in the policy:") {
		t.Errorf("%s", out)
	}
	if again := p.object(cli.ExitOK, "policy get")["version"]; again != version {
		t.Errorf("version %v, was %v", again, version)
	}
}

// TestALargePolicyBecomesSmall: one of nearly 4 MiB, with 20,000 tenants, is one of less than 64 KiB, and who has what is as before.
func TestALargePolicyBecomesSmall(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	tenants := 2_500 // `make big` has as many as a policy may: 20,000 take a minute with the race detector.
	if os.Getenv(redistest.BigVariable) != "" {
		tenants = 20_000
	}
	var text strings.Builder
	text.WriteString(`{"tenant_records": true, "tenants": {`)
	name := func(i int) string { return fmt.Sprintf("customer-%05d", i) }
	for i := range tenants {
		fmt.Fprintf(&text, `%.*s"%s": {"tier": "premium", "limit": {"tokens": %d, "per": "1m", "burst": 30}}`, min(i, 1), ",", name(i), i+1)
	}
	text.WriteString(`}, "queue_limits": {`)
	for i := range tenants {
		fmt.Fprintf(&text, `%.*s"%s:mail": {"tokens": %d, "per": "1h", "burst": 20}`, min(i, 1), ",", name(i), i+1)
	}
	text.WriteString(`}, "priority_limits": {`)
	for i := range tenants * 19 / 20 { // With those of the others it would be longer than a policy may be.
		fmt.Fprintf(&text, `%.*s"%s:mail:low": {"tokens": %d, "per": "1h", "burst": 10}`, min(i, 1), ",", name(i), i+1)
	}
	text.WriteString(`}}`)
	p.in(cli.ExitOK, strings.ReplaceAll(text.String(), " ", ""), "policy set -")
	began := time.Now()
	out := p.run(cli.ExitOK, "record adopt --json")
	done := decode(t, out.stdout)
	t.Logf("%d tenants in %s: %v bytes of policy became %v", tenants, time.Since(began).Round(time.Millisecond), done["bytes_before"], done["bytes"])
	if done["stored"] != float64(tenants) || done["bytes_before"].(float64) < 200*float64(tenants) || done["bytes"].(float64) >= 64<<10 {
		t.Errorf("%v", done)
	}
	if !strings.Contains(out.stderr, fmt.Sprintf("records of %d of %d tenants", tenants/1024*1024, tenants)) {
		t.Errorf("nobody was told how far it is: %s", out.stderr)
	}
	if n, err := p.store.CountRecords(t.Context()); err != nil || n != int64(tenants) {
		t.Errorf("%d records, %v", n, err)
	}
	for line, want := range map[string]string{
		"limit get " + name(0):                   "gets 1 token a minute and holds 30, by its record",
		"limit get " + name(tenants-1) + ":mail": fmt.Sprintf("gets %d tokens an hour and holds 20, by its record", tenants),
		"tenant show " + name(77):                "premium",
	} {
		if out := p.run(cli.ExitOK, line); !strings.Contains(out.stdout, want) {
			t.Errorf("%s: no %q in %s", line, want, out.stdout)
		}
	}
}

// TestAdoptionKeepsShares: tenants of weights 3, by its own, 2, by its tier, and 1 are served so before and after, and on the way between, when records have the weights
// that the policy has as well.
func TestAdoptionKeepsShares(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records": true, "tiers": {"standard": {"limit": {"enabled": false}}, "gold": {"limit": {"enabled": false}, "priority_weights": {"high": 2}}},
		"tenants": {"own": {"priority_weights": {"high": 3}}, "tiered": {"tier": "gold"}}}`, "policy set -")
	running, err := producer.New(p.store, producer.Config{Timeout: 20 * time.Second})
	must(t, err)
	for i := range 36 {
		for _, tenant := range []string{"own", "tiered", "other"} {
			j := admission.NewJob(tenant, "mail", "report", nil)
			j.ID, j.Priority = strconv.Itoa(i), admission.High
			_, err := running.Enqueue(t.Context(), j)
			must(t, err)
		}
	}
	partition := p.store.Partitions()[0]
	_, err = partition.Register(t.Context(), "w", mailPool, 1, time.Minute)
	must(t, err)
	serve := func(when string) {
		t.Helper()
		served := map[string]int{}
		for range 12 {
			leases, err := partition.Read(t.Context(), "w", mailPool.ID(), 1, -1, false)
			must(t, err)
			if len(leases) != 1 {
				t.Fatalf("%s: %d leases", when, len(leases))
			}
			served[leases[0].Job.Tenant]++
			end := store.Finish{Token: leases[0].Token, Key: admission.Key{Tenant: leases[0].Job.Tenant, ID: leases[0].Job.ID}, Outcome: store.Complete}
			_, _, err = partition.Finish(t.Context(), mailPool.ID(), "w", []store.Finish{end})
			must(t, err)
		}
		if served["own"] != 6 || served["tiered"] != 4 || served["other"] != 2 {
			t.Errorf("%s: %v were served, want 6, 4 and 2", when, served)
		}
	}
	serve("by the policy")
	p.in(cli.ExitOK, `{"tenant": "own", "record": {"priority_weights": {"high": 3}}}
{"tenant": "tiered", "record": {"tier": "gold"}}`, "record import -") // As far as an adoption comes that is cut off then.
	serve("by both")
	if done := p.object(cli.ExitOK, "record adopt"); done["tenants"] != 2.0 || done["stored"] != 0.0 || done["version"] != 2.0 {
		t.Errorf("%v", done)
	}
	serve("by records")
}
