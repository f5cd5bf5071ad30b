package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// TestEveryScriptComparesTheLayout sends each script to a deployment whose layout has changed. Those left out note that somebody
// lives, count for statistics, or look for an entry that a migration leaves none of.
func TestEveryScriptComparesTheLayout(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s, err := openMany(t.Context(), client, Config{Prefix: redistest.Prefix(t), Partitions: 2})
	check(t, err)
	part := s.parts[1]
	state := part.conn.Partition.State()
	_, receipt, err := part.Take(t.Context(), 0, ofTenant("a", 1))
	check(t, err)
	keysBefore := client.Keys(t.Context(), part.conn.Partition.Base()+"*").Val()
	for layout, want := range map[string][]error{
		"3": {admission.ErrPartitions}, "2>3": {admission.ErrMigrating, admission.ErrUnavailable}, ">redis://there:6379": {admission.ErrMoved},
	} {
		check(t, client.HSet(t.Context(), state, redisconn.LayoutField, layout).Err())
		if looked := part.CheckLayout(t.Context()); store.IsOutdated(looked) != (layout != "2>3") || !errors.Is(looked, want[0]) {
			t.Errorf("a look at a deployment of %s finds %v", layout, looked)
		}
		before := fmt.Sprint(client.HGetAll(t.Context(), state).Val())
		for _, name := range lua.Names() {
			if slices.Contains([]string{"alive", "count", "distinct", "probing", "start"}, name) {
				continue
			}
			args := slices.Repeat([]any{"0"}, 24)
			if at, ok := map[string]int{"admit": 5, "check": 5, "shadow": 5, "grant": 8}[name]; ok {
				args[at-1] = string(make([]byte, 30)) // the head of no paths
			}
			if name == "finish" {
				args[3] = "\x00\x00" // no ends
			}
			_, err := part.conn.Run(t.Context(), name, args...)
			if name == "refund" { // It reads its path first.
				_, err = part.Refund(t.Context(), "id", receipt)
			}
			for _, target := range want {
				if !errors.Is(err, target) || store.InDoubt(err) {
					t.Errorf("%s of a deployment of %s: %v", name, layout, err)
				}
			}
		}
		if after := fmt.Sprint(client.HGetAll(t.Context(), state).Val()); after != before {
			t.Errorf("scripts that were refused made %s of %s", after, before)
		}
		if keys := client.Keys(t.Context(), part.conn.Partition.Base()+"*").Val(); len(keys) != len(keysBefore) {
			t.Errorf("scripts that were refused made %v of %v", keys, keysBefore)
		}
	}
}
