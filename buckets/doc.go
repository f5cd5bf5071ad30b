// Package buckets is the token bucket of headgate as pure arithmetic: no clock, no lock, no store. Time is a
// parameter, in microseconds of Redis time. The package is the specification to which the admission script is
// held equal, bit for bit, so the order of its floating-point operations is part of its contract.
//
// # Derivation
//
// RFC 2697 (srTCM, section 3) counts tokens in a bucket of size CBS that starts full; the count Tc goes up by one
// CIR times a second while it is below CBS, and a packet of B bytes passes if Tc-B >= 0, which takes B from it.
// Nobody increments a counter here: like the continuous-state leaky bucket of ITU-T I.371 the count is brought up
// to date when it is looked at, from the time that has passed. With the symbols the code uses:
//
//	rate    R, tokens a second, which is also micro-tokens a microsecond (CIR)
//	burst   B, the capacity in micro-tokens (CBS)
//	level   L, the micro-tokens held at stamp (Tc)
//	stamp   the Redis time up to which the refill is counted in level
//	fill    the microseconds from stamp until full, by the rate and burst in force when written: ⌈(B-L)/R⌉
//	now     the Redis time of the question
//	changed the Redis time of the latest change of any policy
//
// A stored bucket is (level, stamp, fill, rate); a bucket that is not stored is full. Settle turns it into the
// level at now, in this order:
//
//  1. absent: (B, now).
//  2. stamp > now, the clock was set back: stamp becomes now and level is kept.
//  3. now-stamp ≥ fill and R ≥ the stored rate: (B, now). It was full, which is as good as absent, so that a
//     raised burst applies to it at once.
//  4. level becomes min(level, B): a lowered burst applies at once.
//  5. R equal to the stored rate: gained = ⌊(now-stamp)·R⌋ whole micro-tokens are taken, and only the time that
//     they took: stamp + min(now-stamp, ⌈gained/R⌉). The remainder stays in the stamp, so that a token a day
//     survives being charged a thousand times a second.
//  6. otherwise the rate changed, at changed or earlier, and how much earlier is unknown, so the time before it
//     counts at the slower of both rates: gained = ⌊before·min(R, stored) + after·R⌋, and stamp becomes now.
//
// A level that reaches the burst becomes (B, now). Every quantity is an integer below 2⁵³, exact in a double,
// and each product is rounded on its own: no fused multiply-add.
//
// A limit of fixed windows has no rate: a window holds all of its tokens as it begins, by the calendar, and the next one does again (LimitAt, OpenWindow).
// Of it (left, end, length, quota) is stored, and Settle says what of that counts in the window of now. With the end as the name of a window, at
// most the quota is admitted in each, and twice the quota in as long a time. A step of the clock may add one window's tokens.
//
// A limit of sliding windows has no rate either: what was taken comes back when it is as old as the window (OpenSliding). Of it (length, quota, what
// was taken when) is stored, by tenths of the window or by the microsecond, and a tenth counts as if all of it had been taken in its last
// microsecond. So at most the quota is admitted in every time as long as the window, and one quota more for a step of the clock forward. The exact
// form is the sliding log; the other is the same log with coarser times, which errs on the side of less: at saturation it admits the quota in a
// window and a tenth at the latest. Both go by the buckets' own time.
//
// # What holds
//
// Rounding gives away at most 2⁻⁵² of what was refilled. A charge loses less than one micro-token, and less than
// the refill of one microsecond unless it is the first after a change of rate. So for one scope and any window,
// with one change of its rate at the most between two admissions and no burst raised after it had been lowered:
//
//	admitted cost ≤ largest burst in force + ∫rate + one burst a step of the clock
//
// Outside those two conditions a bucket, which remembers only its last write, knows too little, and more may
// pass: each change of rate behind which another follows before the next admission may add one burst, and a burst
// that is raised after it was lowered may add the amount of the raise.
//
// A refusal stores nothing. Two things follow. After the clock was set back, a bucket that holds too little for
// the job stays at its level until the clock passes its stamp again or a cheaper job is admitted. And a retry
// after exactly the wait of a refusal passes, or, where two roundings meet, one microsecond later. The wait is
// longer than needed only for a bucket written under a lower burst, which may be full, and so have the raised
// one, before it would have refilled to the cost.
//
// A store may forget a bucket at stamp+fill, but not while a limit slower than the stored rate is in force: step 3
// would not call that bucket full, and absence would.
package buckets
