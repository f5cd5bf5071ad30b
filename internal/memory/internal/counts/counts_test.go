package counts

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestOldMinutesAndRanksAreForgotten: a minute after the hour in which it is told, ranks some minutes after the last count.
func TestOldMinutesAndRanksAreForgotten(t *testing.T) {
	t.Parallel()
	c := New()
	at := func(minute int64) int64 { return minute * time.Minute.Microseconds() }
	one := []store.ScopeCount{{Scope: "acme", Allowed: 40, Refused: 2, Tokens: 50}}
	for minute := range 100 {
		c.Add(one, at(int64(minute)), at(int64(minute)))
	}
	if n := len(c.minutes); n != int(HourMinutes)+1 {
		t.Errorf("%d minutes are kept", n)
	}
	if got := c.Minute(99)["acme"]; got.Allowed != 40 || got.Refused != 2 || got.Tokens != 50 || got.Partial {
		t.Errorf("%+v", got)
	}
	c.Add(one, at(99)+at(1)*62, at(99)+at(1)*62)
	if got := c.Minute(161)["acme"]; !got.Partial || c.ranks["acme"] != 42 {
		t.Errorf("%+v of rank %f", got, c.ranks["acme"])
	}
}

// TestTheLastMakesRoom: of more scopes than are ranked the one with the least goes, and its minute.
func TestTheLastMakesRoom(t *testing.T) {
	t.Parallel()
	c := New()
	for i := range store.TopScopes {
		c.Add([]store.ScopeCount{{Scope: admission.Scope(fmt.Sprint("tenant-", i)), Allowed: int64(2 + i)}}, 1, 1)
	}
	c.Add([]store.ScopeCount{{Scope: "always", Always: true, Allowed: 1}, {Scope: "new", Allowed: 1}}, 1, 1)
	of := c.Minute(0)
	if _, there := of["tenant-0"]; there || len(of) != store.TopScopes+1 || c.ranks["new"] != 3 || of["new"].Allowed != 1 {
		t.Errorf("%d scopes, new %+v of rank %f", len(of), of["new"], c.ranks["new"])
	}
}
