package limiter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// DefaultSemaphoreLease is the lease of permits whose Semaphore says nothing else.
const DefaultSemaphoreLease = 30 * time.Second

// ErrPermitsLost is the cause with which the context of permits ends when their lease could not be extended in time.
var ErrPermitsLost = errors.New("the permits are lost: their lease could not be extended in time")

// NoPermitsError says that a semaphore had no room.
type NoPermitsError struct {
	Name string
	// Answer says why: store.SemaphoreLarge is for good, as long as the limit stays.
	Answer store.SemaphoreAnswer
	// Limit and Held are permits, Ahead is who waits before the caller. RetryAfter is until the first lease ends, which may be released sooner.
	Limit, Held, Ahead int
	RetryAfter         time.Duration
}

func (e *NoPermitsError) Error() string {
	return fmt.Sprintf("semaphore %s: %s: %d of %d permits are held, %d wait ahead", e.Name, e.Answer, e.Held, e.Limit, e.Ahead)
}

// Is lets errors.Is find headgate.ErrRefused.
func (e *NoPermitsError) Is(target error) bool { return target == admission.ErrRefused }

// Semaphore limits what is done at a time by all processes together, outside of jobs. Several goroutines may use it.
//
//nolint:recvcheck // WithLease returns a copy.
type Semaphore struct {
	limiter *Limiter
	name    string
	lease   time.Duration
}

// Semaphore returns the semaphore of a name, "NAME" or "TENANT:NAME", of which the policy says how many permits there are. It asks Redis for
// nothing yet.
func (l *Limiter) Semaphore(name string) *Semaphore {
	return &Semaphore{limiter: l, name: name, lease: DefaultSemaphoreLease}
}

// WithLease returns the semaphore with another lease for permits that are acquired by it, 1s to 1h: after a process has died, for so long
// nobody else has what it held. Below 15s a step of Redis' clock by up to five seconds may end a lease before its holder stops.
func (s Semaphore) WithLease(lease time.Duration) *Semaphore {
	s.lease = lease
	return &s
}

// TryAcquire takes permits, 1 or more, all or none, where there is room and nobody waits. The error is a *NoPermitsError, a
// *headgate.FieldError for bad input, ErrClosed, or what kept Redis from answering within Config.Timeout.
func (s *Semaphore) TryAcquire(ctx context.Context, permits int) (*Permits, error) {
	token := rand.Text()
	sent := time.Now()
	permit, err := s.ask(ctx, token, permits, false)
	if err == nil && !permit.Granted() {
		return nil, s.refused(&permit)
	}
	if err != nil {
		s.abandon(ctx, token, err)
		return nil, fmt.Errorf("acquire %s: %w", s.name, err)
	}
	return s.held(ctx, token, sent), nil
}

// Acquire is TryAcquire that waits in line until ctx ends: who came first is served first, however many permits it wants, and nobody passes.
// The error is also ctx's own. It polls: the first in line every 10 ms, the second every 20 ms, and so on to every 250 ms.
func (s *Semaphore) Acquire(ctx context.Context, permits int) (*Permits, error) {
	token := rand.Text()
	for {
		sent := time.Now()
		permit, err := s.ask(ctx, token, permits, true)
		switch {
		case err != nil:
			s.abandon(ctx, token, err)
			return nil, fmt.Errorf("acquire %s: %w", s.name, store.EndOf(ctx, err))
		case permit.Granted():
			return s.held(ctx, token, sent), nil
		case permit.Answer != store.SemaphoreWaiting && permit.Answer != store.SemaphoreCrowded:
			return nil, s.refused(&permit)
		}
		timer := time.NewTimer(store.SemaphorePoll(permit.Ahead))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			s.abandon(ctx, token, ctx.Err())
			return nil, fmt.Errorf("wait for %s: %w", s.name, context.Cause(ctx))
		}
	}
}

// ask makes one call, and another where the policy has changed.
func (s *Semaphore) ask(ctx context.Context, token string, permits int, queue bool) (permit store.Permit, err error) {
	ask := store.Acquire{Name: s.name, Token: token, Permits: permits, Lease: s.lease, Queue: queue}
	if err := ask.Validate(); err != nil {
		return permit, err
	}
	l := s.limiter
	if l.line.isClosed() {
		return permit, ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	err = l.with(ctx, func(inForce *policy.Compiled) error {
		ask.Version = inForce.Version()
		ask.Max, ask.Record = inForce.SemaphoreFor(s.name)
		permit, err = l.store.Acquire(ctx, ask)
		return err
	})
	return permit, err
}

func (s *Semaphore) refused(permit *store.Permit) error {
	return &NoPermitsError{Name: s.name, Answer: permit.Answer, Limit: permit.Max, Held: permit.Held, Ahead: permit.Ahead, RetryAfter: permit.Left}
}

// abandon gives up a place in line, and permits of which the answer was lost. Where that fails as well, a place is lost by itself, and permits
// are back when their lease ends.
func (s *Semaphore) abandon(ctx context.Context, token string, why error) {
	if errors.Is(why, admission.ErrInvalid) || errors.Is(why, ErrClosed) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limiter.config.Timeout)
	defer cancel()
	_ = s.limiter.store.Release(ctx, s.name, token)
}

// Permits are held until Release, as long as their lease can be extended, which a goroutine does at each third of it. Several goroutines may
// use them.
type Permits struct {
	semaphore *Semaphore
	token     string
	ctx       context.Context //nolint:containedctx // that of the work, to be handed out
	cancel    context.CancelCauseFunc
	stop      chan struct{}
	once      sync.Once
}

// held begins to keep permits that were asked for at a time.
func (s *Semaphore) held(ctx context.Context, token string, asked time.Time) *Permits {
	p := &Permits{semaphore: s, token: token, stop: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	go p.keep(asked) //nolint:contextcheck // p has it.
	return p
}

// Context is that of the work: it ends with the one that Acquire was given, with Release, and, for ErrPermitsLost as its cause, when two
// thirds of the lease have passed since it was last extended. Until then nobody else has these permits; who works on beyond may not be alone.
func (p *Permits) Context() context.Context { return p.ctx }

// Token names the permits in the store.
func (p *Permits) Token() string { return p.token }

// keep extends the lease until Release, by the monotonic clock, counted from before each call.
func (p *Permits) keep(heard time.Time) {
	lease, s := p.semaphore.lease, p.semaphore
	lose := func() { p.cancel(ErrPermitsLost) }
	losing := time.AfterFunc(time.Until(heard.Add(lease*2/3)), lose)
	defer losing.Stop()
	next := time.NewTimer(time.Until(heard.Add(lease / 3)))
	defer next.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-next.C:
		}
		sent := time.Now()
		if sent.Sub(heard) >= lease*2/3 { // The process was stopped, and the timers are as late as it is.
			lose()
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), max(s.limiter.config.Timeout, lease/6))
		err := s.limiter.guarded(func() error {
			_, err := s.limiter.store.Extend(ctx, s.name, p.token, lease)
			return err
		})
		cancel()
		switch {
		case errors.Is(err, store.ErrLeaseEnded):
			lose()
			return
		case err != nil:
			next.Reset(lease / 30)
		case !losing.Stop(): // Too late: the work was told to stop.
			return
		default:
			heard = sent
			losing.Reset(time.Until(heard.Add(lease * 2 / 3)))
			next.Reset(time.Until(heard.Add(lease / 3)))
		}
	}
}

// Release ends the Context of the permits and gives them back. It may be called again; the error is store.ErrLeaseEnded where they were lost before,
// or what kept Redis from answering within Config.Timeout or the time that ctx has: then they are back when their lease ends.
func (p *Permits) Release(ctx context.Context) error {
	p.cancel(context.Canceled)
	p.once.Do(func() { close(p.stop) }) // An extension that is under way is not waited for: of what was given back it extends nothing.
	s := p.semaphore
	ctx, cancel := context.WithTimeout(ctx, s.limiter.config.Timeout)
	defer cancel()
	if err := s.limiter.store.Release(ctx, s.name, p.token); err != nil {
		return fmt.Errorf("release %s: %w", s.name, err)
	}
	return nil
}
