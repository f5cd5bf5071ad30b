// Package telemetry shows what producers and workers do: traces through OpenTelemetry and metrics through Prometheus. It
// exists so that neither of them knows of either: a Telemetry makes the Observer of their Config, and what is not asked
// for is a nil function there, which costs a comparison.
//
// # Traces
//
// The context of a trace travels in the job's headers (traceparent and tracestate, as W3C Trace Context says), so a job's
// trace goes on in whatever process runs it, and after any crash:
//
//	caller's span ──▶ enqueue QUEUE (producer) ──┬──▶ wait QUEUE   from admission to the start, by the clock of Redis
//	                                             └──▶ run QUEUE    (consumer) ──▶ spans of the handler
//
// There is a run for each time that a worker has the job in hand, also where it is turned away: outcome and reason say
// so. The wait ends where a handler starts; that of a later attempt holds the earlier ones. No span has payload or text
// of an error in it.
//
// # Metrics
//
// Collector shows those of a client of the front door, its workers and limiters included. Who makes producers and workers without it has theirs by New,
// and Limiter shows those of a limiter, which knows of no Prometheus itself either.
//
// No label is a scope or a job. Queues are those that a worker serves, 64 at most; classes are the presets, others share
// one name; reasons come from lists. Tenants have a metric of their own, in which only the busiest have a name.
package telemetry
