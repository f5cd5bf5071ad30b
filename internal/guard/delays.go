package guard

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/admission"
)

// Delays are how long is waited by how near a process is to its limits, each up to MaxDelay and a tenth more or less at random, so that processes
// that filled together do not look together.
type Delays struct {
	// Warn is what new work waits for while something is at a warning: a worker before it reads, a server before it begins a call. Zero is
	// not at all.
	Warn time.Duration
	// Connections is what a server that has all of its connections waits for before it takes the next one from the backlog; zero means
	// DefaultConnectionsDelay.
	Connections time.Duration
	// Violation is after how long it is looked again while a limit keeps new work away, instead of Config.Interval, and after how long those
	// are told to come again who are turned away; zero means DefaultViolationDelay.
	Violation time.Duration
}

// Defaults and bounds of Delays.
const (
	DefaultConnectionsDelay = 100 * time.Millisecond
	DefaultViolationDelay   = time.Second
	MinDelay                = 10 * time.Millisecond // of those that may not be zero: less would be a busy loop
	MaxDelay                = 10 * time.Second
)

// WithDefaults returns the delays with what they leave out.
func (d Delays) WithDefaults() Delays {
	d.Connections, d.Violation = cmp.Or(d.Connections, DefaultConnectionsDelay), cmp.Or(d.Violation, DefaultViolationDelay)
	return d
}

// Validate returns an error for each that is out of its range, those of a Config under the names of its fields.
func (d Delays) Validate() (bad []error) {
	d = d.WithDefaults()
	for _, one := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{{"Delays.Warn", d.Warn, 0}, {"Delays.Connections", d.Connections, MinDelay}, {"Delays.Violation", d.Violation, MinDelay}} {
		if one.value < one.least || one.value > MaxDelay {
			allowed := admission.DurationText(one.least) + " to " + admission.DurationText(MaxDelay)
			bad = append(bad, &admission.FieldError{Field: one.name, Value: one.value.String(), Allowed: allowed})
		}
	}
	return bad
}

// Jittered returns a time that is up to a tenth more or less.
func Jittered(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d - d/10 + rand.N(d/5+1) //nolint:gosec // It spreads looks, and keeps no secret.
}

// Hold waits for as long as Delays.Warn says while something is at a warning, at most until ctx ends. It may be called from several goroutines.
func (g *Guard) Hold(ctx context.Context) {
	if g == nil || !g.warned.Load() {
		return
	}
	wait := time.NewTimer(Jittered(g.config.Delays.Warn))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}
