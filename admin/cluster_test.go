package admin_test

import (
	"testing"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestSessionsOnACluster runs what sessions do at three masters with a partition each.
func TestSessionsOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartNodes(t, 3, false)
	for name, test := range map[string]func(*testing.T, *plant){
		"two sessions open a breaker": openByTwo, "a call counts once": countOnce, "a deploy hands back": handBack,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := redisstore.Open(t.Context(), cluster.Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
			must(t, err)
			test(t, newPlantOn(t, s, nil))
		})
	}
}
