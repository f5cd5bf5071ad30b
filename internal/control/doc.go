// Package control moves a limit of calls at a time to where a downstream does the most without making calls wait in it (Loop), a limit
// of calls a second to what it takes without refusing any (Rate), and how much of limits of admission is in force (Part), which
// moves a rate by another signal too (Paced). It is pure:
// it is given what was seen (Sample), with how long that took, and says what limit is to be in force (Step). It knows no clock, no store
// and no goroutine; package scheduler runs one Loop for each limit of the policy's `adaptive`, in one process of a fleet.
//
// # What is looked for
//
// Let L be the limit, X the calls a second that succeed (goodput) and W how long one takes. While the limit binds, L calls run, and
// X·W = L (Little). A downstream that does µ calls a second at most, each in W0 while none queues there, has
//
//	X = L/W0, W = W0    below L* = µ·W0: more limit, more goodput
//	X = µ,    W = L/µ   above it: more limit, more queue
//
// So the slope of log X over log L tells on which side of L* a limit is: 1 below, 0 above. X is taken as L/W times the part that succeeds: what
// was counted a second is noisier, for reports come in portions and calls that began together end together. It needs no baseline of W. Controllers that
// compare W with the best W that they remember (Vegas; Netflix's Gradient2, Envoy's, failsafe-go's) drift: in a long incident the baseline
// learns the incident, and a downstream that becomes slower for good is throttled for ever. Cinnamon (Uber, 2023) put a covariance of
// load and throughput beside its baseline for that; here the covariance is all there is.
//
// # Gradient
//
// slope is taken over the last 5 samples under a binding limit, each weighing 0.37 of the one after it. From 0.6 on the limit grows, to
// 0.45 and less it falls, in between it stays. Where the limits of the samples hardly differ there is no slope: then it tries a step, up,
// or down from the greatest.
//
// A search begins with strides by the factor 1.65, up or down. Each time it turns, the stride is 0.3 of the last one in logarithms, down to 7.5 %, or to
// 1.3 times the noise where that is more: what a shorter one changes would not be seen. So from a limit of 1 or of 400 it is at one of 40 within
// ten samples, and swings around it by a step or two, which is the price for noticing when L* moves. Steps of a root of the limit and of a tenth
// need 25 to 50 samples for that, and in all of them calls wait or workers do.
//
// A new search begins where goodput is not what the limits explain: from one sample to the next it stays as it is at least, and grows as much as
// the limit at most. Off by 0.25 in logarithms (a fifth less, a quarter more), and by 5 times the noise, says that the downstream has become
// another one; the first step is down where it does less. Noise is how far goodput is off in the mean, by an exponential average in which a sample counts 0.06.
//
// # AIMD
//
// √L more while no brake holds: for downstreams that say by errors or run time that they have enough.
//
// # PID
//
// Holds the mean run time at a target: for downstreams of which it is known how long their calls are to take. With the error e = (target -
// measured)/target, the limit goes each interval by the part
//
//	Proportional·e + Integral·Σe - Derivative·Δmeasured/target
//
// of itself, at most as far as slew allows. Run times within 5 % of the target are at it. Nothing is integrated while the step is cut or the limit
// at an end of its range, and what was integrated is dropped when the error goes to the other side: else the sum winds up and is made up for
// later. From the third look on that sees nothing the limit goes back to the configured one, but while all of its units are taken.
//
// # Signals
//
// PID and AIMD may hold another measurement at a target instead (Config.Target): of run times or waits their 95th percentile, of calls the part that
// fails, of workers their processors. Each grows with the limit, but what jobs wait for it (Config.Falls): that is mirrored at the target, so that PID and
// AIMD do with 2·target - measured what they do with the others. AIMD then grows while it is at most at its target, and cuts by target/measured, a
// tenth to a fifth, where it is above. A signal that nobody knows is a look that sees nothing: the limit stays, and goes back from the third on,
// while brakes hold as ever. A measurement over the last minute shows a step whole only a minute later: a loop that looks every 5 s would make
// eleven more steps for one, and falls to 15 from 100 where 50 is right (simulated). So what looks at those should look once a minute.
//
// # Parts
//
// A Part is how much of limits of admission is in force, which it moves by how much queues are pressed, or by a signal, without calls of its own to look at. PID
// is as above. AIMD goes up by 0.02 of the most, at most by 0.05 of itself, while what is measured is at most at its target, and down by 0.1 while it is above:
// additive where a part is large, and never by more than slew allows. A step of less than a unit adds up: cut to a whole one, a part of ten would never move.
// Gradient has nothing to look for: its knee is in how many run, and a rate that is let in has none.
//
// # Paced
//
// A rate of dispatches by a signal is a Part in RateUnits: the same steps and bounds. What goes before the signal is what a Rate sees: calls refused as too many
// cut to 0.95 of what got through, at most to half, and a rate used by less than 0.75 does not grow. Where the signal falls as the rate grows it does not fall then either.
//
// # What holds for each
//
//	brake        calls that take longer than MaxRunTime in the mean lower the limit by as much as they are too long, at least 10 %
//	             and at most to half; more than MaxFailures of the calls failing lower it by a fifth. Neither is compared with
//	             anything that the loop has learnt.
//	no sample    fewer than 10 calls ended, or it is over less than 4 of their run times: what came adds up over the next samples, and
//	             the limit stays
//	gap          nobody looked for 4 intervals, or a count went back: the limit stays, and what was seen before is forgotten
//	not bound    nobody waited for a unit: the limit stays, since nothing shows what another one would do (RFC 7661)
//	slew         of aimd and pid: 10 % down at most but by a brake, 5 % or √L up (half a unit where that is more); of gradient the stride
//	             of its search
//	dead band    a change of less than 2 % is kept in mind, not made
//
// # Rate
//
// A receiver that has a rate limit of its own says so by refusing what is too much (429), and only then: below its limit nothing shows how
// much more it would take. So there is a ceiling, at which it last refused, and a way back to it: with t the intervals since then,
//
//	cut       more than 1 % of the calls were refused: ceiling = what got through, rate = 0.95 of that
//	way back  rate = ceiling·(1 + 0.05·((t-10)/10)³), from t = 20 on 1.1 times as much with each look
//
// the curve of CUBIC (RFC 9438, section 4.2): soon near the ceiling, long at it, gently beyond; and where nothing is refused 5 % beyond it, faster,
// since then the receiver has become another one. What got through is the rate itself less the part refused: with a rate that binds, counts
// over a time say the same with more noise. Then:
//
//	one refusal   of a single call among less than 100 there is no cut: what is seen adds up until it says something
//	settling      the look after a cut is of calls that left before it, and says nothing
//	not used      while calls come at less than 0.75 of the rate, it does not grow (RFC 7661)
//	all refused   half the rate, since nothing says what would get through
//	no memory     a loop that begins, or goes on from a limit that somebody else has set, takes that one for the ceiling
//
// No sample, gap and the bounds are as above. From 25 times too much it is there after one look; then about one look in 20 has a few refusals.
//
// # What it cannot see
//
// Goodput of the calls that pass here is all it knows. Where somebody else loads the downstream, it looks for the best limit under that
// load, and two that look for it on the same downstream share it as they come. A downstream whose own downstream is slow needs more
// calls at a time, and gets them, for goodput grows with them. Work that is far from even over time looks like noise: the interval
// should be several times the run time of a call.
package control
