// Package headgate is the front door of an admission layer for job queues on Redis: one import to enqueue, to run handlers, and to
// limit, look and act.
//
//	hg, err := headgate.Open(ctx, "redis://localhost:6379", headgate.Config{})
//
//	hg.Enqueue ──▶ token buckets global → tenant → queue → priority, all or nothing
//	   │ Receipt, or an error of three kinds (see Enqueue)
//	   ▼
//	waiting room ──▶ the tenants of a class by virtual time, each one's jobs by deadline ──▶ hg.Worker ──▶ breaker ──▶ handler
//
//	hg.Limiter    the same limits before an HTTP handler        hg.Policy    limits, tiers, caps and classes, changed live
//	hg.Breaker    a call outside of jobs                         hg.Inspect   where jobs are and why they wait
//	hg.RunPeriodic   jobs by the clock                           hg.Operate   pause, resume, redrive, cancel, breakers
//
// Behind the door are rooms that can be had alone, with the same nouns: producer, worker, scheduler, limiter, admin and, for
// Prometheus and OpenTelemetry, telemetry, whose Collector shows a Client's metrics. Package admission holds the nouns; docs/DESIGN.md the laws that bind all of them.
package headgate
