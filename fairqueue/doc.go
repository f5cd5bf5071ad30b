// Package fairqueue decides the order in which waiting jobs run: the specification, in plain Go, of what the
// scripts of package lua do in Redis. It is pure: time is a parameter and nothing is shared.
//
// Three decisions follow each other for every free slot.
//
// The class. Each queue has classes with weights, by default high 3, medium 2, low 1. A Pattern walks them in
// order: HHHMMLHHHMML… A class without runnable jobs forfeits the rest of its turn to the next, so that the
// pattern is work-conserving; its phase is kept for ever, so that a class that flickers cannot starve another.
//
// The tenant. Inside a class the tenants share by start-time fair queuing (Goyal, Vin, Cheng, "Start-time Fair
// Queuing", SIGCOMM 1996). Symbols, as the code uses them:
//
//	V     virtual time of the class: the start tag of the job dispatched last
//	S     start tag of a runnable tenant, that of its next job
//	w, c  the tenant's weight, a job's cost
//
//	enter      S := max(V, kept tag)         a tenant becomes runnable, for whatever reason
//	dispatch   V := max(V, S);  S := S + c/w of the tenant with the least S, ties by the order of entering
//	exit       keep S if S > V               a tenant drains, or stands behind a gate
//	rendered   S := S + (a − c)/w            a job dispatched for c ends and has told that it has cost a; where a < c,
//	                                         not below V − c/w, and of a tenant that is not runnable not below V
//	empty      V := 0                        no job waits in the class: no tag is left that V could be compared with
//
// Nothing else moves V or S. A float64 tells V from V + c/w up to 2⁵³ times that, so a class in which jobs always wait has room for 10¹³ of cost before a cost of one of a
// tenant of weight 1,000 counts double. Where no job tells, S ∈ [V, V + c/w] at all times, and over any interval in which two
// tenants i, j are runnable throughout, |Wᵢ/wᵢ − Wⱼ/wⱼ| ≤ cᵢ/wᵢ + cⱼ/wⱼ (law L7). A tenant that was idle banks no
// credit: it enters at V. Weights count at the moment of dispatch, so a new one acts on the backlog at once.
//
// Where jobs tell, W is the service rendered: what those that have told have cost, what the others were dispatched for.
// Let e be how much, over w, the jobs in workers' hands at a tenant's dispatch turn out to cost more in all, at the most, and
// r what was cut of its tag's falls over the interval, so that it stayed above V − c/w. Then
//
//	Wᵢ/wᵢ − Wⱼ/wⱼ ≤ 2(cᵢ/wᵢ + cⱼ/wⱼ) + eᵢ + eⱼ + rⱼ
//
// for S ≤ V + c/w + e, as V is not below the tag of a dispatch, and S ≥ V − c/w: a refund stops there, and V stands while
// a runnable S is below it. Sᵢ rises by Wᵢ/wᵢ at least, Sⱼ by Wⱼ/wⱼ + rⱼ, and both ends of the interval are within these. With
// one job of a constant c at a time in workers' hands r is 0. The cut is what keeps a tenant from banking: without it one that
// reserved much while it was alone and used none would shut out who comes later, for as long as all its jobs would have taken. Charging
// what service has cost once that is known is from Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024.
//
// The job. A tenant's jobs of a class stand in lanes, one a downstream, with and without a deadline apart. The lane
// with the least head goes first; inside, the earliest deadline, ties by arrival. Jobs without a deadline are
// ordered by arrival + horizon, so nobody starves.
//
// Gates stop some of this: each has a limit of units, 0 to shut it, and holds one for every job in a worker's hands
// that passed under it. Closing a gate moves nothing; a tenant or lane that comes to the head and finds its gate
// closed parks and costs nobody anything. While a gate has k free units the k waiters with the least tags of each
// class of each queue are awake; one that finds its unit gone parks again, one that vanishes passes it on.
//
//	        enter                 dispatch
//	(none) ───────▶ runnable (a) ──────────▶ ready stream
//	   ▲             │   ▲   │
//	   │ drained     │   │   │ gate closed at the head
//	   └─────────────┘   │   ▼
//	                wake └─ parked: t its own gate, b all its lanes
package fairqueue
