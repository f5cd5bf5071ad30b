// Package redisrun is the Redis of a run of a load test: one that is named, a private one, or one that a scenario kills and starts again. The
// last journals every write before it answers, so that what it said it has.
package redisrun
