package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

func TestAWordThatIsNoCommandSaysWhichWasMeant(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ args, want string }{
		{"job bogus", `there is no command "bogus"` + "\n"},
		{"job explain acme x", `there is no command "explain": did you mean headgate explain?`},
		{"dead redrive", "did you mean headgate redrive?"},
		{"limit describe acme", "did you mean headgate limit get or headgate limit top?"},
		{"limit show", "headgate limit get takes one argument, SCOPE, got 0"},
		{"limit unset", "headgate limit delete takes one argument, SCOPE, got 0"},
		{"tier show gold", "did you mean headgate tier list?"},
		{"tier delete gold", "did you mean headgate tier unset?"},
		{"policy check policy.json", "did you mean headgate policy dry-run?"},
		{"polcy get", "did you mean headgate policy?"},
		{"why acme x", "did you mean headgate explain?"},
		{"cancel acme x", "did you mean headgate job cancel?"},
		{"pause mail", `headgate pause takes no argument, got "mail": a queue is named by --queue mail`},
		{"enqueue --tenant acme --queue mail --type t --delay soon --run-at later --redis 127.0.0.1:1", `invalid run_at "later": allowed is a time of RFC 3339`},
	} {
		out := runHeadgate(t.Context(), strings.Fields(row.args)...)
		if out.code != cli.ExitUsage || !strings.Contains(out.stderr, row.want) {
			t.Errorf("%s: exit code %d, %s", row.args, out.code, out.stderr)
		}
	}
}

// TestAWrongNumberOfArgumentsIsAWrongCommandLine: of every command, in words of the house that name what it takes.
func TestAWrongNumberOfArgumentsIsAWrongCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"load a b":              "headgate load takes one argument at most, QUEUE, got 2",
		"semaphore release gpu": "headgate semaphore release takes two arguments, NAME and TOKEN, got 1",
		"trigger try":           "headgate trigger try takes one or two arguments, NAME and perhaps FILE, got 0",
		"limit scale a 0.5 c":   "headgate limit scale takes two arguments at most, SCOPE and PART, got 3",
		"anomaly try":           "headgate anomaly try takes one argument, TRACE.csv, got 0",
	} {
		out := runHeadgate(t.Context(), strings.Fields(line)...)
		if out.code != cli.ExitUsage || !strings.Contains(out.stderr, want+"\n") || !strings.Contains(out.stderr, " --help tells what it takes") {
			t.Errorf("%s: exit code %d, %s", line, out.code, out.stderr)
		}
	}
	var each func(*cobra.Command)
	each = func(c *cobra.Command) {
		if c.Args == nil {
			t.Errorf("%s does not say how many arguments it takes", c.CommandPath())
			return
		}
		for _, args := range [][]string{nil, strings.Fields("a b c d e f g h i")} {
			if err := c.Args(c, args); err != nil && cli.Fail(io.Discard, c, err) != cli.ExitUsage {
				t.Errorf("%s of %d arguments: %v", c.CommandPath(), len(args), err)
			}
		}
		for _, below := range c.Commands() {
			each(below)
		}
	}
	each(newRoot(io.Discard, io.Discard))
}

// TestATimeWithoutAUnitIsToldOne, and what the flag allows: of every flag that takes a time.
func TestATimeWithoutAUnitIsToldOne(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"limit set acme --tokens 20 --per 1":   `invalid --per "1": allowed is a time such as 1s, 1m or 1h: DURATION in which they do, 1ms to 744h`,
		"limit set acme --tokens 20 --per 30d": `invalid --per "30d": allowed is a time such as 720h: DURATION in which they do, 1ms to 744h`,
		"record set acme --dispatch-per 1":     `invalid --dispatch-per "1": allowed is a time such as 1s, 1m or 1h: DURATION in which they do, 1ms to 744h`,
		"key new --expires 90d":                `invalid --expires "90d": allowed is a time such as 2160h: TIME after which it ends, such as 2160h, 1s or more; by default never`,
		"worker --timeout 30":                  `invalid --timeout "30": allowed is a time such as 30s, 30m or 30h: longest TIME of a run, 1ms to 24h`,
		"pause --queue mail --for soon":        `invalid --for "soon": allowed is a time such as 500ms, 30s, 10m or 24h: DURATION of the pause`,
		"limit set acme --tokens many":         `invalid --tokens "many": allowed is a whole number: NUMBER of tokens that come back in --per, 1 to 1000000000`,
		"limit set acme --off=maybe":           `invalid --off "maybe": allowed is true or false` + "\n",
	} {
		if out := runHeadgate(t.Context(), strings.Fields(line)...); out.code != cli.ExitUsage || !strings.Contains(out.stderr, want) {
			t.Errorf("%s: exit code %d, %s", line, out.code, out.stderr)
		}
	}
	ranged := regexp.MustCompile(`\d(ns|ms|s|m|h) (to \d+(ms|s|m|h)|or more)`)
	times := 0
	var each func(*cobra.Command)
	each = func(c *cobra.Command) {
		c.Flags().VisitAll(func(flag *pflag.Flag) {
			if flag.Value.Type() != "duration" {
				return
			}
			if times++; !ranged.MatchString(flag.Usage) {
				t.Errorf("%s --%s does not say from which time to which: %s", c.CommandPath(), flag.Name, flag.Usage)
			}
		})
		for _, below := range c.Commands() {
			each(below)
		}
	}
	if each(newRoot(io.Discard, io.Discard)); times < 20 {
		t.Errorf("%d flags take a time", times)
	}
}

// TestDeadLettersAreChosenByWhatTheyDiedOf: --reason chose in 0.1, and a reason that is none may have been meant for the audit.
func TestDeadLettersAreChosenByWhatTheyDiedOf(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue("a", "b")
	p.kill(2)
	for line, want := range map[string]string{
		"dead list --died-of bounced":                                `invalid --died-of "bounced": allowed is bad_payload, discarded,`,
		`redrive --queue mail --reason provider-is-back`:             "unreadable; why it is done is told by --why",
		"dead purge --queue mail --reason tidy --yes":                "unreadable; why it is done is told by --why",
		"dead purge --queue mail --died-of tidy --dry-run":           `invalid --died-of "tidy"`,
		"redrive --queue mail --dry-run --died-of poisson --limit 1": `invalid --died-of "poisson"`,
	} {
		if out := p.run(cli.ExitUsage, line); !strings.Contains(out.stderr, want) {
			t.Errorf("%s: %s", line, out.stderr)
		}
	}
	if out := p.run(cli.ExitOK, "dead list --queue mail --died-of discarded"); strings.Count(out.stdout, "discarded:") != 2 {
		t.Errorf("%s", out.stdout)
	}
	if dead := p.object(cli.ExitOK, "dead show acme:a"); dead["id"] != "a" {
		t.Errorf("by TENANT:ID: %v", dead)
	}
	if more := p.object(cli.ExitNothing, "redrive acme:b acme:none"); more["redriven"] != 1.0 || fmt.Sprint(more["refused"]) != "map[gone:1]" {
		t.Errorf("by TENANT:ID: %v", more)
	}
}
