package redisstore

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/gates"
)

// TestSharesTellHowBoundsAreDivided: evenly at first, then as somebody has set them, and no longer once the policy has them no more.
func TestSharesTellHowBoundsAreDivided(t *testing.T) {
	t.Parallel()
	s, err := openMany(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t), Partitions: 4})
	check(t, err)
	ask := func(want string) {
		t.Helper()
		shares, err := s.Shares(t.Context())
		check(t, err)
		if got := fmt.Sprint(shares); got != want {
			t.Errorf("shares %s, want %s", got, want)
		}
	}
	ask("[{global [0.25 0.25 0.25 0.25]}]")
	st := func(version int64, caps ...store.Cap) {
		t.Helper()
		check(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Expected: version - 1, Version: version, Text: []byte("{}"), Caps: caps}))
	}
	mail, smtp := store.QueueGate("mail"), store.DownstreamRateGate("smtp")
	st(1, store.Cap{Gate: mail, Limit: 10}, store.Cap{Gate: smtp, Rate: admission.PerSecond(8)})
	ask("[{global [0.25 0.25 0.25 0.25]} {q:mail [0.25 0.25 0.25 0.25]} {s:smtp [0.25 0.25 0.25 0.25]}]")
	for i, units := range [][2]int{{7, 500}, {1, 1500}, {1, 1000}, {1, 1000}} {
		_, _, err := s.parts[i].Share(t.Context(), 1, "test", []gates.Setting{
			{Bound: string(mail), Units: units[0], Of: 10}, {Bound: store.GlobalBound, Units: units[1], Of: 4000},
		})
		check(t, err)
	}
	ask("[{global [0.125 0.375 0.25 0.25]} {q:mail [0.7 0.1 0.1 0.1]} {s:smtp [0.25 0.25 0.25 0.25]}]")
	tokens, err := s.GlobalShares(t.Context(), 200)
	check(t, err)
	if got := store.SharesWords(tokens); got != "; the partitions have 25, 75, 50, 50 of that" {
		t.Errorf("of 200 tokens%s", got)
	}
	st(2, store.Cap{Gate: smtp, Rate: admission.PerSecond(8)})
	ask("[{global [0.125 0.375 0.25 0.25]} {s:smtp [0.25 0.25 0.25 0.25]}]")
	if shares, err := store.Single(s.parts[0], nil).Shares(t.Context()); err != nil || shares != nil {
		t.Errorf("of a single partition: %v, %v", shares, err)
	}
	if shares, err := store.Single(s.parts[0], nil).GlobalShares(t.Context(), 200); err != nil || store.SharesWords(shares) != "" {
		t.Errorf("of a single partition: %v, %v", shares, err)
	}
}
