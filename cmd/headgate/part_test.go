package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/rollout"
)

// TestQueuesTiersAndDownstreamsAreSetByPart: each flag lands where the policy has it, beside what was there, and unset takes it away.
func TestQueuesTiersAndDownstreamsAreSetByPart(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	own := func(line string) string {
		t.Helper()
		_, text, _ := strings.Cut(p.run(cli.ExitOK, line).stdout, ": ")
		return strings.TrimSpace(text)
	}
	for _, row := range []struct{ line, want string }{
		{"queue set mail --overflow reject --max-jobs 7 --max-bytes 4096", `"overflow":{"policy":"reject","max_jobs":7,"max_bytes":4096}`},
		{"queue set mail --max-running 50 --max-running-per-tenant 5", `"max_jobs":7,"max_bytes":4096},"max_running":50,"max_running_per_tenant":5`},
		{"queue set mail --classes hot=9,cold=1 --horizon 2h --max-wait 30m --expired drop --poison-limit 9 --keep-dead 1h --max-dead 8", `{"classes":[{"name":"hot","weight":9},{"name":"cold","weight":1}],"horizon":"2h","expired_policy":"drop","max_wait":"30m","poison_limit":9,"keep_dead":"1h","max_dead":8,"overflow":`},
		{"queue unset mail overflow classes", `{"classes":[{"name":"high","weight":3},{"name":"medium","weight":2},{"name":"low","weight":1}],"horizon":"2h","expired_policy":"drop","max_wait":"30m","poison_limit":9,"keep_dead":"1h","max_dead":8,"max_running":50,"max_running_per_tenant":5}`},
		{"queue set mail --each-tenant 50 --each-tenant-burst 100", `"each_tenant":{"limit":{"tokens":50,"per":"1s","burst":100}}`},
		{"queue set mail --each-tenant 5 --each-tenant-per 1m --class high", `"each_tenant":{"limit":{"tokens":50,"per":"1s","burst":100},"priority_limits":{"high":{"tokens":5,"per":"1m","burst":1}}}`},
		{"queue set mail --each-tenant 3 --type report", `"priority_limits":{"high":{"tokens":5,"per":"1m","burst":1}},"type_limits":{"report":{"tokens":3,"per":"1s","burst":3}}}`},
		{"queue set mail --each-tenant-off --type *", `"type_limits":{"*":{"enabled":false},"report":{`},
		{"queue set mail --each-tenant-off", `"each_tenant":{"limit":{"enabled":false},"priority_limits":`},
		{"queue unset mail each-tenant", `"max_running":50,"max_running_per_tenant":5}`},
		{"queue unset mail", "nothing of its own"},
		{"queue set * --each-tenant 20 --max-wait 1h", `"max_wait":"1h"`},
		{"queue unset *", "nothing of its own"},
		{"tier set gold --tokens 1000 --burst 200 --weight high=5 --max-running 3", `{"limit":{"tokens":1000,"per":"1s","burst":200},"priority_weights":{"high":5},"max_running":3}`},
		{"tier set gold --off --weight low=2", `{"limit":{"enabled":false},"priority_weights":{"high":5,"low":2},"max_running":3}`},
		{"tier set gold --queue mail --tokens 9 --overflow reject --max-jobs 7", `"queues":{"mail":{"limit":{"tokens":9,"per":"1s","burst":9},"overflow":{"policy":"reject","max_jobs":7}}}`},
		{"tier set gold --queue * --class high --off", `"queues":{"*":{"priority_limits":{"high":{"enabled":false}}},"mail":{"limit":`},
		{"tier set gold --queue mail --type a:b --tokens 4", `"mail":{"limit":{"tokens":9,"per":"1s","burst":9},"type_limits":{"a:b":{"tokens":4,"per":"1s","burst":4}},"overflow":`},
		{"tier set gold --overflow reject --max-bytes 99", `"max_running":3,"overflow":{"policy":"reject","max_bytes":99},"queues":`},
		{"tier unset gold overflow", `"max_running":3,"queues":`},
		{"tier unset gold queues", `{"limit":{"enabled":false},"priority_weights":{"high":5,"low":2},"max_running":3}`},
		{"tier unset gold max-running", `{"limit":{"enabled":false},"priority_weights":{"high":5,"low":2}}`},
		{"tier unset gold", "nothing of its own"},
		{"downstream set openai --max-running 20 --dispatch 600 --dispatch-per 1m", `{"max_running":20,"dispatch":{"tokens":600,"per":"1m","burst":10}}`},
		{"downstream set * --max-parked 100", `{"max_parked":100}`},
		{"downstream unset openai dispatch", `{"max_running":20}`},
	} {
		if got := own(row.line + " --reason test"); !strings.Contains(got, row.want) {
			t.Errorf("headgate %s: %s\nwant %s", row.line, got, row.want)
		}
	}
	if out := p.run(cli.ExitOK, "downstream list").stdout; !strings.Contains(out, `│ *      │ {"max_parked":100} │`) || !strings.Contains(out, `│ openai │ {"max_running":20} │`) {
		t.Errorf("%s", out)
	}
	if out := p.run(cli.ExitOK, "tier list").stdout; !strings.Contains(out, "basic") || strings.Contains(out, "gold") {
		t.Errorf("%s", out)
	}
	if out := p.run(cli.ExitOK, "queue settings").stdout; out != "" {
		t.Errorf("%s", out)
	}
	for line, want := range map[string]string{
		"queue unset nosuch overflow": "nosuch: the queue has nothing like that of its own", "tier unset gold": "gold: the tier has nothing",
		"downstream unset openai dispatch": "openai: the downstream has nothing",
	} {
		if out := p.run(cli.ExitNothing, line); !strings.Contains(out.stderr, want) {
			t.Errorf("headgate %s: %s", line, out.stderr)
		}
	}
	for line, want := range map[string]string{
		"queue set mail":                                           "say what the queue is to have: --classes, --horizon",
		"queue set mail --overflow reject":                         "invalid queues.mail.overflow.max_jobs 0",
		"queue set mail --overflow away":                           `invalid queues.mail.overflow.policy "away"`,
		"queue set mail --classes high":                            `invalid --classes "high": allowed is names with weights`,
		"queue set a:b --max-running 1":                            `invalid queue "a:b"`,
		"tier set gold --max-running 1":                            "invalid tiers.gold.limit.tokens 0",
		"tier unset standard":                                      `a set with "standard"`,
		"downstream set x --max-running -1":                        "invalid downstreams.x.max_running -1",
		"downstream set x --dispatch 0":                            "for no limit headgate downstream unset DOWNSTREAM dispatch",
		"queue unset mail colour":                                  `there is no setting "colour": there are classes, horizon`,
		"queue set mail --expired vanish":                          `invalid queues.mail.expired_policy "vanish"`,
		"downstream set * --dispatch 5":                            "dispatch",
		"queue set mail --keep-dead 9000h":                         "invalid queues.mail.keep_dead 9000h",
		"queue set mail --poison-limit 255":                        "invalid queues.mail.poison_limit 255: allowed is 1 to 254",
		"tier set gold --off --tokens 3":                           "it or --tokens, not both",
		"queue set mail --each-tenant 0":                           "invalid --each-tenant 0: allowed is 1 to 1000000000; for no limit --each-tenant-off",
		"queue set mail --each-tenant 5 --each-tenant-off":         "invalid --each-tenant-off true: allowed is it or --each-tenant, not both",
		"queue set mail --each-tenant 5 --class hgih":              `invalid queues.mail.each_tenant.priority_limits "hgih": allowed is a class of queue mail`,
		"queue set mail --each-tenant 5 --class high --type a":     `invalid --type "a": allowed is it or --class, not both`,
		"queue set mail --each-tenant 5 --type ü":                  `invalid queues.mail.each_tenant.type_limits "ü": allowed is 1-128 bytes`,
		"tier set basic --queue mail --type a --overflow none":     `invalid --type "a": allowed is it beside --tokens or --off`,
		"queue set * --max-running 5":                              "invalid queues.*.max_running 5",
		"tier set basic --class high --tokens 5":                   `invalid --queue (none): allowed is a queue or *`,
		"tier set basic --queue mail --weight high=5":              `no --weight beside it`,
		"tier set basic --overflow spillover --max-jobs 5":         `invalid tiers.basic.overflow.policy "spillover": allowed is "none" or "reject" over all queues`,
		"tier set basic --queue mail --class high --overflow none": `invalid --class "high": allowed is it beside --tokens or --off`,
		"tier set basic --queue mail":                              `invalid --queue "mail": allowed is --tokens, --off or --overflow`,
		"tier set gold --off --weight high=0":                      "invalid tiers.gold.priority_weights.high 0",
	} {
		if out := p.run(cli.ExitUsage, line); !strings.Contains(out.stderr, want) {
			t.Errorf("headgate %s: %s", line, out.stderr)
		}
	}
}

// TestEightOperatorsAtOnce: none is told of the others, and all their edits are in force.
func TestEightOperatorsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	var all sync.WaitGroup
	for tenant := range strings.FieldsSeq("a b c d e f g h") {
		all.Go(func() { p.run(cli.ExitOK, "tenant set "+tenant+" --max-running 3") })
	}
	all.Wait()
	current, err := rollout.Current(t.Context(), p.store)
	if err != nil || len(current.Tenants) != 8 {
		t.Errorf("%+v, %v", current.Tenants, err)
	}
}

// TestALimitOfATenantLeavesItsTierOpen: what follows the tier standard goes on following it.
func TestALimitOfATenantLeavesItsTierOpen(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.run(cli.ExitOK, "limit set acme --tokens 5")
	checkKeys(t, "its own", p.object(cli.ExitOK, "tenant show acme")["own"], []string{"limit"})
	p.run(cli.ExitOK, "limit delete acme")
	if out := p.run(cli.ExitOK, "tenant list"); out.stdout != "" {
		t.Errorf("%s", out.stdout)
	}
}
