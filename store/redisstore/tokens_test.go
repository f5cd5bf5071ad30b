package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// TestATokenIsOfOneLease: the ready stream of a pool goes with its last worker. One that is made anew at once, mostly within the same millisecond,
// names no entry as another was: whoever comes late with the lease that a dead worker had would end another job.
func TestATokenIsOfOneLease(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.admit(mail("acme", "a"), mail("acme", "b"))
	var last [2]uint64
	for life := range 100 {
		worker := fmt.Sprint("w", life)
		_, err := y.store.Register(t.Context(), worker, yardPool, 1, time.Hour)
		check(t, err)
		leases, err := y.store.Read(t.Context(), worker, yardPool.ID(), 1, -1, false)
		check(t, err)
		ms, n, _ := strings.Cut(leases[0].Token, "-")
		var token [2]uint64
		for i, text := range []string{ms, n} {
			token[i], err = strconv.ParseUint(text, 10, 64)
			check(t, err)
		}
		if token[0] < last[0] || token[0] == last[0] && token[1] <= last[1] {
			t.Fatalf("life %d: the token %s comes after %d-%d", life, leases[0].Token, last[0], last[1])
		}
		last = token
		for more := true; more; {
			more, err = y.store.Reclaim(t.Context(), worker)
			check(t, err)
		}
		if life > 0 {
			continue
		}
		// The lease that is over ends nothing, whatever has its place.
		_, err = y.store.Register(t.Context(), "other", yardPool, 1, time.Hour)
		check(t, err)
		others, err := y.store.Read(t.Context(), "other", yardPool.ID(), 1, -1, false)
		check(t, err)
		ends, _, err := y.store.Finish(t.Context(), yardPool.ID(), "other", []store.Finish{leases[0].Finish(store.Complete)})
		check(t, err)
		if ends[0] != store.EndedLost || len(others) != 1 {
			t.Errorf("%v", ends[0])
		}
		for more := true; more; {
			more, err = y.store.Reclaim(t.Context(), "other")
			check(t, err)
		}
	}
}
