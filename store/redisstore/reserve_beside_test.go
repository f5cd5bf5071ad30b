package redisstore_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// besideLimit is a limit to which one token comes in a second.
var besideLimit = admission.PerSecond(1).WithBurst(100)

// acmeFor asks for tokens of a tenant, and userFor of a user, of which one a partition has room.
func acmeFor(cost admission.Tokens) store.Question {
	none := admission.Limit{Disabled: true}
	return store.Question{Tenant: "acme", Cost: cost, Limits: [admission.Levels]admission.Limit{none, besideLimit.WithBurst(1000), none, none}}
}

func userFor(key string, cost admission.Tokens) store.Question {
	none := admission.Limit{Disabled: true}
	return store.Question{Tenant: "+user", Queue: key, Cost: cost, MaxKeys: 1, Limits: [admission.Levels]admission.Limit{none, besideLimit, besideLimit, none}}
}

// TestACostIsCorrectedWhereItWasTaken: in the bucket that values share, also where one has room for its own by then; and one that had its own, and finds no room for
// that, gets nothing back: it was full. In Redis and in memory.
func TestACostIsCorrectedWhereItWasTaken(t *testing.T) {
	t.Parallel()
	inRedis, inMemory, pass := both(t)
	for _, s := range []store.Partition{inRedis, inMemory} {
		t.Run(fmt.Sprintf("%T", s), func(t *testing.T) { //nolint:paralleltest // They have one time.
			take := func(key string, cost admission.Tokens) store.Taken {
				t.Helper()
				verdict, receipt, err := s.Take(t.Context(), 0, acmeFor(cost), userFor(key, cost))
				check(t, err)
				if verdict.Decision != admission.Admitted || len(receipt.Beside) != 1 {
					t.Fatalf("%+v, %+v", verdict, receipt)
				}
				return receipt
			}
			lacks := func(what, key string, shared bool, want admission.Tokens) {
				t.Helper()
				_, answers, err := s.Check(t.Context(), 0, true, []store.Question{userFor(key, 1)})
				check(t, err)
				left := answers[0].Left[admission.LevelQueue] + answers[0].Left[admission.LevelTenant]
				if got := 100 - (left + admission.MicroPerToken/2).Tokens(); answers[0].Shared != shared || got != want {
					t.Errorf("%s: shared %t, %d are missing; want %t, %d", what, answers[0].Shared, got, shared, want)
				}
			}
			commit := func(id string, receipt store.Taken, actual admission.Tokens) {
				t.Helper()
				done, err := s.Commit(t.Context(), id, receipt, actual)
				check(t, err)
				if done != store.Refunded {
					t.Errorf("commit %s: %s", id, done)
				}
			}
			first := take("a", 10)
			shared := take("b", 50)
			lacks("no room", "b", true, 50)
			pass(30 * time.Second) // a is full.
			own := take("b", 20)
			lacks("b has its own", "b", false, 20)
			commit("less", shared, 5) // 50 − 30 of the shared one are missing.
			lacks("what was taken of the shared one is given back there", "b", false, 20)
			lacks("the shared one", "c", true, 0)
			commit("own", own, 90)
			lacks("more is taken of its own", "b", false, 90)
			again := take("c", 40)
			commit("late", first, 0) // a has no room now: what the shared one lacks stays.
			lacks("the shared one keeps what others took", "c", true, 40)
			commit("again", again, 45)
			lacks("more of the shared one", "c", true, 45)
			pass(10 * time.Minute)
		})
	}
}

// TestAReservationIsOfItsDimensionsToo: under an id the same is taken once, of all ways or of none, and what the id has taken is settled by the id alone; with other
// dimensions it is another. On one partition and on three.
func TestAReservationIsOfItsDimensionsToo(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		t.Run(strconv.Itoa(partitions), func(t *testing.T) {
			t.Parallel()
			s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: partitions})
			check(t, err)
			question := acmeFor(20)
			var beside []store.Question
			slow := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 100}
			question.Limits[admission.LevelTenant] = slow
			for n := range 4 { // Of whichever partitions.
				q := userFor(fmt.Sprint("u", n), 20)
				q.Tenant, q.MaxKeys = fmt.Sprint("+d", n), 1000
				q.Limits[admission.LevelTenant], q.Limits[admission.LevelQueue] = slow, slow
				beside = append(beside, q)
			}
			drained := admission.Scope("")
			missing := func(what string, want admission.Tokens) {
				t.Helper()
				for _, q := range append([]store.Question{question}, beside...) {
					if q.Scope() == drained {
						continue
					}
					_, answers, err := s.Check(t.Context(), 0, true, []store.Question{q})
					check(t, err)
					left := answers[0].Left[admission.LevelQueue] + answers[0].Left[admission.LevelTenant]
					if got := 100 - (left + admission.MicroPerToken/2).Tokens(); got != want {
						t.Errorf("%s: %s lacks %d, want %d", what, q.Scope(), got, want)
					}
				}
			}
			answer, first, err := s.Reserve(t.Context(), 0, "call", 0, question, beside...)
			check(t, err)
			if answer.Verdict.Decision != admission.Admitted || first.Again || len(first.Taken.Beside) != 4 || len(first.Beside) != 4 {
				t.Fatalf("%+v, %+v", answer, first)
			}
			for i := range first.Beside {
				if left := first.Beside[i].Left[admission.LevelQueue].Tokens(); left != 80 {
					t.Errorf("the answer says that %s has %d left", beside[i].Scope(), left)
				}
			}
			missing("reserved", 20)
			_, again, err := s.Reserve(t.Context(), 0, "call", 0, question, beside...)
			check(t, err)
			if !again.Again || again.Ref != first.Ref || len(again.Taken.Beside) != 4 {
				t.Errorf("%+v", again)
			}
			missing("reserved again", 20)
			for name, other := range map[string][]store.Question{"fewer": beside[:3], "none": nil, "others": {beside[0], beside[1], beside[2], userFor("x", 20)}} {
				if _, _, err := s.Reserve(t.Context(), 0, "call", 0, question, other...); !errors.Is(err, store.ErrReservationOther) {
					t.Errorf("%s: %v", name, err)
				}
			}
			missing("the id is another's", 20)
			kept, err := s.Reserved(t.Context(), "acme", "call")
			check(t, err)
			if len(kept.Taken.Beside) != 4 {
				t.Fatalf("%+v", kept)
			}
			settle := func(actual admission.Tokens, part bool) store.Refund {
				t.Helper()
				taken := kept.Taken
				taken.Question.Limits = question.Limits
				for i := range taken.Beside {
					taken.Beside[i].Question.Limits, taken.Beside[i].Question.MaxKeys = beside[0].Limits, 1000
				}
				tell := s.Commit
				if part {
					tell = s.CommitPart
				}
				done, err := tell(t.Context(), kept.Ref, taken, actual)
				check(t, err)
				return done
			}
			if done := settle(25, true); done != store.Refunded {
				t.Error(done)
			}
			missing("a part", 25)
			if done := settle(30, false); done != store.Refunded {
				t.Error(done)
			}
			if done := settle(5, false); done != store.RefundedBefore {
				t.Error(done)
			}
			missing("committed", 30)
			dear := append([]store.Question(nil), beside...)
			full := question
			full.Cost = 60
			for i := range dear {
				dear[i].Cost = 60
			}
			drained = beside[2].Scope()
			_, _, err = s.Check(t.Context(), 0, false, beside[2:3])
			check(t, err)
			answer, refused, err := s.Reserve(t.Context(), 0, "dear", 0, full, dear...)
			check(t, err)
			if refused.Ref != "" || len(refused.Beside) != 4 || answer.Verdict.Decision != admission.Admitted {
				t.Fatalf("%+v, %+v", answer, refused)
			}
			for i := range refused.Beside {
				if got := refused.Beside[i].Verdict; (got.Decision == admission.Admitted) != (i != 2) || i == 2 && (got.Scope != dear[2].Scope() || got.RetryAfter <= 0) {
					t.Errorf("%s: %+v", dear[i].Scope(), got)
				}
			}
			missing("refused", 30)
			if _, err := s.Reserved(t.Context(), "acme", "dear"); !errors.Is(err, store.ErrNoReservation) {
				t.Errorf("a refusal is kept: %v", err)
			}
		})
	}
}
