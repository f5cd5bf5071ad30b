package looking

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// backlogPage is how many questions Backlogs asks at once.
const backlogPage = 1000

// Backlogs returns what a tenant has in each queue, the most waiting first; none where it has nothing. Its cost grows with the
// queues and the tenant's lanes: it is for operators.
func (s *Looking) Backlogs(ctx context.Context, tenant string) ([]store.Backlog, error) {
	if err := admission.ValidateTenant(tenant); err != nil {
		return nil, err
	}
	names, err := s.queueNames(ctx)
	if err != nil {
		return nil, err
	}
	var all []store.Backlog
	for page := range slices.Chunk(names, backlogPage) {
		some, err := s.backlogs(ctx, tenant, page)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b store.Backlog) int {
		return cmp.Or(cmp.Compare(b.Waiting+b.Spilled, a.Waiting+a.Spilled), cmp.Compare(b.Dead, a.Dead), cmp.Compare(a.Queue, b.Queue))
	})
	return all, nil
}

func (s *Looking) backlogs(ctx context.Context, tenant string, names []string) ([]store.Backlog, error) {
	base := s.conn.Partition.Base()
	queues := make([]store.Backlog, len(names))
	pipe := redisconn.Client(s.conn).Pipeline()
	states, dead, spilled := make([]*redis.SliceCmd, len(names)), make([]*redis.FloatCmd, len(names)), make([]*redis.IntCmd, len(names))
	for i, name := range names {
		queues[i].Queue = name
		states[i] = pipe.HMGet(ctx, s.conn.Partition.State(), "q:"+name)
		dead[i] = pipe.ZScore(ctx, base+"deadin:"+tenant, name)
		spilled[i] = pipe.ZCard(ctx, base+"spill:"+tenant+":"+name)
	}
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return nil, fmt.Errorf("read backlog of %s: %w", tenant, redisconn.Unread(err))
	}
	var all []store.Backlog
	for i := range queues {
		q := &queues[i]
		q.Dead, q.Spilled = int64(dead[i].Val()), spilled[i].Val()
		err := eachWaitingClass(q.Queue, redisconn.TextAt(states[i].Val(), 0), func(cq string) error {
			at, err := redisconn.Client(s.conn).HGet(ctx, base+"ten:"+cq, tenant).Result()
			if redisconn.IsNil(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read backlog of %s: %w", tenant, redisconn.Unread(err))
			}
			waiting := map[string]int64{}
			partial, err := s.addWaiting(ctx, cq, []field{{name: tenant, value: at}}, waiting)
			q.Waiting, q.Partial = q.Waiting+waiting[tenant], q.Partial || partial
			return err
		})
		if err != nil {
			return nil, err
		}
		if q.Waiting+q.Spilled+q.Dead > 0 {
			all = append(all, *q)
		}
	}
	return all, nil
}

// eachWaitingClass calls do for the classes of a queue in which any job waits, by CLASS:QUEUE.
func eachWaitingClass(queue, text string, do func(cq string) error) error {
	state := store.QueueState{Classes: make([]store.ClassState, admission.MaxClasses)}
	readQueueText(&state, text)
	for class, c := range state.Classes {
		if c.Waiting == 0 {
			continue
		}
		if err := do(strconv.Itoa(class) + ":" + queue); err != nil {
			return err
		}
	}
	return nil
}
