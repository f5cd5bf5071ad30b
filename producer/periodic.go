package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/callback"
)

// Missed says what becomes of ticks that no process was there for, or that were refused for too long. A tick is missed
// when it is 10 s late; whoever comes sooner enqueues it all the same.
type Missed string

// The ways with missed ticks.
const (
	// MissedSkip forgets them.
	MissedSkip Missed = "skip"
	// MissedOnce enqueues the latest of them, for all.
	MissedOnce Missed = "once"
	// MissedAll enqueues each, the latest MaxMissed of them, in order.
	MissedAll Missed = "all"
)

// PeriodicJob is one job that is enqueued over and over.
type PeriodicJob struct {
	// Name is 1-100 bytes of [A-Za-z0-9._:@/-], and no two in the deployment have the same. A tick's job has the id
	// NAME@SECONDS, the tick in seconds since 1970.
	Name string
	// Spec is five fields of cron, "@hourly" and its like, or "@every 90s", which means the multiples of that time since
	// 1970. "CRON_TZ=Europe/Berlin " before it replaces PeriodicConfig.Location.
	Spec string
	// Job is what is enqueued; Make, if it is not nil, returns it instead, and several goroutines may call it. ID, RunAt,
	// Delay and Unique are the tick's: those of Job must be zero, those from Make are not looked at. Deadline can only
	// come from Make. A tick for which Make panics is logged and enqueues nothing.
	Job  admission.Job
	Make func(tick time.Time) admission.Job
	// Missed says what becomes of missed ticks; empty means MissedSkip. MaxMissed, 1 to 1000, is for MissedAll; zero means
	// 100.
	Missed    Missed
	MaxMissed int
}

// PeriodicConfig is what a Periodic needs beside a Producer.
type PeriodicConfig struct {
	// Logger says which ticks were missed or cannot be enqueued. Its zero value is silent.
	Logger zerolog.Logger
	// Jobs are 1 to 1000.
	Jobs []PeriodicJob
	// Location is the time zone of specs that name none; nil means UTC. It must be the same in all processes.
	Location *time.Location
	// Seconds lets specs begin with a sixth field, for the second.
	Seconds bool
}

// Periodic enqueues periodic jobs. Any number of processes may run one with the same jobs: each tick is enqueued
// once. Make it with NewPeriodic, then call Run.
//
// What makes it once is the tick's id, for as long as ended ids are remembered, and its unique key for 24 h from its
// admission. A hash in Redis holds each job's last tick, as a hint for missed ones. So a tick could run twice only if
// the processes that enqueued it all died before noting it, none came back for 24 h, and Missed is not MissedSkip.
//
// The clock of this process decides when it enqueues, that of Redis when the job starts: not before the tick.
type Periodic struct {
	producer *Producer
	config   PeriodicConfig
	entries  []*periodic
}

// periodic is one job and its schedule. It never changes.
type periodic struct {
	PeriodicJob
	schedule schedule
}

// Bounds and defaults.
const (
	maxPeriodic      = 1000
	maxPeriodicName  = 100
	maxMissed        = 1000
	defaultMaxMissed = 100
	// onTime is how late a tick may be without being missed: room for restarts, short outages, and clocks that differ.
	onTime = 10 * time.Second
	// tickUnique is how long a tick's unique key is held.
	tickUnique = 24 * time.Hour
	// longestSleep bounds what a step of the local clock can do.
	longestSleep = 30 * time.Second
)

// NewPeriodic returns a Periodic on a Producer. It sends nothing yet. The error names every bad field and spec.
func NewPeriodic(p *Producer, config PeriodicConfig) (*Periodic, error) {
	config.Jobs = slices.Clone(config.Jobs)
	if config.Location == nil {
		config.Location = time.UTC
	}
	periodicals := &Periodic{producer: p, config: config}
	var bad []error
	if n := len(config.Jobs); n < 1 || n > maxPeriodic {
		bad = append(bad, &admission.FieldError{Field: "Jobs", Value: fmt.Sprintf("%d jobs", n), Allowed: "1 to 1000 jobs"})
	}
	seen := make(map[string]bool, len(config.Jobs))
	for i, job := range config.Jobs {
		job.Missed, job.MaxMissed = cmp.Or(job.Missed, MissedSkip), cmp.Or(job.MaxMissed, defaultMaxMissed)
		at := fmt.Sprintf("Jobs[%d]", i)
		e := &periodic{PeriodicJob: job}
		faults := e.check(at, config)
		if seen[job.Name] {
			faults = append(faults, &admission.FieldError{Field: at + ".Name", Value: strconv.Quote(job.Name), Allowed: "a name no other job has"})
		}
		seen[job.Name] = true
		if len(faults) == 0 {
			faults = e.checkTemplate(p, at)
		}
		bad = append(bad, faults...)
		periodicals.entries = append(periodicals.entries, e)
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fmt.Errorf("configure periodic jobs: %w", err)
	}
	return periodicals, nil
}

// check reads the spec and returns what is wrong with the entry.
func (e *periodic) check(at string, config PeriodicConfig) (bad []error) {
	field := func(ok bool, name, value, allowed string) {
		if !ok {
			bad = append(bad, &admission.FieldError{Field: at + name, Value: value, Allowed: allowed})
		}
	}
	if err := admission.ValidateName(at+".Name", e.Name, false); err != nil {
		bad = append(bad, err)
	} else {
		field(len(e.Name) <= maxPeriodicName, ".Name", fmt.Sprintf("of %d bytes", len(e.Name)), "1-100 bytes")
	}
	field(e.Missed == MissedSkip || e.Missed == MissedOnce || e.Missed == MissedAll, ".Missed", strconv.Quote(string(e.Missed)), `"skip", "once" or "all"`)
	field(e.MaxMissed >= 1 && e.MaxMissed <= maxMissed, ".MaxMissed", strconv.Itoa(e.MaxMissed), "1 to 1000 ticks")
	var err error
	if e.schedule, err = parseSpec(e.Spec, config.Seconds, config.Location); err != nil {
		fault := &admission.FieldError{Field: at + ".Spec", Value: strconv.Quote(e.Spec), Allowed: specAllowed}
		bad = append(bad, fmt.Errorf("%w (%w)", fault, err))
	}
	j := &e.Job
	field(j.ID == "" && j.RunAt.IsZero() && j.Delay == 0 && j.Unique == admission.Unique{}, ".Job", "with an ID, a RunAt, a Delay or a Unique", "a job without: they are the tick's")
	field(j.Deadline.IsZero(), ".Job", "with a Deadline", "one that Make returns: it is another for each tick")
	return bad
}

// checkTemplate returns what would be wrong with each tick's job.
func (e *periodic) checkTemplate(p *Producer, at string) []error {
	if e.Make != nil {
		return nil
	}
	job, err := e.job(e.schedule.next(time.Now()))
	if err == nil {
		err = p.prepare(&job)
	}
	if err != nil {
		return []error{fmt.Errorf("%s.Job: %w", at, err)}
	}
	return nil
}

// job returns what is enqueued for a tick. The error is a panic of Make.
func (e *periodic) job(tick time.Time) (admission.Job, error) {
	job := e.Job
	if e.Make != nil {
		err := callback.Try(func() error {
			job = e.Make(tick)
			return nil
		})
		if err != nil {
			return admission.Job{}, fmt.Errorf("make the job of a tick: %w", err)
		}
	}
	job.ID = e.Name + "@" + strconv.FormatInt(tick.Unix(), 10)
	job.RunAt, job.Delay = tick, 0
	job.Unique = admission.Unique{Key: job.ID, For: tickUnique, Release: admission.ReleaseAtExpiry}
	return job, nil
}

// due returns the ticks that are to be enqueued now, in order, when all up to done have been.
func (e *periodic) due(done, now time.Time) []time.Time {
	bound := now.Add(-onTime)
	recent := ticks(e.schedule, latest(done, bound), now, maxMissed)
	switch {
	case e.Missed == MissedSkip || !done.Before(bound):
		return recent
	case e.Missed == MissedAll:
		return append(ticks(e.schedule, done, bound, e.MaxMissed), recent...)
	case len(recent) > 0:
		return recent
	}
	return ticks(e.schedule, done, bound, 1)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Run enqueues until ctx ends, and returns nil when all its goroutines have ended. While Redis is away, or a tick is
// refused for a reason that passes, it tries again until the tick is missed.
func (p *Periodic) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, e := range p.entries {
		running.Go(func() { p.follow(ctx, e) })
	}
	running.Wait()
	return nil
}

// follow enqueues one job's ticks.
func (p *Periodic) follow(ctx context.Context, e *periodic) {
	done, ok := p.begin(ctx, e)
	failing := false
	for ok {
		now := time.Now()
		due := e.due(done, now)
		if bound := now.Add(-onTime); len(due) == 0 && len(ticks(e.schedule, done, latest(done, bound), 1)) > 0 {
			p.config.Logger.Warn().Str("job", e.Name).Time("since", done).Msg("ticks were missed and are skipped")
			p.note(ctx, e, bound)
		}
		var err error
		for _, tick := range due {
			if err = p.enqueue(ctx, e, tick); err != nil {
				break
			}
			done = tick
			p.note(ctx, e, tick)
		}
		if err == nil {
			failing = false
			done = latest(done, now) // Nothing else was due.
			ok = rest(ctx, min(time.Until(e.schedule.next(done)), longestSleep))
			continue
		}
		if !failing && ctx.Err() == nil {
			p.config.Logger.Warn().Err(err).Str("job", e.Name).Msg("tick not enqueued, trying again")
		}
		failing = true
		ok = rest(ctx, retryPause(err))
	}
}

// begin returns the tick from which the job goes on; false when ctx ended first. A note from the future, of a process
// whose clock is ahead, would stop the job: there the tick's id and key alone see to it that nothing runs twice.
func (p *Periodic) begin(ctx context.Context, e *periodic) (time.Time, bool) {
	failing := false
	for ctx.Err() == nil {
		now := time.Now()
		bounded, cancel := p.producer.bound(ctx)
		done, err := p.producer.part.LastTick(bounded, e.Name, now)
		cancel()
		if err == nil {
			if done.After(now) {
				done = now
			}
			return done, true
		}
		if !failing {
			p.config.Logger.Warn().Err(err).Str("job", e.Name).Msg("last tick not read, trying again")
		}
		failing = true
		rest(ctx, retryPause(err))
	}
	return time.Time{}, false
}

// enqueue asks for a tick's job to enter. The error is one that passes; a tick that never will is logged and done with.
func (p *Periodic) enqueue(ctx context.Context, e *periodic, tick time.Time) error {
	job, err := e.job(tick)
	if err != nil {
		p.config.Logger.Error().Err(err).Str("job", e.Name).Time("tick", tick).Msg("tick cannot be enqueued")
		return nil
	}
	verdict, err := p.producer.Enqueue(ctx, job)
	switch {
	case err == nil || verdict.Reason == admission.ReasonUnique:
		return nil // Here or by another process.
	case errors.Is(err, admission.ErrInvalid) || verdict.Permanent():
		p.config.Logger.Error().Err(err).Str("job", e.Name).Time("tick", tick).Msg("tick cannot be enqueued")
		return nil
	}
	return err
}

// note writes down the last tick, also that of the moment in which ctx ended. It is a hint, so a failure is only logged.
func (p *Periodic) note(ctx context.Context, e *periodic, tick time.Time) {
	ctx, cancel := p.producer.bound(context.WithoutCancel(ctx))
	defer cancel()
	if err := p.producer.part.NoteTick(ctx, e.Name, tick); err != nil {
		p.config.Logger.Warn().Err(err).Str("job", e.Name).Msg("last tick not noted")
	}
}

// Pauses after a tick that was not enqueued: what the refusal says, within these, and up to half of it more.
const (
	shortestRetry = 100 * time.Millisecond
	longestRetry  = 5 * time.Second
)

func retryPause(err error) time.Duration {
	pause := time.Second
	if refused, ok := errors.AsType[*admission.RefusedError](err); ok {
		pause = min(max(refused.Verdict.RetryAfter, shortestRetry), longestRetry)
	}
	return pause + rand.N(pause/2)
}

// rest waits on the local clock; false when ctx ended first.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
