package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

// in runs a command line with something on its standard input.
func (p *plant) in(code int, stdin, line string) output {
	p.t.Helper()
	var out, errs strings.Builder
	got := output{code: execute(p.t.Context(), append(strings.Fields(line), p.where...), strings.NewReader(stdin), &out, &errs)}
	if got.stdout, got.stderr = out.String(), errs.String(); got.code != code {
		p.t.Errorf("headgate %s: exit code %d, want %d\n%s%s", line, got.code, code, got.stdout, got.stderr)
	}
	return got
}

// TestRecordCommands give tenants limits beside the policy, as an operator does, and see them wherever limits are told.
func TestRecordCommands(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitFailure, "record set acme --tokens 7"); !strings.Contains(out.stderr, `"tenant_records": false`) {
		t.Errorf("%s", out.stderr)
	}
	p.in(cli.ExitOK, `{"tenant_records":true}`, "policy merge -")
	if out := p.run(cli.ExitOK, "record list"); !strings.Contains(out.stderr, "no tenant like that has a record") {
		t.Errorf("%s", out.stderr)
	}
	p.run(cli.ExitNothing, "record get acme")
	p.run(cli.ExitNothing, "record delete acme")
	set := p.object(cli.ExitOK, "record set acme --tokens 7 --per 1h --burst 9 --reason contract")
	if fmt.Sprint(set["record"]) != "map[limit:map[burst:9 per:1h tokens:7]]" || set["tenant"] != "acme" {
		t.Errorf("%v", set)
	}
	p.run(cli.ExitOK, "record set acme:mail:low --off")
	p.run(cli.ExitOK, "record set acme:mail --tokens 1000 --window 24h --zone Europe/Berlin")
	p.run(cli.ExitOK, "record set acme:mail:low --none")
	p.run(cli.ExitOK, "record set acme:mail:type=report --tokens 5 --reason contract")
	p.run(cli.ExitOK, "record set acme:mail:type=* --off")
	p.run(cli.ExitOK, "record set acme:mail:type=gone --tokens 5")
	p.run(cli.ExitOK, "record set acme:mail:type=gone --none")
	for line, told := range map[string]string{
		"limit get acme":      "acme gets 7 tokens an hour and holds 9, by its record",
		"limit get acme:mail": "acme:mail gets 1000 tokens a day, new at 00:00 in Europe/Berlin, by its record",
		"explain scope acme":  "record of tenant acme",

		"limit get acme:mail:type=report":                       "acme:mail:type=report gets 5 tokens a second and holds 5, by its record",
		"limit get acme:mail:type=gone":                         "acme:mail:type=gone has no limit, by its record",
		"explain scope acme:mail:type=report":                   "record of tenant acme, /queues/mail/type_limits/report = {",
		"record set acme:mail:type=report --tokens 6 --dry-run": "would change in 2 values",
		"record set acme:mail:type=report --none --dry-run":     "would change in 3 values",
		"record export":                `"type_limits":{"*":{"enabled":false},"report":{"tokens":5,"per":"1s","burst":5}}`,
		"record list --name-prefix ac": "acme",
		"tenant show acme --json":      `"record": {`,
		"audit --json":                 `"tenant_record"`,
		"record get acme":              `"window":"24h"`,
		"limit get zeta":               "zeta gets 200 tokens a second and holds 50, default of tier standard",
	} {
		if out := p.run(cli.ExitOK, line); !strings.Contains(out.stdout, told) {
			t.Errorf("%s: no %q in %s", line, told, out.stdout)
		}
	}
	for line, told := range map[string]string{
		"record set acme --tokens 5 --per 1h --dry-run": "nothing was stored: the record of tenant acme would change in 2 values",
		"record set acme:mail:low --off --dry-run":      "would change in 1 values",
		"record delete acme --dry-run":                  "nothing was stored",
	} {
		if out := p.run(cli.ExitOK, line); !strings.Contains(out.stdout, told) {
			t.Errorf("%s: no %q in %s", line, told, out.stdout)
		}
	}
	tried := p.object(cli.ExitOK, "record set acme --tokens 5 --per 1h --burst 9 --dry-run")
	checkKeys(t, "a dry run of a record", tried, strings.Fields("changes forecast from tenant"))
	if out := p.run(cli.ExitOK, "record get acme"); !strings.Contains(out.stdout, `"tokens":7`) {
		t.Errorf("after dry runs: %s", out.stdout)
	}
	p.refuses(map[string]string{
		"record delete --all":                           "say so with --yes, look first with --dry-run",
		"record delete --all --reason over":             "say so with --yes, look first with --dry-run",
		"record set acme:mail:vip --tokens 7 --dry-run": "a class of queue mail",
		"record set global --tokens 7":                  "headgate limit set global",
		"record set acme:mail:type=ü --tokens 7":        "invalid scope",
		"record set acme:mail:low:type=* --tokens 7":    "invalid scope",
		"record set acme":                               "for no limit --off",
		"record set acme --none --off":                  "it, --off or --tokens",
		"record set acme:mail:vip --tokens 7":           "a class of queue mail",
		"record delete":                                 "a TENANT, or --all",
		"record delete acme --all":                      "a TENANT, or --all",
		"record list --limit 2000":                      "1 to 1000 records",
		"record list --cursor x":                        "what the page before has told",
	})
	if out := p.in(cli.ExitFailure, `{}`, "policy set --replace -"); !strings.Contains(out.stderr, "true while 1 tenants have records") {
		t.Errorf("%s", out.stderr)
	}
	p.run(cli.ExitOK, "record delete acme --reason over")
	p.run(cli.ExitNothing, "record get acme")
}

// TestRatesOfRecords are set, shown, exported and taken out again, in the words of the policy's; and one may say that there is none.
func TestRatesOfRecords(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records":true,"tenants":{"acme":{"dispatch":{"tokens":9,"per":"1s","burst":20}}}}`, "policy merge -")
	p.says([][2]string{
		{"tenant show acme", "9 jobs a second, at most 20 at once"},
		{"record set acme --dispatch 600 --dispatch-per 1m --dispatch-burst 7 --reason contract", `{"dispatch":{"tokens":600,"per":"1m","burst":7}}`},
		{"tenant show acme", "10 jobs a second, at most 7 at once"},
		{"tenant show acme --json", `"dispatch": {`},
		{"tenant show acme", `│ its record      │ {"dispatch":{"tokens":600,`},
		{"explain tenant acme", "tenant acme starts 10 jobs a second, 7 at once"},
		{"explain tenant acme --json", `"of": "record of tenant acme"`},
		{"explain tenant acme", "headgate record set acme --dispatch NUMBER"},
		{"audit --json", `"/dispatch/tokens"`},
		{"record set acme --dispatch 5 --dry-run", "would change in 3 values"},
		{"record set acme --tokens 3 --max-running 2", `{"max_running":2,"dispatch":{"tokens":600,"per":"1m","burst":7},"limit":{"tokens":3,"per":"1s","burst":3}}`},
		{"record set acme --none --dispatch 5", `{"max_running":2,"dispatch":{"tokens":5,"per":"1s","burst":5}}`},
		{"record export", `{"tenant":"acme","record":{"max_running":2,"dispatch":{"tokens":5,"per":"1s","burst":5}}}`},
		{"record set acme --dispatch-off --max-running 0", `{"dispatch":{"enabled":false}}`},
		{"tenant show acme", "no bound"},
	})
	if out := p.in(cli.ExitNothing, `{"tenant":"acme","record":{"dispatch":{"tokens":5,"per":"1s"}}}`, "record diff -"); !strings.Contains(out.stdout, "/dispatch/tokens") || !strings.Contains(out.stdout, "/dispatch/enabled") {
		t.Errorf("a diff: %s", out.stdout)
	}
	p.in(cli.ExitOK, `{"tenant":"bolt","record":{"dispatch":{"tokens":5,"per":"1s"}}}`, "record import -")
	p.refuses(map[string]string{
		"record set acme:mail --dispatch 5":               "a tenant with --tier, --weight, --semaphore or --dispatch",
		"record set acme --dispatch -5":                   "invalid --dispatch -5: allowed is 1 to 1000000000; for no limit --dispatch-off",
		"record set acme --dispatch-burst 5":              "invalid --dispatch 0",
		"record set acme --dispatch 5 --dispatch-per 1ns": "invalid --dispatch-per",
		"record set acme --dispatch 5 --dispatch-off":     "it or --dispatch",
	})
	p.run(cli.ExitOK, "record set acme --dispatch 0")
	p.run(cli.ExitNothing, "record get acme")
	if out := p.run(cli.ExitOK, "tenant show acme"); !strings.Contains(out.stdout, "9 jobs a second, at most 20 at once") {
		t.Errorf("without a record: %s", out.stdout)
	}
}

// TestCapsInQueuesOfRecords are set, shown, exported and taken out again, beside the cap over all queues.
func TestCapsInQueuesOfRecords(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records":true}`, "policy merge -")
	p.says([][2]string{
		{"record set acme:mail --max-running 2 --reason contract", `{"queues":{"mail":{"max_running":2}}}`},
		{"tenant show acme", "0 of 2 jobs"},
		{"record set acme --max-running 9", `{"max_running":9,"queues":{"mail":{"max_running":2}}}`},
		{"record set acme:mail --max-running 3 --tokens 5", `"queues":{"mail":{"limit":{"tokens":5,"per":"1s","burst":5},"max_running":3}}}`},
		{"record set acme:mail --none --overflow reject --max-jobs 7", `"queues":{"mail":{"max_running":3,"overflow":{"policy":"reject","max_jobs":7}}}}`},
		{"audit --json", `"/queues/mail/max_running"`},
		{"record set acme:fax --max-running 4 --dry-run", "would change in 1 values"},
		{"record set acme:mail --overflow=", `{"max_running":9,"queues":{"mail":{"max_running":3}}}`},
		{"record export", `{"tenant":"acme","record":{"max_running":9,"queues":{"mail":{"max_running":3}}}}`},
	})
	if out := p.in(cli.ExitNothing, `{"tenant":"acme","record":{"queues":{"mail":{"max_running":4}}}}`, "record diff -"); !strings.Contains(out.stdout, "/queues/mail/max_running") || !strings.Contains(out.stdout, "/max_running") {
		t.Errorf("a diff: %s", out.stdout)
	}
	p.in(cli.ExitOK, `{"tenant":"bolt","record":{"queues":{"mail":{"max_running":4}}}}`, "record import -")
	p.refuses(map[string]string{
		"record set acme:mail --max-running -1":      "queues.mail.max_running -1: allowed is 1 to 1000000, or 0 for none",
		"record set acme:mail --max-running 1000001": "queues.mail.max_running 1000001: allowed is 1 to 1000000, or 0 for none",
		"record set acme:mail:low --max-running 5":   "a tenant or tenant:queue with --max-running",
	})
	p.run(cli.ExitOK, "record set acme:mail --max-running 0")
	p.run(cli.ExitOK, "record set acme --max-running 0")
	p.run(cli.ExitNothing, "record get acme")
}

// TestSemaphoresOfRecords are set by name, shown, exported and taken out again.
func TestSemaphoresOfRecords(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records":true,"semaphores":{"acme:*":{"max":7}}}`, "policy merge -")
	p.says([][2]string{
		{"semaphore show acme:gpu", "7"},
		{"record set acme --semaphore gpu=4,*=10 --reason contract", `{"semaphores":{"*":{"max":10},"gpu":{"max":4}}}`},
		{"semaphore show acme:gpu", "4"},
		{"semaphore show acme:disk", "10"},
		{"record set acme --semaphore gpu=0 --max-running 5", `{"max_running":5,"semaphores":{"*":{"max":10},"gpu":{"max":0}}}`},
		{"record set acme --semaphore *=", `{"max_running":5,"semaphores":{"gpu":{"max":0}}}`},
		{"audit --json", `"/semaphores/gpu/max"`},
		{"record set acme --semaphore gpu=3 --dry-run", "would change in 1 values"},
		{"record export", `{"tenant":"acme","record":{"max_running":5,"semaphores":{"gpu":{"max":0}}}}`},
	})
	if out := p.in(cli.ExitNothing, `{"tenant":"acme","record":{"max_running":5,"semaphores":{"gpu":{"max":1}}}}`, "record diff -"); !strings.Contains(out.stdout, "/semaphores/gpu/max") {
		t.Errorf("a diff: %s", out.stdout)
	}
	p.refuses(map[string]string{
		"record set acme --semaphore gpu=-1":     "semaphores.gpu.max -1: allowed is 0 to 1000000",
		"record set acme --semaphore gpu=many":   "invalid --semaphore gpu=many: allowed is NAME=NUMBER with 0 to 1000000, or NAME= to take it out of the record",
		"record set acme:mail --semaphore gpu=1": "a tenant with --tier, --weight, --semaphore or --dispatch",
		"record set acme --semaphore bolt:gpu=1": "semaphore",
	})
	p.run(cli.ExitOK, "record set acme --semaphore gpu= --max-running 0")
	p.run(cli.ExitNothing, "record get acme")
}

// TestBoundsOfRecords are set over all queues and in one, shown, exported and taken out again, in the words of the policy's.
func TestBoundsOfRecords(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records":true}`, "policy merge -")
	p.says([][2]string{
		{"record set acme --overflow reject --max-jobs 100 --reason contract", `{"overflow":{"policy":"reject","max_jobs":100}}`},
		{"record set acme --max-bytes 5000", `{"overflow":{"policy":"reject","max_jobs":100,"max_bytes":5000}}`},
		{"record set acme:mail --overflow spillover --max-jobs 7", `{"overflow":{"policy":"reject","max_jobs":100,"max_bytes":5000},"queues":{"mail":{"overflow":{"policy":"spillover","max_jobs":7,"max_spilled":10000,"low_water_percent":50}}}}`},
		{"record set acme:mail --overflow drop_oldest --tokens 3", `"queues":{"mail":{"limit":{"tokens":3,"per":"1s","burst":3},"overflow":{"policy":"drop_oldest","max_jobs":7}}}`},
		{"record set acme:mail --none", `"queues":{"mail":{"overflow":{"policy":"drop_oldest","max_jobs":7}}}`},
		{"audit --json", `"/queues/mail/overflow/max_jobs"`},
		{"record set acme:mail --overflow none --dry-run", "would change in 2 values"},
		{"record set acme:mail --overflow none", `"queues":{"mail":{"overflow":{"policy":"none"}}}`},
		{"record export", `{"tenant":"acme","record":{"overflow":{"policy":"reject","max_jobs":100,"max_bytes":5000},"queues":{"mail":{"overflow":{"policy":"none"}}}}}`},
	})
	if out := p.in(cli.ExitNothing, `{"tenant":"acme","record":{"overflow":{"policy":"none"}}}`, "record diff -"); !strings.Contains(out.stdout, "/overflow/policy") || !strings.Contains(out.stdout, "/queues/mail/overflow") {
		t.Errorf("a diff: %s", out.stdout)
	}
	p.refuses(map[string]string{
		"record set bolt --max-jobs 5":                            `"reject"`,
		"record set bolt --overflow spillover --max-jobs 5":       `"none" or "reject" over all queues`,
		"record set bolt:mail --overflow reject":                  "1 to 10000000, or a max_bytes",
		"record set bolt:mail --overflow reject --max-jobs -5":    "queues.mail.overflow.max_jobs -5",
		"record set bolt:mail:low --overflow reject --max-jobs 5": "a tenant or tenant:queue with --max-running, --overflow",
		"record set bolt:mail --overflow never --max-jobs 5":      `"drop_oldest"`,
	})
	p.run(cli.ExitOK, "record set acme --overflow=")
	p.run(cli.ExitOK, "record set acme:mail --overflow=")
	p.run(cli.ExitNothing, "record get acme")
}

// TestTiersAndWeightsOfRecords are set, shown, exported and taken out again, and the policy keeps what records name.
func TestTiersAndWeightsOfRecords(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records":true,"tiers":{"gold":{"limit":{"tokens":900,"per":"1h"},"priority_weights":{"high":9}}},"tenants":{"acme":{"tier":"basic"}}}`, "policy merge -")
	set := p.object(cli.ExitOK, "record set acme --tier gold --weight high=5,low=2 --reason contract")
	if fmt.Sprint(set["record"]) != "map[priority_weights:map[high:5 low:2] tier:gold]" {
		t.Errorf("%v", set)
	}
	p.says([][2]string{
		{"record set acme --weight low=0 --tier gold", `{"tier":"gold","priority_weights":{"high":5}}`},
		{"explain tenant acme", "its tier is gold"},
		{"explain tenant acme --json", `"of": "record of tenant acme"`},
		{"tenant show acme --json", `"tier": "gold"`},
		{"limit get acme", "acme gets 900 tokens an hour and holds 1, default of tier gold"},
		{"record export", `{"tenant":"acme","record":{"tier":"gold","priority_weights":{"high":5}}}`},
		{"audit --json", `"/priority_weights/high"`},
		{"record set acme --tier premium --dry-run", "would change in 1 values"},
		{"record set bolt --tier gold --tokens 7 --per 1h", `{"tier":"gold","limit":{"tokens":7,"per":"1h","burst":1}}`},
		{"record set bolt --none", `{"tier":"gold"}`},
		{"record set zeta --weight medium=4", `{"priority_weights":{"medium":4}}`},
	})
	p.refuses(map[string]string{
		"record set acme --tier lead":              `tier "lead": allowed is one of "basic", "gold", "premium", "standard"`,
		"record set acme --weight high=1001":       "priority_weights.high 1001: allowed is 1 to 1000",
		"record set acme:mail --tier gold":         "a tenant with --tier, --weight, --semaphore or --dispatch",
		"record set acme --max-running -1":         "max_running -1: allowed is 1 to 1000000, or 0 for none",
		"record set acme --max-running 1000001":    "max_running 1000001: allowed is 1 to 1000000, or 0 for none",
		"record set acme --tier gold --none --off": "it, --off or --tokens",
		"tier unset gold":                          "while the records of 2 tenants name it",
	})
	p.run(cli.ExitOK, "record set bolt --tier=")
	p.run(cli.ExitNothing, "record get bolt")
	p.run(cli.ExitOK, "record set acme --tier=")
	p.run(cli.ExitOK, "tier unset gold")
}

// TestACapOfARecord is set, shown, imported and taken out again, and goes before those of tiers, which may be edited while records name them.
func TestACapOfARecord(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records":true,"tiers":{"gold":{"limit":{"tokens":900,"per":"1h"},"max_running":9}},"tenants":{"acme":{"tier":"basic"}}}`, "policy merge -")
	if set := p.object(cli.ExitOK, "record set acme --tier gold --max-running 5 --reason contract"); fmt.Sprint(set["record"]) != "map[max_running:5 tier:gold]" {
		t.Errorf("%v", set)
	}
	p.in(cli.ExitOK, `{"tenant":"bolt","record":{"max_running":3}}`, "record import -")
	p.says([][2]string{
		{"record get acme", `{"tier":"gold","max_running":5}`},
		{"record export", `{"tenant":"acme","record":{"tier":"gold","max_running":5}}`},
		{"audit --json", `"/max_running"`},
		{"tenant show acme", "at most 5"},
		{"tenant show acme --json", `"max_running": 5`},
		{"tenant show bolt --json", `"max_running": 3`},
		{"tenant show zeta", "no bound"},
		{"record set acme --max-running 0", `{"tier":"gold"}`},
		{"tenant show acme --json", `"max_running": 9`},
		{"tier set gold --max-running 4", `"max_running":4`},
		{"tenant show acme --json", `"max_running": 4`},
		{"tenant set acme --max-running 2", "acme"},
		{"tenant show acme --json", `"max_running": 2`},
		{"record set bolt --max-running 7 --dry-run", "would change in 1 values"},
	})
	p.run(cli.ExitOK, "record delete bolt")
	if out := p.run(cli.ExitOK, "tenant show bolt"); !strings.Contains(out.stdout, "no bound") {
		t.Errorf("%s", out.stdout)
	}
}

// TestWhatAFileOfRecordsWouldChange is listed by tenant and value, and nothing is stored.
func TestWhatAFileOfRecordsWouldChange(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records":true}`, "policy merge -")
	p.run(cli.ExitOK, "record set acme --tokens 7 --per 1h --burst 9")
	p.run(cli.ExitOK, "record set bolt --max-running 5 --weight high=3")
	p.run(cli.ExitOK, "record set same --max-running 5")
	file := strings.Join([]string{
		`{"tenant":"acme","record":{"limit":{"tokens":8,"per":"1h","burst":9},"max_running":2}}`,
		`{"tenant":"bolt","record":{"priority_weights":{"high":3}}}`,
		`{"tenant":"new","record":{"tier":"premium"}}`, `{"tenant":"none","record":{}}`, `{"tenant":"same","record":{"max_running":5}}`,
	}, "\n")
	has := p.run(cli.ExitOK, "record export").stdout
	out := p.in(cli.ExitNothing, file, "record diff -")
	want := `tenant acme, version [0-9]+ of its record:
~ /limit/tokens 7 → 8
\+ /max_running 2
tenant bolt, version [0-9]+ of its record:
- /max_running 5
tenant new, no record:
\+ /tier "premium"
5 records read, 3 differ, 2 are as in the file
`
	if !regexp.MustCompile("^"+want+"$").MatchString(out.stdout) || !strings.Contains(out.stderr, "3 records differ") {
		t.Errorf("%s%s", out.stdout, out.stderr)
	}
	if now := p.run(cli.ExitOK, "record export").stdout; now != has {
		t.Errorf("a diff has made of\n%s\n%s", has, now)
	}
	p.in(cli.ExitOK, file, "record import -")
	if out := p.in(cli.ExitOK, file, "record diff - --json"); !strings.Contains(out.stdout, `"tenants": []`) || !strings.Contains(out.stdout, `"same": 5`) {
		t.Errorf("after the import: %s", out.stdout)
	}
	if out := p.in(cli.ExitFailure, "{}", "record diff -"); !strings.Contains(out.stderr, "headgate: records of standard input: line 1:") {
		t.Errorf("%s", out.stderr)
	}
}

// TestRecordsAsAFile: what was exported is imported again, whatever there was; a line that is none is told by its number.
func TestRecordsAsAFile(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records":true}`, "policy merge -")
	var lines strings.Builder
	for i := range 500 {
		fmt.Fprintf(&lines, "{\"tenant\":\"t%d\",\"record\":{\"tier\":\"premium\",\"priority_weights\":{\"high\":3},\"limit\":{\"tokens\":%d,\"per\":\"1s\",\"burst\":1}}}\n", i, i+1)
	}
	if out := p.in(cli.ExitOK, lines.String(), "record import - --dry-run"); out.stdout != "500 records read, and none was stored: 500 would be, 0 are already as in the file\n" {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "record export"); out.stdout != "" {
		t.Errorf("after a dry run: %s", out.stdout)
	}
	if out := p.in(cli.ExitOK, lines.String(), "record import - --reason billing --json"); !strings.Contains(out.stdout, `"records": 500`) {
		t.Errorf("%s", out.stdout)
	}
	sorted := func(text string) string { return strings.Join(sortedLines(text), "\n") }
	if out := p.run(cli.ExitOK, "record export"); sorted(out.stdout) != sorted(lines.String()) {
		t.Errorf("exported is not what was imported: %d bytes of %d", len(out.stdout), lines.Len())
	}
	if out := p.run(cli.ExitOK, "record export --name-prefix t49"); len(sortedLines(out.stdout)) != 11 {
		t.Errorf("%s", out.stdout)
	}
	audit := p.run(cli.ExitOK, "audit --json").stdout
	if strings.Count(audit, `"tenant_record"`) != 1 || !strings.Contains(audit, "500") || !strings.Contains(audit, "billing") {
		t.Errorf("an import is one act of 500: %s", audit)
	}
	for bad, told := range map[string]string{
		"{\"tenant\":\"a\",\"record\":{}}\n\n{\"tenant\":\"b\",\"limit\":{}}":                                                 "line 3:",
		"{\"tenant\":\"a:b\",\"record\":{}}":                                                                                  "line 1: invalid tenant",
		"{\"tenant\":\"a\",\"record\":{\"limit\":{\"tokens\":5,\"per\":\"0s\"}}}":                                             "limit.per",
		"{\"tenant\":\"a\",\"record\":{\"queues\":{\"mail\":{\"priority_limits\":{\"vip\":{\"tokens\":5,\"per\":\"1s\"}}}}}}": "a class of queue mail",
		"nothing": "line 1:",
	} {
		if out := p.in(cli.ExitFailure, bad, "record import -"); !strings.Contains(out.stderr, told) {
			t.Errorf("%s: no %q in %s", bad, told, out.stderr)
		}
	}
	if out := p.run(cli.ExitOK, "record delete --all --dry-run"); !strings.HasPrefix(out.stdout, "nothing was deleted: 500 records would be\n- t") ||
		!strings.HasSuffix(out.stdout, "\nand 480 more, which headgate record list tells\n") {
		t.Errorf("%s", out.stdout)
	}
	if view := p.object(cli.ExitOK, "record delete --all --dry-run"); view["deleted"] != 500.0 || view["dry_run"] != true || len(view["tenants"].([]any)) != 20 {
		t.Errorf("%v", view)
	}
	if out := p.run(cli.ExitOK, "record export"); len(sortedLines(out.stdout)) != 500 {
		t.Errorf("a dry run has taken records away: %s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "record delete --all --yes --reason over"); out.stdout != "500 records deleted\n" {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "record export"); out.stdout != "" {
		t.Errorf("%s", out.stdout)
	}
}

func sortedLines(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return lines
}

// says runs lines one after the other, each of which tells something.
func (p *plant) says(lines [][2]string) {
	p.t.Helper()
	for _, row := range lines {
		if out := p.run(cli.ExitOK, row[0]); !strings.Contains(out.stdout, row[1]) {
			p.t.Errorf("%s: no %q in %s", row[0], row[1], out.stdout)
		}
	}
}

// refuses runs command lines that are to be refused, each with what it is to be told.
func (p *plant) refuses(lines map[string]string) {
	p.t.Helper()
	for line, told := range lines {
		if out := p.run(cli.ExitUsage, line); !strings.Contains(out.stderr, told) {
			p.t.Errorf("%s: no %q in %s", line, told, out.stderr)
		}
	}
}
