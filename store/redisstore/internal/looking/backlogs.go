package looking

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// Depths implements Partition. Its cost grows with the queues: it is for operators.
func (s *Looking) Depths(ctx context.Context, tenant string, queues []string) ([]store.Depth, error) {
	if err := admission.ValidateTenant(tenant); err != nil {
		return nil, err
	}
	depths := make([]store.Depth, 0, len(queues))
	for page := range slices.Chunk(queues, backlogPage) {
		some, err := s.depths(ctx, tenant, page)
		if err != nil {
			return nil, err
		}
		depths = append(depths, some...)
	}
	return depths, nil
}

func (s *Looking) depths(ctx context.Context, tenant string, queues []string) ([]store.Depth, error) {
	base, names := s.conn.Partition.Base(), make([]string, len(queues))
	pipe := redisconn.Client(s.conn).Pipeline()
	spilled := make([]*redis.IntCmd, len(queues))
	for i, queue := range queues {
		names[i] = tenant + ":" + queue
		spilled[i] = pipe.ZCard(ctx, base+"spill:"+names[i])
	}
	counted := pipe.HMGet(ctx, base+"depth", names...)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read depth of %s: %w", tenant, redisconn.Unread(err))
	}
	depths := make([]store.Depth, len(queues))
	for i := range depths {
		jobs, bytes, _ := strings.Cut(redisconn.TextAt(counted.Val(), i), "|")
		depths[i] = store.Depth{Jobs: redisconn.Whole(jobs), Bytes: redisconn.Whole(bytes), Spilled: spilled[i].Val()}
	}
	return depths, nil
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
