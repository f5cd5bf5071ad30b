package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestMovedLimitsOfAdmission: a part of the limits that name a queue, or of the global one, is in force from the next check on, in each
// partition; whatever else scales them, the lesser part is; another scheduler does nothing, an override holds for a time, an edit brings it between
// its bounds, and one without it brings back all.
func TestMovedLimitsOfAdmission(t *testing.T) {
	t.Parallel()
	for _, parts := range []int{1, 3} {
		t.Run(strconv.Itoa(parts), func(t *testing.T) {
			t.Parallel()
			movedLimits(t, newAdaptiveBench(t, redistest.Shared(t).Client(t), parts))
		})
	}
}

func movedLimits(t *testing.T, b *adaptiveBench) {
	t.Helper()
	mail := store.QueueLimitsGate("mail")
	moving := func(gate store.GateName, least, most int) store.Cap {
		return store.Cap{Gate: gate, Limit: store.PartWhole, Least: least, Most: most, Loop: "let-in"}
	}
	asked := 0
	// passes fails unless in each partition a new tenant's check of so many of 20 tokens passes, and one of one more does not.
	passes := func(what, queue string, level admission.Level, want admission.Tokens) {
		t.Helper()
		for i, part := range b.store.Partitions() {
			for cost, admitted := range map[admission.Tokens]bool{want: true, min(want+1, 20): want == 20} {
				asked++
				q := ofTenant(fmt.Sprint("t", asked), cost)
				q.Queue = queue
				q.Limits[admission.LevelTenant].Disabled = true
				q.Limits[level] = admission.Limit{Tokens: 1, Per: time.Hour, Burst: 20}
				if level == admission.LevelGlobal { // Which the partitions divide.
					q.Limits[level].Burst *= admission.Tokens(len(b.store.Partitions()))
				}
				_, answers, err := part.Check(t.Context(), b.version, true, []store.Question{q})
				check(t, err)
				if v := answers[0].Verdict; (v.Decision == admission.Admitted) != admitted || v.RetryAfter > 24*time.Hour {
					t.Errorf("%s, partition %d, %d tokens: %+v", what, i, cost, v)
				}
			}
		}
	}
	move := func(owner string, gate store.GateName, limit int) error {
		_, err := b.store.Adapt(t.Context(), store.Adapt{Owner: owner, Version: b.version, Gate: gate, Limit: limit, Cause: "above_target"})
		return err
	}
	b.put(moving(mail, 100, 1000), moving(store.GlobalLimitGate, 50, 900))
	passes("at first", "mail", admission.LevelQueue, 20)
	passes("not above max", "", admission.LevelGlobal, 18)
	check(t, move("one", mail, 500))
	passes("half", "mail", admission.LevelQueue, 10)
	passes("another queue", "hook", admission.LevelQueue, 20)
	if err := move("two", mail, 900); err == nil {
		t.Error("who does not hold the lease moves it")
	}
	check(t, move("one", mail, 1))
	passes("not below min", "mail", admission.LevelQueue, 2)
	check(t, move("one", mail, 500))
	_, err := b.store.ScaleLimits(t.Context(), store.ScaleAll, 0.25, time.Hour, store.Intervention{Author: "ada"})
	check(t, err)
	passes("an operator leaves less", "mail", admission.LevelQueue, 5)
	check(t, move("one", mail, 100))
	passes("the loop leaves less", "mail", admission.LevelQueue, 2)
	scales, err := b.store.Scales(t.Context())
	check(t, err)
	if len(scales) != 1 || scales[0].Target != store.ScaleAll {
		t.Errorf("an operator is shown %+v", scales)
	}
	_, err = b.store.ScaleLimits(t.Context(), store.ScaleAll, 0, 0, store.Intervention{Author: "ada"})
	check(t, err)
	passes("when the operator has ended that", "mail", admission.LevelQueue, 2)
	_, err = b.store.Override(t.Context(), mail, 750, time.Minute, store.Intervention{Author: "ada"})
	check(t, err)
	check(t, move("one", mail, 100))
	passes("overridden", "mail", admission.LevelQueue, 15)
	_, err = b.store.Override(t.Context(), mail, 0, 0, store.Intervention{Author: "ada"})
	check(t, err)
	passes("no more", "mail", admission.LevelQueue, 2)
	all, err := b.store.Adaptations(t.Context())
	check(t, err)
	if len(all) != 2 || all[0].Gate != store.GlobalLimitGate || all[1].Limit != 100 || all[1].Own != store.PartWhole || all[1].Uneven || all[1].Gate.Words() != "limits of queue mail" {
		t.Errorf("told as %+v", all)
	}
	_, err = b.store.Adapt(t.Context(), store.Adapt{Owner: "one", Version: b.version, Gate: mail, Limit: 300, Cause: "trigger deep", Life: time.Hour, Back: 100})
	check(t, err)
	passes("of a trigger", "mail", admission.LevelQueue, 6)
	_, err = b.store.Adapt(t.Context(), store.Adapt{Owner: "one", Version: b.version, Gate: mail, Limit: 300, Cause: "trigger deep", Life: time.Microsecond, Back: 100})
	check(t, err)
	passes("of one that nobody looks at any more", "mail", admission.LevelQueue, 20)
	_, err = b.store.Adapt(t.Context(), store.Adapt{Owner: "one", Version: b.version, Gate: mail, Limit: 100, Cause: "trigger_cleared"})
	check(t, err)
	passes("of none", "mail", admission.LevelQueue, 2)
	b.put(moving(mail, 400, 1000), moving(store.GlobalLimitGate, 50, 1000))
	passes("after a higher min", "mail", admission.LevelQueue, 8)
	b.before = nil // An edit by one who has to read what is there.
	b.put(moving(store.GlobalLimitGate, 50, 1000))
	passes("when nothing moves it", "mail", admission.LevelQueue, 20)
	b.put()
	passes("nor the global one", "", admission.LevelGlobal, 20)
	if n := b.promote().Adaptive; n != 0 {
		t.Errorf("a scheduler is told of version %d", n)
	}
}
