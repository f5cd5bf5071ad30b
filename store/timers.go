package store

import (
	"time"
)

// Promotion is what one call of Promote did.
type Promotion struct {
	// Held means that another scheduler holds the timer lease, for Next.
	Held bool
	// More means that the call is to be made again at once.
	More bool
	// Next is the time until the next timer; negative when there is none.
	Next time.Duration
	// Moved is the number of jobs, lanes and tenants moved.
	Moved int
	// Stepped means that the clock of Redis had stepped: every registration was armed anew.
	Stepped bool
	// Leapt asks whether a leap ahead of the time of Redis was a step of its clock; nothing was done. It answers LeapAsk only.
	Leapt bool
	// Adaptive is the version of a policy by which limits move by themselves, or queues are measured; 0 where none does.
	Adaptive int64
	// At is the time of Redis.
	At time.Time
}

// Leap is what a Promote makes of it if the time of Redis went on by more than 5 s since the last call of any script. A step back is
// always a step.
type Leap string

// The leaps. Only who has seen the time of Redis before, and has a monotonic clock, can tell.
const (
	// LeapSilence is the time that nobody called.
	LeapSilence Leap = ""
	// LeapStep is a step of the clock of Redis.
	LeapStep Leap = "stepped"
	// LeapAsk has Promote ask: see Promotion.Leapt.
	LeapAsk Leap = "ask"
)

// SchedulerState is a scheduler that lives.
type SchedulerState struct {
	Name string
	// AliveUntil is until when it counts as live unless it is heard of again; zero for one that has only promoted.
	AliveUntil time.Time
	// LeaseEnd is until when it holds the timer lease; zero unless it does.
	LeaseEnd time.Time
}
