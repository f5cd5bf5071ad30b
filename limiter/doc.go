// Package limiter is headgate's rate limits without its jobs: one question, "may this pass now?", answered from the same
// policy and the same token buckets in Redis as admission, and mostly without asking Redis. It is for HTTP servers, proxies
// and programs that call something which has a limit.
//
//	          ┌─ every scope on the way holds tokens on lease ─────────▶ admitted (Leased)      no call
//	Check ────┼─ a scope was denied, and still is ─────────────────────▶ refused  (Cached)      no call
//	          ├─ else: the line ──▶ one call for up to 64 callers ─────▶ admitted or refused (Exact)
//	          └─ Redis does not answer within Config.Timeout ──────────▶ what Config.Outage says (Blind)
//
// # Leases
//
// A scope of which this process uses eight tokens a second is leased: the call that asks for a check also takes a chunk out of
// the bucket, as much as the process uses in 100 ms and eight at least, and the process spends it by itself. A check
// spends tokens of all scopes on its way or of none: where one of them has too few on lease, Redis is asked for all. A lease
// ends after a second by the monotonic clock, counted from before the call; Close gives back what is left. Let
//
//	B  the burst    r  the rate    N  the limiters that hold tokens of the scope    C  what they may hold, all together
//
// C is B/2, each holds C/N at most, and no grant takes more than half of what the bucket holds: when tokens are few, checks are
// exact. The script counts what is on lease, so neither crashes nor newcomers raise C. Tokens are debited when they are granted;
// what was granted before a window began may be spent in it. So what is admitted is
//
//	over all time    ≤ B + r·t
//	in any window w  ≤ B + r·w + C
//
// With Config.Strict the bucket's burst is B − C with C = B/8. What the bucket holds and what is on lease are B together at the
// most, so that any window admits ≤ B + r·w. Guarantee prints the bound in force. A step of Redis's clock adds one burst, as to
// every bucket. Producers charge the same buckets, with their full burst: what they admit counts in the bound over all time, and
// a window's bound is then the one without Strict.
//
// Where a deployment has several partitions, a tenant's scopes are in one of them, as above, and the global limit is divided: of B
// and r each has an even part, and its own C of that. The parts add up to B, r and C, so the bounds hold over all of them; a
// partition that uses less than its part leaves it to nobody, and a check that costs more than the part of a burst is refused for
// good. A check of no tenant goes to the partitions in turn. With one of them away its tenants' checks alone are answered blind.
//
// # Denials
//
// A refusal by Redis is remembered with the level that it found, the rate, and the version of the policy: a later check is
// refused in the process until the bucket can hold its cost. After a second Redis is asked in any case, so that a new policy is
// heard of. Limiters that compete for a busy scope come back after as long as it takes for a chunk each, 100 ms at the most.
//
// # Outage
//
// Whatever Redis does, Check answers within Config.Timeout. After a few failures a breaker answers at once, and lets one call
// through after a while, longer each time and never at the same moment in two processes. Nothing is sent again. What was admitted
// blind is taken out of the bucket on return, up to one burst, and counted.
package limiter
