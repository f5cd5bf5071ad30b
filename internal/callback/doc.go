// Package callback calls functions that users have given: hooks, observers, backoffs. It exists because a panic in one of them
// would end the process, and with it the jobs of everybody, for what is no more than a job's or a line's in a log.
package callback
