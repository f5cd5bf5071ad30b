package looking

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// foreseeLook is how many timers Foresee looks at: the first ones, for a far one may as well be asked for again.
const foreseeLook = 64

// Foresee returns how long it takes until time makes a job runnable for the workers of a pool: the end of a pause, a token of a
// rate, the first probe of an open breaker, a time of its own. It is negative where nobody can tell: a queue is empty, or jobs wait
// for others to end. One that comes meanwhile may be runnable at once.
func (s *Looking) Foresee(ctx context.Context, pool string) (time.Duration, error) {
	pipe := redisconn.Client(s.conn).Pipeline()
	clock := pipe.Time(ctx)
	spec := pipe.HGet(ctx, s.conn.Partition.State(), "pool:"+pool)
	timers := pipe.ZRangeWithScores(ctx, s.conn.Partition.Due(), 0, foreseeLook-1)
	later := pipe.ZRangeWithScores(ctx, s.conn.Partition.Later(), 0, 0)
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return 0, fmt.Errorf("foresee work: %w", redisconn.Unread(err))
	}
	if spec.Val() == "" {
		return -1, nil
	}
	served := codec.ParsePool(spec.Val()).Pool
	idle, err := s.idle(ctx, served)
	if err != nil || idle {
		return -1, err
	}
	wait, err := s.firstGate(ctx, served, clock.Val(), timers.Val())
	if err == nil && wait >= 0 && len(later.Val()) > 0 {
		wait = min(wait, untilScore(clock.Val(), later.Val()[0])) // Of some queue: perhaps it is sooner than need be.
	}
	return wait, err
}

// idle reports whether a job may come at any moment: a queue of the pool that is not paused is empty, or has jobs that are runnable.
func (s *Looking) idle(ctx context.Context, pool store.Pool) (bool, error) {
	queues, gates := map[string]*store.QueueState{}, make([]string, len(pool.Queues))
	for i, q := range pool.Queues {
		queues[q.Queue], gates[i] = &store.QueueState{Name: q.Queue}, string(store.QueueGate(q.Queue))
	}
	if err := s.readDynamics(ctx, queues); err != nil {
		return false, err
	}
	stored, err := redisconn.Client(s.conn).HMGet(ctx, s.conn.Partition.Gates(), gates...).Result()
	if err != nil {
		return false, fmt.Errorf("foresee work: %w", redisconn.Unread(err))
	}
	demand, err := s.Demand(ctx, pool)
	if err != nil {
		return false, err
	}
	for i, q := range pool.Queues {
		gate, err := codec.ParseGate(gates[i], redisconn.TextAt(stored, i), nil)
		if paused := err == nil && gate.Paused(); !paused && queues[q.Queue].Waiting() == 0 {
			return true, nil
		}
		for _, c := range demand.Queues[i] {
			if c.Runnable > 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

// firstGate returns the time until the first of some timers that opens a gate behind which jobs of a pool's queues wait;
// negative for none.
func (s *Looking) firstGate(ctx context.Context, pool store.Pool, now time.Time, timers []redis.Z) (time.Duration, error) {
	type opening struct {
		name store.GateName
		at   redis.Z
		// state is that of the gate, waiters name the class and the queue of each line of waiters behind it.
		state   *redis.StringCmd
		waiters *redis.StringSliceCmd
	}
	var all []opening
	pipe := redisconn.Client(s.conn).Pipeline()
	for _, timer := range timers {
		member, _ := timer.Member.(string)
		name := store.GateName(strings.TrimPrefix(member, "g"))
		if strings.HasPrefix(member, "b") {
			name = store.GateName("b:" + member[1:])
		} else if !strings.HasPrefix(member, "g") {
			continue
		}
		all = append(all, opening{
			name: name, at: timer, state: pipe.HGet(ctx, s.conn.Partition.Gates(), string(name)), waiters: pipe.SMembers(ctx, s.conn.Partition.Base()+"gq:"+string(name)),
		})
	}
	if len(all) == 0 {
		return -1, nil
	}
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return 0, fmt.Errorf("foresee what opens: %w", redisconn.Unread(err))
	}
	for _, o := range all {
		gate, err := codec.ParseGate(string(o.name), o.state.Val(), nil)
		if err != nil || gate.Burst == 0 && gate.Limit > 0 {
			continue // It is gone, or open as far as time goes: jobs that end make room.
		}
		for _, q := range pool.Queues {
			if o.name == store.QueueGate(q.Queue) || anyOfQueue(o.waiters.Val(), q.Queue) {
				return untilScore(now, o.at), nil
			}
		}
	}
	return -1, nil
}

// anyOfQueue reports whether any of some lines CLASS:QUEUE is of a queue.
func anyOfQueue(lines []string, queue string) bool {
	for _, line := range lines {
		if _, of, _ := strings.Cut(line, ":"); of == queue {
			return true
		}
	}
	return false
}

// untilScore is the time until a timer, 0 where it is due.
func untilScore(now time.Time, timer redis.Z) time.Duration {
	return max(0, time.UnixMicro(int64(timer.Score)).Sub(now))
}
