package migrate

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

var errDied = errors.New("the process has died")

// mortal is a process that dies before or after one of its commands.
type mortal struct{ left *atomic.Int32 }

// like returns a client of the same Redis for such a process. A cluster's masters have clients of their own.
func (d mortal) like(client redis.UniversalClient) redis.UniversalClient {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		own := redis.NewClusterClient(cluster.Options())
		own.OnNewNode(func(node *redis.Client) { node.AddHook(d) })
		return own
	}
	single := redis.NewClient(client.(*redis.Client).Options())
	single.AddHook(d)
	return single
}

func (d mortal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d mortal) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d.left.Add(-1) < 0 {
			return errDied
		}
		err := next(ctx, cmd)
		if d.left.Add(-1) < 0 {
			return errDied
		}
		return err
	}
}

func (d mortal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if d.left.Add(-1) < 0 {
			return errDied
		}
		err := next(ctx, cmds)
		if d.left.Add(-1) < 0 {
			return errDied
		}
		return err
	}
}

// TestAMigrationThatIsKilledGoesOn ends a migration at ever later commands, before Redis has them or once it has answered,
// until one comes through.
func TestAMigrationThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	later := 600 / redistest.Some(40) // than the last time, in commands
	for _, r := range []route{routes[1], routes[3], routes[4], routes[6]} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			c, from, to := r.open(t)
			ctx := t.Context()
			before, census := keptOf(ctx, t, c.s)
			tokens := tokensLeft(ctx, t, c.s)
			deaths := 0
			for {
				left := &atomic.Int32{}
				left.Store(int32(later*deaths + c.random.IntN(80)))
				clients := []redis.UniversalClient{from, to}
				for i, client := range clients {
					clients[i] = mortal{left}.like(client)
				}
				err := func() error {
					m, err := migration(ctx, clients[0], clients[1], c.prefix, r.to)
					if err != nil {
						return err
					}
					_, err = m.Run(ctx)
					return err
				}()
				for _, client := range clients {
					check(t, client.Close())
				}
				if err == nil || errors.Is(err, admission.ErrMoved) {
					break // All but the last answer had come.
				}
				if deaths++; !errors.Is(err, errDied) {
					t.Fatalf("after %d deaths: %v", deaths, err)
				}
			}
			if deaths < 3 {
				t.Errorf("it was killed %d times only", deaths)
			}
			t.Logf("killed %d times", deaths)
			r.check(t, c, to, before, census, tokens)
		})
	}
}

// TestAMigrationIsNotMistakenForAnother ends one early and lets others begin that have to do with its Redises.
func TestAMigrationIsNotMistakenForAnother(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, here, there := routes[4].open(t)
	third := anotherRedis(t)
	other, err := redisstore.Open(ctx, third, redisstore.Config{Prefix: c.prefix})
	check(t, err)
	job := admission.NewJob("other", "mail", "t", nil)
	job.ID, job.Priority = "one", admission.Medium
	verdicts, err := other.Partitions()[0].Admit(ctx, 0, []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
	check(t, errors.Join(err, verdicts[0].Err()))
	run := func(from, to redis.UniversalClient, partitions int) error {
		m, err := migration(ctx, from, to, c.prefix, partitions)
		if err == nil {
			_, err = m.Run(ctx)
		}
		return err
	}
	left := &atomic.Int32{}
	left.Store(120)
	mortals := redis.NewClient(there.(*redis.Client).Options())
	defer func() { _ = mortals.Close() }()
	mortals.AddHook(mortal{left})
	if err := run(here, mortals, 4); !errors.Is(err, errDied) {
		t.Fatalf("it did not die: %v", err)
	}
	for _, wrong := range []struct {
		name       string
		from, to   redis.UniversalClient
		partitions int
		want       string
	}{
		{"its source in place", here, here, 4, `is "from" in that: end it first`},
		{"its target in place", there, there, 4, `is "to" in that: end it first`},
		{"back before it has ended", there, here, 1, `is "to" in that: end it first`},
		{"another number", here, there, 5, "to 4 partitions: end that first"},
		{"another target", here, anotherRedis(t), 4, "to another target than this one"},
		{"another source", third, there, 4, "or a part of one"},
		{"into its source", third, here, 4, "or a part of one"},
	} {
		if err := run(wrong.from, wrong.to, wrong.partitions); err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: %v", wrong.name, err)
		}
	}
	if _, err := c.s.Partitions()[0].Register(ctx, "w", crowdQueues, 1, time.Minute); !errors.Is(err, admission.ErrMigrating) || !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("a worker in the middle: %v", err)
	}
	if _, err := redisstore.Open(ctx, here, redisstore.Config{Prefix: c.prefix}); !errors.Is(err, admission.ErrMigrating) {
		t.Errorf("a start in the middle: %v", err)
	}
	check(t, run(here, there, 4))
	check(t, run(there, here, 1)) // and back to the Redis that has a note of where it went
	s, err := redisstore.Open(ctx, here, redisstore.Config{Prefix: c.prefix})
	check(t, err)
	if census, err := s.Census(ctx); err != nil || !census.Conserved() || census.Accepted != 180 {
		t.Errorf("there and back: %+v, %v", census, err)
	}
}
