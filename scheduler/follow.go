package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/store"
)

// DeadLetter is a job that will not run any more unless somebody redrives it.
type DeadLetter struct {
	Key   admission.Key
	Queue string
	Type  string
	// Reason is why: "max_attempts", "poison", "expired", "discarded" and so on; Text what its last handler said.
	Reason, Text string
	// At is when it died, by the clock of Redis.
	At time.Time
	// Attempts is how many runs had failed, Lost how many more had begun when their worker was lost.
	Attempts, Lost int
}

// The dead letters stand in a ZSET by the time of their death. The follower reads on from its front, the last that it has
// seen, and keeps in Redis the place up to which all were told: the front, or just before the first that is to be told
// again. It reads from a little before the front, because the clock of Redis may have been set back meanwhile, and
// remembers what it has seen of that.
const (
	follower = store.DeathFollower
	// followEvery is how often it looks. A look that finds nothing is one command.
	followEvery = time.Second
	// followPage is how many letters are read at a time.
	followPage = 256
	// followOverlap is how far the clock of Redis may be set back unnoticed. Larger steps are told by Promote.
	followOverlap = 5 * time.Second
	// stepOverlap is how far the follower goes back for those: as far as letters may have come since the step.
	stepOverlap = time.Minute
	// longestRetell is the longest pause before a letter is told again. While maxFailed wait for that, no further one is
	// read.
	longestRetell = time.Minute
	maxFailed     = 10_000
)

// following is what a follower knows. Only its goroutine uses it. The zero following has not begun.
type following struct {
	begun bool
	front store.Death
	// seen are the deaths of the overlap before the front.
	seen map[store.Death]bool
	// failed are to be told again.
	failed map[store.Death]*retelling
	// noted is the place that stands in Redis.
	noted store.Death
}

// retelling is when a letter is told again.
type retelling struct {
	at    time.Time
	pause time.Duration
}

// holds reports whether this Scheduler holds the timer lease, as far as it knows.
func (s *Scheduler) holds() bool { return int64(time.Since(s.born)) < s.holding.Load() }

// isLate reports whether it does not hold the timer lease, and nobody else can have had it since: it is renewed too late, and not yet by as much as another's
// would last.
func (s *Scheduler) isLate() bool {
	held := time.Duration(s.holding.Load())
	return held > 0 && !s.holds() && !s.taken.Load() && time.Since(s.born) < held+s.config.TimerLease
}

// mayTell reports whether a letter may be told now.
func (s *Scheduler) mayTell(ctx context.Context) bool { return ctx.Err() == nil && s.holds() }

// follow tells OnDead about dead letters until ctx ends.
func (s *Scheduler) follow(ctx context.Context) {
	trouble := s.trouble("follow dead letters")
	defer trouble.Leave()
	var f following
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !s.holds() {
			f = following{}
			continue
		}
		if err := s.look(ctx, &f); err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
	}
}

// look tells what is new and what is to be told again, and notes the place.
func (s *Scheduler) look(ctx context.Context, f *following) error {
	if err := s.begin(ctx, f); err != nil {
		return err
	}
	if err := s.stepBack(ctx, f); err != nil {
		return err
	}
	err := s.retell(ctx, f)
	if err == nil {
		err = s.readOn(ctx, f)
	}
	place := f.place()
	if place == f.noted {
		return err
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout) // What was told is noted, even at the end.
	defer cancel()
	if failed := s.part.NoteFollowed(bounded, follower, place); failed != nil {
		return errors.Join(err, failed)
	}
	f.noted = place
	return err
}

// begin reads the place that an earlier follower has left. What stands before it was told.
func (s *Scheduler) begin(ctx context.Context, f *following) error {
	if f.begun {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	place, err := s.part.Followed(bounded, follower)
	if err != nil {
		return err
	}
	fresh := following{begun: true, front: place, noted: place, seen: map[store.Death]bool{}, failed: map[store.Death]*retelling{}}
	err = s.pages(ctx, place.At.Add(-followOverlap), func(page []store.Death) (bool, error) {
		for _, d := range page {
			if d.After(place) {
				return false, nil
			}
			fresh.seen[d] = true
		}
		return true, nil
	})
	if err == nil {
		*f = fresh
	}
	return err
}

// stepBack puts the front before what may have come since the clock of Redis was set back.
func (s *Scheduler) stepBack(ctx context.Context, f *following) error {
	if !s.stepped.Load() {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now, err := s.part.Time(bounded)
	if err != nil {
		return err
	}
	s.stepped.Store(false)
	if before := now.Add(-stepOverlap); before.Before(f.front.At) {
		f.front = store.Death{At: before}
	}
	return nil
}

// readOn tells what stands behind the front, page by page.
func (s *Scheduler) readOn(ctx context.Context, f *following) error {
	defer f.forget()
	return s.pages(ctx, f.front.At.Add(-followOverlap), func(page []store.Death) (bool, error) {
		if !s.mayTell(ctx) || len(f.failed) >= maxFailed {
			return false, nil
		}
		fresh := page[:0:0]
		for _, d := range page {
			if !f.seen[d] {
				fresh = append(fresh, d)
			}
		}
		return true, s.tell(ctx, f, fresh)
	})
}

// retell tells what is to be told again by now.
func (s *Scheduler) retell(ctx context.Context, f *following) error {
	now := time.Now()
	var again []store.Death
	for d, r := range f.failed {
		if !now.Before(r.at) {
			again = append(again, d)
		}
	}
	slices.SortFunc(again, func(a, b store.Death) int {
		if a.After(b) {
			return 1
		}
		return -1
	})
	for page := range slices.Chunk(again, followPage) {
		if err := s.tell(ctx, f, page); err != nil {
			return err
		}
	}
	return nil
}

// pages reads the deaths from a time on and gives them to use, until it says no or there are no more. A page begins
// with the time of the last one's last letter, never at a number: letters may leave meanwhile.
func (s *Scheduler) pages(ctx context.Context, from time.Time, use func(page []store.Death) (bool, error)) error {
	var last store.Death
	for size := followPage; ; {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		page, err := s.part.Deaths(bounded, from, size)
		cancel()
		if err != nil {
			return err
		}
		full := len(page) == size
		page = slices.DeleteFunc(page, func(d store.Death) bool { return !last.At.IsZero() && !d.After(last) })
		if len(page) > 0 {
			if more, err := use(page); err != nil || !more {
				return err
			}
			last = page[len(page)-1]
			from, size = last.At, followPage
		} else {
			size *= 2 // As many letters of one moment as a page holds.
		}
		if !full {
			return nil
		}
	}
}

// tell tells about deaths in their order. What has left meanwhile counts as told.
func (s *Scheduler) tell(ctx context.Context, f *following, deaths []store.Death) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	letters, err := s.part.DeadLetters(bounded, deaths)
	if err != nil {
		return err
	}
	there := make(map[store.Death]*store.DeadLetter, len(letters))
	for i := range letters {
		there[letters[i].Death] = &letters[i]
	}
	for _, d := range deaths {
		if !s.mayTell(ctx) {
			return nil // What is left is not seen, so it is another look's.
		}
		letter := there[d]
		if letter == nil {
			f.told(d)
			continue
		}
		if err := callback.Try(func() error { return s.config.OnDead(ctx, letterOf(letter)) }); err != nil {
			f.again(d)
			s.config.Logger.Warn().Err(err).Str("tenant", letter.Job.Tenant).Str("job", letter.Job.ID).Msg("dead letter not taken note of, telling it again")
			continue
		}
		f.told(d)
	}
	return nil
}

func letterOf(l *store.DeadLetter) DeadLetter {
	return DeadLetter{
		Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Queue: l.Job.Queue, Type: l.Job.Type, Reason: l.Reason, Text: l.Text,
		At: l.At, Attempts: l.Attempts, Lost: l.Lost,
	}
}

// told notes a death that need not be told any more, again one that is to be.
func (f *following) told(d store.Death) {
	delete(f.failed, d)
	f.pass(d)
}

func (f *following) again(d store.Death) {
	r := f.failed[d]
	if r == nil {
		r = &retelling{pause: followEvery / 2}
		f.failed[d] = r
	}
	r.pause = min(2*r.pause, longestRetell)
	r.at = time.Now().Add(r.pause)
	f.pass(d)
}

// pass moves the front over a death.
func (f *following) pass(d store.Death) {
	f.seen[d] = true
	if d.After(f.front) {
		f.front = d
	}
}

// place is up to where all were told.
func (f *following) place() store.Death {
	place := f.front
	for d := range f.failed {
		if !d.After(place) {
			place = store.Death{At: d.At.Add(-time.Microsecond)}
		}
	}
	return place
}

// forget drops what will not be read again.
func (f *following) forget() {
	bound := f.front.At.Add(-followOverlap)
	for d := range f.seen {
		if d.At.Before(bound) {
			delete(f.seen, d)
		}
	}
}
