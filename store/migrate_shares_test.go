package store

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// TestAMigrationForgetsSharesOfTheGlobalRate: they are multiples of even parts, of which there are others then.
func TestAMigrationForgetsSharesOfTheGlobalRate(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s, err := Open(t.Context(), client, Config{Prefix: redistest.Prefix(t), Partitions: 3})
	check(t, err)
	for i, units := range []int{2500, 250, 250} {
		_, _, err := s.Partitions()[i].share(t.Context(), 1, "test", []setting{{bound: globalBound, units: units, of: 3000}})
		check(t, err)
	}
	m, err := migration(t.Context(), client, client, s.config.Prefix, 2)
	check(t, err)
	_, err = m.Run(t.Context())
	check(t, err)
	if _, err = Open(t.Context(), client, s.config); !errors.Is(err, ErrPartitions) {
		t.Fatalf("opened with three partitions: %v", err)
	}
	if s, err = Open(t.Context(), client, Config{Prefix: m.config.Prefix, Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	for i, part := range s.Partitions() {
		portions, _, err := part.share(t.Context(), 2, "test", []setting{{bound: globalBound}})
		check(t, err)
		if got := portions[0]; got.units*2 != got.of || got.limit*2 != got.whole {
			t.Errorf("partition %d of 2 has %+v", i, got)
		}
	}
}
