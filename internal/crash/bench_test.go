package crash_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

const (
	recoveries = 8
	// recoverySlack is what the feature may take beyond the lease.
	recoverySlack = time.Second
	// asynqPatience is the lease of asynq, which is fixed at 30 s, and two rounds of its recoverer, one a minute.
	asynqPatience = 150 * time.Second
)

// BenchmarkRecovery measures how long after the death of its worker's process a job runs again in another.
//
//	go test ./internal/crash -run '^$' -bench Recovery -benchtime 1x
//
// Headgate's lease is set to 1.5 s here, and within a second more the job must run. asynq has no such setting.
func BenchmarkRecovery(b *testing.B) {
	b.Run("headgate", func(b *testing.B) {
		for b.Loop() {
			longest, sum := time.Duration(0), time.Duration(0)
			for n := range recoveries {
				took := recoverHeadgate(b, time.Duration(n)*stormLease/recoveries)
				longest, sum = max(longest, took), sum+took
			}
			if longest > stormLease+recoverySlack {
				b.Errorf("a job ran again %s after its worker died, the lease is %s", longest, stormLease)
			}
			b.ReportMetric(longest.Seconds(), "longest-s")
			b.ReportMetric(sum.Seconds()/recoveries, "mean-s")
			b.ReportMetric(0, "ns/op")
		}
	})
	b.Run("asynq", func(b *testing.B) {
		for b.Loop() {
			b.ReportMetric(recoverAsynq(b).Seconds(), "longest-s")
			b.ReportMetric(0, "ns/op")
		}
	})
}

// recovery kills the process that runs the only job, some time after its book says so, and returns how long it takes until
// that stands in the book of another.
func recovery(b *testing.B, c *cast, role string, after, patience time.Duration) time.Duration {
	b.Helper()
	first := c.actors[len(c.actors)-1]
	c.await(first, "B", patience)
	second := c.enter(role, 1)
	c.await(second, "up", patience)
	c.pause(after)
	died := time.Now()
	c.kill(first)
	c.await(second, "B", patience)
	return time.Since(died)
}

func recoverHeadgate(b *testing.B, after time.Duration) time.Duration {
	b.Helper()
	c := newCast(b, redistest.Start(b, redistest.Options{}))
	s, err := redisstore.Open(b.Context(), c.server.Client(b), redisstore.Config{})
	c.check(err)
	j := admission.NewJob("acme", "mail", "work", []byte("0 60000 done"))
	j.ID = "long"
	_, err = s.Partitions()[0].Admit(b.Context(), 0, []store.Candidate{candidate(j)})
	c.check(err)
	c.enter(schedulerRole, 0)
	c.enter(workerRole, 0)
	took := recovery(b, c, workerRole, after, 20*time.Second)
	for _, a := range c.actors {
		if a.command != nil {
			c.kill(a)
		}
	}
	return took
}

func recoverAsynq(b *testing.B) time.Duration {
	b.Helper()
	c := newCast(b, redistest.Start(b, redistest.Options{}))
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: c.server.Addr()})
	defer client.Close()
	_, err := client.EnqueueContext(b.Context(), asynq.NewTask("work", nil))
	c.check(err)
	c.enter(asynqRole, 0)
	return recovery(b, c, asynqRole, 0, asynqPatience)
}

// workAsynq is a server of asynq with its defaults.
func (p *player) workAsynq(ctx context.Context) error {
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: p.addr}, asynq.Config{Concurrency: stormSlots, LogLevel: asynq.FatalLevel})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		p.book.note("B", nanos(), "work", 1, false)
		return wait(ctx, time.Minute)
	}))
	if err != nil {
		return fmt.Errorf("asynq %s: %w", strconv.Itoa(p.number), err)
	}
	p.book.note("up", nanos(), "work")
	<-ctx.Done()
	server.Shutdown()
	return nil
}
