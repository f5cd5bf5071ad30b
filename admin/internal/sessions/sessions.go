package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Config is what sessions work with.
type Config struct {
	Store store.Deployment
	// Breaker and Breakers are those of admin.Config.
	Breaker  breaker.Config
	Breakers map[string]breaker.Config
	// Policy returns the policy in force as it was last read, nil where none was yet.
	Policy func() *policy.Compiled
	// With calls do with the policy in force, and again with a later one where do finds that it is stale (store.ErrStale).
	With func(ctx context.Context, do func(*policy.Compiled) error) error
	// Learn, if not nil, is told what jobs that ended have cost, where their clients said.
	Learn func(tenant, queue, jobType string, actual admission.Tokens)
	// Missed is told of what failed beside a call that was answered.
	Missed func(what string, err error)
}

// Sessions serves them.
type Sessions struct {
	config Config
	// parts are the partitions, and shares how the slots of sessions go to them.
	parts  []store.Partition
	shares shares
	// loads is what is told of how busy sessions are.
	loads loads
}

// New returns the handlers.
func New(config Config) *Sessions { return &Sessions{config: config, parts: config.Store.Partitions()} }

// Routes are those of workers in other languages. A session is a worker that is registered in every partition: its name
// says which pool it is of and for how long a call renews its lease, so any server can serve it. It may be handed jobs of every
// tenant.
func (a *Sessions) Routes() []route.Route {
	const one = "/api/v1/workers/{worker}"
	work := func(method, path string, handle func(*route.Request) (*route.Answer, error)) route.Route {
		return route.Route{Method: method, Path: path, Role: access.Worker, Reach: route.Deployment, Load: route.Data, Handle: handle}
	}
	lease := work(http.MethodPost, one+"/leases", a.lease)
	lease.Load = route.Wait
	held := func(method, path string, handle func(*route.Request) (*route.Answer, error)) route.Route {
		r := work(method, path, handle)
		r.UnderWay = true
		return r
	}
	return []route.Route{
		work(http.MethodPost, "/api/v1/workers", a.register),
		held(http.MethodDelete, one, a.deregister),
		lease,
		held(http.MethodPost, one+"/extend", a.extend),
		held(http.MethodPost, one+"/complete", a.complete),
		held(http.MethodPost, one+"/fail", a.fail),
		held(http.MethodPost, one+"/release", a.release),
	}
}

// Bounds of a session's lease.
const (
	defaultLease = 15 * time.Second
	minLease     = time.Second
	maxLease     = 5 * time.Minute
)

// session is what the name of a worker over HTTP says.
type session struct {
	worker, pool string
	lease        time.Duration
	// slots is how many jobs it holds at a time in all partitions; 0 where there is but one, which knows.
	slots int
}

var sessionName = regexp.MustCompile(`^http-([0-9a-f]{12})-([1-9][0-9]{3,5})-(?:([1-9][0-9]{0,3})x)?[0-9a-f-]{36}$`)

// newSession returns one of a name of its own.
func (a *Sessions) newSession(pool store.Pool, lease time.Duration, slots int) session {
	s, share := session{pool: pool.ID(), lease: lease}, ""
	if len(a.parts) > 1 {
		s.slots, share = slots, fmt.Sprintf("%dx", slots)
	}
	s.worker = fmt.Sprintf("http-%s-%d-%s%s", s.pool, lease.Milliseconds(), share, uuid.NewString())
	return s
}

// sessionOf reads the name in the path.
func (a *Sessions) sessionOf(r *route.Request) (session, error) {
	worker := r.PathValue("worker")
	parts := sessionName.FindStringSubmatch(worker)
	if parts == nil {
		return session{}, admission.ErrLeaseLost // Workers of other kinds are nobody's here.
	}
	ms, err := strconv.Atoi(parts[2])
	lease := time.Duration(ms) * time.Millisecond
	if err != nil || lease < minLease || lease > maxLease || (parts[3] != "") != (len(a.parts) > 1) {
		return session{}, admission.ErrLeaseLost
	}
	slots, _ := strconv.Atoi(parts[3])
	return session{worker, parts[1], lease, slots}, nil
}

// NewSession asks for a session.
type NewSession struct {
	Queues []struct {
		Queue  string `json:"queue"`
		Weight int    `json:"weight"`
	} `json:"queues"`
	Strict bool   `json:"strict"`
	Slots  int    `json:"slots"`
	Lease  string `json:"lease"`
}

type sessionView struct {
	Worker  string  `json:"worker"`
	Pool    string  `json:"pool"`
	Slots   int     `json:"slots"`
	LeaseMs float64 `json:"lease_ms"`
}

func (a *Sessions) register(r *route.Request) (*route.Answer, error) {
	var ask NewSession
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	lease := defaultLease
	if ask.Lease != "" {
		var err error
		if lease, err = route.Duration("/lease", ask.Lease, minLease, maxLease); err != nil {
			return nil, err
		}
	}
	pool, seen := store.Pool{Strict: ask.Strict}, map[string]bool{}
	for i, q := range ask.Queues {
		if seen[q.Queue] {
			return nil, problem.Invalid(problem.At(fmt.Sprintf("/queues/%d/queue", i), "is there twice; allowed is once"))
		}
		seen[q.Queue] = true
		pool.Queues = append(pool.Queues, store.QueueWeight{Queue: q.Queue, Weight: max(q.Weight, 1)})
	}
	slots := max(ask.Slots, 1)
	s := a.newSession(pool, lease, slots)
	shares := a.firstShares(r.Context(), s, pool, slots)
	err := a.config.Store.Each(func(i int, part store.Partition) error {
		more, err := part.Register(r.Context(), s.worker, pool, shares[i], lease)
		if err == nil {
			a.promote(r.Context(), part, s.worker, more)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &route.Answer{Status: http.StatusCreated, Value: sessionView{s.worker, s.pool, slots, shown.Millis(lease)}}, nil
}

// deregister hands back all that a session holds, unharmed, and ends it.
func (a *Sessions) deregister(r *route.Request) (*route.Answer, error) {
	s, err := a.sessionOf(r)
	if err != nil {
		return nil, err
	}
	defer a.ending(r.Context(), s)()
	var held atomic.Bool
	err = a.config.Store.Each(func(_ int, part store.Partition) error {
		if _, err := part.Heartbeat(r.Context(), s.worker, s.lease, ""); err != nil {
			return unless(admission.ErrLeaseLost, err) // Here, but perhaps not elsewhere.
		}
		held.Store(true)
		for more := true; more; {
			var err error
			if more, err = part.Reclaim(r.Context(), s.worker); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && !held.Load() {
		err = admission.ErrLeaseLost
	}
	a.loads.forget(s.worker)
	if err != nil {
		return nil, err
	}
	return route.Done(), nil
}

// unless returns err, or nil if it is what was expected.
func unless(expected, err error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

type cancellationView struct {
	Token  string `json:"token"`
	Reason string `json:"reason,omitempty"`
}

// pulse is what the partitions have said to a heartbeat.
type pulse struct {
	// answered are the indexes of those that have; away is why others have not, nil if all have.
	answered  []int
	away      error
	cancelled []cancellationView
	// load is how often the policy has workers tell how busy they are, zero for never.
	load time.Duration
}

// beat renews the lease of a session of which its client says how busy its process is, tells how busy it is where that is due, and which of its jobs were cancelled. Where no scheduler lives it does the
// work of one, so that workers over HTTP need no other process. A lease that is lost anywhere is lost. The error is nil if any
// partition has answered.
func (a *Sessions) beat(ctx context.Context, s session, busy Busy) (pulse, error) {
	told := a.due(ctx, s, busy)
	beats, errs := make([]store.Beat, len(a.parts)), make([]error, len(a.parts))
	_ = a.config.Store.Each(func(i int, part store.Partition) error {
		text := ""
		if i == 0 {
			text = told
		}
		beats[i], errs[i] = part.Heartbeat(ctx, s.worker, s.lease, text)
		if errs[i] == nil {
			a.promote(ctx, part, s.worker, beats[i].Promote)
		}
		return errs[i]
	})
	p := pulse{cancelled: []cancellationView{}, away: errors.Join(errs...)}
	if errs[0] == nil {
		p.load = beats[0].Load
		a.loads.asked(p.load)
	}
	if errors.Is(p.away, admission.ErrLeaseLost) {
		a.loads.forget(s.worker)
		return p, admission.ErrLeaseLost
	}
	for i := range beats {
		if errs[i] != nil {
			continue
		}
		p.answered = append(p.answered, i)
		for _, c := range beats[i].Cancelled {
			p.cancelled = append(p.cancelled, cancellationView{a.tokenOf(i, c.Token), c.Reason})
		}
	}
	if len(p.answered) == 0 {
		return p, p.away
	}
	return p, nil
}

const (
	// promotions is how often a call promotes at most; what is left is the next call's.
	promotions = 16
	timerLease = time.Second
)

// promote does what is due. It is nobody's answer: where it fails, the next call does it.
func (a *Sessions) promote(ctx context.Context, part store.Partition, owner string, more bool) {
	for range promotions {
		if !more {
			return
		}
		done, err := part.Promote(ctx, owner, timerLease)
		more = err == nil && done.More
	}
}

type extendedView struct {
	LeaseMs   float64            `json:"lease_ms"`
	Cancelled []cancellationView `json:"cancelled"`
	LoadMs    float64            `json:"load_ms,omitempty"`
}

// extend fails where a partition is away: the lease of what the session holds there is not renewed.
func (a *Sessions) extend(r *route.Request) (*route.Answer, error) {
	var busy Busy
	if err := r.Decode(&busy); err != nil {
		return nil, err
	}
	s, err := a.sessionOf(r)
	if err != nil {
		return nil, err
	}
	p, err := a.beat(r.Context(), s, busy)
	if err = cmp.Or(err, p.away); err != nil {
		return nil, err
	}
	return route.OK(extendedView{shown.Millis(s.lease), p.cancelled, shown.Millis(p.load)}), nil
}
