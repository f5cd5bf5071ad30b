package gauge

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestASecondRedisThatIsAwayIsAMetric, and one that nobody ever had is none.
func TestASecondRedisThatIsAwayIsAMetric(t *testing.T) {
	t.Parallel()
	second := redistest.Start(t, redistest.Options{})
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Second: second.Addr()})
	must(t, err)
	registry := prometheus.NewPedanticRegistry()
	_, err = Register(registry, s)
	must(t, err)
	names := []string{"headgate_second_redis_jobs", "headgate_second_redis_trouble", "headgate_second_redis_moved_seconds"}
	count := func() int {
		n, err := testutil.GatherAndCount(registry, names...)
		must(t, err)
		return n
	}
	if n := count(); n != 0 {
		t.Errorf("before anybody moved there are %d of them", n)
	}
	mover := s.Partitions()[0].NewMover("m")
	moves, err := mover.Move(t.Context())
	must(t, err)
	if n := count(); moves.Trouble != nil || n != 6 {
		t.Errorf("after a move without trouble (%v) there are %d of them, not 6", moves.Trouble, n)
	}
	const none = `
# HELP headgate_second_redis_trouble 1 for what of away, refused, foreign and lost stands against moving spilled jobs to the second Redis and back, 0 for the others.
# TYPE headgate_second_redis_trouble gauge
headgate_second_redis_trouble{reason="away"} 0
headgate_second_redis_trouble{reason="foreign"} 0
headgate_second_redis_trouble{reason="lost"} 0
headgate_second_redis_trouble{reason="refused"} 0
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(none), names[1]))
	second.Kill(t)
	moves, err = mover.Move(t.Context())
	must(t, err)
	if moves.Trouble == nil {
		t.Fatal("the second Redis was killed, and moved")
	}
	const want = `
# HELP headgate_second_redis_jobs Spilled jobs whose bodies are in the second Redis.
# TYPE headgate_second_redis_jobs gauge
headgate_second_redis_jobs 0
# HELP headgate_second_redis_trouble 1 for what of away, refused, foreign and lost stands against moving spilled jobs to the second Redis and back, 0 for the others.
# TYPE headgate_second_redis_trouble gauge
headgate_second_redis_trouble{reason="away"} 1
headgate_second_redis_trouble{reason="foreign"} 0
headgate_second_redis_trouble{reason="lost"} 0
headgate_second_redis_trouble{reason="refused"} 0
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), names[:2]...))
	second.Restart(t)
	for range 3 { // The first may find a connection that broke; a portion is told of by the next.
		_, err = mover.Move(t.Context())
		must(t, err)
	}
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(none), names[1]))
}
