package migrate

import (
	"errors"
	"slices"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestAMigrationForgetsSharesOfTheGlobalRate: they are multiples of even parts, of which there are others then.
func TestAMigrationForgetsSharesOfTheGlobalRate(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	prefix := redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: 3})
	check(t, err)
	for i, units := range []int{2500, 250, 250} {
		conn := inRedis(s)[i].Conn()
		_, err := conn.Run(t.Context(), "share", conn.Now, 1, "test", 3, "global", units, 3000)
		check(t, err)
	}
	const tokens = 6
	shares, err := s.GlobalShares(t.Context(), tokens)
	check(t, err)
	if want := []float64{5, 0.5, 0.5}; !slices.Equal(shares, want) {
		t.Errorf("before there are shares %v, want %v", shares, want)
	}
	m, err := migration(t.Context(), client, client, prefix, 2)
	check(t, err)
	_, err = m.Run(t.Context())
	check(t, err)
	if _, err = redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: 3}); !errors.Is(err, admission.ErrPartitions) {
		t.Fatalf("opened with three partitions: %v", err)
	}
	if s, err = redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	shares, err = s.GlobalShares(t.Context(), tokens)
	check(t, err)
	if want := []float64{3, 3}; !slices.Equal(shares, want) {
		t.Errorf("there are shares %v, want %v", shares, want)
	}
}
