package admission

// RedriveOptions say how dead letters run again. The zero RedriveOptions are those of Redrive.
type RedriveOptions struct {
	// WithoutLimits leaves the buckets alone: nothing is checked there and nothing charged.
	WithoutLimits bool
	// DropDeadline takes away a deadline that has passed, by which the job would be refused. One that is to come stays.
	DropDeadline bool
	// Author says who redrives, and Reason why, up to 256 and 1,024 bytes, for the audit. Act names what several calls do, up to 64
	// bytes: they are one entry of it. Own says that a tenant brings back letters of its own: that stands in no audit.
	Author, Reason, Act string
	Own                 bool
}

// RedriveResult is what became of one dead letter.
type RedriveResult struct {
	Key     Key
	Verdict Verdict
	// Err is nil if the job is on its way again, by this call or, as the Verdict says, by another before it; a
	// *RefusedError if it was refused and stays dead. It matches ErrNotDead where there is no dead letter, and
	// ErrOutcomeUnknown where no answer came in time.
	Err error
}
