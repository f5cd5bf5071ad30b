package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/store"
)

func TestPermitsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "semaphore list"); out.stdout != "nobody holds or waits for a permit\n" {
		t.Errorf("%q", out.stdout)
	}
	for token, name := range map[string]string{"a": "gpu", "b": "acme:disk"} {
		permit, err := p.store.Acquire(t.Context(), store.Acquire{Name: name, Token: token, Permits: 2, Max: 3, Lease: time.Minute})
		if err != nil || !permit.Granted() {
			t.Fatalf("%+v, %v", permit, err)
		}
	}
	list := p.run(cli.ExitOK, "semaphore list").stdout
	for _, want := range []string{"acme:disk", "gpu", "1000", "2"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list has no %s:\n%s", want, list)
		}
	}
	if out := p.run(cli.ExitOK, "semaphore show gpu --json"); !strings.Contains(strings.ReplaceAll(out.stdout, " ", ""), `"held":2`) {
		t.Errorf("%s", out.stdout)
	}
	for range 2 {
		p.run(cli.ExitOK, "semaphore release gpu a")
	}
	if out := p.run(cli.ExitOK, "semaphore list"); strings.Contains(out.stdout, "gpu") {
		t.Errorf("%s", out.stdout)
	}
}
