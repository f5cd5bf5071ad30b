package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// ErrUnknownQueue means that the store has seen no job, no worker and no settings of a queue.
var ErrUnknownQueue = errors.New("unknown queue")

// QueueState is where the jobs of a queue are and who works on it.
type QueueState struct {
	Name string
	// Classes are its classes with what waits in each, the first in the order of the policy.
	Classes []ClassState
	// Ready counts jobs in workers' streams that no worker has read, Running those in workers' hands, Dead the dead
	// letters.
	Ready, Running, Dead int64
	// Later counts jobs that wait for a time. LaterAtLeast says that there are more than were looked at.
	Later        int64
	LaterAtLeast bool
	// Spilled counts jobs that wait for their tenant's depth to go down.
	Spilled int64
	// Gate is the queue's gate: its pause or its cap. Nil is none.
	Gate *GateState
	// Suspended is set while enqueueing is.
	Suspended *Suspension
	// Pools are the ids of those that serve it, Workers and Slots what they have in all.
	Pools          []string
	Workers, Slots int
	// Pace is the time from one dispatch to the next while jobs wait, 0 when nothing was measured. Busy says that it
	// goes on: jobs wait for room. Last is the time of the last dispatch then.
	Pace time.Duration
	Busy bool
	Last time.Time
	// Turn is the index of the class whose turn it is, of which TurnLeft dispatches are left.
	Turn, TurnLeft int
}

// ClassState is a class of a queue.
type ClassState struct {
	admission.Class

	Waiting int64
}

// Waiting counts the jobs in all lanes of the queue.
func (q *QueueState) Waiting() int64 {
	n := int64(0)
	for _, c := range q.Classes {
		n += c.Waiting
	}
	return n
}

// Paused reports whether an operator holds the queue back.
func (q *QueueState) Paused() bool { return q.Gate != nil && q.Gate.Paused() }

// laterLook is how many of the jobs that wait for a time are looked at to count those of each queue.
const laterLook = 5000

// Queues returns every queue by name. Its cost grows with the queues, the workers' slots and up to 5,000 jobs that wait
// for a time; it is for operators. The parts are read one after the other, so that a job that moves meanwhile may be
// counted twice or not at all.
func (s *Store) Queues(ctx context.Context) ([]QueueState, error) {
	if s.all != nil {
		return s.queuesOfAll(ctx)
	}
	names, err := s.queueNames(ctx)
	if err != nil {
		return nil, err
	}
	return s.queueStates(ctx, names)
}

// Queue returns one queue, or ErrUnknownQueue.
func (s *Store) Queue(ctx context.Context, name string) (QueueState, error) {
	if err := admission.ValidateName("queue", name, true); err != nil {
		return QueueState{}, err
	}
	if s.all != nil {
		return s.queueOfAll(ctx, name)
	}
	known, err := connection(s).HMGet(ctx, s.partition.State(), "q:"+name, "cfg:"+name, "pools:"+name).Result()
	if err != nil {
		return QueueState{}, fmt.Errorf("read queue %s: %w", name, redisconn.Unread(err))
	}
	if redisconn.TextAt(known, 0)+redisconn.TextAt(known, 1)+redisconn.TextAt(known, 2) == "" {
		return QueueState{}, fmt.Errorf("%w %s", ErrUnknownQueue, name)
	}
	states, err := s.queueStates(ctx, []string{name})
	if err != nil {
		return QueueState{}, err
	}
	return states[0], nil
}

func (s *Store) queueStates(ctx context.Context, names []string) ([]QueueState, error) {
	queues, at := make([]QueueState, len(names)), make(map[string]*QueueState, len(names))
	for i, name := range names {
		queues[i].Name, at[name] = name, &queues[i]
	}
	if len(names) == 0 {
		return queues, nil
	}
	for _, part := range []func(context.Context, map[string]*QueueState) error{s.readDynamics, s.readHolds, s.readStaff, s.countReady, s.countLater, s.countSpilled} {
		if err := part(ctx, at); err != nil {
			return nil, err
		}
	}
	return queues, nil
}

// readDynamics reads classes, waiting jobs, pace and dead letters.
func (s *Store) readDynamics(ctx context.Context, queues map[string]*QueueState) error {
	pipe := connection(s).Pipeline()
	states, dead := map[string]*redis.SliceCmd{}, map[string]*redis.IntCmd{}
	for name := range queues {
		states[name] = pipe.HMGet(ctx, s.partition.State(), "cfg:"+name, "q:"+name, "pools:"+name)
		dead[name] = pipe.ZCard(ctx, s.partition.Dead()+":"+name)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("read queues: %w", redisconn.Unread(err))
	}
	for name, q := range queues {
		values := states[name].Val()
		config := parseQueueConfig(redisconn.TextAt(values, 0))
		for _, class := range config.classes {
			q.Classes = append(q.Classes, ClassState{Class: class})
		}
		q.readText(redisconn.TextAt(values, 1))
		q.Pools = strings.Fields(redisconn.TextAt(values, 2))
		q.Dead = dead[name].Val()
	}
	return nil
}

// readText reads cur|left|pace|stamp|V₁|n₁|V₂|n₂….
func (q *QueueState) readText(text string) {
	parts := strings.Split(text, "|")
	if len(parts) < 4 {
		return
	}
	turn, _ := strconv.Atoi(parts[0])
	q.Turn = max(0, turn-1)
	q.TurnLeft, _ = strconv.Atoi(parts[1])
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

// readHolds reads the gates and the suspensions of queues.
func (s *Store) readHolds(ctx context.Context, queues map[string]*QueueState) error {
	for names := range slices.Chunk(slices.Sorted(maps.Keys(queues)), listPortion) {
		gates := make([]string, len(names))
		for i, name := range names {
			gates[i] = string(QueueGate(name))
		}
		pipe := connection(s).Pipeline()
		shut := pipe.HMGet(ctx, s.partition.Gates(), gates...)
		suspended := pipe.HMGet(ctx, s.partition.Base()+"suspended", gates...)
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("read holds: %w", redisconn.Unread(err))
		}
		for i, name := range names {
			if text := redisconn.TextAt(shut.Val(), i); text != "" {
				g, err := parseGate(gates[i], text, nil)
				if err != nil {
					return err
				}
				queues[name].Gate = &g
			}
			if text := redisconn.TextAt(suspended.Val(), i); text != "" {
				p, err := parseSuspension(gates[i], text)
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
func (s *Store) readStaff(ctx context.Context, queues map[string]*QueueState) error {
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

func (s *Store) countReady(ctx context.Context, queues map[string]*QueueState) error {
	return s.findEntries(ctx, func(entry Listed) {
		switch q := queues[entry.Record.Job.Queue]; {
		case q == nil:
		case entry.Place == PlaceRunning:
			q.Running++
		default:
			q.Ready++
		}
	})
}

func (s *Store) countLater(ctx context.Context, queues map[string]*QueueState) error {
	more := false
	looked := 0
	for mark := (setMark{}); ; {
		members, err := s.after(ctx, s.partition.Later(), mark, listPortion)
		if err != nil {
			return err
		}
		if err := s.countQueues(ctx, members, queues); err != nil {
			return err
		}
		if looked += len(members); len(members) < listPortion {
			break
		}
		if more = looked >= laterLook; more {
			break
		}
		last := members[len(members)-1]
		mark = setMark{At: last.at, Key: []byte(last.name)}
	}
	for _, q := range queues {
		q.LaterAtLeast = more
	}
	return nil
}

func (s *Store) countQueues(ctx context.Context, members []member, queues map[string]*QueueState) error {
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

// parseQueueConfig reads the settings of a queue; "" is those of a queue that nobody configured.
func parseQueueConfig(text string) queueConfig {
	var c queueConfig
	names, _, _ := strings.Cut(text, "|")
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

// class names a class by its index; one that the settings no longer have is named by its number.
func (c queueConfig) class(index int) admission.Priority {
	if index < len(c.classes) {
		return c.classes[index].Name
	}
	return admission.Priority(strconv.Itoa(index))
}

// TenantWaiting is a tenant with its waiting jobs in a queue.
type TenantWaiting struct {
	Tenant  string
	Waiting int64
}

// tenantLook is how many tenants of a class WaitingTenants looks at.
const tenantLook = 10_000

// laneLook is how many lanes of a tenant in a class WaitingTenants counts.
const laneLook = 1000

// WaitingTenants returns the n tenants that have the most jobs waiting in a queue, the most first. It looks at some
// 10,000 tenants a class and 1,000 lanes of each at most; partial says that there are more.
func (s *Store) WaitingTenants(ctx context.Context, queue string, n int) (top []TenantWaiting, partial bool, err error) {
	if s.all != nil {
		return s.waitingOfAll(ctx, queue, n)
	}
	state, err := s.Queue(ctx, queue)
	if err != nil {
		return nil, false, err
	}
	waiting := map[string]int64{}
	for class := range state.Classes {
		cq := strconv.Itoa(class) + ":" + queue
		looked := 0
		for mark, end := (hashMark{}), false; !end; {
			var found []field
			if found, mark, end, err = s.fields(ctx, s.partition.Base()+"ten:"+cq, mark, smallHash); err != nil {
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
		top = append(top, TenantWaiting{tenant, jobs})
	}
	return mostWaiting(top, n), partial, nil
}

// mostWaiting returns the first n in order.
func mostWaiting(top []TenantWaiting, n int) []TenantWaiting {
	slices.SortFunc(top, func(a, b TenantWaiting) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Tenant, b.Tenant))
	})
	return top[:min(n, len(top))]
}

// addWaiting adds up the lanes of tenants of a class. partial says that it has not looked at all.
func (s *Store) addWaiting(ctx context.Context, cq string, tenants []field, waiting map[string]int64) (partial bool, err error) {
	type counted struct {
		tenant string
		n      *redis.IntCmd
	}
	pipe := connection(s).Pipeline()
	var counts []counted
	for _, t := range tenants {
		lanes, some, err := s.lanesIn(ctx, cq, t.name, t.value, laneLook)
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
