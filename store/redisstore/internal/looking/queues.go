package looking

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// laterLook is how many of the jobs that wait for a time are looked at to count those of each queue.
const laterLook = 5000

// Queues returns every queue by name. Its cost grows with the queues, the workers' slots and up to 5,000 jobs that wait
// for a time; it is for operators. The parts are read one after the other, so that a job that moves meanwhile may be
// counted twice or not at all.
func (s *Looking) Queues(ctx context.Context) ([]store.QueueState, error) {
	names, err := s.queueNames(ctx)
	if err != nil {
		return nil, err
	}
	return s.queueStates(ctx, names)
}

// Queue returns one queue, or ErrUnknownQueue.
func (s *Looking) Queue(ctx context.Context, name string) (store.QueueState, error) {
	if err := admission.ValidateName("queue", name, true); err != nil {
		return store.QueueState{}, err
	}
	known, err := redisconn.Client(s.conn).HMGet(ctx, s.conn.Partition.State(), "q:"+name, "cfg:"+name, "pools:"+name).Result()
	if err != nil {
		return store.QueueState{}, fmt.Errorf("read queue %s: %w", name, redisconn.Unread(err))
	}
	if redisconn.TextAt(known, 0)+redisconn.TextAt(known, 1)+redisconn.TextAt(known, 2) == "" {
		return store.QueueState{}, fmt.Errorf("%w %s", store.ErrUnknownQueue, name)
	}
	states, err := s.queueStates(ctx, []string{name})
	if err != nil {
		return store.QueueState{}, err
	}
	return states[0], nil
}

func (s *Looking) queueStates(ctx context.Context, names []string) ([]store.QueueState, error) {
	queues, at := make([]store.QueueState, len(names)), make(map[string]*store.QueueState, len(names))
	for i, name := range names {
		queues[i].Name, at[name] = name, &queues[i]
	}
	if len(names) == 0 {
		return queues, nil
	}
	for _, part := range []func(context.Context, map[string]*store.QueueState) error{s.readDynamics, s.readHolds, s.readStaff, s.countReady, s.countLater, s.countSpilled} {
		if err := part(ctx, at); err != nil {
			return nil, err
		}
	}
	return queues, nil
}

// readDynamics reads classes, waiting jobs, pace and dead letters.
func (s *Looking) readDynamics(ctx context.Context, queues map[string]*store.QueueState) error {
	pipe := redisconn.Client(s.conn).Pipeline()
	states, dead, others := map[string]*redis.SliceCmd{}, map[string]*redis.IntCmd{}, map[string]*redis.SliceCmd{}
	for name := range queues {
		others[name] = pipe.HMGet(ctx, s.conn.Partition.Gates(), string(store.ReserveGate(name)))
		states[name] = pipe.HMGet(ctx, s.conn.Partition.State(), "cfg:"+name, "q:"+name, "pools:"+name, "pressure:"+name, "cfg:*")
		dead[name] = pipe.ZCard(ctx, s.conn.Partition.Dead()+":"+name)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("read queues: %w", redisconn.Unread(err))
	}
	for name, q := range queues {
		values := states[name].Val()
		config := parseQueueConfig(redisconn.TextAt(values, 0), redisconn.TextAt(values, 4))
		for _, class := range config.classes {
			q.Classes = append(q.Classes, store.ClassState{Class: class})
		}
		readQueueText(q, redisconn.TextAt(values, 1))
		q.Pools = strings.Fields(redisconn.TextAt(values, 2))
		q.Dead = dead[name].Val()
		_, held, _ := strings.Cut(redisconn.TextAt(others[name].Val(), 0), "|")
		q.Others, _ = strconv.Atoi(held)
		if text := redisconn.TextAt(values, 3); text != "" {
			var err error
			if q.Pressure, err = codec.ParsePressureState(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// readQueueText reads the field q:QUEUE of the state: cur|left|pace|stamp|V₁|n₁|V₂|n₂….
func readQueueText(q *store.QueueState, field string) {
	parts := strings.Split(keyspace.QueueText(field), "|")
	if len(parts) < 4 {
		return
	}
	turn, _ := strconv.Atoi(parts[0])
	q.Turn = max(0, turn-1)
	q.TurnLeft, _ = strconv.Atoi(parts[1])
	if q.Turn >= len(q.Classes) && len(q.Classes) > 0 { // The class has gone since: see queue.lua.
		q.Turn, q.TurnLeft = 0, q.Classes[0].Weight
	}
	pace, _ := strconv.ParseFloat(parts[2], 64)
	q.Pace = time.Duration(math.Round(pace)) * time.Microsecond
	stamp, _ := strconv.ParseInt(parts[3], 10, 64)
	if q.Busy = stamp > 0; q.Busy {
		q.Last = time.UnixMicro(stamp)
	}
	for i := range q.Classes {
		if at := 5 + 2*i; at < len(parts) {
			q.Classes[i].Waiting, _ = strconv.ParseInt(parts[at], 10, 64)
		}
	}
}

// Loads returns what is seen of queues by which it is measured how much they are pressed, in the order of their names: two round trips.
func (s *Looking) Loads(ctx context.Context, names []string) ([]store.QueueLoad, error) {
	pipe := redisconn.Client(s.conn).Pipeline()
	clock, states := pipe.Time(ctx), make([]*redis.SliceCmd, len(names))
	for i, name := range names {
		states[i] = pipe.HMGet(ctx, s.conn.Partition.State(), "q:"+name, "pools:"+name, "pressure:"+name, "cfg:"+name, "cfg:*")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read loads: %w", redisconn.Unread(err))
	}
	loads, now := make([]store.QueueLoad, len(names)), clock.Val()
	if s.conn.Now != "" { // a test's
		now = time.UnixMicro(redisconn.Whole(s.conn.Now))
	}
	slots, held := map[string]*redis.StringCmd{}, map[string]*redis.IntCmd{}
	pipe = redisconn.Client(s.conn).Pipeline()
	pools := make([][]string, len(names))
	for i, name := range names {
		values := states[i].Val()
		var q store.QueueState
		for _, class := range parseQueueConfig(redisconn.TextAt(values, 3), redisconn.TextAt(values, 4)).classes {
			q.Classes = append(q.Classes, store.ClassState{Class: class})
		}
		readQueueText(&q, redisconn.TextAt(values, 0))
		loads[i] = store.QueueLoad{Queue: name, Waiting: q.Waiting(), Wait: store.LoadWait(q.Waiting(), q.Pace, q.Last, now), Level: admission.PressureNone}
		if text := redisconn.TextAt(values, 2); text != "" {
			p, err := codec.ParsePressureState(text)
			if err != nil {
				return nil, err
			}
			loads[i].Level = p.At(now).Level
		}
		pools[i] = strings.Fields(redisconn.TextAt(values, 1))
		for _, id := range pools[i] {
			if slots[id] == nil {
				slots[id], held[id] = pipe.HGet(ctx, s.conn.Partition.State(), "pool:"+id), pipe.XLen(ctx, s.conn.Partition.Base()+"ready:"+id)
			}
		}
	}
	if len(slots) > 0 {
		if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
			return nil, fmt.Errorf("read loads: %w", redisconn.Unread(err))
		}
	}
	for i := range loads {
		for _, id := range pools[i] {
			text, _, _ := strings.Cut(slots[id].Val(), "|")
			n, _ := strconv.Atoi(text)
			loads[i].Slots, loads[i].Held = loads[i].Slots+n, loads[i].Held+int(held[id].Val())
		}
	}
	return loads, nil
}

// readHolds reads the gates and the suspensions of queues.
func (s *Looking) readHolds(ctx context.Context, queues map[string]*store.QueueState) error {
	for names := range slices.Chunk(slices.Sorted(maps.Keys(queues)), store.ListPortion) {
		gates := make([]string, len(names))
		for i, name := range names {
			gates[i] = string(store.QueueGate(name))
		}
		pipe := redisconn.Client(s.conn).Pipeline()
		shut := pipe.HMGet(ctx, s.conn.Partition.Gates(), gates...)
		suspended := pipe.HMGet(ctx, s.conn.Partition.Base()+"suspended", gates...)
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("read holds: %w", redisconn.Unread(err))
		}
		for i, name := range names {
			if text := redisconn.TextAt(shut.Val(), i); text != "" {
				g, err := codec.ParseGate(gates[i], text, nil)
				if err != nil {
					return err
				}
				queues[name].Gate = &g
			}
			if text := redisconn.TextAt(suspended.Val(), i); text != "" {
				p, err := codec.ParseSuspension(gates[i], text)
				if err != nil {
					return err
				}
				queues[name].Suspended = &p
			}
		}
	}
	return nil
}

// readStaff counts workers and slots.
func (s *Looking) readStaff(ctx context.Context, queues map[string]*store.QueueState) error {
	workers, err := s.Workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		for _, served := range w.Queues {
			if q := queues[served.Queue]; q != nil {
				q.Workers++
				q.Slots += w.Slots
			}
		}
	}
	return nil
}

func (s *Looking) countReady(ctx context.Context, queues map[string]*store.QueueState) error {
	return s.findEntries(ctx, func(entry store.Listed) {
		switch q := queues[entry.Record.Job.Queue]; {
		case q == nil:
		case entry.Place == store.PlaceRunning:
			q.Running++
		default:
			q.Ready++
		}
	})
}

func (s *Looking) countLater(ctx context.Context, queues map[string]*store.QueueState) error {
	more := false
	looked := 0
	for mark := (store.SetMark{}); ; {
		members, err := s.after(ctx, s.conn.Partition.Later(), mark, store.ListPortion)
		if err != nil {
			return err
		}
		if err := s.countQueues(ctx, members, queues); err != nil {
			return err
		}
		if looked += len(members); len(members) < store.ListPortion {
			break
		}
		if more = looked >= laterLook; more {
			break
		}
		last := members[len(members)-1]
		mark = store.SetMark{At: last.at, Key: []byte(last.name)}
	}
	for _, q := range queues {
		q.LaterAtLeast = more
	}
	return nil
}

func (s *Looking) countQueues(ctx context.Context, members []member, queues map[string]*store.QueueState) error {
	if len(members) == 0 {
		return nil
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	rows, err := s.records(ctx, names)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if q := queues[row.Record.Job.Queue]; q != nil {
			q.Later++
		}
	}
	return nil
}

// queueConfig is what a policy set for a queue, as settingsText writes it.
type queueConfig struct {
	classes []admission.Class
}

// parseQueueConfig reads the settings of a queue, which are those of every other queue where it has none of its own. "" is none.
func parseQueueConfig(own, every string) queueConfig {
	var c queueConfig
	names, _, _ := strings.Cut(cmp.Or(own, every), "|")
	for part := range strings.SplitSeq(names, ",") {
		name, weight, ok := strings.Cut(part, "=")
		if n, err := strconv.Atoi(weight); ok && err == nil {
			c.classes = append(c.classes, admission.Class{Name: admission.Priority(name), Weight: n})
		}
	}
	if c.classes == nil {
		c.classes = admission.DefaultClasses()
	}
	return c
}

// tenantLook is how many tenants of a class WaitingTenants looks at.
const tenantLook = 10_000

// LaneLook is how many lanes of a tenant in a class WaitingTenants counts.
const LaneLook = 1000

// WaitingTenants returns the n tenants that have the most jobs waiting in a queue, the most first. It looks at some
// 10,000 tenants a class and 1,000 lanes of each at most; partial says that there are more.
func (s *Looking) WaitingTenants(ctx context.Context, queue string, n int) (top []store.TenantWaiting, partial bool, err error) {
	state, err := s.Queue(ctx, queue)
	if err != nil {
		return nil, false, err
	}
	waiting := map[string]int64{}
	for class := range state.Classes {
		cq := strconv.Itoa(class) + ":" + queue
		looked := 0
		for mark, end := (store.HashMark{}), false; !end; {
			var found []field
			if found, mark, end, err = s.fields(ctx, s.conn.Partition.Base()+"ten:"+cq, mark, SmallHash); err != nil {
				return nil, false, err
			}
			some, err := s.addWaiting(ctx, cq, found, waiting)
			if err != nil {
				return nil, false, err
			}
			partial = partial || some
			if looked += len(found); looked >= tenantLook && !end {
				partial = true
				break
			}
		}
	}
	for tenant, jobs := range waiting {
		top = append(top, store.TenantWaiting{Tenant: tenant, Waiting: jobs})
	}
	return store.MostWaiting(top, n), partial, nil
}

// addWaiting adds up the lanes of tenants of a class. partial says that it has not looked at all.
func (s *Looking) addWaiting(ctx context.Context, cq string, tenants []field, waiting map[string]int64) (partial bool, err error) {
	type counted struct {
		tenant string
		n      *redis.IntCmd
	}
	pipe := redisconn.Client(s.conn).Pipeline()
	var counts []counted
	for _, t := range tenants {
		lanes, some, err := s.LanesIn(ctx, cq, t.name, t.value, LaneLook)
		if err != nil {
			return false, err
		}
		partial = partial || some
		for _, lane := range lanes {
			counts = append(counts, counted{t.name, pipe.ZCard(ctx, s.laneKey(cq, t.name, lane))})
		}
	}
	if len(counts) == 0 {
		return partial, nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return false, fmt.Errorf("count lanes: %w", redisconn.Unread(err))
	}
	for _, c := range counts {
		if n := c.n.Val(); n > 0 {
			waiting[c.tenant] += n
		}
	}
	return partial, nil
}
