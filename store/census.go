package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
)

// Census is where every accepted job is or how it left, as Redis holds it (law L4).
type Census struct {
	Accepted int64 `json:"accepted"`
	// Waiting counts jobs in lanes, gated ones included; Later those that wait for a time; Ready those in ready
	// streams, leased ones included; Spilled those of overflow stores; Dead the dead letters.
	Waiting int64 `json:"waiting"`
	Later   int64 `json:"later"`
	Ready   int64 `json:"ready"`
	Spilled int64 `json:"spilled"`
	Dead    int64 `json:"dead"`
	// Live is the number of jobs in the jobs hash, counted on its own.
	Live int64 `json:"live"`
	// Left counts by reason of leaving.
	Left map[string]int64 `json:"left"`
	// Died counts dead letters by reason, over all time.
	Died map[string]int64 `json:"died"`
	// Moving means that jobs moved while they were counted, so that places that do not add up say nothing.
	Moving bool `json:"moving"`
}

// Conserved reports whether accepted = Σ places + Σ left, and the places agree with the jobs hash.
func (c Census) Conserved() bool {
	return c.Waiting+c.Later+c.Ready+c.Spilled+c.Dead == c.Live && c.Unaccounted() == 0
}

// Known reports whether Conserved is sure: where jobs move while they are counted, only that all is right is.
func (c Census) Known() bool { return !c.Moving || c.Conserved() }

// Unaccounted is how many accepted jobs have neither a record nor left for a reason that was counted.
func (c Census) Unaccounted() int64 { return c.Accepted - c.Live - sum(c.Left) }

func sum(counts map[string]int64) (all int64) {
	for _, n := range counts {
		all += n
	}
	return all
}

// censusTries is how often Census counts again while jobs move between the naming of the lanes and the count.
const censusTries = 5

// Census counts everything in one transaction of reads. Its cost grows with the number of lanes up to some 5,000; beyond, their
// jobs are counted as their queues say, which each script keeps beside them. It is for tests, reports and operators. The lanes are
// named before the count, so jobs that move to new ones meanwhile are missed: it counts again, a few times, while the sum is not
// right, and says so where it never was (Known). A full Redis takes no transactions, not even of reads: there it counts without one.
func (s *Store) Census(ctx context.Context) (c Census, err error) {
	if s.all != nil {
		return s.censusOfAll(ctx)
	}
	for range censusTries {
		c, err = s.count(ctx, connection(s).TxPipeline())
		if redis.HasErrorPrefix(err, "EXECABORT") {
			c, err = s.count(ctx, connection(s).Pipeline())
			c.Moving = true
		}
		if err != nil || c.Conserved() || !c.Moving {
			break
		}
	}
	return c, err
}

func (s *Store) count(ctx context.Context, pipe redis.Pipeliner) (Census, error) {
	places, err := s.placeKeys(ctx)
	if err != nil {
		return Census{}, err
	}
	state := pipe.HGetAll(ctx, s.partition.State())
	live := pipe.HLen(ctx, s.partition.Jobs())
	later := pipe.ZCard(ctx, s.partition.Later())
	dead := pipe.ZCard(ctx, s.partition.Dead())
	var waiting, readyCounts, spilled []*redis.IntCmd
	for _, key := range places.lanes {
		waiting = append(waiting, pipe.ZCard(ctx, key))
	}
	for _, key := range places.spills {
		spilled = append(spilled, pipe.ZCard(ctx, key))
	}
	for _, key := range places.ready {
		readyCounts = append(readyCounts, pipe.XLen(ctx, key))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return Census{}, fmt.Errorf("count jobs: %w", redisconn.Unread(err))
	}
	c := Census{Live: live.Val(), Later: later.Val(), Dead: dead.Val()}
	for _, n := range waiting {
		c.Waiting += n.Val()
	}
	if places.many {
		c.Waiting = waitingOf(state.Val())
	}
	for _, n := range spilled {
		c.Spilled += n.Val()
	}
	for _, n := range readyCounts {
		c.Ready += n.Val()
	}
	c.Accepted, c.Left, c.Died = countersOf(state.Val())
	c.Moving = state.Val()["t"] != places.at // Every script that moves jobs writes the time.
	return c, nil
}

// waitingOf adds up what the queues of a state hash say of their lanes.
func waitingOf(state map[string]string) (n int64) {
	for field, value := range state {
		if !strings.HasPrefix(field, "q:") {
			continue
		}
		for i, text := range strings.Split(value, "|") {
			if i >= 5 && i%2 == 1 {
				n += redisconn.Whole(text)
			}
		}
	}
	return n
}

// countersOf reads the counters of a state hash.
func countersOf(state map[string]string) (accepted int64, left, died map[string]int64) {
	left, died = map[string]int64{}, map[string]int64{}
	for field, value := range state {
		n, _ := strconv.ParseInt(value, 10, 64)
		if field == "accepted" {
			accepted = n
		} else if reason, ok := strings.CutPrefix(field, "left:"); ok {
			left[reason] = n
		} else if reason, ok := strings.CutPrefix(field, "dead:"); ok {
			died[reason] = n
		}
	}
	return accepted, left, died
}

// Counters are what was counted since the deployment began: the parts of a Census that cost one read, however many jobs
// and lanes there are.
type Counters struct {
	Accepted int64
	// Left counts by reason of leaving; Died dead letters by reason.
	Left, Died map[string]int64
	// Retried is how often a run failed and its job came back.
	Retried int64
	// Unknown is what workers handed back because they have no handler for it, by queue.
	Unknown map[string]Unknown
	// Live is how many jobs there were in the same moment; below zero where that cannot be read, in a full Redis.
	Live int64
}

// Unknown is how often workers of a queue handed jobs back whose type they have no handler for, since the deployment began, and
// when that last was, by the clock of Redis, and of which type.
type Unknown struct {
	Count int64
	Last  time.Time
	Type  string
}

// add takes over what another partition has counted.
func (u Unknown) add(more Unknown) Unknown {
	count := u.Count + more.Count
	if more.Last.After(u.Last) {
		u = more
	}
	u.Count = count
	return u
}

// UnknownType begins the text of a Finish that hands a job back because the worker has no handler for its type, which follows
// after a space: each time in a row the job stays away for longer than its Delay, up to 300 times as long.
const UnknownType = "unknown_type"

// unknownOf reads them from a state hash. What cannot be read is left out.
func unknownOf(state map[string]string) map[string]Unknown {
	all := map[string]Unknown{}
	for field, value := range state {
		queue, ok := strings.CutPrefix(field, "ut:")
		parts := strings.SplitN(value, "|", 3)
		if !ok || len(parts) != 3 {
			continue
		}
		count, err := strconv.ParseInt(parts[0], 10, 64)
		last, bad := parseMicros(parts[1])
		if err == nil && bad == nil {
			all[queue] = Unknown{count, last, parts[2]}
		}
	}
	return all
}

// Unaccounted is how many accepted jobs have neither a record nor left for a reason that was counted: somebody, or a slot that was
// lost, has taken their records away (law L4). Jobs that move make no difference to it.
func (c Counters) Unaccounted() (n int64, known bool) {
	if c.Live < 0 {
		return 0, false
	}
	return c.Accepted - c.Live - sum(c.Left), true
}

// Counters reads the counters.
func (s *Store) Counters(ctx context.Context) (c Counters, err error) {
	if s.all != nil {
		return s.countersOfAll(ctx)
	}
	return countersIn(ctx, connection(s), s.partition)
}

func countersIn(ctx context.Context, client redis.UniversalClient, p keyspace.Partition) (c Counters, err error) {
	pipe := client.TxPipeline()
	state, live := pipe.HGetAll(ctx, p.State()), pipe.HLen(ctx, p.Jobs())
	_, err = pipe.Exec(ctx)
	c.Live = live.Val()
	if redis.HasErrorPrefix(err, "EXECABORT") { // A full Redis takes no transactions, not even of reads.
		state, c.Live = client.HGetAll(ctx, p.State()), -1
		err = state.Err()
	}
	if err != nil {
		return Counters{}, fmt.Errorf("read counters: %w", redisconn.Unread(err))
	}
	c.Accepted, c.Left, c.Died = countersOf(state.Val())
	c.Unknown, c.Retried = unknownOf(state.Val()), redisconn.Whole(state.Val()["retried"])
	return c, nil
}

// censusLanes is how many lanes are counted one by one. Where there are more, what their queues say of them counts.
const censusLanes = 5000

// places are the keys of what holds jobs: lanes, unless there are many, ready streams and overflow stores; at is the time of the last
// script before they were named.
type places struct {
	lanes, ready, spills []string
	many                 bool
	at                   string
}

// placeKeys names the lanes from the tenants of each class. All comes from the state and its structures, never from KEYS.
func (s *Store) placeKeys(ctx context.Context) (p places, err error) {
	state, err := connection(s).HGetAll(ctx, s.partition.State()).Result()
	if err != nil {
		return places{}, fmt.Errorf("read state: %w", redisconn.Unread(err))
	}
	base := s.partition.Base()
	for field, value := range state {
		if pool, ok := strings.CutPrefix(field, "pool:"); ok {
			p.ready = append(p.ready, s.partition.Ready(pool))
		}
		queue, ok := strings.CutPrefix(field, "q:")
		if !ok {
			continue
		}
		for class := range (strings.Count(value, "|") - 3) / 2 {
			cq := strconv.Itoa(class) + ":" + queue
			if p.many {
				continue
			}
			found, err := s.classLanes(ctx, base, cq)
			if err != nil {
				return places{}, err
			}
			if p.lanes = append(p.lanes, found...); len(p.lanes) > censusLanes {
				p.lanes, p.many = nil, true
			}
		}
	}
	names, err := s.spillsOf(ctx)
	if err != nil {
		return places{}, err
	}
	for _, name := range names {
		p.spills = append(p.spills, base+"spill:"+name)
	}
	p.at = state["t"]
	return p, nil
}

func (s *Store) classLanes(ctx context.Context, base, cq string) ([]string, error) {
	tenants, err := s.wholeHash(ctx, base+"ten:"+cq, "")
	if err != nil {
		return nil, err
	}
	var lanes []string
	for tenant, value := range tenants {
		all, _, err := s.lanesIn(ctx, cq, tenant, value, censusLanes)
		if err != nil {
			return nil, err
		}
		for _, lane := range all {
			lanes = append(lanes, s.laneKey(cq, tenant, lane))
		}
		if len(lanes) > censusLanes {
			break
		}
	}
	return lanes, nil
}
