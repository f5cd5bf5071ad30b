package admin

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
)

// yard is turns and what is in them.
type yard struct {
	t     *testing.T
	turns *turns
	most  share
	mu    struct {
		sync.Mutex

		in    map[string]int
		bytes int64
		order []string
	}
}

func newYard(t *testing.T, calls int, most share) *yard {
	t.Helper()
	y := &yard{t: t, turns: newTurns(calls, 100, time.Minute), most: most}
	y.mu.in = map[string]int{}
	return y
}

// enter waits for the turn of a call, and returns what ends it; nil if it has none.
func (y *yard) enter(caller string, bytes int64) func() {
	leave := y.turns.enter(y.t.Context(), caller, y.most, bytes)
	if leave == nil {
		return nil
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.mu.in[caller]++
	y.mu.bytes += bytes
	y.mu.order = append(y.mu.order, caller)
	all := 0
	for _, n := range y.mu.in {
		all += n
	}
	if all > y.turns.calls || y.mu.bytes > y.turns.bytes || y.mu.in[caller] > y.most.calls {
		y.t.Errorf("%d calls and %d bytes are in, %d of %s", all, y.mu.bytes, y.mu.in[caller], caller)
	}
	return func() {
		y.mu.Lock()
		y.mu.in[caller]--
		y.mu.bytes -= bytes
		y.mu.Unlock()
		leave()
	}
}

func (y *yard) empty() {
	y.turns.mu.Lock()
	defer y.turns.mu.Unlock()
	if len(y.turns.mu.lines) != 0 || len(y.turns.mu.order) != 0 || y.turns.mu.calls != 0 || y.turns.mu.bytes != 0 {
		y.t.Errorf("%d lines, %d in order, %d calls and %d bytes are left", len(y.turns.mu.lines), len(y.turns.mu.order), y.turns.mu.calls, y.turns.mu.bytes)
	}
}

func TestNoMoreCallsAreUnderWayThanMayBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, 6, share{3, 60})
		var all sync.WaitGroup
		for n := range 300 {
			all.Go(func() {
				leave := y.enter([]string{"a", "b", "c"}[n%3], int64(n%7)*10)
				if leave == nil {
					t.Error("a call had no turn")
					return
				}
				time.Sleep(time.Duration(n%5) * time.Millisecond) //nolint:forbidigo // in a bubble
				leave()
			})
		}
		all.Wait()
		y.empty()
	})
}

// TestLinesTakeTurns: one caller's hundred calls that wait are not before another's one.
func TestLinesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, 1, share{1, 100})
		leave := y.enter("evil", 0)
		var all sync.WaitGroup
		call := func(caller string) {
			all.Go(func() {
				if leave := y.enter(caller, 0); leave != nil {
					leave()
				}
			})
			synctest.Wait()
		}
		for range 100 {
			call("evil")
		}
		call("victim")
		call("other")
		leave()
		all.Wait()
		if got := strings.Join(y.mu.order[:4], " "); got != "evil evil victim other" {
			t.Errorf("in order: %s", got)
		}
		y.empty()
	})
}

func TestACallersShareLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, 4, share{2, 50})
		first, second := y.enter("evil", 25), y.enter("evil", 25)
		var all sync.WaitGroup
		all.Go(func() {
			if leave := y.enter("evil", 0); leave != nil {
				leave()
			}
		})
		synctest.Wait()
		y.enter("victim", 50)()
		y.enter("victim", 50)()
		first()
		second()
		all.Wait()
		y.empty()
	})
}

func TestWhoHasNoTurnInTimeIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, 1, share{1, 100})
		leave := y.enter("a", 0)
		began := time.Now()
		if y.enter("a", 0) != nil || y.enter("b", 0) != nil || time.Since(began) != 2*time.Minute {
			t.Errorf("a call was let in, or waited %s", time.Since(began))
		}
		var all sync.WaitGroup
		for range mostInLine {
			all.Go(func() { y.enter("a", 0) })
		}
		synctest.Wait()
		began = time.Now()
		if y.enter("a", 0) != nil || time.Since(began) != 0 {
			t.Errorf("a line of %d was waited in for %s", mostInLine, time.Since(began))
		}
		all.Wait()
		leave()
		y.empty()
	})
}

// TestManyRefusalsAreHeld: the first are answered at once, those beyond after a second or so each.
func TestManyRefusalsAreHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{config: Config{}.withDefaults()}
		s.bound()
		began := time.Now()
		w := httptest.NewRecorder()
		for range holdBurst {
			s.hold(t.Context(), w, "evil")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the first took %s", took)
		}
		s.hold(t.Context(), w, "evil")
		if took := time.Since(began); took < holdFor/2 || took > holdFor*3/2 {
			t.Errorf("one more took %s", took)
		}
		for s.refusals.mu.set.LevelAt(0, 0, s.refusals.path("evil", 0)[0]) > 0 {
			s.hold(t.Context(), w, "evil")
		}
		ended, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range maxHeld + holdBurst {
			all.Go(func() { s.hold(ended, httptest.NewRecorder(), "evil") })
		}
		synctest.Wait()
		began = time.Now()
		s.hold(t.Context(), w, "evil")
		if s.held.Load() != maxHeld || time.Since(began) != 0 || w.Header().Get("Connection") != "close" {
			t.Errorf("%d are held, the next for %s, %v", s.held.Load(), time.Since(began), w.Header())
		}
		end()
		all.Wait()
		if s.held.Load() != 0 {
			t.Errorf("%d are held still", s.held.Load())
		}
	})
}

func TestTheLogOfStrangersIsSampledByCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		j := journal{to: zerolog.New(&text)}
		for range 1000 {
			j.stranger(zerolog.InfoLevel, "401").Msg("call")
		}
		j.stranger(zerolog.InfoLevel, "404").Msg("call")
		if got := strings.Count(text.String(), "\n"); got != strangerLines+1 {
			t.Errorf("%d lines", got)
		}
		text.Reset()
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		for range 2 {
			j.stranger(zerolog.InfoLevel, "401").Msg("call")
		}
		if got := text.String(); strings.Count(got, "\n") != 2 || strings.Count(got, `"left_out":995`) != 1 {
			t.Error(got)
		}
		for n := range 3 * maxCauses {
			j.stranger(zerolog.InfoLevel, strings.Repeat("x", n)).Msg("call")
		}
		if len(j.mu.causes) > maxCauses {
			t.Errorf("%d causes are kept", len(j.mu.causes))
		}
	})
}

func TestThrottlesChargeWhatACallCosts(t *testing.T) {
	t.Parallel()
	slow := newThrottle(admission.Limit{Tokens: 1, Per: time.Hour, Burst: 10})
	for _, step := range []struct {
		cost admission.Tokens
		ok   bool
	}{{6, true}, {6, false}, {4, true}, {1, false}} {
		if _, ok := slow.take("evil", step.cost); ok != step.ok {
			t.Errorf("%d: %v", step.cost, ok)
		}
	}
	if _, ok := slow.take("victim", 1000); !ok {
		t.Error("what costs more than a burst is never let in")
	}
}

// TestHealthIsToldToEverybodyAndSlowlyToWhoAsksTooOften.
func TestHealthIsToldToEverybodyAndSlowlyToWhoAsksTooOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{config: Config{}.withDefaults()}
		s.bound()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/health/live", nil)
		began := time.Now()
		for range lookBurst {
			if err := s.meterStranger(r, route.Route{}); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the first took %s", took)
		}
		if err := s.meterStranger(r, route.Route{}); err != nil || time.Since(began) < holdFor/2 {
			t.Errorf("one more: %v after %s", err, time.Since(began))
		}
	})
}

// TestWhatABucketLacksIsOwed: who was given more than the bucket held waits until it has held that, and a token more. However often
// that happens, no more is given than the rate and a burst.
func TestWhatABucketLacksIsOwed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		y := newThrottle(admission.PerSecond(10))
		y.take("acme", 1)
		y.owe("acme", 20)
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		if wait, ok := y.take("acme", 1); ok || wait != 200*time.Millisecond {
			t.Errorf("let in, or told to wait for %s", wait)
		}
		if _, ok := y.take("globex", 1); !ok {
			t.Error("another is kept waiting")
		}
		time.Sleep(200 * time.Millisecond) //nolint:forbidigo // in a bubble
		if _, ok := y.take("acme", 1); !ok {
			t.Error("kept waiting for longer")
		}
		began, given := time.Now(), 0
		for time.Since(began) < 100*time.Second {
			if wait, ok := y.take("globex", 1); !ok {
				time.Sleep(wait) //nolint:forbidigo // in a bubble
				continue
			}
			y.owe("globex", 19)
			given += 20
		}
		if given > 10*100+10+20 {
			t.Errorf("%d tokens were given in 100 s at 10 a second", given)
		}
	})
}
