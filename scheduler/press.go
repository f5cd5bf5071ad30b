package scheduler

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/pressure"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// gaugeLives is for how many intervals a level holds that nobody measures anew: the level of a queue whose scheduler died is
// admission.PressureNone by then.
const gaugeLives = 3

// The least and the most that callers are told to wait.
const (
	leastHint = 100 * time.Millisecond
	mostHint  = time.Minute
)

// gauge measures how much one queue is pressed. The zero meter is none: whoever begins goes on from the level in force.
type gauge struct {
	policy.Pressured

	meter *pressure.Meter
	next  time.Time
	// blind says that nothing could be measured last time.
	blind bool
	// score is what was measured last.
	score float64
}

// gaugesOf returns the gauges of a policy: those that are there already, where the policy says the same of them.
func gaugesOf(compiled *policy.Compiled, known []*gauge) []*gauge {
	var gauges []*gauge
	for _, p := range compiled.Pressured() {
		g := &gauge{Pressured: p}
		for _, before := range known {
			if reflect.DeepEqual(before.Pressured, p) {
				g = before
			}
		}
		gauges = append(gauges, g)
	}
	return gauges
}

// measure looks at the queues that are due, and notes how much each is pressed.
func (s *Scheduler) measure(ctx context.Context, to *duties, version int64) error {
	now := time.Now()
	var due []*gauge
	var names []string
	for _, g := range to.gauges {
		if !now.Before(g.next) {
			due, names = append(due, g), append(names, g.Queue)
			g.next = now.Add(g.Interval)
		}
	}
	if len(due) == 0 {
		return nil
	}
	loads, err := s.store.Loads(ctx, names)
	if err != nil {
		return err
	}
	var samples []load.Sample
	if slices.ContainsFunc(due, func(g *gauge) bool { return g.Told() }) {
		if samples, err = s.samples(ctx); err != nil {
			return err
		}
	}
	var errs []error
	redis := math.NaN()
	if slices.ContainsFunc(due, func(g *gauge) bool { return g.WeighsRedis() }) {
		if redis, err = s.redisMemory(ctx); errors.Is(err, admission.ErrUnavailable) {
			return err
		}
		errs = append(errs, err) // All else is known.
	}
	pressed := make([]error, len(due))
	var running sync.WaitGroup
	for first := range min(pressAtOnce, len(due)) {
		running.Go(func() {
			for i := first; i < len(due); i += pressAtOnce {
				g := due[i]
				pressed[i] = s.press(ctx, g, inputs(g.Pressured, &loads[i], samples, redis), &loads[i], to.triggers.level(g.Queue), version)
			}
		})
	}
	running.Wait()
	return errors.Join(append(errs, pressed...)...)
}

// pressAtOnce is how many queues are noted at a time: one after another the last of many would be measured too late, or never, where Redis is slow.
const pressAtOnce = 16

// press notes what a gauge makes of signals, a level of least at least.
func (s *Scheduler) press(ctx context.Context, g *gauge, in pressure.Inputs, seen *store.QueueLoad, least admission.PressureLevel, version int64) error {
	if g.meter == nil {
		g.meter = pressure.ResumeAt(pressure.Level(seen.Level))
	}
	reading := pressure.Score(in, g.Weights)
	if neutral := reading.Neutral(); len(neutral) == len(reading.Parts) != g.blind {
		if g.blind = !g.blind; g.blind {
			s.config.Logger.Warn().Str("queue", g.Queue).Strs("unknown", neutral).Msg("nothing is known of how much the queue is pressed: its level falls to NONE")
		}
	}
	g.score = reading.Score
	to := store.Press{Owner: s.owner, Version: version, Queue: g.Queue, Life: gaugeLives * g.Interval, Parts: reading.String()}
	to.Pressure = admission.Pressure{Level: admission.PressureLevel(g.meter.Observe(reading.Score)), Score: reading.Score}
	if least > to.Pressure.Level {
		to.Pressure.Level, to.Parts = least, to.Parts+" (by a trigger)"
	}
	if to.Pressure.Level > admission.PressureNone {
		to.Pressure.RetryAfter = hint(g.Pressured, seen)
	}
	_, err := s.store.Press(ctx, to)
	switch {
	case errors.Is(err, store.ErrNotHolder), errors.Is(err, store.ErrStale), errors.Is(err, store.ErrNotMeasured):
		g.meter = nil // Somebody else goes on, or by another policy.
		return nil
	case err == nil && to.Pressure.Level != seen.Level:
		s.config.Logger.Info().Str("queue", g.Queue).Stringer("from", seen.Level).Stringer("to", to.Pressure.Level).
			Float64("score", math.Round(reading.Score*1000)/1000).Str("parts", strings.TrimSpace(to.Parts)).Msg("pressure level changed")
	}
	return err
}

// inputs are the signals of a queue, those that nobody knows left out, or NaN.
func inputs(p policy.Pressured, seen *store.QueueLoad, samples []load.Sample, redis float64) pressure.Inputs {
	in := pressure.Inputs{pressure.RedisMemory: redis}
	if p.TargetWait > 0 && seen.Wait >= 0 {
		in[pressure.Wait] = float64(seen.Wait) / float64(p.TargetWait)
	}
	if p.MaxDepth > 0 {
		in[pressure.Depth] = float64(seen.Waiting) / float64(p.MaxDepth)
	}
	if seen.Slots > 0 {
		in[pressure.Slots] = float64(seen.Held) / float64(seen.Slots)
	}
	if !p.Told() {
		return in
	}
	told := load.Of(p.Queue, seen.Waiting, samples) // What is below 0 is not known.
	in[pressure.CPU], in[pressure.Memory] = told.CPU, told.Memory
	if p.TargetRun > 0 {
		in[pressure.RunTime] = float64(told.P95) / float64(p.TargetRun)
	}
	if p.MaxFailed > 0 {
		in[pressure.Failed] = told.ErrorRate / p.MaxFailed
	}
	return in
}

// hint is how long callers are told to wait: until at the pace of now the queue is at half of what is wanted at the most, where no level
// holds, and not less than a level takes to fall.
func hint(p policy.Pressured, load *store.QueueLoad) time.Duration {
	wait := time.Duration(0)
	if p.TargetWait > 0 {
		wait = load.Wait - p.TargetWait/2
	}
	if over := load.Waiting - int64(p.MaxDepth)/2; p.MaxDepth > 0 && over > 0 && load.Wait > 0 && load.Waiting > 0 {
		wait = max(wait, time.Duration(float64(load.Wait)*float64(over)/float64(load.Waiting)))
	}
	return max(leastHint, pressure.Samples*p.Interval, min(wait, mostHint)).Round(time.Millisecond)
}
