package tally

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// TestTypesAreCountedBesideClasses: a way of a type is counted at each level once, and at its type, over all its classes.
func TestTypesAreCountedBesideClasses(t *testing.T) {
	t.Parallel()
	p := policy.Unlimited()
	p.Observe = []admission.Scope{"acme:mail:type=report"}
	compiled, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	got := map[admission.Scope]Sum{}
	for _, c := range scopeCounts(counted{paths: map[Path]Sum{
		{Tenant: "acme", Queue: "mail", Class: admission.High, Type: "report"}: {Allowed: 5, Refused: 1, Tokens: 6},
		{Tenant: "acme", Queue: "mail", Class: admission.Low, Type: "report"}:  {Allowed: 2, Tokens: 2},
		{Tenant: "acme", Queue: "mail", Class: admission.Low}:                  {Allowed: 1, Refused: 3, Tokens: 4},
	}}, compiled) {
		got[c.Scope] = Sum{c.Allowed, c.Refused, c.Tokens}
		if always := c.Scope == admission.Global || c.Scope == "acme:mail:type=report"; c.Always != always {
			t.Errorf("%s is counted always: %v", c.Scope, c.Always)
		}
	}
	for scope, want := range map[admission.Scope]Sum{
		admission.Global: {8, 4, 12}, "acme": {8, 4, 12}, "acme:mail": {8, 4, 12}, "acme:mail:high": {5, 1, 6}, "acme:mail:low": {3, 3, 6}, "acme:mail:type=report": {7, 1, 8},
	} {
		if got[scope] != want {
			t.Errorf("%s: %+v, want %+v", scope, got[scope], want)
		}
	}
	if len(got) != 6 {
		t.Errorf("%+v", got)
	}
}

// TestTypesThatAreCountedAreBounded: who makes up types loses no count of anybody's class by it.
func TestTypesThatAreCountedAreBounded(t *testing.T) {
	t.Parallel()
	var all Tally
	for range 2 {
		for i := range 2 * maxPaths {
			all.mu.Lock()
			all.addLocked(Path{Tenant: "acme", Queue: "mail", Class: admission.Low, Type: fmt.Sprint("t", i)}, Sum{Allowed: 1, Tokens: 1})
			all.mu.Unlock()
		}
		all.mu.Lock()
		all.addLocked(Path{Tenant: "bolt", Queue: "mail", Class: admission.Low}, Sum{Allowed: 1, Tokens: 1})
		all.mu.Unlock()
		taken := all.take(false).paths
		if acme, bolt := taken[Path{Tenant: "acme", Queue: "mail", Class: admission.Low}], taken[Path{Tenant: "bolt", Queue: "mail", Class: admission.Low}]; len(taken) != maxTyped+2 || acme.Allowed != 2*maxPaths-maxTyped || bolt.Allowed != 1 {
			t.Errorf("%d ways: %+v, %+v", len(taken), acme, bolt)
		}
	}
}
