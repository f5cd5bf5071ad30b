package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
)

func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	trace := writeTrace(t, 1)
	policy := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(policy, []byte(`{"tiers": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args string
		code int
		want string
	}{
		{"bogus", cli.ExitUsage, `there is no command "bogus"`},
		{"--bogus", cli.ExitUsage, "unknown flag: --bogus"},
		{"version now", cli.ExitUsage, `headgate version takes no argument, got "now"`},
		{"replay", cli.ExitUsage, "headgate replay takes one argument, the trace's file, got 0"},
		{"replay a b", cli.ExitUsage, "got 2"},
		{"replay TRACE --speed fast", cli.ExitUsage, `invalid --speed "fast": allowed is FACTOR by which it is faster than the trace, 1 to 1e9`},
		{"replay TRACE --speed 0", cli.ExitUsage, "invalid --speed 0: allowed is 1 to 1e9"},
		{"replay TRACE --speed 2e9", cli.ExitUsage, "invalid --speed 2e+09: allowed is 1 to 1e9"},
		{"replay TRACE --concurrency 0", cli.ExitUsage, "invalid --concurrency 0: allowed is 1 to 10000 slots"},
		{"replay TRACE --concurrency -1", cli.ExitUsage, "invalid --concurrency -1: allowed is 1 to 10000 slots"},
		{"replay TRACE --max-attempts 0", cli.ExitUsage, "invalid --max-attempts 0: allowed is 1 to 255 runs"},
		{"replay TRACE --limit-rows -1", cli.ExitUsage, "invalid --limit-rows -1: allowed is 0, for all, or more"},
		{"replay TRACE --seed -1", cli.ExitUsage, `invalid --seed "-1"`},
		{"replay TRACE --exclude-downstream a^b", cli.ExitUsage, `invalid --exclude-downstream "a^b"`},
		{"replay TRACE --log loud", cli.ExitUsage, `invalid --log "loud": allowed is one of off, error, warn, info, debug`},
		{"replay TRACE", cli.ExitFailure, `no column "groupId": name the right one with --column-tenant`},
		{"replay TRACE --policy POLICY", cli.ExitFailure, `invalid tiers none: allowed is a set with "standard"`},
		{"replay /nowhere/trace.csv", cli.ExitFailure, "read the trace: open /nowhere/trace.csv: no such file or directory"},
		{"replay TRACE --column-tenant customer --redis 127.0.0.1:1", cli.ExitFailure, "nobody listens there: start Redis, or correct the address"},
		{"replay TRACE --column-tenant customer --redis ftp://x", cli.ExitFailure, "redis address has an unknown scheme"},
		{"demo --duration 1s", cli.ExitUsage, "invalid --duration 1s: allowed is 3s to 1m"},
		{"demo --duration 0", cli.ExitUsage, "invalid --duration 0: allowed is 3s to 1m"},
		{"demo --redis 127.0.0.1:1", cli.ExitFailure, "open the store: redis at 127.0.0.1:1: "},
		{"policy bogus", cli.ExitUsage, `there is no command "bogus"`},
		{"policy get", cli.ExitUsage, "say which Redis with --redis"},
		{"policy set --redis 127.0.0.1:1", cli.ExitUsage, "headgate policy set takes one argument, FILE or default, got 0"},
		{"policy set /nowhere --redis 127.0.0.1:1", cli.ExitFailure, "read /nowhere: open /nowhere: no such file or directory"},
	} {
		t.Run(row.args, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(strings.NewReplacer("TRACE", trace, "POLICY", policy).Replace(row.args))
			began := time.Now()
			out := runHeadgate(t.Context(), args...)
			if out.code != row.code || !strings.Contains(out.stderr, "headgate: ") || !strings.Contains(out.stderr, row.want) || out.stdout != "" {
				t.Errorf("exit code %d, want %d with %q: %s%s", out.code, row.code, row.want, out.stderr, out.stdout)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s to say so", took)
			}
		})
	}
}

// TestHelpHasExamples: each command says in examples how it is called, and each flag what it takes.
func TestHelpHasExamples(t *testing.T) {
	t.Parallel()
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		if c.Example == "" && c.Name() != "version" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); f.Value.Type() != "bool" && strings.ToUpper(name) != name {
				t.Errorf("%s --%s takes %q, which does not say what", c.CommandPath(), f.Name, name)
			}
		})
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(newRoot(io.Discard, io.Discard))
	for _, args := range []string{"", "--help", "demo --help", "tenant set --help"} {
		out := runHeadgate(t.Context(), strings.Fields(args)...)
		if out.code != cli.ExitOK || !strings.Contains(out.stdout, "Examples:") {
			t.Errorf("headgate %s: exit code %d\n%s", args, out.code, out.stdout)
		}
	}
	if out := runHeadgate(t.Context(), "version"); out.code != cli.ExitOK || !strings.HasPrefix(out.stdout, "headgate ") {
		t.Errorf("version: %+v", out)
	}
}

// TestARedisThatTakesNoWritesIsExplained, though it answered when it was opened.
func TestARedisThatTakesNoWritesIsExplained(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	if out := runHeadgate(t.Context(), "enqueue", "--tenant", "acme", "--queue", "mail", "--type", "send", "--redis", server.URL()); out.code != cli.ExitOK {
		t.Fatalf("%+v", out)
	}
	for _, row := range []struct {
		setting []string
		want    string
	}{
		{[]string{"CONFIG", "SET", "min-replicas-to-write", "1"}, "about redis: it has too few replicas to take writes"},
		{[]string{"CONFIG", "SET", "min-replicas-to-write", "0", "maxmemory", "1"}, "about redis: it is full: raise its maxmemory"},
		{[]string{"REPLICAOF", "127.0.0.1", "1"}, "about redis: it is a replica and takes no writes: give the master's address"},
	} {
		words := make([]any, len(row.setting))
		for i, word := range row.setting {
			words[i] = word
		}
		if err := client.Do(t.Context(), words...).Err(); err != nil {
			t.Fatal(err)
		}
		out := runHeadgate(t.Context(), "migrate", "--partitions", "2", "--redis", server.URL())
		if out.code != cli.ExitFailure || strings.Count(out.stderr, row.want) != 1 {
			t.Errorf("%v: exit code %d, %s", row.setting, out.code, out.stderr)
		}
	}
	if out := runHeadgate(t.Context(), "queue", "list", "--redis", strings.Replace(server.URL(), "redis://", "redis://ada:sesame@", 1)); strings.Contains(out.stderr, "about redis") {
		t.Errorf("what the error says is said again: %s", out.stderr)
	}
}
