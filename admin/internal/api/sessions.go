package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/lua"
)

// sessionRoutes are those of workers in other languages. A session is a registered worker: its name says which pool it
// is of and for how long a call renews its lease, so any server can serve it. It may be handed jobs of every tenant.
func (a *API) sessionRoutes() []route.Route {
	const one = "/api/v1/workers/{worker}"
	work := func(method, path string, handle func(*route.Request) (*route.Answer, error)) route.Route {
		return route.Route{Method: method, Path: path, Role: access.Operator, Reach: route.Deployment, Data: true, Handle: handle}
	}
	return []route.Route{
		work(http.MethodPost, "/api/v1/workers", a.register),
		work(http.MethodDelete, one, a.deregister),
		work(http.MethodPost, one+"/leases", a.lease),
		work(http.MethodPost, one+"/extend", a.extend),
		work(http.MethodPost, one+"/complete", a.complete),
		work(http.MethodPost, one+"/fail", a.fail),
		work(http.MethodPost, one+"/release", a.release),
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
}

var sessionName = regexp.MustCompile(`^http-([0-9a-f]{12})-([1-9][0-9]{3,5})-[0-9a-f-]{36}$`)

func newSessionName(pool lua.Pool, lease time.Duration) string {
	return fmt.Sprintf("http-%s-%d-%s", pool.ID(), lease.Milliseconds(), uuid.NewString())
}

// sessionOf reads the name in the path.
func sessionOf(r *route.Request) (session, error) {
	worker := r.PathValue("worker")
	parts := sessionName.FindStringSubmatch(worker)
	if parts == nil {
		return session{}, headgate.ErrLeaseLost // Workers of other kinds are nobody's here.
	}
	ms, err := strconv.Atoi(parts[2])
	lease := time.Duration(ms) * time.Millisecond
	if err != nil || lease < minLease || lease > maxLease {
		return session{}, headgate.ErrLeaseLost
	}
	return session{worker, parts[1], lease}, nil
}

type newSession struct {
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

func (a *API) register(r *route.Request) (*route.Answer, error) {
	var ask newSession
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	lease := defaultLease
	if ask.Lease != "" {
		var err error
		if lease, err = readDuration("/lease", ask.Lease, minLease, maxLease); err != nil {
			return nil, err
		}
	}
	pool, seen := lua.Pool{Strict: ask.Strict}, map[string]bool{}
	for i, q := range ask.Queues {
		if seen[q.Queue] {
			return nil, problem.Invalid(problem.At(fmt.Sprintf("/queues/%d/queue", i), "is there twice; allowed is once"))
		}
		seen[q.Queue] = true
		pool.Queues = append(pool.Queues, lua.QueueWeight{Queue: q.Queue, Weight: max(q.Weight, 1)})
	}
	if n := len(a.config.Store.Partitions()); n > 1 {
		return nil, problem.New(problem.Conflict, "sessions work on deployments of one partition, this one has %d: workers in Go work on all", n)
	}
	worker, slots := newSessionName(pool, lease), max(ask.Slots, 1)
	more, err := a.config.Store.Register(r.Context(), worker, pool, slots, lease)
	if err != nil {
		return nil, err
	}
	a.promote(r.Context(), worker, more)
	return &route.Answer{Status: http.StatusCreated, Value: sessionView{worker, pool.ID(), slots, shown.Millis(lease)}}, nil
}

// deregister hands back all that a session holds, unharmed, and ends it.
func (a *API) deregister(r *route.Request) (*route.Answer, error) {
	s, err := sessionOf(r)
	if err != nil {
		return nil, err
	}
	if _, err := a.config.Store.Heartbeat(r.Context(), s.worker, s.lease); err != nil {
		return nil, err
	}
	for more := true; more; {
		if more, err = a.config.Store.Reclaim(r.Context(), s.worker); err != nil {
			return nil, err
		}
	}
	return route.Done(), nil
}

type cancellationView struct {
	Token  string `json:"token"`
	Reason string `json:"reason,omitempty"`
}

// beat renews the lease of a session, and tells which of its jobs were cancelled. Where no scheduler lives it does the
// work of one, so that workers over HTTP need no other process.
func (a *API) beat(ctx context.Context, s session) ([]cancellationView, error) {
	beat, err := a.config.Store.Heartbeat(ctx, s.worker, s.lease)
	if err != nil {
		return nil, err
	}
	a.promote(ctx, s.worker, beat.Promote)
	cancelled := []cancellationView{}
	for _, c := range beat.Cancelled {
		cancelled = append(cancelled, cancellationView(c))
	}
	return cancelled, nil
}

const (
	// promotions is how often a call promotes at most; what is left is the next call's.
	promotions = 16
	timerLease = time.Second
)

// promote does what is due. It is nobody's answer: where it fails, the next call does it.
func (a *API) promote(ctx context.Context, owner string, more bool) {
	for range promotions {
		if !more {
			return
		}
		done, err := a.config.Store.Promote(ctx, owner, timerLease)
		more = err == nil && done.More
	}
}

type extendedView struct {
	LeaseMs   float64            `json:"lease_ms"`
	Cancelled []cancellationView `json:"cancelled"`
}

func (a *API) extend(r *route.Request) (*route.Answer, error) {
	s, err := sessionOf(r)
	if err != nil {
		return nil, err
	}
	cancelled, err := a.beat(r.Context(), s)
	if err != nil {
		return nil, err
	}
	return route.OK(extendedView{shown.Millis(s.lease), cancelled}), nil
}

type newLeases struct {
	Max  int    `json:"max"`
	Wait string `json:"wait"`
	Held bool   `json:"held"`
}

type leasesView struct {
	Jobs      []leaseView        `json:"jobs"`
	Cancelled []cancellationView `json:"cancelled"`
}

type leaseView struct {
	keyName

	Token      string            `json:"token"`
	Queue      string            `json:"queue"`
	Type       string            `json:"type"`
	Downstream string            `json:"downstream,omitempty"`
	Attempts   int               `json:"attempts"`
	Deadline   *time.Time        `json:"deadline,omitempty"`
	TimeoutMs  float64           `json:"timeout_ms,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Payload    []byte            `json:"payload_base64"`
}

// longestPoll bounds how long a call waits for the first job, so that it is answered before a proxy gives it up.
const longestPoll = 5 * time.Second

func (a *API) lease(r *route.Request) (*route.Answer, error) {
	var ask newLeases
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	s, err := sessionOf(r)
	if err != nil {
		return nil, err
	}
	wait := time.Duration(-1)
	if ask.Wait != "" {
		if wait, err = readDuration("/wait", ask.Wait, time.Millisecond, longestPoll); err != nil {
			return nil, err
		}
		wait = min(wait, s.lease/2, timeLeft(r.Context())/2)
	}
	cancelled, err := a.beat(r.Context(), s)
	if err != nil {
		return nil, err
	}
	leases, err := a.config.Store.Read(r.Context(), s.worker, s.pool, max(ask.Max, 1), wait, ask.Held)
	if lua.IsPoolGone(err) {
		return nil, headgate.ErrLeaseLost
	}
	if err != nil {
		return nil, err
	}
	jobs, err := a.handOut(r.Context(), s, leases, ask.Held)
	if err != nil {
		return nil, err // What was read is the session's: it asks for what it holds.
	}
	answer := route.OK(leasesView{jobs, cancelled})
	if len(jobs) == 0 && (wait < 0 || len(leases) > 0) { // Who has waited may ask again at once.
		answer.Header = http.Header{"Retry-After": {problem.Seconds(a.retryAfter(r.Context(), s))}}
	}
	return answer, nil
}

// handOut returns those of the leases whose jobs may begin. Jobs that the session held before may have begun already.
func (a *API) handOut(ctx context.Context, s session, leases []lua.Lease, held bool) ([]leaseView, error) {
	jobs := []leaseView{}
	if len(leases) == 0 {
		return jobs, nil
	}
	now, err := a.config.Store.Time(ctx)
	if err != nil {
		return nil, err
	}
	var open gates
	if !held {
		if open, err = a.gatesOf(ctx, leases); err != nil {
			return nil, err
		}
	}
	for i := range leases {
		ok, err := a.begin(ctx, s, &leases[i], open, now)
		if err != nil {
			return nil, err
		}
		if ok {
			jobs = append(jobs, leaseViewOf(&leases[i]))
		}
	}
	return jobs, nil
}

// timeLeft is how long a call may still take.
func timeLeft(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return longestPoll
	}
	return max(time.Until(end), time.Millisecond)
}

func leaseViewOf(l *lua.Lease) leaseView {
	job := &l.Job
	return leaseView{
		keyName: keyName{job.Tenant, job.ID}, Token: l.Token, Queue: job.Queue, Type: job.Type, Downstream: job.Downstream,
		Attempts: l.Attempts, Deadline: shown.Stamp(job.Deadline), TimeoutMs: shown.Millis(job.Timeout), Headers: job.Headers,
		Payload: append([]byte{}, job.Payload...),
	}
}

// begin ends a job that is not to be begun, or hands it back, and notes of one that was lost before that it is.
func (a *API) begin(ctx context.Context, s session, l *lua.Lease, open gates, now time.Time) (ok bool, err error) {
	key := headgate.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}
	end := lua.Finish{Token: l.Token, Key: key}
	switch {
	case l.Err != nil:
		end.Outcome, end.Reason, end.Text = lua.Kill, "unreadable", l.Err.Error()
	case !l.Job.Deadline.IsZero() && now.After(l.Job.Deadline):
		end.Outcome = lua.Expire
	case !open.pass(l):
		end.Outcome, end.Delay, end.Text = lua.Release, returnDelay(), breakerOpen
	case l.Suspect:
		err := a.config.Store.Started(ctx, s.pool, s.worker, l.Token, key)
		if errors.Is(err, headgate.ErrLeaseLost) {
			return false, nil
		}
		return err == nil, err
	default:
		return true, nil
	}
	_, more, err := a.config.Store.Finish(ctx, s.pool, s.worker, []lua.Finish{end})
	a.promote(ctx, s.worker, err == nil && more)
	return false, err
}
