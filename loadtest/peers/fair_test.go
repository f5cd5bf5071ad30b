package peers

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/asynqbridge"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// fairQueue is asynq as asynqQueue has it, fed by the bridge, with its defaults.
type fairQueue struct {
	asynqQueue

	fair  *asynqbridge.Fair
	store store.Deployment
}

func newFair(tb testing.TB) queue {
	tb.Helper()
	server := redistest.Start(tb, redistest.Options{})
	options := server.Options()
	options.PoolSize = 100
	s, err := redisstore.Open(tb.Context(), newClient(tb, options), redisstore.Config{})
	check(tb, err)
	limits := policy.Unlimited()
	p, err := producer.New(s, producer.Config{Policy: &limits, Timeout: 30 * time.Second})
	check(tb, err)
	return &fairQueue{asynqQueue: asynqQueue{redis: asynq.RedisClientOpt{Addr: server.Addr(), PoolSize: 100}}, fair: asynqbridge.NewFair(p), store: s}
}

func (q *fairQueue) enqueue(tb testing.TB, tenant string, number int) {
	tb.Helper()
	body := append(fmt.Appendf(nil, "%s %d ", tenant, number), payload...)
	_, err := q.fair.EnqueueContext(asynqbridge.WithTenant(tb.Context(), tenant), asynq.NewTask("bench", body))
	check(tb, err)
}

func (q *fairQueue) enqueueMany(tb testing.TB, tenant func(int) string, first, last int) {
	tb.Helper()
	enqueueTogether(tb, q, tenant, first, last)
}

func (q *fairQueue) work(tb testing.TB, slots int, run handle) func() {
	tb.Helper()
	r, err := asynqbridge.NewReleaser(q.redis, q.store, asynqbridge.ReleaserConfig{Queues: []string{"default"}})
	check(tb, err)
	stopReleaser := background(tb, r.Run)
	stopServer := q.asynqQueue.work(tb, slots, run)
	return func() {
		stopReleaser()
		stopServer()
		check(tb, r.Close())
	}
}
