package looking

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Peek returns, for each class of a queue, the tenants that are next with the next job of each, up to n a class, 1 to
// MaxPeek. Which class is next is in the queue's Turn and TurnLeft. A tenant that is served comes again by its new
// tag, so the order of jobs beyond each tenant's next is not told.
func (s *Looking) Peek(ctx context.Context, queue string, n int) (store.QueueState, []store.PeekedClass, error) {
	state, err := s.Queue(ctx, queue)
	if err != nil {
		return store.QueueState{}, nil, err
	}
	n = max(1, min(n, store.MaxPeek))
	gates, err := s.Gates(ctx)
	if err != nil {
		return store.QueueState{}, nil, err
	}
	shut := map[store.GateName]bool{}
	for _, g := range gates {
		shut[g.Name] = g.Shut()
	}
	classes := make([]store.PeekedClass, len(state.Classes))
	for i := range classes {
		c := &classes[i]
		c.ClassState = state.Classes[i]
		cq := strconv.Itoa(i) + ":" + queue
		pipe := redisconn.Client(s.conn).Pipeline()
		first := pipe.ZRangeWithScores(ctx, s.conn.Partition.Base()+"act:"+cq, 0, int64(n-1))
		runnable := pipe.ZCard(ctx, s.conn.Partition.Base()+"act:"+cq)
		tenants := pipe.HLen(ctx, s.conn.Partition.Base()+"ten:"+cq)
		if _, err := pipe.Exec(ctx); err != nil {
			return store.QueueState{}, nil, fmt.Errorf("peek into %s: %w", queue, redisconn.Unread(err))
		}
		c.Runnable, c.Held = runnable.Val(), max(0, tenants.Val()-runnable.Val())
		for _, z := range first.Val() {
			name, _ := z.Member.(string)
			c.Next = append(c.Next, store.Peeked{Tenant: name[min(entryHeader, len(name)):], Tag: z.Score})
		}
		if err := s.peekJobs(ctx, cq, c.Next); err != nil {
			return store.QueueState{}, nil, err
		}
		for k := range c.Next {
			p := &c.Next[k]
			p.Next.Record.Job.Priority = c.Name
			job := &p.Next.Record.Job
			for _, name := range []store.GateName{
				store.QueueGate(queue), store.TenantGate(p.Tenant), store.TenantQueueGate(p.Tenant, queue), store.DownstreamGate(job.Service()), store.DownstreamGate(job.Downstream),
			} {
				if shut[name] {
					p.Behind = name
					break
				}
			}
		}
	}
	return state, classes, nil
}

// entryHeader is the length of the order of entering in a member of act:CQ.
const entryHeader = 8

// peekJobs reads the first job of each tenant's first lane.
func (s *Looking) peekJobs(ctx context.Context, cq string, next []store.Peeked) error {
	if len(next) == 0 {
		return nil
	}
	base := s.conn.Partition.Base()
	pipe := redisconn.Client(s.conn).Pipeline()
	modes, lanes := make([]*redis.StringCmd, len(next)), make([]*redis.StringSliceCmd, len(next))
	for i, p := range next {
		modes[i] = pipe.HGet(ctx, base+"ten:"+cq, p.Tenant)
		lanes[i] = pipe.ZRange(ctx, base+"lanes:"+cq+":"+p.Tenant, 0, 0)
	}
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return fmt.Errorf("peek at tenants: %w", redisconn.Unread(err))
	}
	for i := range next {
		p := &next[i]
		value := modes[i].Val()
		if len(value) <= tenantHeader {
			continue
		}
		lane, _, err := laneNamed(p.Tenant, value)
		if err != nil {
			return err
		}
		if lane == "" { // of several open ones the first
			if len(lanes[i].Val()) == 0 {
				continue
			}
			lane = lanes[i].Val()[0]
		}
		members, err := s.after(ctx, s.laneKey(cq, p.Tenant, lane), store.SetMark{}, 1)
		if err != nil {
			return err
		}
		rows, err := s.waitingRows(ctx, p.Tenant, members)
		if err != nil {
			return err
		}
		if len(rows) == 1 {
			p.Next = rows[0]
		}
	}
	return nil
}
