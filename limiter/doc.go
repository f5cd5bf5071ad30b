// Package limiter is headgate's rate limits without its jobs: one question, "may this pass now?", answered from the same
// policy and the same token buckets in Redis as admission, and mostly without asking Redis. It is for HTTP servers, proxies
// and programs that call something which has a limit.
//
//	          ┌─ of every scope on the way there are tokens here ──────▶ admitted (Leased)      no call
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
// C is B/2. Of it 5/8 may be on lease, of which each holds an Nth at most, and no grant takes more than half of what the bucket holds: when
// tokens are few, checks are exact. The script counts what is on lease, so neither crashes nor newcomers raise C. Tokens are debited when they are granted;
// what was granted before a window began may be spent in it. So what is admitted is
//
//	over all time    ≤ B + r·t
//	in any window w  ≤ B + r·w + C
//
// # Stocks
//
// Most scopes are asked for less often than that. One that this process is asked for again within a minute has a stock: as much as it uses
// of the scope in a minute, at most
//
//	C/16 divided by the limiters that live    what the limit gains in six seconds
//
// and Redis gives none that would leave less than half of a burst. So where tokens are few, or come slowly, there are no stocks. Nothing is noted
// of a stock in Redis, it has no end, and is not given back: it costs neither a key there nor a call a second, and the limit has gained
// as much by the time that anybody could miss it. As a limiter takes its stock, those that live are as many as have one, itself included,
// so all stocks of a scope are C/16·(1 + 1/2 + … + 1/128) at most, for beyond 128 limiters there are none: what leases leave of C. Tokens are
// spent here only within a second of a call that told when limits were last changed, by an edit or by a scale, and how many limiters live; a
// stock from before a change is lost, and a denial forgotten; where tenants' records were edited, those of these tenants alone. A stock that was not used between two sweeps of a minute is lost, too.
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
