// Package headgatetest lets the tests of a program that uses headgate run it whole, without a Redis: its deployment is in the memory of the
// test, and everything else is what production runs.
//
//	func TestWhoSignsUpIsWelcomed(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			hg := headgatetest.New(t)
//			app.Register(hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}}))
//			app.SignUp(t.Context(), hg.Client, "ada@example.com")
//			headgatetest.RequireEnqueued(t, hg, Welcome{To: "ada@example.com"})
//			hg.Drain()                 // until nothing runs any more
//			hg.Advance(24 * time.Hour) // retries, delays, deadlines, periodic jobs
//		})
//	}
//
// In the bubble of a synctest.Test the clock is the bubble's: Advance takes no time, and a handler that sleeps none either. What reads from
// a network in a bubble keeps its clock from moving; such a test does without the bubble, and without Advance.
//
// A handler alone is tested by a call: a headgate.Run of one's own has what SetResult was given in Result, what SetCost was told in Cost, and headgate.IsDiscard, IsSnooze,
// IsRetryAfter and IsIgnored tell what it answered.
package headgatetest
