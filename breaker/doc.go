// Package breaker is a circuit breaker for one downstream: it watches how calls end, stops them while the
// downstream is ill, and lets a few probes through to see whether it has recovered. It is pure and local: no
// goroutine, no timer, no I/O. Time is a parameter, an Instant of any clock the caller keeps.
//
//	                 failure rate, failure streak or slow-call rate
//	      ┌────────┐ ───────────────────────────────────────────────▶ ┌────────┐
//	─────▶│ closed │                                                  │  open  │◀─────────────┐
//	      └────────┘                                                  └────────┘              │
//	          ▲                                                           │ cooldown over     │
//	          │                                                           ▼                   │
//	          │             SuccessThreshold probes passed          ┌───────────┐             │
//	          └──────────────────────────────────────────────────── │ half-open │ ────────────┘
//	                                                                └───────────┘ a probe failed, timed out,
//	                                                                              or too many were slow
//
//	forced closed ──until──▶ closed      forced open ──until──▶ half-open      reset ──▶ closed
//
// A state changes only inside a call that is given the time, and at most once in each; that call returns the
// Transition. Every change begins a new period. A call belongs to the period in which it was let through: if
// it ends in another one it is late, and says nothing about the present state.
//
// # Closed
//
// The three states are Nygard's (Release It!, 2nd edition, 2018, chapter 5, "Circuit Breaker"). What is counted
// is a sliding window of time, a ring of B slices of length W/B (W is Config.Window, B Config.Buckets): it covers
// between W − W/B and W. In the window let
//
//	E  the calls that ended with a verdict    F  those of E that failed
//	S  the calls that became slow             L  those of E that had been counted as slow before or as they ended
//
// A call becomes slow when it passes SlowCallDuration, not when it returns, so a downstream that hangs is seen
// after SlowCallDuration and not after the caller's time-out. E − L + S is then the number of calls about
// which it is known whether they are slow: each once. The breaker trips when
//
//	E ≥ MinCalls      and  F / E ≥ FailureRate
//	E − L + S ≥ MinCalls  and  S / (E − L + S) ≥ SlowCallRate
//	or the last FailureThreshold verdicts were all failures, however long ago the first
//
// The third rule is for downstreams called too seldom to fill a window. The rules are asked when a failure or a
// slow call is counted, never on a success: good news does not trip, even when it is the call that
// reaches MinCalls.
//
// # Open
//
// The n-th trip in a row cools down for a time drawn evenly from [d/2, d), d = min(OpenMax, OpenBase·2ⁿ⁻¹): equal
// jitter, so that a fleet does not probe in step, and never near zero as full jitter may be (Brooker, "Exponential
// Backoff And Jitter", AWS Architecture Blog, 2015). Trips are in a row until the breaker has stayed
// closed for ResetAfter.
//
// # Half-open
//
// At most MaxProbes calls are in flight at a time. A failed probe opens the breaker at once. So does one that has not
// ended ProbeTimeout after it began: a lost or hanging probe holds its place no longer than that.
// SuccessThreshold passed probes close it; as many of those may be slow as SlowCallRate lets pass. A probe
// that is ignored gives its place back without a verdict.
//
// # Clocks
//
// Callers read the clock before they call, so instants arrive slightly out of order. One up to MaxLag behind is
// a late caller's and counts as the present. One further behind means that the clock was set back: the breaker
// goes on from where it was, at the clock's new reading, so that no cooldown or time-out grows by the step. What
// is lost is the time for which nobody asked, before the step and until it is noticed. While closed the present
// is known to one slice.
//
// # The fleet
//
// Fleet is the same three states for all workers together: it is told of outcomes in batches (Report), and is what
// package lua keeps in Redis. Its rules are those above, on what all workers counted, and a quorum beside them: the
// breaker trips if as many workers as
//
//	min(2, the workers that called the downstream in the window)
//
// see it too: of each one's own calls in the window, however few, as large a part failed, or was slow, as the rule
// asks of all; for the third rule, its own last FailureThreshold calls failed, or all in the window if they are fewer. So a worker whose network is cut, which fails fast and takes many jobs while
// others succeed, opens nothing for them; alone it may, but not before LoneVote has passed since the first report:
// others, if there are any, may only be slower to report.
//
// Nor does one tenant, whose jobs may fail on purpose, decide for others. A report says what each tenant has of it, under a number
// (TenantNumber); numbers share TenantGroups windows, others in each epoch. Let x be how far the calls of a group meet a rule:
// the part that failed, or was slow; for the third rule 1 if its last FailureThreshold ÷ groups calls failed, or all if they are
// fewer, else 0. Each group weighs the same, however much it calls, and the one with the largest x is left out. The breaker trips
// only if the mean x of the others reaches 0.8 of the rate that the rule asks of all, or 0.34 for the third rule. Where one group
// is all that called in the window (in its last half to whole), its own x must. So a downstream that is ill for all opens as it
// did, one that a single tenant uses opens for it, and a tenant that fails where others succeed opens nothing; the latest moment
// at which it may is when nobody else has called for a window. Nothing else is done about that tenant: its failures cost its own
// attempts, and its slots are bounded by its caps.
//
// A worker whose own breaker such a tenant has opened hears so in the answer (Alone), closes it, and leaves that tenant's
// failures out for a window.
//
// Probes are leases of the waiting room: it knows how many there
// are and when the oldest began. Half-open ends ProbeTimeout after that, whatever became of the probe; without a
// probe it waits. Where several tenants called in the last window, a failed probe opens only with one of another tenant's, with a
// second of the same, or, once another's has passed, with the (2·SuccessThreshold)th; and in the last two cases for as long as
// before, not twice as long. A breaker that closes after probes starts slowly: 2·MaxProbes calls at a time, doubled each RampStep,
// any number after RampSteps. Each transition begins a period, and a report of another says nothing.
//
// # Cost
//
// Passing and counting a success while closed takes no lock and allocates nothing: one atomic pointer leads to the
// slice in force, whose bounds say for which instants it may be used unasked, and whose count of successes is spread
// over processors. Whatever else happens (failures, slow calls, a new slice, any other state) happens under one mutex,
// which is never held across the caller's code. Measured on the two shared cores of a small virtual machine, a call
// that passes and succeeds costs 32 ns, and half of that when both cores do nothing else; one that fails, 110 ns; a
// refusal 64 ns; a new slice one allocation of 640 bytes.
package breaker
