package memory

import (
	"container/heap"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory/internal/names"
	"github.com/headgate/headgate/internal/sorted"
	"github.com/headgate/headgate/store"
)

// placeOf names where a job is.
func placeOf(j *modelJob) admission.Place {
	switch j.where {
	case inLane:
		return admission.PlaceWaiting
	case inLater:
		return admission.PlaceLater
	case inSpill:
		return admission.PlaceSpilled
	case amongDead:
		return store.PlaceDead
	case inReady:
		if j.entry.Worker == "" {
			return admission.PlaceReady
		}
		return store.PlaceRunning
	}
	return store.PlaceUnknown
}

// recordOf is a job as it is stored, for whoever asks to keep and to write to. A large payload is left out.
func (m *model) recordOf(j *modelJob) store.Record {
	r := store.Record{
		Job: j.stored, Class: j.Class, Attempts: j.attempts, Lost: j.lost, Suspect: j.suspect, Seq: j.Seq, Arrival: time.UnixMicro(j.arrival),
		Large: len(j.stored.Payload) > store.LargePayload, Timed: j.timed, Uncharged: j.uncharged,
	}
	r.Job.Headers = maps.Clone(j.stored.Headers)
	if r.Large {
		r.Job.Payload = []byte{}
	} else {
		r.Job.Payload = slices.Clone(j.stored.Payload)
	}
	r.Plain = !r.Large && !j.counted && j.release == "" && len(j.history) == 0 && !j.suspect
	return r
}

// shown is a job as its record tells of it, with its class by name.
func (m *model) shown(j *modelJob) store.Record {
	r := m.recordOf(j)
	r.Job.Priority = store.ClassName(m.classesOf(j.Queue), j.Class)
	return r
}

// rowOf is a job as a listing shows it.
func (m *model) rowOf(j *modelJob) store.Listed {
	row := store.Listed{Key: admission.Key{Tenant: j.Tenant, ID: j.ID}, Place: placeOf(j), Record: m.shown(j)}
	switch row.Place {
	case store.PlaceDead:
		row.At, row.Reason, row.Text = time.UnixMicro(j.at), j.reason, j.text
	case admission.PlaceLater:
		row.At = time.UnixMicro(j.at)
	case admission.PlaceWaiting:
		row.At = time.UnixMicro(j.Score)
	case admission.PlaceReady, store.PlaceRunning:
		row.Worker, row.Token = j.entry.Worker, j.token
	case admission.PlaceSpilled: // It waits for room, not for a time.
	}
	return row
}

// classesOf are those that a policy gives a queue.
func (s *settings) classesOf(queue string) []admission.Class {
	for _, name := range [...]string{queue, store.Every} {
		if of := s.queues[name].Classes; len(of) > 0 {
			return of
		}
	}
	return admission.DefaultClasses()
}

// poolsOf are the ids of the pools that serve a queue, in the order in which they were made.
func (m *model) poolsOf(queue string) []string {
	ids := []string{}
	for _, p := range m.room.Made() {
		if slices.Contains(p.Queues, queue) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// queueNames names every queue that is known, sorted: those that a job has made, that the policy names or that workers serve.
func (m *model) queueNames() []string {
	names := m.room.QueueNames()
	for name := range m.queues {
		if name != store.Every {
			names = append(names, name)
		}
	}
	for _, p := range m.room.Pools {
		names = append(names, p.Queues...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// knownQueue reports whether a queue is among them.
func (m *model) knownQueue(name string) bool {
	_, known := slices.BinarySearch(m.queueNames(), name)
	return known
}

// microTime is a time in microseconds; 0 is the zero Time.
func microTime(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// asOf runs look while the buckets' clock stands at a time, and sets it back: whoever looks changes nothing.
func (m *model) asOf(now int64, look func()) {
	was := m.filled
	m.filled = m.bucketTime(now)
	defer func() { m.filled = was }()
	look()
}

// timedAfter returns up to n jobs of a list by time that follow a time and a raw key.
func timedAfter(list *sorted.List[*modelJob], at int64, raw []byte, n int) (jobs []*modelJob) {
	mark := &modelJob{at: at, raw: string(raw)}
	if raw == nil {
		mark.at = math.MinInt64
	}
	for j := range list.From(mark) {
		if len(jobs) == n {
			break
		}
		if byTime(j, mark) > 0 {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// jobsAfter returns the first n jobs by raw key after one.
func (m *model) jobsAfter(raw string, n int) []*modelJob {
	first := &lastFirst{}
	for _, j := range m.live {
		switch {
		case j.raw <= raw || first.Len() == n && j.raw > (*first)[0].raw:
		case first.Len() == n:
			(*first)[0] = j
			heap.Fix(first, 0)
		default:
			heap.Push(first, j)
		}
	}
	jobs := make([]*modelJob, first.Len())
	for i := range slices.Backward(jobs) {
		jobs[i], _ = heap.Pop(first).(*modelJob)
	}
	return jobs
}

// lastFirst is a heap of jobs, the last one by raw key on top.
//
//nolint:recvcheck // A heap grows by pointer and is looked at by value.
type lastFirst []*modelJob

func (h lastFirst) Len() int           { return len(h) }
func (h lastFirst) Less(i, k int) bool { return h[i].raw > h[k].raw }
func (h lastFirst) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }

func (h *lastFirst) Push(x any) {
	j, _ := x.(*modelJob)
	*h = append(*h, j)
}

func (h *lastFirst) Pop() any {
	last := len(*h) - 1
	j := (*h)[last]
	*h = (*h)[:last]
	return j
}

// entriesAfter returns up to n jobs of a pool's stream whose entries follow a token.
func entriesAfter(p *fairqueue.Pool, token string, n int) (jobs []*modelJob) {
	for _, e := range p.Ready {
		if j := jobOf(e.Job); j != nil && len(jobs) < n && names.Before(token, j.token) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// spilledBy returns the jobs kept aside of TENANT:QUEUE.
func (m *model) spilledBy(name string) *sorted.List[*modelJob] {
	tenant, queue, _ := strings.Cut(name, ":")
	return m.spilledIn(tenant, queue)
}

// remembers reports whether the id of a job that left is in the dedup window.
func (m *model) remembers(key string) bool { return m.ended[0][key] || m.ended[1][key] }

// sortedNames returns the keys of a map in order.
func sortedNames[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// modelRate is a rate of dispatches.
type modelRate struct {
	model  *model
	limit  buckets.Limit
	stored buckets.Bucket
	// account is the gate of an account that has no rate of its own; empty for any other rate.
	account string
}

func (r *modelRate) settled() (buckets.Micro, buckets.Instant) {
	return buckets.Settle(buckets.Instant(r.model.filled), 0, r.stored, r.limit)
}

func (r *modelRate) store(level buckets.Micro, stamp buckets.Instant) {
	fill := math.Ceil(float64(r.limit.Burst-level) / float64(r.limit.Rate))
	r.stored = buckets.Bucket{Level: level, Stamp: stamp, Fill: buckets.Span(fill), Rate: r.limit.Rate}
}

// Free implements fairqueue.Meter.
func (r *modelRate) Free() int {
	level, _ := r.settled()
	return int(level / buckets.MicroPerToken)
}

// Take implements fairqueue.Meter.
func (r *modelRate) Take() {
	level, stamp := r.settled()
	r.store(level-buckets.MicroPerToken, stamp)
	if r.account != "" {
		r.model.keepAccount(r)
	}
}

// Wait implements fairqueue.Meter. It looks for the first microsecond at which a token is there.
func (r *modelRate) Wait() int64 {
	level, stamp := r.settled()
	missing := float64(buckets.MicroPerToken - level)
	wait := max(1, int64(stamp)+int64(math.Ceil(missing/float64(r.limit.Rate)))-r.model.filled)
	if math.Floor(float64(wait+r.model.filled-int64(stamp))*float64(r.limit.Rate)) < missing {
		wait++
	}
	return wait
}

func (r *modelRate) String() string {
	text, _ := r.stored.MarshalText()
	return string(text)
}

// Of implements fairqueue.Each. Of an account of which nothing is kept the bucket is full.
func (r *modelRate) Of(gate string) fairqueue.Meter {
	a := r.model.accounts[gate]
	if a == nil {
		a = &modelRate{model: r.model, account: gate, stored: buckets.Bucket{Level: r.limit.Burst, Stamp: buckets.Instant(r.model.filled)}}
	}
	a.limit = r.limit
	return a
}

// accountSlack is how many more accounts may be kept before those go whose buckets are full, and accountKept for how long beyond that.
const (
	accountSlack = 64
	accountKept  = int64(time.Minute / time.Microsecond)
)

// keepAccount keeps what is left of an account's rate until it is full.
func (m *model) keepAccount(a *modelRate) {
	if m.accounts[a.account] = a; len(m.accounts) < 2*m.accountsKept+accountSlack {
		return
	}
	for gate, one := range m.accounts {
		if m.filled-int64(one.stored.Stamp) > int64(one.stored.Fill)+accountKept {
			delete(m.accounts, gate)
		}
	}
	m.accountsKept = len(m.accounts)
}

// accountLines tells which accounts wait for a token, and whose rates are not full, where they have none of their own.
func (m *model) accountLines(add func(format string, args ...any)) {
	for account := range m.room.AccountsWaiting() {
		add("account %s waits", account)
	}
	for gate, a := range m.accounts {
		each := m.room.Gates[fairqueue.DefaultOf(gate)]
		if each == nil || m.room.Gates[gate] != nil {
			continue
		}
		a.limit = each.Rate.(*modelRate).limit //nolint:forcetypeassert // The model has no others.
		if level, _ := a.settled(); level < a.limit.Burst {
			add("account %s %v", gate[len("s:"):], a)
		}
	}
}

// accountsLook has accounts look again that wait by a rate which is that of each: the old one's timer may be far ahead.
func (m *model) accountsLook(name string, now int64) {
	for account := range m.room.AccountsWaiting() {
		if fairqueue.DefaultOf("s:"+account) == name {
			m.arm("gs:"+account, now)
		}
	}
}

// freeWaiting wakes who waits at gates of downstreams under the cap of each, also where nothing runs that counts.
func (m *model) freeWaiting(c *fairqueue.Pass, each string) {
	for service := range m.room.WaitingFor() {
		if fairqueue.DefaultOf("d:"+service) == each {
			c.Freed("d:" + service)
		}
	}
	for account := range m.room.AccountsWaiting() {
		if fairqueue.DefaultOf("d:"+account) == each {
			c.Freed("d:" + account)
		}
	}
}
