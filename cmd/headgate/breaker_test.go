package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/store"
)

// report tells the plant's breaker of smtp what two workers counted.
func (p *plant) report(sequence uint64, c breaker.Counts) {
	p.t.Helper()
	config, err := breaker.Config{OpenBase: time.Hour, OpenMax: time.Hour}.Complete()
	must(p.t, err)
	for _, name := range []string{"ada", "bob"} {
		o := store.Outcomes{Downstream: "smtp", Config: config, Report: breaker.Report{Sequence: sequence, Counts: c, Streak: c.Failures}, Ran: 40 * time.Millisecond}
		if c.Failures > 0 {
			o.Errors = []store.CallError{{Text: "dial tcp 10.0.0.1:25: connection \x1b[2Jrefused", Count: int64(c.Failures)}}
		}
		_, _, err := p.store.Partitions()[0].ReportOutcomes(p.t.Context(), store.Reporter{Name: name}, []store.Outcomes{o})
		must(p.t, err)
	}
}

// call enqueues a job that calls smtp.
func (p *plant) call(id string) {
	p.t.Helper()
	j := admission.NewJob("acme", "mail", "welcome", nil)
	j.ID, j.Downstream = id, "smtp"
	_, err := p.producer.Enqueue(p.t.Context(), j)
	must(p.t, err)
}

func TestBreakerCommands(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "breaker list"); !strings.Contains(out.stderr, "there is no breaker yet") {
		t.Errorf("%s", out.stderr)
	}
	for _, line := range []string{"breaker show smtp", "breaker reset smtp --reason over"} {
		if out := p.run(cli.ExitNothing, line); !strings.Contains(out.stderr, "no breaker of this downstream: headgate breaker list tells") {
			t.Errorf("%s: %s", line, out.stderr)
		}
	}
	p.report(1, breaker.Counts{Successes: 5})
	p.report(2, breaker.Counts{Failures: 6})
	p.call("a")
	p.call("b")
	shown := p.object(cli.ExitOK, "breaker show smtp")
	fields := strings.Fields("callers cause downstream errors failing_tenants forced life limit pressure probes ramp rules since state tenants trips trips_in_row until voters waiting window")
	checkKeys(t, "a breaker", shown, fields)
	window, _ := shown["window"].(map[string]any)
	if shown["state"] != "open" || shown["cause"] != "failure rate" || shown["waiting"] != 2.0 || shown["limit"] != 0.0 || shown["trips"] != 1.0 ||
		shown["trips_in_row"] != 1.0 || shown["forced"] != false || window["failures"] != 12.0 || window["successes"] != 10.0 || window["failure_streak"] != 12.0 {
		t.Errorf("%v", shown)
	}
	if callers, _ := shown["callers"].([]any); len(callers) != 2 {
		t.Errorf("callers %v", callers)
	}
	if voters, _ := shown["voters"].([]any); len(voters) != 2 || voters[0] != "ada" {
		t.Errorf("voters %v", voters)
	}
	until, err := time.Parse(time.RFC3339Nano, shown["until"].(string))
	if left := time.Until(until); err != nil || left < 29*time.Minute || left > time.Hour {
		t.Errorf("until %v: %v", shown["until"], err)
	}
	life, _ := shown["life"].(map[string]any)
	if life["total_calls"] != 22.0 || life["failed_calls"] != 12.0 || life["average_run_ms"] != 160.0/22 || life["last_failure_time"] == nil {
		t.Errorf("life %v", life)
	}
	rules, _ := shown["rules"].(map[string]any)
	if rules["origin"] != "default" || rules["open_base"] != "1h0m0s" || rules["failure_threshold"] != 10.0 || rules["differs"] != nil {
		t.Errorf("rules %v", rules)
	}
	all, _ := shown["errors"].([]any)
	if said, _ := all[0].(map[string]any); len(all) != 1 || said["text"] != "dial tcp 10.0.0.1:25: connection  [2Jrefused" || said["count"] != 12.0 {
		t.Errorf("errors %v", all)
	}
	if list, _ := p.object(cli.ExitOK, "breaker list --state open")["breakers"].([]any); len(list) != 1 {
		t.Errorf("open ones: %v", list)
	}
	if list, _ := p.object(cli.ExitOK, "breaker list --state half-open")["breakers"].([]any); len(list) != 0 {
		t.Errorf("half-open ones: %v", list)
	}
	if out := p.run(cli.ExitOK, "explain downstream smtp"); !strings.Contains(out.stdout, "dial tcp 10.0.0.1:25: connection  [2Jrefused") {
		t.Errorf("%s", out.stdout)
	}
	text := p.run(cli.ExitOK, "breaker show smtp").stdout
	for _, want := range []string{
		"12 times: dial tcp 10.0.0.1:25: connection  [2Jrefused", "22, 45.45 % well, 7.27 ms in the mean", "open on 10 failures in a row, or 50 % failed", "Breaker of downstream smtp: open since ", ", until ", ", failure rate\n", "none", "12 of 22 failed", "1, of them 1 in a row", "ada", "bob",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	list, _ := p.object(cli.ExitOK, "breaker list")["breakers"].([]any)
	if len(list) != 1 {
		t.Fatalf("%v", list)
	}
	checkKeys(t, "a listed breaker", list[0], fields)
	if out := p.run(cli.ExitOK, "breaker list"); !strings.Contains(out.stdout, "smtp") || !strings.Contains(out.stdout, "failure rate") {
		t.Errorf("%s", out.stdout)
	}
}

func TestABreakerIsForcedAndReset(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	out := p.run(cli.ExitOK, "breaker open smtp --for 1h --reason they\x1b[2Jmove")
	if !strings.Contains(out.stderr, "no call of downstream smtp was seen yet") || !strings.Contains(out.stdout, "open since") || !strings.Contains(out.stdout, "forced (they [2Jmove)") {
		t.Errorf("%s%s", out.stdout, out.stderr)
	}
	p.call("a")
	job := p.object(cli.ExitOK, "job show acme a")
	waits, _ := job["waits"].([]any)
	wait, _ := waits[0].(map[string]any)
	if wait["kind"] != "breaker" || wait["text"] != "the circuit breaker of downstream smtp is open: forced, they\x1b[2Jmove" || wait["until"] == nil {
		t.Errorf("%v", wait)
	}
	if out := p.run(cli.ExitOK, "job show acme a"); !strings.Contains(out.stdout, "waits: the circuit breaker of downstream smtp is open: forced, they [2Jmove, until 2") {
		t.Errorf("%s", out.stdout)
	}
	closed := p.object(cli.ExitOK, "breaker close smtp --reason spare")
	if closed["state"] != "closed" || closed["forced"] != true || closed["until"] != nil || closed["reason"] != "spare" {
		t.Errorf("%v", closed)
	}
	p.report(1, breaker.Counts{Failures: 50})
	if still := p.object(cli.ExitOK, "breaker show smtp"); still["state"] != "closed" {
		t.Errorf("%v", still)
	}
	reset := p.object(cli.ExitOK, "breaker reset smtp --reason over")
	if reset["state"] != "closed" || reset["forced"] != false || reset["cause"] != "reset" || reset["reason"] != "over" || reset["ramp"] != 0.0 {
		t.Errorf("%v", reset)
	}
	p.report(2, breaker.Counts{Failures: 6})
	if tripped := p.object(cli.ExitOK, "breaker show smtp"); tripped["trips_in_row"] != 1.0 || tripped["state"] != "open" || tripped["reason"] != "over" {
		t.Errorf("%v", tripped)
	}
	reset = p.object(cli.ExitOK, "breaker reset smtp --reason again")
	if reset["trips_in_row"] != 0.0 || reset["trips"] != 1.0 || reset["ramp"] != 1.0 || reset["limit"] != 2.0 {
		t.Errorf("%v", reset)
	}
}

func TestAForcedStateEndsByItself(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	for word, want := range map[string]string{"open": "half-open", "close": "closed"} {
		if began := p.object(cli.ExitOK, "breaker "+word+" smtp --for 200ms --reason short"); began["forced"] != true {
			t.Errorf("%v", began)
		}
		eventually(t, func() bool {
			_, err := p.store.Partitions()[0].Promote(t.Context(), "s", time.Second)
			must(t, err)
			b, err := p.store.Breaker(t.Context(), "smtp")
			must(t, err)
			return b.Cause == breaker.CauseForceEnded
		})
		if ended := p.object(cli.ExitOK, "breaker show smtp"); ended["state"] != want || ended["forced"] != false || ended["reason"] != "short" || ended["until"] != nil {
			t.Errorf("after %s: %v", word, ended)
		}
	}
}

func TestTheAuditIsListed(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "audit"); out.stdout != "" {
		t.Errorf("%s", out.stdout)
	}
	p.run(cli.ExitOK, "policy set default --reason first")
	p.run(cli.ExitOK, "breaker open smtp --for 1h --reason they\x1b[2Jmove")
	p.run(cli.ExitOK, "breaker reset smtp --reason over")
	p.run(cli.ExitOK, "policy rollback 1 --reason again")
	text := p.run(cli.ExitOK, "audit").stdout
	if !strings.Contains(text, cli.Author()) || !strings.Contains(text, "they [2Jmove") {
		t.Errorf("%s", text)
	}
	for _, want := range []string{ // the newest first
		"policy 1 → 2, which is 1 again, 0 changes", "breaker of smtp reset", "breaker of smtp forced open for 1h0m0s", "policy 0 → 1, 0 changes",
	} {
		_, after, ok := strings.Cut(text, want)
		if !ok {
			t.Errorf("no %q after the others, but\n%s", want, text)
		}
		text = after
	}
	page := p.object(cli.ExitOK, "audit --limit 1")
	cursor, _ := page["cursor"].(string)
	entries, _ := p.object(cli.ExitOK, "audit --limit 1 --cursor "+cursor)["entries"].([]any)
	if entry, _ := entries[0].(map[string]any); len(entries) != 1 || entry["action"] != "reset" || entry["author"] != cli.Author() || entry["reason"] != "over" {
		t.Errorf("%v", entries)
	}
	if out := p.run(cli.ExitOK, "audit --limit 1"); !strings.Contains(out.stdout, "There is more: --cursor "+cursor) {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitUsage, "audit --limit 1001"); !strings.Contains(out.stderr, "invalid limit 1001: allowed is 1 to 1000 entries") {
		t.Errorf("%s", out.stderr)
	}
}

func TestMistakesAboutBreakersAreNamed(t *testing.T) {
	t.Parallel()
	const at = " --redis 127.0.0.1:1"
	long := strings.Repeat("x", store.MaxReason+1)
	for _, row := range []struct{ args, want string }{
		{"breaker bogus", `there is no command "bogus"`},
		{"breaker show" + at, "headgate breaker show takes one argument, NAME, got 0"},
		{"breaker show a^b" + at, `invalid NAME "a^b": allowed is 1-128 bytes`},
		{"breaker open smtp" + at, "invalid --reason of 0 bytes: allowed is 1 to 1024 bytes"},
		{"breaker reset smtp --reason " + long + at, "invalid --reason of 1025 bytes: allowed is 1 to 1024 bytes"},
		{"breaker list --state ajar" + at, `invalid --state "ajar": allowed is closed, open or half-open`},
		{"breaker open smtp --reason x --for -1s" + at, "invalid --for -1s: allowed is 0, until it is reset, or 1ms to 8760h0m0s"},
		{"breaker close smtp --reason x --for 900us" + at, "invalid --for 900µs"},
		{"breaker close smtp --reason x --for 8761h" + at, "invalid --for 8761h0m0s"},
		{"breaker open a^b --for 9000h" + at, "invalid --for 9000h0m0s"},
		{"breaker open a^b --for 9000h" + at, `invalid NAME "a^b"`},
		{"breaker open smtp --for long --reason x" + at, `invalid --for "long"`},
	} {
		out := runHeadgate(t.Context(), strings.Fields(row.args)...)
		if out.code != cli.ExitUsage || !strings.Contains(out.stderr, row.want) || out.stdout != "" {
			t.Errorf("headgate %s: exit code %d: %s", row.args, out.code, out.stderr)
		}
	}
	for _, name := range []string{"breaker", "breaker list", "breaker show", "breaker open", "breaker close", "breaker reset"} {
		out := runHeadgate(t.Context(), append(strings.Fields(name), "--help")...)
		if out.code != cli.ExitOK || !strings.Contains(out.stdout, "Examples:") {
			t.Errorf("headgate %s --help: exit code %d\n%s", name, out.code, out.stdout)
		}
	}
}
