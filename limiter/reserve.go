package limiter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// ErrReservationStands means that what a reservation has cost in truth can no longer be told: it was too late (Reservation.ExpireAfter), or the
// policy has changed since and with it the buckets that less would go back to. What was reserved counts as the cost.
var ErrReservationStands = errors.New("the reservation stands as it was")

// Reservation is tokens that were taken for work whose cost is not known yet. Copies are one and the same; the zero Reservation has nothing
// reserved. Several goroutines may use it.
type Reservation struct{ *reservation }

type reservation struct {
	limiter *Limiter
	class   admission.Priority // as it was asked for: it may be a number
	id      string
	taken   store.Taken

	mu struct {
		sync.Mutex
		settled bool
		told    admission.Tokens // the most that parts have, answered or not
	}
}

// route is the way that was asked for.
func (r *reservation) route() route {
	return route{r.taken.Question.Tenant, r.taken.Question.Queue, r.class}
}

// reserveAttempts is how many policies a call may find to be stale one after the other.
const reserveAttempts = 3

// Reserve takes the tokens of a request, of its way and of all its dimensions or of none, as an estimate, until Commit tells what the work has cost or Cancel that it did not
// begin. Where the request has no cost the estimate is learned: nine in ten of the last 32 costs that this Limiter was told of the tenant and its
// queue were not above it, at first it is 1,000 tokens, and it is never above the least burst on the way. What was not told within Reservation.ExpireAfter stands as it was reserved. A refusal is a *headgate.RefusedError. It always asks Redis,
// whatever is on lease, waits for it up to Config.Timeout, and does not go by Config.Outage: while Redis is away it returns that error, and
// where store.InDoubt is true of it the tokens may have been taken. With Config.Minutes it is counted as a check of as much.
func (l *Limiter) Reserve(ctx context.Context, r Request) (Reservation, error) {
	at, learned := r.route(), r.Cost == 0
	if r.beside() { // No caller's tenant.
		return Reservation{}, admission.ValidateTenant(r.Tenant)
	}
	if err := errors.Join(at.validate(), checkEstimate(r.Cost)); err != nil {
		return Reservation{}, err
	}
	if l.line.isClosed() {
		return Reservation{}, ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	var verdict admission.Verdict
	var taken store.Taken
	err := l.with(ctx, func(inForce *policy.Compiled) error {
		question, err := questionOf(inForce, at, r.Cost)
		if err != nil {
			return l.staleOr(ctx, inForce, err)
		}
		beside, err := l.besideOf(ctx, inForce, &r)
		if err != nil {
			return err
		}
		if learned {
			least := (*policy.Limits)(&question.Limits).LeastBurst(len(l.store.Partitions()))
			question.Cost = l.costs.Guess(at.tenant, at.queue, "", store.LeastBurst(least, beside))
			r.Cost = question.Cost
		}
		for i := range beside {
			beside[i].Cost = r.Cost
		}
		verdict, taken, err = l.store.Take(ctx, inForce.Version(), question, beside...)
		taken.ExpireAfter = inForce.ExpireAfter(at.queue)
		l.toldShared(beside, &verdict, &taken)
		if err == nil && l.config.Minutes {
			l.noteReserved(ctx, inForce, question, beside, verdict, taken.Beside)
		}
		return err
	})
	if err != nil {
		return Reservation{}, fmt.Errorf("reserve %d tokens: %w", r.Cost, err)
	}
	if v := verdictOf(&verdict); !v.Admitted {
		return Reservation{}, v.Err()
	}
	return Reservation{&reservation{limiter: l, class: at.class, id: "r-" + rand.Text(), taken: taken}}, nil
}

// besideOf returns the questions of a request's dimensions, without their cost. Where one is not declared the policy is looked for again.
func (l *Limiter) besideOf(ctx context.Context, inForce *policy.Compiled, r *Request) ([]store.Question, error) {
	if len(r.Also) == 0 {
		return nil, nil
	}
	requests, err := spread(nil, r, inForce)
	if err != nil {
		return nil, l.staleOr(ctx, inForce, err)
	}
	beside := make([]store.Question, len(r.Also))
	for i := range beside {
		if beside[i], err = questionOf(inForce, requests[i+1].route(), 0); err != nil {
			return nil, err
		}
	}
	return beside, nil
}

// staleOr returns store.ErrStale where there is a later policy than the one in which something is missing, else the error that says so.
func (l *Limiter) staleOr(ctx context.Context, missing *policy.Compiled, err error) error {
	if l.redeclared(ctx, missing) != missing {
		return store.ErrStale
	}
	return err
}

// toldShared counts what was answered of buckets that values of dimensions share.
func (l *Limiter) toldShared(beside []store.Question, verdict *admission.Verdict, taken *store.Taken) {
	for i := range beside {
		if q := &beside[i]; verdict.Scope == admission.Scope(q.Tenant) {
			l.shared(q)
		}
	}
	for i := range taken.Beside {
		if taken.Beside[i].Shared {
			l.shared(&taken.Beside[i].Question)
		}
	}
}

// Reserved returns how many tokens were, by the request or as learned.
func (r Reservation) Reserved() admission.Tokens {
	if r.reservation == nil {
		return 0
	}
	return r.taken.Question.Cost
}

// ExpireAfter returns for how long after the reservation, or its latest CommitPart, its cost may be told, by the policy that was in force as it was made:
// then what was reserved, or more that a part has told, stands. It is zero where nothing is reserved.
func (r Reservation) ExpireAfter() time.Duration {
	if r.reservation == nil {
		return 0
	}
	return r.taken.Expiry()
}

// Commit tells what the work has cost, 0 to headgate.MaxActualCost tokens: what it did not need goes back to the limits, as far as they would have had
// room for it, and what it lacked is taken, up to one burst below zero, which is refilled before they admit anything again. It counts once: after a
// Commit or a Cancel that was answered another does nothing. After an error of Redis the same call may be made again. The error is a
// *headgate.FieldError, matches ErrReservationStands, or is what Redis said. After CommitPart it counts for no less than that told.
func (r Reservation) Commit(ctx context.Context, actual admission.Tokens) error {
	return r.commit(ctx, actual, true)
}

// CommitPart tells of work that goes on, as a stream of a model does, how much it has used so far: of the whole, 0 to headgate.MaxActualCost tokens, and not since
// the last call. So it may be called any number of times, and again after any error: the greatest counts, also where its answer was lost. What that is beyond
// what was reserved is taken at once, up to one burst below zero; what was not used yet stays reserved until Commit or Cancel, for which there
// is ExpireAfter from the latest part on. Where none of them comes the greater of what was reserved and told is the cost. It always asks Redis. After Commit or Cancel
// it does nothing. The error is one of those of Commit.
func (r Reservation) CommitPart(ctx context.Context, used admission.Tokens) error {
	if err := admission.ValidateActualCost(used); err != nil || r.reservation == nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.settled {
		return nil
	}
	r.mu.told = max(r.mu.told, used)
	ctx, cancel := context.WithTimeout(ctx, r.limiter.config.Timeout)
	defer cancel()
	done, err := r.tell(ctx, r.mu.told, r.limiter.store.CommitPart, true)
	if err != nil {
		return fmt.Errorf("commit %d tokens so far: %w", used, err)
	}
	return r.stands(done)
}

// commit is Commit; begun says that the work did, so that its cost is one to learn from.
func (r Reservation) commit(ctx context.Context, actual admission.Tokens, begun bool) error {
	if err := admission.ValidateActualCost(actual); err != nil || r.reservation == nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.settled {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.limiter.config.Timeout)
	defer cancel()
	actual = max(actual, r.mu.told)
	done, err := r.settle(ctx, actual)
	if err != nil {
		return fmt.Errorf("commit %d tokens: %w", actual, err)
	}
	r.mu.settled = true
	if begun {
		r.limiter.costs.Learn(r.taken.Question.Tenant, r.taken.Question.Queue, "", actual) // Of any class: urgent work costs what other work does.
	}
	return r.stands(done)
}

// stands is the error of one that stands.
func (r Reservation) stands(done store.Refund) error {
	switch done {
	case store.RefundLate:
		return fmt.Errorf("%w: more than %s have passed", ErrReservationStands, r.taken.Expiry())
	case store.RefundStale:
		return fmt.Errorf("%w: the policy has changed since", ErrReservationStands)
	case store.Refunded, store.RefundedBefore:
	}
	return nil
}

// Cancel gives back what was reserved for work that did not begin, as Commit of nothing; after CommitPart what that did not tell.
func (r Reservation) Cancel(ctx context.Context) error { return r.commit(ctx, 0, false) }

// settle tells Redis, unless there is nothing to tell.
func (r Reservation) settle(ctx context.Context, actual admission.Tokens) (done store.Refund, err error) {
	reserved := r.taken.Question.Cost
	if actual == reserved {
		return store.Refunded, nil
	}
	return r.tell(ctx, actual, r.limiter.store.Commit, actual > reserved)
}

// tell calls one of the store; again says that it is called also under a policy of after the taking: what lacks is taken from the limits in force,
// whatever they were.
func (r Reservation) tell(ctx context.Context, cost admission.Tokens, call func(context.Context, string, store.Taken, admission.Tokens) (store.Refund, error), again bool) (done store.Refund, err error) {
	done, err = call(ctx, r.id, r.taken, cost)
	if known := r.limiter.policy.Load(); known != nil && errors.Is(err, store.ErrStale) {
		_, err = store.Learn(err, known)
	}
	if err != nil || done != store.RefundStale || !again {
		return done, err
	}
	err = r.limiter.with(ctx, func(inForce *policy.Compiled) error {
		taken := r.taken
		if taken.Question, err = questionOf(inForce, r.route(), r.taken.Question.Cost); err != nil {
			return err
		}
		if r.taken.Question.Usage == 0 { // It was not counted.
			taken.Question.Usage = 0
		}
		taken.Beside = nil
		for _, way := range r.taken.Beside {
			of := route{tenant: way.Question.Tenant, queue: way.Question.Queue}
			if way.Question, err = questionOf(inForce, of, way.Question.Cost); err == nil { // Else the dimension is no more.
				taken.Beside = append(taken.Beside, way)
			}
		}
		taken.Version = inForce.Version()
		if done, err = call(ctx, r.id, taken, cost); err == nil && done == store.RefundStale {
			return store.ErrStale
		}
		return err
	})
	return done, err
}

// with calls do with the policy in force, and again with a later one where that is found to be stale.
func (l *Limiter) with(ctx context.Context, do func(inForce *policy.Compiled) error) error {
	for attempt := 1; ; attempt++ {
		inForce, err := l.current(ctx)
		if err != nil {
			return err
		}
		if err = do(inForce); !errors.Is(err, store.ErrStale) || attempt == reserveAttempts {
			return err
		}
		if err = l.renew(ctx, inForce, err); err != nil {
			return err
		}
	}
}

// questionOf asks for tokens of every limit of a valid route.
func questionOf(inForce *policy.Compiled, at route, cost admission.Tokens) (store.Question, error) {
	q := store.Question{Tenant: at.tenant, Queue: at.queue, Cost: cost}
	if q.OfDimension() {
		var ok bool
		if q.Limits, q.MaxKeys, ok = inForce.DimensionLimits(at.tenant, at.queue); !ok {
			return q, errUndeclared(at.tenant)
		}
		q.Record = inForce.RecordVersion(at.tenant)
		return q, nil
	}
	if at.class != "" {
		var ok bool
		if q.Class, ok = inForce.ClassNamed(at.queue, at.class); !ok {
			return q, &admission.FieldError{Field: "class", Value: strconv.Quote(string(at.class)), Allowed: "a class of queue " + at.queue}
		}
	}
	if at.tenant != "" {
		q.Usage = inForce.UsageTenants()
	}
	q.Limits, q.Record = inForce.WayFor(at.tenant, at.queue, q.Class)
	for level := at.depth() + 1; level < int(admission.Levels); level++ {
		q.Limits[level].Disabled = true
	}
	return q, nil
}

// checkEstimate is checkCost where none is a cost to be learned.
func checkEstimate(cost admission.Tokens) error {
	if cost == 0 {
		return nil
	}
	return checkCost(cost)
}
