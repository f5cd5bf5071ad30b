package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
)

// Peeked is a tenant's place in the order of its class, with the job that is next of it.
type Peeked struct {
	Tenant string
	// Tag is its start tag: the lowest goes first, ties by the order of entering.
	Tag float64
	// Next is the first job of its first lane that stands behind no gate. Its Key is empty where it has left meanwhile.
	Next Listed
	// Behind is a closed gate that will hold it back when its turn comes: tenants park behind gates only then. Empty is
	// none.
	Behind GateName
}

// PeekedClass is the order of tenants in a class.
type PeekedClass struct {
	ClassState

	// Next are its runnable tenants in order, at most as many as were asked for; Runnable counts them all.
	Next     []Peeked
	Runnable int64
	// Held counts its tenants that have jobs and are parked behind gates.
	Held int64
}

// MaxPeek is the largest number of tenants a class that Peek returns.
const MaxPeek = 100

// Peek returns, for each class of a queue, the tenants that are next with the next job of each, up to n a class, 1 to
// MaxPeek. Which class is next is in the queue's Turn and TurnLeft. A tenant that is served comes again by its new
// tag, so the order of jobs beyond each tenant's next is not told.
func (s *Store) Peek(ctx context.Context, queue string, n int) (QueueState, []PeekedClass, error) {
	if s.all != nil {
		return s.peekAll(ctx, queue, n)
	}
	state, err := s.Queue(ctx, queue)
	if err != nil {
		return QueueState{}, nil, err
	}
	n = max(1, min(n, MaxPeek))
	gates, err := s.Gates(ctx)
	if err != nil {
		return QueueState{}, nil, err
	}
	shut := map[GateName]bool{}
	for _, g := range gates {
		shut[g.Name] = g.Shut()
	}
	classes := make([]PeekedClass, len(state.Classes))
	for i := range classes {
		c := &classes[i]
		c.ClassState = state.Classes[i]
		cq := strconv.Itoa(i) + ":" + queue
		pipe := connection(s).Pipeline()
		first := pipe.ZRangeWithScores(ctx, s.partition.Base()+"act:"+cq, 0, int64(n-1))
		runnable := pipe.ZCard(ctx, s.partition.Base()+"act:"+cq)
		tenants := pipe.HLen(ctx, s.partition.Base()+"ten:"+cq)
		if _, err := pipe.Exec(ctx); err != nil {
			return QueueState{}, nil, fmt.Errorf("peek into %s: %w", queue, redisconn.Unread(err))
		}
		c.Runnable, c.Held = runnable.Val(), max(0, tenants.Val()-runnable.Val())
		for _, z := range first.Val() {
			name, _ := z.Member.(string)
			c.Next = append(c.Next, Peeked{Tenant: name[min(entryHeader, len(name)):], Tag: z.Score})
		}
		if err := s.peekJobs(ctx, cq, c.Next); err != nil {
			return QueueState{}, nil, err
		}
		for k := range c.Next {
			p := &c.Next[k]
			p.Next.Record.Job.Priority = c.Name
			for _, name := range []GateName{QueueGate(queue), TenantGate(p.Tenant), TenantQueueGate(p.Tenant, queue), DownstreamGate(p.Next.Record.Job.Downstream)} {
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
func (s *Store) peekJobs(ctx context.Context, cq string, next []Peeked) error {
	if len(next) == 0 {
		return nil
	}
	base := s.partition.Base()
	pipe := connection(s).Pipeline()
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
		lane := value[tenantHeader:]
		if lane == "*" {
			if len(lanes[i].Val()) == 0 {
				continue
			}
			lane = lanes[i].Val()[0]
		}
		members, err := s.after(ctx, s.laneKey(cq, p.Tenant, lane), setMark{}, 1)
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
