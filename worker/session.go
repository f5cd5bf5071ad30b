package worker

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker/internal/fleet"
	"github.com/headgate/headgate/worker/internal/inhand"
)

// session is one registration of the worker: a name, a lease, and the jobs that are held under it. It ends with a
// drain, or when its lease is lost; then the worker registers under a new name.
type session struct {
	w      *Worker
	name   string
	logger zerolog.Logger
	held   *inhand.Held

	// lose ends the session as lost; it may be called often and from anywhere.
	lose func(cause error)
	// lost is closed by lose, and when the session is over.
	lost <-chan struct{}
	// unsure has the reader read the history before anything new.
	unsure atomic.Bool
	// guard calls lose shortly before the lease ends, whatever else hangs.
	guard *time.Timer
	// registering is held by whoever tells Redis how many slots there are; a drain does not give it back.
	registering chan struct{}
	// leaseEnd is when the lease ends by this machine's monotonic clock. Only the goroutine that keeps it uses it.
	leaseEnd time.Time
}

// serve lives through one session. It returns when that is over and nothing of it runs any more but handlers of a
// lost one, whose contexts have ended.
func (w *Worker) serve(ctx, after context.Context) {
	jobs, cancelJobs := context.WithCancelCause(after) // of all handlers
	reading, stopReading := context.WithCancel(ctx)
	leased, endLease := context.WithCancelCause(after) // of all that is said to Redis under the lease
	keeping, stopKeeping := context.WithCancel(leased)
	defer stopKeeping()
	defer endLease(nil)
	defer stopReading()
	s := w.newSession()
	s.lost = leased.Done()
	s.lose = func(cause error) {
		cancelJobs(cause)
		stopReading()
		endLease(cause)
	}
	if !s.register(ctx) {
		cancelJobs(nil)
		return
	}
	var keeper, reader sync.WaitGroup
	keeper.Go(func() { s.keep(keeping) })
	if w.shared != nil {
		reader.Go(func() { s.followShare(reading) })
	}
	reader.Go(func() { s.read(reading, jobs) })
	select {
	case <-s.lost:
		s.held.Close()
	case <-ctx.Done():
		s.drain(leased, cancelJobs)
	}
	stopKeeping()
	keeper.Wait()
	s.guard.Stop()
	// Nobody extends the lease any more, and what the reader still hands back is Redis's when it ends.
	defer time.AfterFunc(time.Until(s.leaseEnd), func() { endLease(admission.ErrLeaseLost) }).Stop()
	reader.Wait()
}

func (w *Worker) newSession() *session {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	name := fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString())
	w.finisher.worker.Store(&name)
	held := inhand.NewHeld()
	w.telling.Holds(w.index, held)
	return &session{
		w: w, name: name, held: held, registering: make(chan struct{}, 1),
		logger: w.config.Logger.With().Str("worker", name).Logger(),
	}
}

// register makes the session known to Redis. It tries until that succeeds; false means that ctx ended first, or has to.
func (s *session) register(ctx context.Context) bool {
	trouble := s.w.trouble("register")
	defer trouble.Leave()
	for ctx.Err() == nil {
		if err := s.tryRegister(ctx); store.IsOutdated(err) {
			s.w.leave(err)
			return false
		} else if err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
		s.logger.Info().Int("slots", s.w.config.Concurrency).Str("pool", s.w.pool.ID()).Msg("worker registered")
		return true
	}
	return false
}

func (s *session) tryRegister(ctx context.Context) error {
	w := s.w
	ctx, cancel := context.WithTimeout(ctx, fleet.CallTimeout)
	defer cancel()
	if err := w.clock.Read(ctx, w.store); err != nil {
		return err
	}
	if err := w.classes.Read(ctx, w.store); err != nil {
		s.logger.Warn().Err(err).Msg("classes of queues not read")
	}
	sent := time.Now()
	slots := w.slots.Open()
	more, err := w.store.Register(ctx, s.name, w.pool, slots, w.config.Lease)
	if err != nil {
		return err
	}
	w.shared.registered(w, slots)
	if more {
		w.promoting.Give()
	}
	s.leaseEnd = sent.Add(w.config.Lease)
	s.guard = time.AfterFunc(time.Until(s.leaseEnd)-s.margin(), func() { s.loseLease("no heartbeat came through in time") })
	return nil
}

// margin is how long before the end of the lease everything under it is stopped.
func (s *session) margin() time.Duration { return s.w.config.Lease / 10 }

// loseLease ends the session as one whose jobs are no longer its own.
func (s *session) loseLease(why string) {
	if s.isLost() {
		return
	}
	s.logger.Error().Str("why", why).Msg("lease lost: handlers are cancelled, registering under a new name")
	s.lose(admission.ErrLeaseLost)
}

// isLost reports whether the jobs are no longer this session's.
func (s *session) isLost() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// release hands jobs back unharmed and at once, and waits until Redis has taken note, or the lease is over: then Redis has
// them back, whatever this worker says.
func (s *session) release(jobs []store.Lease, reason string) {
	endings := make([]*ending, len(jobs))
	for i := range jobs {
		endings[i] = s.w.finisher.submit(&jobs[i], answer{outcome: store.Release}, false)
	}
	for i, e := range endings {
		event := s.event(&jobs[i])
		event.Outcome, event.Reason = Lost, reason
		select {
		case <-e.done:
			event.Outcome = outcomeOf(e.ended)
		case <-s.lost:
		}
		s.w.finished(event)
		s.held.Remove(jobs[i].Token)
	}
}

// trouble returns one goroutine's dealings with a Redis that is away.
func (w *Worker) trouble(what string) *outage.Trouble {
	return w.watch.Trouble(what, fleet.FirstPause, fleet.LastPause)
}
