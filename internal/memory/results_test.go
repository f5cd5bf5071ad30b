package memory_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// TestAResultIsOfTheLastJobOfItsID: an id may come again once its window is over. Whoever asks for its result then is not told what the job
// before it has left, also where the new one leaves nothing.
func TestAResultIsOfTheLastJobOfItsID(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.register("w", mailPool, 4)
	admit := func() {
		t.Helper()
		p.same("admit", func(s store.Partition) any {
			verdicts, err := s.Admit(p.ctx, 0, candidates(nil, mail("acme", "a"), mail("acme", "b")))
			for _, v := range verdicts {
				check(t, v.Err())
			}
			return replied(verdicts, err)
		})
	}
	finish := func(result []byte, keep time.Duration) {
		t.Helper()
		read := p.take("w", mailPool, 4)
		for i, s := range []store.Partition{p.redis, p.memory} {
			var ends []store.Finish
			for j := range read[i] {
				f := read[i][j].Finish(store.Complete)
				f.Result, f.KeepResult = result, keep
				ends = append(ends, f)
			}
			_, _, err := s.Finish(p.ctx, mailPool.ID(), "w", ends)
			check(t, err)
		}
	}
	result := func(want string) {
		t.Helper()
		got := p.same("result", func(s store.Partition) any {
			data, err := s.Result(p.ctx, key("a"))
			return replied(string(data), err)
		}).(reply)
		if got.Values[0] != want {
			t.Errorf("the result is %q, not %q", got.Values[0], want)
		}
	}
	admit()
	finish([]byte("first"), 10*time.Minute)
	result("first")
	for range 3 { // Two windows are over.
		p.move(31 * time.Second)
		p.same("promote", func(s store.Partition) any {
			done, err := s.PromoteAfter(p.ctx, store.LeapSilence, "s", time.Second)
			return replied(done.Moved, err)
		})
		for range 12 { // The window goes on by 5 s a call at most.
			p.move(3 * time.Second)
			p.same("heartbeat", func(s store.Partition) any { return replied(s.Heartbeat(p.ctx, "w", time.Hour, "")) })
		}
	}
	result("first")
	admit()
	result("")
	finish(nil, 0)
	result("")
}
