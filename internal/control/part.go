package control

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Health is the controller of a Part that goes by steps: half of the limit where its health is below ill, 1.2 of it above well.
const Health Controller = "health"

const (
	// ill and well are the bounds of a health that is neither; wellStep and illStep are by what a limit is multiplied beyond them.
	ill, well         = 0.3, 0.8
	illStep, wellStep = 0.5, 1.2
	// halfLife is after how many looks a score counts half of what it did.
	halfLife = 3
	// healthBand is the part of the limit below which a step of Health is not made.
	healthBand = 0.05
	// additive is by which part of the most AIMD goes up at a time.
	additive = 0.02
)

// The defaults of a PartConfig.
const (
	DefaultTarget    = 0.6
	DefaultMinChange = 30 * time.Second
)

// PartConfig is by what a part of limits moves. Min, Max and Interval have to be there.
type PartConfig struct {
	// Controller is PID, AIMD or Health; empty means PID.
	Controller Controller
	// Min and Max are the bounds of the part, in units of which Max is at most what stands for all, 1 or more.
	Min, Max int
	// Interval is how often it is looked.
	Interval time.Duration
	// Target is the score at which PID and AIMD hold what is pressed, above 0 and below 1; zero means DefaultTarget.
	Target float64
	// Signal says that Target, above 0, is of a signal of another unit, which Tick is given instead of a score: of PID and AIMD alone.
	Signal bool
	// Falls says that the signal falls as the part grows, as Config.Falls.
	Falls bool
	// Gains are those of PID; all zero means DefaultGains.
	Gains Gains
	// MinChange is how long it is at least from one change to the next; zero means DefaultMinChange of Health, and none of the others.
	MinChange time.Duration
}

// WithDefaults returns the config with what it leaves out.
func (c PartConfig) WithDefaults() PartConfig {
	switch c.Controller = cmp.Or(c.Controller, PID); c.Controller {
	case PID:
		c.Target, c.Gains = cmp.Or(c.Target, DefaultTarget), cmp.Or(c.Gains, DefaultGains)
	case AIMD:
		c.Target = cmp.Or(c.Target, DefaultTarget)
	default:
		c.MinChange = cmp.Or(c.MinChange, DefaultMinChange)
	}
	return c
}

// Validate reports every bad field at once, each by an error that has Invalid.
func (c PartConfig) Validate() error {
	var bad []error
	add := func(field, value, allowed string) { bad = append(bad, &configError{field, value, allowed}) }
	steps := c.Controller == Health
	switch c.Controller {
	case "", PID, AIMD, Health:
	case Gradient:
		add("controller", strconv.Quote(string(c.Controller)), `"pid", "aimd" or "health": gradient looks for how many calls at a time throughput grows no more with, and a rate of admission has no such knee`)
	default:
		add("controller", strconv.Quote(string(c.Controller)), `"pid", "aimd" or "health"`)
	}
	validateBounds(c.Min, c.Max, c.Interval, add)
	switch {
	case steps && c.Signal:
		add("signal", "(there)", "none, but of pid and aimd")
	case c.Signal && !(c.Target > 0 && !math.IsInf(c.Target, 0)):
		add("target", strconv.FormatFloat(c.Target, 'g', -1, 64), "above 0")
	case c.Signal:
	case steps && c.Target != 0:
		add("target_pressure", strconv.FormatFloat(c.Target, 'g', -1, 64), "none, but of pid and aimd")
	case !(c.Target >= 0 && c.Target < 1):
		add("target_pressure", strconv.FormatFloat(c.Target, 'g', -1, 64), "above 0, below 1")
	}
	if c.MinChange < 0 {
		add("min_change_interval", c.MinChange.String(), "0 or more")
	}
	c.Gains.validate(c.Controller == "" || c.Controller == PID, add)
	return errors.Join(bad...)
}

// Part moves how much of limits is in force, by how much what they let in is pressed: a score of 0 to 1 (package pressure), of which health is what is
// left to 1. It is not safe for several goroutines.
type Part struct {
	config PartConfig
	pid    *pid
	// limit is what is wanted, force what is in force.
	limit float64
	force int
	// smooth is the score as it is damped, NaN where there was none; missed is how many looks saw none, and since how long ago the last change was.
	smooth float64
	missed int
	since  time.Duration
}

// NewPart returns a Part that begins with the limit in force, or an error that names every bad field.
func NewPart(config PartConfig, limit int) (*Part, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure controller of a part: %w", err)
	}
	config = config.WithDefaults()
	p := &Part{config: config, pid: newPID(config.Gains, cmp.Or(config.Target, DefaultTarget), config.Min, config.Max), since: config.MinChange}
	p.adopt(limit)
	return p, nil
}

func (p *Part) adopt(limit int) {
	p.limit, p.force, p.smooth = float64(limit), limit, math.NaN()
	p.pid.forget()
}

// Tick makes a step of a score, or of a signal, NaN for one that nobody knows, which was seen over a time. in is the limit in force: another one than that of the
// last step is somebody else's, from which it goes on.
func (p *Part) Tick(in int, score float64, over time.Duration) Step {
	p.follow(in, over)
	if p.outside(in) {
		return p.to(float64(in), CauseOutOfRange)
	}
	if math.IsNaN(score) || math.IsInf(score, 0) || score < 0 {
		p.smooth = math.NaN()
		p.pid.forget()
		if p.missed++; p.missed < missedMost {
			return p.to(p.limit, CauseNoSample)
		}
		return p.to(p.limit*(1+upMost), CauseMissing)
	}
	p.missed = 0
	if over <= 0 || over > maxGap*p.config.Interval {
		p.smooth = math.NaN()
		p.pid.forget()
		return p.to(p.limit, CauseGap)
	}
	if p.config.Controller == Health {
		return p.health(score, over)
	}
	if p.config.Falls {
		score = mirrored(score, p.config.Target)
	}
	to, why := p.next(score, float64(over)/float64(p.config.Interval))
	if p.config.Falls {
		why = why.mirrored()
	}
	return p.to(to, why)
}

// follow goes on from the limit in force, which somebody else may have set, so long after the last look.
func (p *Part) follow(in int, over time.Duration) {
	if in != p.force {
		p.adopt(in)
		p.since = 0
	}
	p.since += max(over, 0)
}

// outside reports whether a limit is not in the range.
func (p *Part) outside(in int) bool { return in < p.config.Min || in > p.config.Max }

// stay leaves the limit in force where it is: what is seen says nothing of it.
func (p *Part) stay(in int, why Cause) Step {
	p.follow(in, 0)
	p.missed = 0
	p.pid.forget()
	return p.to(float64(p.force), why)
}

// cut brings the limit down to where something else than its signal wants it, at most to brakeMost of it.
func (p *Part) cut(to float64, why Cause) Step {
	p.missed = 0
	p.pid.forget()
	return p.to(math.Max(brakeMost*p.limit, math.Min(to, p.limit)), why)
}

// next is where PID or AIMD wants the limit.
func (p *Part) next(measured, intervals float64) (to float64, why Cause) {
	if p.config.Controller == AIMD {
		return p.additive(measured)
	}
	return p.pid.step(p.limit, measured, intervals)
}

// additive goes up by a part of the most, as far as slew allows, and down by a tenth. Parts of a unit add up in p.limit: a step that were cut to a whole one would
// leave a small part where it is for good.
func (p *Part) additive(measured float64) (to float64, why Cause) {
	if measured > p.config.Target {
		return p.limit * (1 - downMost), CauseAboveTarget
	}
	return p.limit + math.Min(additive*float64(p.config.Max), upMost*p.limit), CauseBelowTarget
}

// health goes by steps of the score as it is damped.
func (p *Part) health(score float64, over time.Duration) Step {
	if math.IsNaN(p.smooth) {
		p.smooth = score
	}
	keeps := math.Pow(0.5, float64(over)/float64(halfLife*p.config.Interval))
	p.smooth = keeps*p.smooth + (1-keeps)*score
	switch health := 1 - p.smooth; {
	case health < ill:
		return p.to(float64(p.force)*illStep, CauseIll)
	case health > well && p.force < p.config.Max:
		return p.to(math.Max(float64(p.force)*wellStep, float64(p.force+1)), CauseWell) // A fifth of one or two units is none.
	}
	return p.to(float64(p.force), CauseOnTarget)
}

// to brings the part to where it is to go, and into force, if the last change is long enough ago.
func (p *Part) to(to float64, why Cause) (step Step) {
	band := deadBand
	if p.config.Controller == Health {
		band = healthBand
	}
	outside := p.force < p.config.Min || p.force > p.config.Max
	if p.limit, step = settle(to, p.force, p.config.Min, p.config.Max, band, why); step.Changed() && p.since < p.config.MinChange && !outside {
		p.limit, step = float64(p.force), Step{Limit: p.force, Before: p.force, Cause: CauseTooSoon}
	}
	if step.Changed() {
		p.since = 0
	}
	p.force = step.Limit
	return step
}
