// Package guard watches what a process uses of its machine, and says when it is to take no further work: before memory or processors
// are gone, and with them the work that it has begun. It never ends anything, and it comes back by itself.
//
//	process ─▶ Sample ─┐                        below warn_at   normal
//	ring ─▶ a minute ──┼─▶ readings ─▶ ladder ─▶ from there on   warning     said once
//	bounds elsewhere ──┘                        from the limit  violation   no new work
//
// A level is left slack below where it was entered, so that a reading which stays about a limit does not change it each time.
//
//	sample    what a process uses, and its children; cgroup has what its cgroup does
//	ring      how many requests the last minute had
//	ladder    levels of readings: pure, without a clock
//	guard     looks every interval, says what changed, and answers whether new work may begin
package guard
