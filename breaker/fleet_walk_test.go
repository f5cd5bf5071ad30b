package breaker_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/headgate/headgate/breaker"
)

// TestFleetWalks plays the files in testdata/fleet, which read without Go. Every line of a block is a command and gives one
// line of output:
//
//	new max-probes=2 ...    a new breaker of a fleet at 1000s; jitter=1 (the longest cooldown) unless given
//	advance 5s              move the clock
//	report w1 ok=3 fail=2   what worker w1 counted since its last report: also slow=, slow-ends=, streak= (fail=
//	                        unless given), period=-1 (that before the present one) or
//	                        period=none, alone=true (there is no other worker), of=a (whose calls they
//	                        were: no tenant's unless given)
//	alone                   whose calls of the last report say nothing about the downstream, nor about the worker
//	repeat w1               its last report arrives once more
//	probe a                 a probe begins, if the gate lets it through
//	end a w1 ok|fail|none   it ends, and worker w1 reports how; of=a as above
//	tick                    only tell the breaker the time
//	force open|closed for=1m why=...    and: reset why=...
//	config slow-rate=1 ...  from here on workers report another config
//	state                   look, change nothing
func TestFleetWalks(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/fleet", func(t *testing.T, path string) {
		t.Helper()
		w := &fleetWalk{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			lines := []string{directive(d)}
			if d.Input != "" {
				lines = append(lines, strings.Split(d.Input, "\n")...)
			}
			return answers(t, d, lines, w.command)
		})
	})
}

// fleetWalk is one breaker of a fleet, the clock, and the probes in flight by name.
type fleetWalk struct {
	fleet    *breaker.Fleet
	config   breaker.Config
	jitter   float64
	now      breaker.Instant
	probes   map[string]walkProbe
	sequence uint64
	last     map[string]breaker.Report
}

type walkProbe struct {
	began  breaker.Instant
	period uint64
}

func (w *fleetWalk) command(words []string) (string, error) {
	plain, options := split(words)
	switch plain[0] {
	case "new":
		var err error
		w.now, w.probes, w.last = breaker.Instant(1000*time.Second), map[string]walkProbe{}, map[string]breaker.Report{}
		if w.config, w.jitter, err = readConfig(options); err != nil {
			return "", err
		}
		w.fleet, err = breaker.NewFleetAt(w.now, w.config)
		return "closed", err
	case "config":
		var err error
		w.config, _, err = readConfig(options)
		return "told", err
	case "advance":
		step, err := time.ParseDuration(plain[1])
		w.now = w.now.Add(step)
		return "now " + w.at(w.now), err
	case "report":
		return w.report(plain[1], options)
	case "repeat":
		return w.send(w.last[plain[1]]), nil
	case "probe":
		return w.probe(plain[1])
	case "end":
		return w.end(plain[1], plain[2], plain[3], options["of"])
	case "alone":
		return w.alone(), nil
	case "tick":
		oldest, ok := w.oldest()
		return w.shown(w.fleet.AdvanceAt(w.now, w.jitter, oldest, ok)), nil
	case "force", "reset":
		return w.force(plain[0]+plain[1], options)
	case "state":
		return w.state(), nil
	}
	return "", fmt.Errorf("unknown command %q", plain[0])
}

func (w *fleetWalk) report(worker string, options map[string]string) (string, error) {
	w.sequence++
	r := breaker.Report{Worker: worker, Sequence: w.sequence, Period: w.fleet.SnapshotAt(w.now).Period}
	fields := map[string]*uint64{"ok": &r.Successes, "fail": &r.Failures, "slow": &r.Slow, "slow-ends": &r.SlowEnds, "streak": &r.Streak}
	for key, value := range options {
		switch key {
		case "alone":
			r.Alone = value == "true"
			continue
		case "of":
			continue
		}
		if value == "none" {
			switch key {
			case "period":
				r.Period = 0
			case "number":
				r.Sequence = 0
			}
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return "", err
		}
		if key == "period" {
			r.Period += uint64(n)
			continue
		}
		if fields[key] == nil {
			return "", fmt.Errorf("unknown count %q", key)
		}
		*fields[key] = uint64(n)
	}
	if _, ok := options["streak"]; !ok {
		r.Streak = r.Failures
	}
	r.Tenants = tenantOf(options["of"], r)
	return w.send(r), nil
}

// tenantOf says that a report is all of one tenant's calls; of no tenant's where it has no name.
func tenantOf(name string, r breaker.Report) []breaker.TenantCounts {
	if name == "" {
		return nil
	}
	return []breaker.TenantCounts{{Tenant: breaker.TenantNumber(name), Counts: r.Counts, Streak: r.Streak}}
}

func (w *fleetWalk) alone() string {
	numbers := w.fleet.Alone()
	if len(numbers) == 0 {
		return "nobody's"
	}
	return fmt.Sprintf("those of its %d tenants", len(numbers))
}

func (w *fleetWalk) send(r breaker.Report) string {
	w.last[r.Worker] = r
	return w.shown(w.fleet.ReportAt(w.now, w.jitter, w.config, r))
}

// probe begins a probe where the gate has a unit for it.
func (w *fleetWalk) probe(name string) (string, error) {
	limit, gated := w.fleet.Gate()
	period, held := w.fleet.SnapshotAt(w.now).Period, 0
	for _, p := range w.probes {
		if p.period == period {
			held++
		}
	}
	switch {
	case !gated:
		return "", errors.New("there is no gate")
	case held >= limit:
		return "waits", nil
	}
	w.probes[name] = walkProbe{w.now, period}
	return "began", nil
}

func (w *fleetWalk) end(name, worker, outcome, of string) (string, error) {
	p, ok := w.probes[name]
	if !ok {
		return "", fmt.Errorf("no probe %q", name)
	}
	w.sequence++
	r := breaker.Report{Worker: worker, Sequence: w.sequence, Period: p.period}
	switch outcome {
	case "ok":
		r.Successes = 1
	case "fail":
		r.Failures, r.Streak = 1, 1
	case "none": // It never reached its handler.
		delete(w.probes, name)
		return "gave its place back", nil
	}
	r.Tenants = tenantOf(of, r)
	answer := w.send(r) // before its job is finished, so it is still outstanding
	delete(w.probes, name)
	return answer, nil
}

// oldest returns when the oldest probe of the present period began.
func (w *fleetWalk) oldest() (began breaker.Instant, ok bool) {
	period := w.fleet.SnapshotAt(w.now).Period
	for _, p := range w.probes {
		if p.period == period && (!ok || p.began < began) {
			began, ok = p.began, true
		}
	}
	return began, ok
}

func (w *fleetWalk) force(what string, options map[string]string) (string, error) {
	var length time.Duration
	var err error
	if text, ok := options["for"]; ok {
		length, err = time.ParseDuration(text)
	}
	switch what {
	case "forceopen":
		return w.shown(w.fleet.ForceOpenAt(w.now, length, options["why"])), err
	case "forceclosed":
		return w.shown(w.fleet.ForceClosedAt(w.now, length, options["why"])), err
	case "reset":
		return w.shown(w.fleet.ResetAt(w.now, options["why"])), nil
	}
	return "", fmt.Errorf("unknown command %q", what)
}

func (w *fleetWalk) state() string {
	s := w.fleet.SnapshotAt(w.now)
	parts := []string{fmt.Sprintf("%s since %s", s.State, w.at(s.Since))}
	if s.Forced {
		parts[0] += " by force, " + s.Reason
	}
	if limit, gated := w.fleet.Gate(); gated {
		parts = append(parts, fmt.Sprintf("at most %d", limit))
	}
	oldest, ok := w.oldest()
	if at, ok := w.fleet.NextChangeAt(oldest, ok); ok {
		parts = append(parts, "changes at "+w.at(at))
	}
	if s.State == breaker.HalfOpen {
		parts = append(parts, fmt.Sprintf("probes: %d passed, %d slow", s.ProbesPassed, s.SlowProbes))
	} else {
		parts = append(parts, fmt.Sprintf("window: %d ok, %d failed, %d slow of %d workers, %d vote",
			s.Window.Successes, s.Window.Failures, s.Window.Slow, s.Callers, s.Voters))
	}
	if s.Tenants > 1 {
		parts = append(parts, fmt.Sprintf("%d of %d tenants fail", s.FailingTenants, s.Tenants))
	}
	if s.Trips > 0 {
		parts = append(parts, fmt.Sprintf("trips: %d, %d in a row", s.Trips, s.TripsInRow))
	}
	return strings.Join(parts, "; ")
}

// shown is shown, with instants since the beginning.
func (w *fleetWalk) shown(change breaker.Transition) string {
	if !change.Happened() {
		return "no change"
	}
	text := fmt.Sprintf("%s → %s at %s: %s", change.From, change.To, w.at(change.At), change.Cause)
	if change.Until != 0 {
		text += ", until " + w.at(change.Until)
	}
	return text
}

func (w *fleetWalk) at(i breaker.Instant) string {
	return i.Sub(breaker.Instant(1000 * time.Second)).String()
}
