package breaker_test

import (
	"time"

	"github.com/headgate/headgate/breaker"
)

// model is the breaker as one would explain it: it keeps every event of the closed period and counts them anew at each
// question. It has no ring, no fast path, no packed state.
type model struct {
	config breaker.Config
	jitter float64

	skew time.Duration
	mark breaker.Instant

	state        breaker.State
	cause        breaker.Cause
	began, until breaker.Instant
	forced       bool
	period       int
	events       []modelEvent
	frozen       breaker.Counts
	streak       uint64
	probes       map[*modelCall]breaker.Instant
	passed, slow int
	trips, inRow uint64
	totals       breaker.Totals
}

type modelEvent struct {
	slice                            int
	success, failure, slow, slowEnds bool
}

type modelCall struct {
	period              int
	began               breaker.Instant
	probe, marked, over bool
}

type outcome int

const (
	success outcome = iota
	failure
	ignore
	stillRunning
)

func newModel(now breaker.Instant, config breaker.Config, jitter float64) *model {
	return &model{config: config, jitter: jitter, mark: now, began: now}
}

func (m *model) sliceLength() time.Duration { return m.config.Window / time.Duration(m.config.Buckets) }

// slice returns the number of the slice of an inner instant.
func (m *model) slice(inner breaker.Instant) int { return int(inner.Sub(m.began) / m.sliceLength()) }

func (m *model) read(now breaker.Instant) breaker.Instant {
	inner := now.Add(m.skew)
	if m.mark.Sub(inner) > breaker.MaxLag {
		m.skew += m.mark.Sub(inner)
	}
	return max(now.Add(m.skew), m.mark)
}

func (m *model) enter(to breaker.State, cause breaker.Cause, inner breaker.Instant) {
	if m.state == breaker.Closed {
		m.frozen = m.window(m.slice(inner))
	}
	m.state, m.cause, m.began, m.mark = to, cause, inner, inner
	m.forced, m.until, m.streak = false, 0, 0
	m.probes, m.passed, m.slow = map[*modelCall]breaker.Instant{}, 0, 0
	m.period++
	if to == breaker.Closed {
		m.events = nil
	}
}

func (m *model) trip(cause breaker.Cause, inner breaker.Instant) {
	if m.stable(inner) {
		m.inRow = 0
	}
	full := m.config.OpenBase
	for range m.inRow {
		full = min(2*full, m.config.OpenMax)
	}
	m.trips++
	m.inRow++
	m.enter(breaker.Open, cause, inner)
	m.until = inner.Add(full/2 + time.Duration(m.jitter*float64(full-full/2)))
}

func (m *model) stable(inner breaker.Instant) bool {
	return m.state == breaker.Closed && inner.Sub(m.began) >= m.config.ResetAfter
}

// next returns the inner instant of the next change by time alone.
func (m *model) next() (breaker.Instant, bool) {
	if m.state != breaker.HalfOpen {
		return m.until, m.state == breaker.Open || m.forced
	}
	var first breaker.Instant
	found := false
	for _, began := range m.probes {
		if !found || began < first {
			first, found = began, true
		}
	}
	return first.Add(m.config.ProbeTimeout), found
}

// advance makes what is due, and moves the mark.
func (m *model) advance(now breaker.Instant) breaker.Instant {
	inner := m.read(now)
	if at, ok := m.next(); ok && at <= inner {
		switch {
		case m.state == breaker.HalfOpen:
			m.trip(breaker.CauseProbeTimeout, inner)
		case m.state == breaker.Closed:
			m.enter(breaker.Closed, breaker.CauseForceEnded, inner)
		case m.forced:
			m.enter(breaker.HalfOpen, breaker.CauseForceEnded, inner)
		default:
			m.enter(breaker.HalfOpen, breaker.CauseCooldownOver, inner)
		}
	}
	m.mark = inner
	if m.state == breaker.Closed {
		m.mark = m.began.Add(time.Duration(m.slice(inner)) * m.sliceLength())
	}
	return inner
}

func (m *model) acquire(now breaker.Instant) (*modelCall, bool) {
	inner := m.advance(now)
	if m.state == breaker.Open || m.state == breaker.HalfOpen && len(m.probes) == m.config.MaxProbes {
		m.totals.Refused++
		return nil, false
	}
	c := &modelCall{period: m.period, began: now, probe: m.state == breaker.HalfOpen}
	if c.probe {
		m.probes[c] = inner
	}
	return c, true
}

// report is the end of a call or, with stillRunning, its timer.
func (m *model) report(c *modelCall, o outcome, now breaker.Instant) {
	if c.over || c.marked && o == stillRunning {
		return
	}
	c.over = o != stillRunning
	inner := m.advance(now)
	becomes := o == stillRunning || !c.marked && now.Sub(c.began) >= m.config.SlowCallDuration
	c.marked = c.marked || becomes
	if c.period != m.period {
		if c.over {
			m.totals.Late++
		}
		return
	}
	e := modelEvent{success: o == success, failure: o == failure, slow: becomes}
	e.slowEnds = c.marked && (e.success || e.failure)
	if e.success {
		m.totals.Successes++
		m.streak = 0
	}
	if e.failure {
		m.totals.Failures++
		m.streak++
	}
	if o == ignore {
		m.totals.Ignored++
	}
	if becomes {
		m.totals.Slow++
	}
	if c.probe {
		m.judgeProbe(c, e, inner)
		return
	}
	e.slice = m.slice(inner)
	m.events = append(m.events, e)
	if !m.forced && (e.failure || e.slow) {
		m.judge(inner)
	}
}

func (m *model) judgeProbe(c *modelCall, e modelEvent, inner breaker.Instant) {
	if c.over {
		delete(m.probes, c)
	}
	if e.success {
		m.passed++
	}
	if e.slow {
		m.slow++
	}
	switch {
	case e.failure:
		m.trip(breaker.CauseProbeFailed, inner)
	case float64(m.slow)/float64(m.config.SuccessThreshold) >= float64(m.config.SlowCallRate):
		m.trip(breaker.CauseProbesSlow, inner)
	case m.passed == m.config.SuccessThreshold:
		m.enter(breaker.Closed, breaker.CauseProbesPassed, inner)
	}
}

func (m *model) judge(inner breaker.Instant) {
	c := m.window(m.slice(inner))
	ended := c.Successes + c.Failures
	timed := ended - c.SlowEnds + c.Slow
	least := uint64(m.config.MinCalls)
	switch {
	case m.streak >= uint64(m.config.FailureThreshold):
		m.trip(breaker.CauseFailureStreak, inner)
	case ended >= least && float64(c.Failures)/float64(ended) >= float64(m.config.FailureRate):
		m.trip(breaker.CauseFailureRate, inner)
	case timed >= least && float64(c.Slow)/float64(timed) >= float64(m.config.SlowCallRate):
		m.trip(breaker.CauseSlowCallRate, inner)
	}
}

// window counts the events of the last Buckets slices.
func (m *model) window(slice int) breaker.Counts {
	var c breaker.Counts
	count := func(n *uint64, is bool) {
		if is {
			*n++
		}
	}
	for _, e := range m.events {
		if e.slice > slice-m.config.Buckets {
			count(&c.Successes, e.success)
			count(&c.Failures, e.failure)
			count(&c.Slow, e.slow)
			count(&c.SlowEnds, e.slowEnds)
		}
	}
	return c
}

func (m *model) force(to breaker.State, cause breaker.Cause, now, until breaker.Instant) {
	inner := m.read(now)
	m.enter(to, cause, inner)
	if cause == breaker.CauseReset {
		m.inRow = 0
		return
	}
	m.forced, m.until = true, until.Add(m.skew)
}
