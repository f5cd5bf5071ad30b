package breaker_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/headgate/headgate/breaker"
)

// TestWalks plays the files in testdata/walks, which read without Go. Every line of a block is a command and gives one line
// of output:
//
//	new max-probes=2 ...    a new breaker at 0s; jitter=1 (the longest cooldown) unless given
//	advance 5s              move the clock, back too
//	call ok|fail|ignore     a call from beginning to end; n=3 makes three, takes=6s moves the clock in each
//	start a                 begin a call and name it
//	slow a                  its timer says that it is slow
//	end a ok|fail|ignore    end it
//	tick                    only tell the breaker the time
//	force open|closed for=1m why=...    and: reset why=...
//	state, totals           look, change nothing
func TestWalks(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/walks", func(t *testing.T, path string) {
		t.Helper()
		w := &walk{}
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

// answers gives the lines of a block to a walk.
func answers(t *testing.T, d *datadriven.TestData, lines []string, command func([]string) (string, error)) string {
	t.Helper()
	var out strings.Builder
	for _, line := range lines {
		answer, err := command(strings.Fields(line))
		if err != nil {
			d.Fatalf(t, "%s: %v", line, err)
		}
		fmt.Fprintln(&out, answer)
	}
	return out.String()
}

// directive puts a block's first line together again.
func directive(d *datadriven.TestData) string {
	words := []string{d.Cmd}
	for _, arg := range d.CmdArgs {
		word := arg.Key
		if len(arg.Vals) > 0 {
			word += "=" + arg.Vals[0]
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// walk is one breaker, the clock, and the calls in flight by name.
type walk struct {
	breaker *breaker.Breaker
	now     breaker.Instant
	calls   map[string]*breaker.Call
}

// split parts the options of a command, key=value, from its plain words, of which there are four at least.
func split(words []string) (plain []string, options map[string]string) {
	options = map[string]string{}
	for _, word := range words {
		if key, value, ok := strings.Cut(word, "="); ok {
			options[key] = value
		} else {
			plain = append(plain, word)
		}
	}
	return append(plain, "", "", ""), options
}

func (w *walk) command(words []string) (string, error) {
	plain, options := split(words)
	switch plain[0] {
	case "new":
		return w.start(options)
	case "advance":
		step, err := time.ParseDuration(plain[1])
		w.now = w.now.Add(step)
		return "now " + at(w.now), err
	case "call":
		return w.call(plain[1], options)
	case "start":
		return w.begin(plain[1]), nil
	case "slow":
		return shown(w.calls[plain[1]].MarkSlowAt(w.now)), nil
	case "end":
		change, err := w.end(w.calls[plain[1]], plain[2])
		return shown(change), err
	case "tick":
		return shown(w.breaker.AdvanceAt(w.now)), nil
	case "force", "reset":
		return w.force(plain[0]+plain[1], options)
	case "state":
		return w.state(), nil
	case "totals":
		t := w.breaker.SnapshotAt(w.now).Totals
		return fmt.Sprintf("%d ok, %d failed, %d ignored, %d late; %d slow, %d refused",
			t.Successes, t.Failures, t.Ignored, t.Late, t.Slow, t.Refused), nil
	}
	return "", fmt.Errorf("unknown command %q", plain[0])
}

func (w *walk) start(options map[string]string) (string, error) {
	c, jitter, err := readConfig(options)
	if err != nil {
		return "", err
	}
	c.Rand = func() float64 { return jitter }
	w.now, w.calls = 0, map[string]*breaker.Call{}
	w.breaker, err = breaker.NewAt(0, c)
	return "closed", err
}

// readConfig reads the options of "new".
func readConfig(options map[string]string) (c breaker.Config, jitter float64, err error) {
	jitter = 1
	for key, value := range options {
		switch key {
		case "jitter":
			jitter, err = strconv.ParseFloat(value, 64)
		case "failure-rate", "slow-rate":
			err = setRatio(&c, key, value)
		case "buckets", "min-calls", "failure-threshold", "success-threshold", "max-probes":
			err = setCount(&c, key, value)
		default:
			err = setDuration(&c, key, value)
		}
		if err != nil {
			return c, jitter, err
		}
	}
	return c, jitter, nil
}

func setRatio(c *breaker.Config, key, value string) error {
	field := map[string]*breaker.Ratio{"failure-rate": &c.FailureRate, "slow-rate": &c.SlowCallRate}[key]
	part, err := strconv.ParseFloat(value, 64)
	*field = breaker.Ratio(part)
	return err
}

func setCount(c *breaker.Config, key, value string) error {
	field := map[string]*int{
		"buckets": &c.Buckets, "min-calls": &c.MinCalls, "failure-threshold": &c.FailureThreshold,
		"success-threshold": &c.SuccessThreshold, "max-probes": &c.MaxProbes,
	}[key]
	var err error
	*field, err = strconv.Atoi(value)
	return err
}

func setDuration(c *breaker.Config, key, value string) error {
	field, ok := map[string]*time.Duration{
		"window": &c.Window, "slow-after": &c.SlowCallDuration, "probe-timeout": &c.ProbeTimeout,
		"open-base": &c.OpenBase, "open-max": &c.OpenMax, "reset-after": &c.ResetAfter,
	}[key]
	if !ok {
		return fmt.Errorf("unknown setting %q", key)
	}
	var err error
	*field, err = time.ParseDuration(value)
	return err
}

func (w *walk) call(outcome string, options map[string]string) (string, error) {
	n := 1
	if text, ok := options["n"]; ok {
		n, _ = strconv.Atoi(text)
	}
	takes, _ := time.ParseDuration(options["takes"])
	passed, changes := 0, []string{}
	note := func(change breaker.Transition) {
		if change.Happened() {
			changes = append(changes, shown(change))
		}
	}
	for range n {
		c, change, ok := w.breaker.TryAcquireAt(w.now)
		note(change)
		if !ok {
			continue
		}
		passed++
		w.now = w.now.Add(takes)
		change, err := w.end(&c, outcome)
		if err != nil {
			return "", err
		}
		note(change)
	}
	answer := []string{fmt.Sprintf("%d passed", passed)}
	if passed < n {
		answer[0] += fmt.Sprintf(", %d refused", n-passed)
	}
	return strings.Join(append(answer, changes...), "; "), nil
}

func (w *walk) begin(name string) string {
	c, change, ok := w.breaker.TryAcquireAt(w.now)
	answer := "refused"
	if ok {
		w.calls[name], answer = &c, "passed"
		if c.Probe() {
			answer = "passed as a probe"
		}
	}
	if change.Happened() {
		answer += "; " + shown(change)
	}
	return answer
}

func (w *walk) end(c *breaker.Call, outcome string) (breaker.Transition, error) {
	switch outcome {
	case "ok":
		return c.SuccessAt(w.now), nil
	case "fail":
		return c.FailureAt(w.now), nil
	case "ignore":
		return c.IgnoreAt(w.now), nil
	}
	return breaker.Transition{}, fmt.Errorf("unknown outcome %q", outcome)
}

func (w *walk) force(what string, options map[string]string) (string, error) {
	length, err := time.ParseDuration(options["for"])
	switch what {
	case "forceopen":
		return shown(w.breaker.ForceOpenAt(w.now, w.now.Add(length), options["why"])), err
	case "forceclosed":
		return shown(w.breaker.ForceClosedAt(w.now, w.now.Add(length), options["why"])), err
	case "reset":
		return shown(w.breaker.ResetAt(w.now, options["why"])), nil
	}
	return "", fmt.Errorf("unknown command %q", what)
}

func (w *walk) state() string {
	s := w.breaker.SnapshotAt(w.now)
	parts := []string{fmt.Sprintf("%s since %s", s.State, at(s.Since))}
	if s.Forced {
		parts[0] += " by force, " + s.Reason
	}
	if left, ok := w.breaker.NextChangeAt(w.now); ok {
		parts = append(parts, fmt.Sprintf("changes at %s, in %s", at(s.Until), left))
	}
	if s.State == breaker.HalfOpen {
		parts = append(parts, fmt.Sprintf("probes: %d in flight, %d passed, %d slow", s.ProbesInFlight, s.ProbesPassed, s.SlowProbes))
	} else {
		parts = append(parts, fmt.Sprintf("window: %d ok, %d failed, %d slow", s.Window.Successes, s.Window.Failures, s.Window.Slow))
	}
	if s.Trips > 0 {
		parts = append(parts, fmt.Sprintf("trips: %d, %d in a row", s.Trips, s.TripsInRow))
	}
	return strings.Join(parts, "; ")
}

func shown(change breaker.Transition) string {
	if !change.Happened() {
		return "no change"
	}
	text := fmt.Sprintf("%s → %s at %s: %s", change.From, change.To, at(change.At), change.Cause)
	if change.Until != 0 {
		text += ", until " + at(change.Until)
	}
	return text
}

func at(i breaker.Instant) string { return time.Duration(i).String() }
