package admin_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// fill enqueues n jobs of a tenant.
func (p *plant) fill(to *producer.Producer, tenant string, n int) {
	p.tb.Helper()
	jobs := make([]admission.Job, n)
	for i := range jobs {
		jobs[i] = admission.NewJob(tenant, "mail", "welcome", nil)
	}
	_, err := to.EnqueueBatch(p.tb.Context(), jobs)
	must(p.tb, err)
}

// TestASessionNeverHasMoreSlotsThanItsOwn: while several calls at a time, each by another server, take jobs that come and go in all
// partitions, the slots that are registered in all of them add up to no more than the session's.
func TestASessionNeverHasMoreSlotsThanItsOwn(t *testing.T) {
	t.Parallel()
	const slots, jobs, callers = 3, 100, 6
	redisClient := redistest.Shared(t).Client(t)
	s, err := redisstore.Open(t.Context(), redisClient, redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 5})
	must(t, err)
	var servers []*plant
	for range callers {
		servers = append(servers, newPlantOn(t, s, nil))
	}
	to, err := producer.New(s, producer.Config{Policy: new(policy.Unlimited())})
	must(t, err)
	for i := range 5 {
		servers[0].fill(to, servers[0].tenant("t", i), jobs/5)
	}
	name := servers[0].serving("mail", slots).name
	var stop atomic.Bool
	var counting, calling sync.WaitGroup
	counting.Go(func() {
		for !stop.Load() {
			if n := registered(t, redisClient, s, name); n > slots {
				t.Errorf("%d slots are registered, the session has %d", n, slots)
				return
			}
		}
	})
	left := make(chan struct{}, jobs)
	for range jobs {
		left <- struct{}{}
	}
	for i := range callers {
		c := &client{servers[i], name}
		calling.Go(func() {
			for len(left) > 0 {
				for _, job := range c.lease(`{"max":1,"wait":"200ms"}`) {
					c.end(http.StatusOK, "complete", job, "")
					<-left
				}
			}
		})
	}
	calling.Wait()
	stop.Store(true)
	counting.Wait()
}

// registered adds up the slots of a worker in all partitions at one instant.
func registered(t *testing.T, client *redis.Client, store store.Deployment, worker string) (slots int) {
	t.Helper()
	pipe := client.TxPipeline()
	var reads []*redis.StringCmd
	for _, part := range store.Partitions() {
		reads = append(reads, pipe.HGet(t.Context(), redisstore.KeysOf(part).Workers(), worker))
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
	for _, read := range reads {
		n, err := strconv.Atoi(strings.Split(read.Val(), "|")[1])
		must(t, err)
		slots += n
	}
	return slots
}
