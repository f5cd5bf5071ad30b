package looking

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// CensusTries is how often Census counts again while jobs move between the naming of the lanes and the count.
const CensusTries = 5

// Census counts everything in one transaction of reads. Its cost grows with the number of lanes up to some 5,000; beyond, their
// jobs are counted as their queues say, which each script keeps beside them. It is for tests, reports and operators. The lanes are
// named before the count, so jobs that move to new ones meanwhile are missed: it counts again, a few times, while the sum is not
// right, and says so where it never was (Known). A full Redis takes no transactions, not even of reads: there it counts without one.
func (s *Looking) Census(ctx context.Context) (c store.Census, err error) {
	for range CensusTries {
		c, err = s.count(ctx, redisconn.Client(s.conn).TxPipeline())
		if redis.HasErrorPrefix(err, "EXECABORT") {
			c, err = s.count(ctx, redisconn.Client(s.conn).Pipeline())
			c.Moving = true
		}
		if err != nil || c.Conserved() || !c.Moving {
			break
		}
	}
	return c, err
}

func (s *Looking) count(ctx context.Context, pipe redis.Pipeliner) (store.Census, error) {
	places, err := s.placeKeys(ctx)
	if err != nil {
		return store.Census{}, err
	}
	state := pipe.HGetAll(ctx, s.conn.Partition.State())
	live := pipe.HLen(ctx, s.conn.Partition.Jobs())
	later := pipe.ZCard(ctx, s.conn.Partition.Later())
	dead := pipe.ZCard(ctx, s.conn.Partition.Dead())
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
		return store.Census{}, fmt.Errorf("count jobs: %w", redisconn.Unread(err))
	}
	fields := keyspace.Unpacked(state.Val())
	c := store.Census{Live: live.Val(), Later: later.Val(), Dead: dead.Val()}
	for _, n := range waiting {
		c.Waiting += n.Val()
	}
	if places.many {
		c.Waiting = waitingOf(fields)
	}
	for _, n := range spilled {
		c.Spilled += n.Val()
	}
	for _, n := range readyCounts {
		c.Ready += n.Val()
	}
	c.Accepted, c.Left, c.Died = countersOf(fields)
	c.SpilledAway = redisconn.Whole(fields["nf"])
	c.Moving = fields["t"] != places.at // Every script that moves jobs writes the time.
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

// AddUnknown takes over what another partition has counted.
func AddUnknown(u, more store.Unknown) store.Unknown {
	count := u.Count + more.Count
	if more.Last.After(u.Last) {
		u = more
	}
	u.Count = count
	return u
}

// UnknownOf reads them from a state hash. What cannot be read is left out.
func UnknownOf(state map[string]string) map[string]store.Unknown {
	all := map[string]store.Unknown{}
	for field, value := range state {
		queue, ok := strings.CutPrefix(field, "ut:")
		parts := strings.SplitN(value, "|", 3)
		if !ok || len(parts) != 3 {
			continue
		}
		count, err := strconv.ParseInt(parts[0], 10, 64)
		last, bad := codec.ParseMicros(parts[1])
		if err == nil && bad == nil {
			all[queue] = store.Unknown{Count: count, Last: last, Type: parts[2]}
		}
	}
	return all
}

// Counters reads the counters.
func (s *Looking) Counters(ctx context.Context) (c store.Counters, err error) {
	return countersIn(ctx, redisconn.Client(s.conn), s.conn.Partition)
}

func countersIn(ctx context.Context, client redis.UniversalClient, p keyspace.Partition) (c store.Counters, err error) {
	pipe := client.TxPipeline()
	state, live := pipe.HGetAll(ctx, p.State()), pipe.HLen(ctx, p.Jobs())
	_, err = pipe.Exec(ctx)
	c.Live = live.Val()
	if redis.HasErrorPrefix(err, "EXECABORT") { // A full Redis takes no transactions, not even of reads.
		state, c.Live = client.HGetAll(ctx, p.State()), -1
		err = state.Err()
	}
	if err != nil {
		return store.Counters{}, fmt.Errorf("read counters: %w", redisconn.Unread(err))
	}
	fields := keyspace.Unpacked(state.Val())
	c.Accepted, c.Left, c.Died = countersOf(fields)
	c.Unknown, c.Retried = UnknownOf(fields), redisconn.Whole(fields["retried"])
	c.Anomalies = map[string]int64{}
	if fields["anom"] != "" {
		for _, kind := range store.AnomalyKinds { // A counter that begins at 1 has never grown, for Prometheus.
			c.Anomalies[kind] = 0
		}
	}
	for field, text := range fields {
		if kind, ok := strings.CutPrefix(field, "anom:"); ok {
			c.Anomalies[kind] = redisconn.Whole(text)
		}
	}
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
func (s *Looking) placeKeys(ctx context.Context) (p places, err error) {
	state, err := redisconn.Client(s.conn).HGetAll(ctx, s.conn.Partition.State()).Result()
	if err != nil {
		return places{}, fmt.Errorf("read state: %w", redisconn.Unread(err))
	}
	state = keyspace.Unpacked(state)
	base := s.conn.Partition.Base()
	for field, value := range state {
		if pool, ok := strings.CutPrefix(field, "pool:"); ok {
			p.ready = append(p.ready, s.conn.Partition.Ready(pool))
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

func (s *Looking) classLanes(ctx context.Context, base, cq string) ([]string, error) {
	tenants, err := s.conn.WholeHash(ctx, base+"ten:"+cq, "")
	if err != nil {
		return nil, err
	}
	var lanes []string
	for tenant, value := range tenants {
		all, _, err := s.LanesIn(ctx, cq, tenant, value, censusLanes)
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
