package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

// TestATenantsBacklogIsCancelled: counted first, then ended, with progress; a line that does not say whose is refused.
func TestATenantsBacklogIsCancelled(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	var ids []string
	for n := range 130 {
		ids = append(ids, fmt.Sprint("j", n))
	}
	p.enqueue(ids...)
	if out := p.run(cli.ExitOK, "job cancel --all --tenant acme --queue mail --dry-run"); out.stdout != "130 jobs of acme wait in mail; nothing is changed\n" {
		t.Errorf("dry run: %s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "explain tenant acme"); !strings.Contains(out.stdout, "130 of its jobs wait: 130 in mail") {
		t.Errorf("explain: %s", out.stdout)
	}
	if got := p.object(cli.ExitOK, "job cancel --all --tenant acme --queue mail --reason test"); got["cancelled"] != 130.0 {
		t.Errorf("%v", got)
	}
	if got := p.object(cli.ExitOK, "job cancel --all --tenant acme --queue mail --dry-run"); got["waiting"] != nil {
		t.Errorf("what is left: %v", got)
	}
	census, err := p.store.Census(context.WithoutCancel(t.Context()))
	must(t, err)
	if !census.Conserved() || census.Left["cancelled"] != 130 {
		t.Errorf("%+v", census)
	}
	for _, line := range []string{"job cancel --all --queue mail", "job cancel --all --tenant acme", "job cancel --all acme a", "job cancel acme a --tenant acme", "job cancel acme a --dry-run"} {
		p.run(cli.ExitUsage, line)
	}
}
