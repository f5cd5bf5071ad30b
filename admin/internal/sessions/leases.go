package sessions

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewLeases asks for jobs.
type NewLeases struct {
	Busy

	Max  int    `json:"max"`
	Wait string `json:"wait"`
	Held bool   `json:"held"`
}

type leasesView struct {
	Jobs      []leaseView        `json:"jobs"`
	Cancelled []cancellationView `json:"cancelled"`
	Partial   bool               `json:"partial,omitempty"`
}

type leaseView struct {
	route.KeyName

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

func (a *Sessions) lease(r *route.Request) (*route.Answer, error) {
	var ask NewLeases
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	s, err := a.sessionOf(r)
	if err != nil {
		return nil, err
	}
	wait := time.Duration(-1)
	if ask.Wait != "" {
		if wait, err = route.Duration("/wait", ask.Wait, time.Millisecond, longestPoll); err != nil {
			return nil, err
		}
		wait = min(wait, s.lease/2, timeLeft(r.Context())/2)
	}
	p, err := a.beat(r.Context(), s, ask.Busy)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	leases, away, err := a.take(r.Context(), s, p.answered, max(ask.Max, 1), wait, ask.Held)
	if err != nil {
		return nil, err
	}
	if ask.Held && !away && p.away == nil && len(leases) < max(ask.Max, 1) { // These are all.
		a.loads.of(s.worker).holds(leases, began)
	}
	jobs, err := a.handOut(r.Context(), s, leases, ask.Held)
	if err != nil {
		return nil, err // What was read is the session's: it asks for what it holds.
	}
	answer := route.OK(leasesView{jobs, p.cancelled, away || p.away != nil})
	if len(jobs) == 0 && (wait < 0 || len(leases) > 0) { // Who has waited may ask again at once.
		answer.Header = http.Header{"Retry-After": {problem.Seconds(a.retryAfter(r.Context(), s))}}
	}
	return answer, nil
}

// handOut returns those of the leases whose jobs may begin. Jobs that the session held before may have begun already.
func (a *Sessions) handOut(ctx context.Context, s session, leases []leased, held bool) ([]leaseView, error) {
	jobs := []leaseView{}
	clocks := map[store.Partition]time.Time{}
	open := gates{}
	for i := range leases {
		l := &leases[i]
		if _, known := clocks[l.part]; !known {
			now, err := l.part.Time(ctx)
			if err != nil {
				return nil, err
			}
			clocks[l.part] = now
		}
		if !held {
			if err := open.read(ctx, l); err != nil {
				return nil, err
			}
		}
		ok, err := a.begin(ctx, s, l, held, open, clocks[l.part])
		if err != nil {
			return nil, err
		}
		if ok {
			a.hand(s, l, held, clocks[l.part])
			jobs = append(jobs, leaseViewOf(&l.Lease, a.tokenOf(l.index, l.Token)))
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

func leaseViewOf(l *store.Lease, token string) leaseView {
	job := &l.Job
	return leaseView{
		KeyName: route.KeyName{Tenant: job.Tenant, ID: job.ID}, Token: token, Queue: job.Queue, Type: job.Type, Downstream: job.Downstream,
		Attempts: l.Attempts, Deadline: shown.Stamp(job.Deadline), TimeoutMs: shown.Millis(job.Timeout), Headers: job.Headers,
		Payload: append([]byte{}, job.Payload...),
	}
}

// begin ends a job that is not to be begun, or hands it back, and notes of one that was lost before that it is. What the session held before may run
// since before its deadline: its client knows whether it does.
func (a *Sessions) begin(ctx context.Context, s session, l *leased, held bool, open gates, now time.Time) (ok bool, err error) {
	key := admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}
	end := store.Finish{Token: l.Token, Key: key}
	switch {
	case l.Err != nil:
		end.Outcome, end.Reason, end.Text = store.Kill, "unreadable", l.Err.Error()
		if errors.Is(l.Err, store.ErrRecordGone) {
			end.Reason = "record_gone"
		}
	case !held && !l.Job.Deadline.IsZero() && now.After(l.Job.Deadline):
		end.Outcome = store.Expire
	case !open.pass(l) || !a.leaseProbe(ctx, s, l, open[l.gate()]):
		end.Outcome, end.Delay, end.Text = store.Release, returnDelay(), breakerOpen
	case l.Suspect:
		err := l.part.Started(ctx, s.pool, s.worker, l.Token, key)
		lost := errors.Is(err, admission.ErrLeaseLost)
		if !lost && !errors.Is(err, store.ErrBeside) {
			return err == nil, err
		}
		if a.returnProbe(ctx, s, l); lost {
			return false, nil
		}
		end.Outcome, end.Delay, end.Text = store.Release, returnDelay(), suspectBeside
	default:
		return true, nil
	}
	_, more, err := l.part.Finish(ctx, s.pool, s.worker, []store.Finish{end})
	a.promote(ctx, l.part, s.worker, err == nil && more)
	return false, err
}
