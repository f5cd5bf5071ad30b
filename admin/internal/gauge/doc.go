// Package gauge holds the metrics of the admin server: its own requests and decisions, and through a collector what Redis
// counts. Where a paper has a name for a metric it has that name; docs/API.md has the table.
//
// No label is a tenant, a scope or anything else that a caller chooses freely: routes and reasons come from lists, and of
// the queues and downstreams those beyond MaxQueues and MaxDownstreams share one name.
//
// Stats is beside them what a server says of itself in one answer. Times of its calls go into HDR histograms, one since the start and one
// for each half minute of the last five, so that percentiles are of all calls, within a hundredth, in a room that does not grow.
package gauge
