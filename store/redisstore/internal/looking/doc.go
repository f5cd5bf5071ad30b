// Package looking is what people and dashboards see of one partition: jobs, letters, queues, what stands, what waits. What changes while
// it is read may be missing or told twice.
package looking
