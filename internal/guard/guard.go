package guard

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// window is that of the requests, in seconds; summaryEvery is how often it is logged what is used, freeEvery how often at most garbage is
// given back while there is too little memory: a process without new work would not collect it for minutes.
const (
	window       = 60
	summaryEvery = 5 * time.Minute
	freeEvery    = 30 * time.Second
)

// Parts are what a Guard works with. All may be zero.
type Parts struct {
	Logger zerolog.Logger
	// Sampler measures; nil is this process.
	Sampler Sampler
	// Bounds returns readings of what somebody else bounds.
	Bounds func() []Reading
	// Changed is told of each change of a state and of the first state of each kind, Throttled when new work is to stay away, and when it may come again. The goroutine of
	// Run calls both, one after the other.
	Changed   func(Change)
	Throttled func(bool)
}

// Guard says whether new work may begin. Run it; the other methods may be called from several goroutines, and those of a nil
// Guard let everything through.
type Guard struct {
	config Config
	parts  Parts
	// What follows to throttled is the goroutine's of Run alone: summary is when the next is due, freed when free was called.
	ladder         *ladder
	worst          Sample
	peaks          map[Kind]float64 // of requests, and of what somebody else bounds
	failing        bool
	summary, freed time.Time
	free           func()

	// warned says that something is at a warning and new work waits for it.
	throttled, warned atomic.Bool
	// crossed says that the requests of a minute have come to their limit.
	crossed chan struct{}
	rate    struct {
		sync.Mutex
		*ring
	}
}

// New returns a guard, nil where nothing is limited. An error says which fields are bad, or what cannot be measured here.
func New(config Config, parts Parts) (*Guard, error) {
	if err := config.Validate(); err != nil || !config.On() {
		return nil, err
	}
	g := &Guard{config: config.withDefaults(), parts: parts, crossed: make(chan struct{}, 1), peaks: map[Kind]float64{}, free: debug.FreeOSMemory}
	g.ladder, g.rate.ring = newLadder(g.config.WarnAt), newRing(window)
	if g.parts.Sampler == nil {
		g.parts.Sampler = newProcess()
	}
	first, err := g.parts.Sampler.Sample(time.Now()) // The next one is about the time since.
	if err != nil {
		return nil, fmt.Errorf("measure this process: %w", err)
	}
	if err = first.has(config); err != nil {
		return nil, err
	}
	return g, nil
}

// Run looks every interval until ctx ends, and after Delays.Violation while new work is kept away.
func (g *Guard) Run(ctx context.Context) {
	if g == nil {
		return
	}
	next := time.NewTimer(g.config.Interval)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-next.C:
			sample, err := g.parts.Sampler.Sample(now)
			g.note(err)
			if err == nil {
				g.look(now, sample)
			}
			next.Reset(g.again())
		case <-g.crossed:
			was := g.throttled.Load()
			g.apply([]Reading{g.requests(time.Now())}) // Without a sample: one of a moment says nothing.
			if !was {
				next.Reset(g.again())
			}
		}
	}
}

// again returns after how long it is looked again.
func (g *Guard) again() time.Duration {
	if g.throttled.Load() {
		return Jittered(g.config.Delays.Violation)
	}
	return g.config.Interval
}

// note says once that nothing can be measured, and once that it can again. States stay as they are meanwhile.
func (g *Guard) note(err error) {
	switch {
	case err != nil && !g.failing:
		g.parts.Logger.Warn().Err(err).Msg("guard: this process cannot be measured, the last state stays")
	case err == nil && g.failing:
		g.parts.Logger.Info().Msg("guard: this process can be measured again")
	}
	g.failing = err != nil
}

// look takes a sample of a time.
func (g *Guard) look(now time.Time, sample Sample) {
	counts := []Reading{g.requests(now)}
	if g.parts.Bounds != nil {
		counts = append(counts, g.parts.Bounds()...)
	}
	g.worst = g.worst.max(sample)
	readings := sample.readings(g.config)
	for _, r := range counts {
		g.peaks[r.Kind] = max(g.peaks[r.Kind], r.Value)
		if r.Limit > 0 {
			readings = append(readings, r)
		}
	}
	g.apply(readings)
	if (g.ladder.violated[Memory] || g.ladder.violated[CgroupMemory]) && now.Sub(g.freed) >= freeEvery {
		g.freed = now
		g.free()
	}
	if g.summary.IsZero() {
		g.summary = now.Add(summaryEvery)
	}
	if !now.Before(g.summary) {
		g.summary = now.Add(summaryEvery)
		g.summarize(sample, counts)
	}
}

// apply takes readings, and tells what they change.
func (g *Guard) apply(readings []Reading) {
	for _, c := range g.ladder.step(readings) {
		level := [...]zerolog.Level{Normal: zerolog.InfoLevel, Warning: zerolog.WarnLevel, Violation: zerolog.ErrorLevel}[c.To]
		switch {
		case c.From == Violation:
			level = zerolog.InfoLevel
		case c.Bounded:
			level = min(level, zerolog.WarnLevel) // Nobody is turned away for it here.
		}
		if c.From == c.To {
			level = zerolog.Disabled // The first look found nothing.
		}
		g.parts.Logger.WithLevel(level).Str("kind", string(c.Kind)).Stringer("state", c.To).Msg("guard: " + c.String())
		if g.parts.Changed != nil {
			g.parts.Changed(c)
		}
	}
	throttled := g.ladder.throttled()
	g.warned.Store(g.config.Delays.Warn > 0 && g.ladder.warned())
	if g.throttled.Swap(throttled) == throttled {
		return
	}
	if throttled {
		g.parts.Logger.Warn().Msg("guard: no new work is taken, what runs goes on")
	} else {
		g.parts.Logger.Info().Msg("guard: new work is taken again")
	}
	if g.parts.Throttled != nil {
		g.parts.Throttled(throttled)
	}
}

// summarize logs what is used, and the most of it since the start.
func (g *Guard) summarize(s Sample, counts []Reading) {
	line := g.parts.Logger.Info() //nolint:zerologlint // It is sent below.
	add := func(kind Kind, now, peak float64) {
		show := Reading{Kind: kind}.show
		line.Str(string(kind), show(now)).Str("peak_"+string(kind), show(peak))
	}
	add(Memory, float64(s.Memory), float64(g.worst.Memory))
	add(CPU, s.CPU, g.worst.CPU)
	add(Goroutines, float64(s.Goroutines), float64(g.worst.Goroutines))
	add(SchedLatency, s.SchedLatency.Seconds(), g.worst.SchedLatency.Seconds())
	for _, r := range counts {
		add(r.Kind, r.Value, g.peaks[r.Kind])
	}
	line.Bool("throttled", g.throttled.Load()).Msg("guard: resource summary")
}

func (g *Guard) requests(now time.Time) Reading {
	g.rate.Lock()
	defer g.rate.Unlock()
	return Reading{Kind: Requests, Value: float64(g.rate.count(now)), Limit: float64(g.config.MaxRequestsPerMinute)}
}

// Count counts requests that have begun, whatever the guard thinks of it.
func (g *Guard) Count(n int) {
	if g == nil {
		return
	}
	g.countAt(time.Now(), n)
}

func (g *Guard) countAt(now time.Time, n int) {
	g.rate.Lock()
	g.rate.add(now, n)
	full := g.full(g.rate.count(now))
	g.rate.Unlock()
	if full && !g.throttled.Load() {
		g.tell()
	}
}

// TryBegin reports whether a request may begin, and counts it if so. One that may not had better wait until the next look, which is in about as
// long as is returned. Beyond the limit of a minute none begins, also between two looks.
func (g *Guard) TryBegin() (wait time.Duration, ok bool) {
	if g == nil {
		return 0, true
	}
	if g.throttled.Load() {
		return g.config.Delays.Violation, false
	}
	return g.config.Delays.Violation, g.tryCountAt(time.Now())
}

// tryCountAt counts a request unless there were too many.
func (g *Guard) tryCountAt(now time.Time) (ok bool) {
	g.rate.Lock()
	had := g.rate.count(now)
	if ok = !g.full(had); ok {
		g.rate.add(now, 1)
	}
	g.rate.Unlock()
	if g.full(had + 1) {
		g.tell()
	}
	return ok
}

// full reports whether so many requests of a minute are all that may be.
func (g *Guard) full(requests int) bool {
	return g.config.MaxRequestsPerMinute > 0 && requests >= g.config.MaxRequestsPerMinute
}

// tell has Run look at the requests at once.
func (g *Guard) tell() {
	select {
	case g.crossed <- struct{}{}:
	default:
	}
}
