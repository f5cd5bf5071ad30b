package main

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

// TestAnEmptyListIsNoFailure: every command that lists ends with 0 where there is nothing, says so beside the list, and its JSON is
// that of a list.
func TestAnEmptyListIsNoFailure(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	for _, line := range []string{
		"queue list", "queue settings", "tenant list", "tenant list --tier basic", "downstream list", "breaker list", "job list", "dead list",
		"policy history", "audit", "key list", "usage",
	} {
		if line == "key list" {
			if out := runHeadgate(t.Context(), "key", "list"); out.code != cli.ExitOK || out.stdout != "" || !strings.Contains(out.stderr, "headgate: there is no key") {
				t.Errorf("%s: %+v", line, out)
			}
			continue
		}
		if out := p.run(cli.ExitOK, line); out.stdout != "" || !strings.HasPrefix(out.stderr, "headgate: ") {
			t.Errorf("%s: %+v", line, out)
		}
		p.object(cli.ExitOK, line)
	}
}

// TestAMistypedVariableIsTold where a deployment is looked at, and by config check.
func TestAMistypedVariableIsTold(t *testing.T) {
	t.Setenv("HEADGATE_WORKR_LEASE", "30s")
	p := newPlant(t)
	const want = "headgate: warning: unknown key HEADGATE_WORKR_LEASE: did you mean HEADGATE_WORKER_LEASE? It is ignored.\n"
	for _, out := range []output{p.run(cli.ExitOK, "queue list"), runHeadgate(t.Context(), "config", "check")} {
		if strings.Count(out.stderr, want) != 1 || out.code != cli.ExitOK {
			t.Errorf("%+v", out)
		}
	}
}

// TestTimesSayTheirZone: Z, as of UTC.
func TestTimesSayTheirZone(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.run(cli.ExitOK, "limit set acme --tokens 5")
	if out := p.run(cli.ExitOK, "audit").stdout; !strings.Contains(out, "Z │") {
		t.Errorf("%s", out)
	}
}
