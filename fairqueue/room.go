package fairqueue

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// Moves is the largest number of moves of one Call: a job dispatched, expired or returned, a lane or a tenant parked
// or woken.
const Moves = 64

// ContinueAfter is how far ahead, in microseconds, the timer stands that continues a call out of moves.
const ContinueAfter = 50_000

// WeightFunc returns a tenant's weight in a class, 1-1000.
type WeightFunc func(class admission.Priority, tenant string) admission.Weight

// Entry is a job in a pool's ready stream.
type Entry struct {
	Job *Job
	// Worker is who has read it, empty for nobody.
	Worker string
	// Period is that of the breaker's gate that the job was dispatched under, 0 for none.
	Period uint64
	// Number orders the entries of a pool.
	Number uint64
}

// add appends an entry to the pool's stream.
func (p *Pool) add(e *Entry) {
	p.last++
	e.Number = p.last
	p.Ready = append(p.Ready, e)
	if service := e.Job.Service(); service != "" {
		p.held[service]++
	}
}

// Find returns where an entry stands in the stream, or would.
func (p *Pool) Find(number uint64) (at int, ok bool) {
	return slices.BinarySearchFunc(p.Ready, number, func(e *Entry, number uint64) int { return cmp.Compare(e.Number, number) })
}

// Remove takes an entry out of the stream. Release gives its units back.
func (p *Pool) Remove(e *Entry) {
	if at, ok := p.Find(e.Number); ok {
		p.Ready = slices.Delete(p.Ready, at, at+1)
	}
}

// Alarms keeps timers.
type Alarms interface {
	// Set arms a timer, or arms it anew.
	Set(timer string, at int64)
	// Stop disarms one that may be armed.
	Stop(timer string)
	// Armed reports whether a timer stands.
	Armed(timer string) bool
}

// Pool is a set of workers that serve the same queues.
type Pool struct {
	ID     string
	Strict bool
	Queues []string
	Slots  int
	// Ready is the pool's stream, leased entries included, oldest first.
	Ready   []*Entry
	pattern *Pattern
	// held counts the entries by service, last is the number of the latest one.
	held map[string]int
	last uint64
	// number is in the order in which pools were made.
	number int
}

// Gate stops what it guards while it has no unit free.
type Gate struct {
	// Limit is how many jobs may be in workers' hands at a time, Held how many are.
	Limit, Held int
	// Period makes it a breaker's: only jobs dispatched in the same period count. Other gates have 0.
	Period uint64
	// Rate makes it a rate of dispatches; Limit and Held are not used then.
	Rate Meter
	// Kept makes it the gate of slots that are kept for some classes of a queue; Limit is not used then.
	Kept *Kept
	// Default says that it has no Limit of its own, but that of Room.Defaults or Room.Recorded (LimitOf). Such a gate is there only while it holds something.
	Default bool
}

// Meter is a rate of dispatches, such as a token bucket.
type Meter interface {
	// Free is how many dispatches may be made now.
	Free() int
	// Take counts a dispatch.
	Take()
	// Wait is how many microseconds it takes until one more may be made. Free is 0.
	Wait() int64
}

// Each is a Meter that each account of a service has by itself: that of the gate s:SERVICE+*.
type Each interface {
	Meter
	// Of is that of an account by the name of its gate, which has none of its own.
	Of(gate string) Meter
}

func (g *Gate) units() int {
	if g.Rate != nil {
		return g.Rate.Free()
	}
	return g.Limit - g.Held
}

// Room is the waiting room of one partition: queues, pools, gates, and the timers that they need. Its methods are
// not safe for several goroutines. Changes go through a Call.
type Room struct {
	// Timers are in microseconds by name, as package lua keeps them: d a lane's next deadline, g a rate's
	// next token, k a gate whose waiters are not all awake, f a fill out of moves.
	Timers map[string]int64
	// Alarms keeps them instead, unless it is nil.
	Alarms Alarms
	// Gates by name, as package lua keeps them: q:QUEUE; t:TENANT, u:TENANT:QUEUE, and r:TENANT, a rate; d:DOWNSTREAM,
	// b:SERVICE, of its breaker, and s:DOWNSTREAM, a rate, of s:SERVICE+* an Each; o:QUEUE, of its Kept. What has none is not limited.
	Gates map[string]*Gate
	// Defaults are limits of those that have no gate of their own: t:* of each tenant, u:*:QUEUE of each tenant in the
	// queue, d:* of each service, d:SERVICE+* of each of its accounts.
	Defaults map[string]int
	// Recorded is nil where no tenant has anything beside Gates.
	Recorded RecordFunc
	Pools    map[string]*Pool
	Weight   WeightFunc
	queues   map[string]*queue
	// every are the classes of queues that have none of their own; nil is admission.DefaultClasses.
	every []admission.Class
	seq   uint64
	// call is the one under way, or the last one.
	call *Pass
	// waits counts the jobs in lanes by service.
	waits map[string]int
	// parked keeps the waiters of gates by line, also of gates that were removed until they are awake. shelves are those of them that
	// are shelves.
	parked  map[string]map[string]*waiters
	shelves map[string]bool
	// wakes are the lines from which on waiters of gates are to wake that have a timer k: those before have had their turn.
	wakes map[string]string
	// touched are the queues that the call under way changes.
	touched []*queue
	// used counts the queues that jobs have made.
	used int
	// pools counts those that were made.
	pools int
}

// NewRoom returns an empty room in which every weight is 1.
func NewRoom() *Room {
	return &Room{
		Timers: map[string]int64{}, Gates: map[string]*Gate{}, Defaults: map[string]int{}, Pools: map[string]*Pool{}, queues: map[string]*queue{},
		parked: map[string]map[string]*waiters{}, shelves: map[string]bool{}, wakes: map[string]string{}, waits: map[string]int{},
		Weight: func(admission.Priority, string) admission.Weight { return 1 },
	}
}

// AddQueue makes a queue with the given classes. A queue that is first named by a job has those of SetEveryClasses.
func (r *Room) AddQueue(name string, classes []admission.Class) {
	q := &queue{name: name}
	weights := make([]int, len(classes))
	for i, c := range classes {
		weights[i] = c.Weight
		q.names = append(q.names, c.Name)
		q.classes = append(q.classes, newClass(q, i))
	}
	q.pattern = NewPattern(weights)
	r.queues[name] = q
}

// SetClasses gives a queue other classes. Nothing waits in one that goes, or becomes another. The phase of the pattern stays, but where no job has made
// the queue, and where the class whose turn it is goes.
func (r *Room) SetClasses(name string, classes []admission.Class) {
	q := r.queues[name]
	if q == nil {
		r.AddQueue(name, classes)
		return
	}
	weights := make([]int, len(classes))
	q.names = make([]admission.Priority, len(classes))
	for i, c := range classes {
		weights[i], q.names[i] = c.Weight, c.Name
		if i == len(q.classes) {
			q.classes = append(q.classes, newClass(q, i))
		}
	}
	if q.used && len(classes) < len(q.classes) {
		r.touch(q)
	}
	q.classes = q.classes[:len(classes)]
	turn, left := q.pattern.current, q.pattern.left
	q.pattern = NewPattern(weights)
	if q.used && turn < len(classes) {
		q.pattern.current, q.pattern.left = turn, left
	}
}

// SetEveryClasses gives queues other classes that have none of their own, those that come later too: named reports which of the queues that are there
// have. Nil are headgate.DefaultClasses. As SetClasses otherwise.
func (r *Room) SetEveryClasses(classes []admission.Class, named func(queue string) bool) {
	r.every = classes
	for name := range r.queues {
		if !named(name) {
			r.SetClasses(name, r.everyClasses())
		}
	}
}

func (r *Room) everyClasses() []admission.Class {
	if r.every == nil {
		return admission.DefaultClasses()
	}
	return r.every
}

// Know makes a queue that a job names which is not placed yet.
func (r *Room) Know(queue string) {
	q := r.queue(queue)
	r.use(q)
	r.touch(q)
}

func (r *Room) use(q *queue) {
	if !q.used {
		q.used = true
		r.used++
	}
}

// Used returns how many queues jobs have made.
func (r *Room) Used() int { return r.used }

// Has reports whether a job has made a queue.
func (r *Room) Has(queue string) bool {
	q := r.queues[queue]
	return q != nil && q.used
}

// Empty reports whether nothing waits in a queue.
func (r *Room) Empty(queue string) bool {
	q := r.queues[queue]
	return q == nil || !slices.ContainsFunc(q.classes, func(c *class) bool { return c.waiting > 0 })
}

// Forget forgets an empty queue.
func (r *Room) Forget(queue string) {
	if q := r.queues[queue]; q != nil && q.used {
		r.used--
	}
	delete(r.queues, queue)
}

// LaneCount returns how many lanes a tenant has in a class, its only open one not counted, and whether one of a name is among all.
func (r *Room) LaneCount(queue string, class int, tenant, lane string) (n int, has bool) {
	t := r.tenantOf(queue, class, tenant)
	if t == nil {
		return 0, false
	}
	if n = len(t.lanes); t.only() != nil {
		n--
	}
	return n, t.lanes[lane] != nil
}

func (r *Room) queue(name string) *queue {
	if r.queues[name] == nil {
		r.AddQueue(name, r.everyClasses())
	}
	return r.queues[name]
}

// AddPool makes a pool without slots. weights are those of its queues, unused when strict.
func (r *Room) AddPool(id string, strict bool, queues []string, weights []int) *Pool {
	r.pools++
	p := &Pool{ID: id, Strict: strict, Queues: queues, pattern: NewPattern(weights), number: r.pools, held: map[string]int{}}
	r.Pools[id] = p
	return p
}

// NextSeq returns the next number in the order of arrivals and entries.
func (r *Room) NextSeq() uint64 {
	r.seq++
	return r.seq
}

func (r *Room) closed(gate string) bool { return r.units(gate) <= 0 }

// Closed reports whether a gate lets nothing pass.
func (r *Room) Closed(gate string) bool { return r.closed(gate) }

// units returns how many more may pass a gate.
func (r *Room) units(gate string) int {
	g := r.Gates[gate]
	if g != nil && (gate[0] != 't' || g.Rate != nil) {
		return g.units()
	}
	if limit, is := r.LimitOf(gate); is {
		if g != nil {
			limit -= g.Held
		}
		return limit
	}
	if m := r.accountRate(gate, DefaultOf(gate)); m != nil {
		return m.Free()
	}
	return everyone
}

// RateAt returns the rate of dispatches behind a gate, an account's also where it is that of each; nil where there is none.
func (r *Room) RateAt(gate string) Meter {
	if g := r.Gates[gate]; g != nil {
		return g.Rate
	}
	if m := r.accountRate(gate, DefaultOf(gate)); m != nil {
		return m
	}
	return nil
}

// accountRate returns the rate of an account that has none of its own, by that of each, whose gate is of; nil where there is none.
func (r *Room) accountRate(gate, of string) Meter {
	if gate[0] != 's' || of == "" || r.Gates[of] == nil {
		return nil
	}
	return r.Gates[of].Rate.(Each).Of(gate) //nolint:forcetypeassert // A gate that others are of has nothing else.
}

// gate returns the gate that a dispatch passes under, nil for none.
func (r *Room) gate(name string) *Gate {
	g := r.Gates[name]
	if g != nil {
		return g
	}
	of := DefaultOf(name)
	if limit, ok := r.LimitOf(name); ok {
		g = &Gate{Limit: limit, Default: true}
		r.Gates[name] = g
	} else if m := r.accountRate(name, of); m != nil {
		g = &Gate{Rate: m, Default: true} // What is left of it is kept by the Each.
	}
	return g
}

// tenantGates and laneGates name what stands before a tenant in a queue, and before a lane, in the order in which they
// are asked.
func tenantGates(tenant, queue string) []string {
	return []string{"t:" + tenant, "u:" + tenant + ":" + queue, "r:" + tenant}
}

func laneGates(downstream string) []string {
	if downstream == "" {
		return nil
	}
	service := ServiceOf(downstream)
	if service == downstream {
		return []string{"d:" + downstream, "b:" + downstream, "s:" + downstream}
	}
	return []string{"d:" + service, "d:" + downstream, "b:" + service, "s:" + service, "s:" + downstream}
}

// accountSign parts a service from one of its accounts in the name of a downstream.
const accountSign = "+"

// ServiceOf returns the service of a downstream: all of it where no account is named.
func ServiceOf(downstream string) string {
	service, _, _ := strings.Cut(downstream, accountSign)
	return service
}

// gateNames returns every gate on a job's way.
func gateNames(queue, tenant, downstream string) []string {
	return append(append(laneGates(downstream), tenantGates(tenant, queue)...), "q:"+queue)
}

func lineName(class int, queue string) string { return strconv.Itoa(class) + ":" + queue }

// Waiting returns the number of jobs in lanes.
func (r *Room) Waiting() int {
	n := 0
	for _, q := range r.queues {
		for _, c := range q.classes {
			for _, t := range c.tenants {
				for _, l := range t.lanes {
					n += l.jobs.Len()
				}
			}
		}
	}
	return n
}

// CouldRun returns a job of the queues that nothing stands against: every gate on its way has a unit free and its
// deadline has not passed. With room in a pool that serves the queue, law W forbids it.
func (r *Room) CouldRun(queues []string, now int64) (key string, found bool) {
	for _, name := range queues {
		for _, c := range r.queue(name).classes {
			if r.reserveShut(c.queue, c.index) {
				continue
			}
			for _, t := range c.tenants {
				for _, l := range t.lanes {
					j := l.head()
					if j.Dated && j.Score < now {
						continue
					}
					if !slices.ContainsFunc(gateNames(name, t.name, j.Downstream), r.closed) && !r.awaitsTimer(t, l) {
						return j.Key(), true
					}
				}
			}
		}
	}
	return "", false
}

// awaitsTimer reports whether a lane or its tenant waits for the timer of a rate: between two calls time alone may have
// brought what it waits for.
func (r *Room) awaitsTimer(t *tenant, l *lane) bool {
	if !l.blocked {
		return r.armed("gr:"+t.name) && t.mode == tenantParked
	}
	return r.armed("gs:"+l.name[1:]) || r.armed("gs:"+ServiceOf(l.name[1:]))
}
