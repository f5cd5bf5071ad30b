package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

type reserveBody struct {
	question

	Reservation string   `json:"reservation"`
	Metadata    metadata `json:"metadata"`
}

type reservationView struct {
	Reservation string           `json:"reservation"`
	Scope       admission.Scope  `json:"scope"`
	Tokens      admission.Tokens `json:"tokens"`
	Again       bool             `json:"again"`
	Buckets     []bucketView     `json:"buckets"`
	// ExpireAfter is in milliseconds, zero for a minute.
	ExpireAfter int64 `json:"expire_after_ms,omitempty"`
}

// reserve takes tokens for work whose cost is not known yet, as many as such work has cost of late where the caller does not say. What is asked for again under the same id is answered as it was, and counted
// nowhere.
func (a *API) reserve(r *route.Request) (*route.Answer, error) {
	var ask reserveBody
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	asked, err := ask.withPriority()
	if err != nil {
		return nil, err
	}
	if err := bindScope(r, asked.Scope); err != nil {
		return nil, err
	}
	if len(asked.Also) > 0 && r.Who.Tenant != "" {
		return nil, alsoOfAll(len(asked.Also))
	}
	r.Note(ask.Metadata.RequestID, ask.Metadata.UserAgent)
	id, began := cmp.Or(ask.Reservation, rand.Text()), time.Now()
	made, taken, err := a.decideReserved(r, id, asked)
	if err != nil {
		return nil, err
	}
	if !taken.Again {
		a.counted(r.Context(), &made, time.Since(began))
	}
	made.view.Scope = ask.Scope
	answer := a.answered(&made)
	if made.view.Allowed {
		first := made.view.Answers[0]
		view := reservationView{id, ask.Scope, first.Tokens, taken.Again, first.Buckets, 0}
		if expiry := taken.Taken.Expiry(); expiry != store.RefundWindow {
			view.ExpireAfter = expiry.Milliseconds()
		}
		answer.Value = view
	}
	return answer, nil
}

func (a *API) decideReserved(r *route.Request, id string, asked question) (made decision, taken store.Reservation, err error) {
	outermost := admission.LevelGlobal
	if r.Who.Tenant != "" { // As in decide.
		outermost = admission.LevelTenant
	}
	err = a.limits.with(r.Context(), func(snapshot *policy.Compiled) error {
		q, err := questionOf(snapshot, asked)
		if err != nil {
			return err
		}
		beside, err := besideFor(snapshot, []question{asked})
		if err != nil {
			return err
		}
		if asked.Tokens == 0 && a.costs != nil {
			least := (*policy.Limits)(&q.Limits).LeastBurst(len(a.config.Store.Partitions()))
			q.Estimated, q.Cost = true, a.costs.Guess(q.Tenant, q.Queue, "", store.LeastBurst(least, beside.questions))
		}
		for i := range beside.questions {
			beside.questions[i].Cost = q.Cost
		}
		if q.Tenant != "" {
			q.Usage = snapshot.UsageTenants()
		}
		answer, got, err := a.config.Store.Reserve(r.Context(), snapshot.Version(), id, snapshot.ExpireAfter(q.Queue), q, beside.questions...)
		if err != nil {
			return err
		}
		beside.answers = got.Beside
		if got.Again {
			q.Cost = got.Taken.Question.Cost
		}
		granted := got.Ref != ""
		taken, made = got, decision{
			view:   decisionView{Allowed: granted, Consumed: granted, Source: sourceExact},
			policy: snapshot, questions: []store.Question{q}, answers: []store.Answer{answer}, beside: beside,
		}
		made.show([]question{asked}, outermost)
		return nil
	})
	return made, taken, err
}

// besideNow returns what was taken of dimensions with the limits in force, without those of dimensions that are no more.
func besideNow(snapshot *policy.Compiled, taken []store.Taken) (now []store.Taken) {
	for _, way := range taken {
		q := &way.Question
		if limits, maxKeys, declared := snapshot.DimensionLimits(q.Tenant, q.Queue); declared {
			q.Limits, q.MaxKeys, q.Record = limits, maxKeys, snapshot.RecordVersion(q.Tenant)
			now = append(now, way)
		}
	}
	return now
}

type settleBody struct {
	Scope       admission.Scope  `json:"scope"`
	Reservation string           `json:"reservation"`
	Tokens      admission.Tokens `json:"tokens"`
	Metadata    metadata         `json:"metadata"`
}

type commitBody struct {
	settleBody

	Final *bool `json:"final"`
}

type settledView struct {
	Reservation string           `json:"reservation"`
	Reserved    admission.Tokens `json:"reserved"`
	Tokens      admission.Tokens `json:"tokens"`
	Result      string           `json:"result"`
}

// What became of a commit, by what the store says.
var settleResults = map[store.Refund]string{
	store.Refunded: "committed", store.RefundedBefore: "committed_before", store.RefundLate: "too_late", store.RefundStale: "policy_changed",
}

// commit tells what reserved work has cost, or has used so far.
func (a *API) commit(r *route.Request) (*route.Answer, error) {
	var ask commitBody
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	final := ask.Final == nil || *ask.Final
	return a.settle(r, &ask.settleBody, final, final)
}

// cancelReservation tells that reserved work did not begin.
func (a *API) cancelReservation(r *route.Request) (*route.Answer, error) {
	var ask settleBody
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	ask.Tokens = 0
	return a.settle(r, &ask, true, false)
}

// settle tells the store; final says that it is the whole, and learns that its cost is one to learn from.
func (a *API) settle(r *route.Request, ask *settleBody, final, learns bool) (*route.Answer, error) {
	tenant, _, _, err := ask.Scope.Parts()
	if err := errors.Join(err, store.ValidateReservation(ask.Reservation), admission.ValidateActualCost(ask.Tokens)); err != nil {
		return nil, err
	}
	if err := bindScope(r, ask.Scope); err != nil {
		return nil, err
	}
	r.Note(ask.Metadata.RequestID, ask.Metadata.UserAgent)
	kept, err := a.config.Store.Reserved(r.Context(), tenant, ask.Reservation)
	if err != nil {
		return nil, err
	}
	done, err := a.committed(r.Context(), kept, ask.Tokens, final)
	if err != nil {
		return nil, err
	}
	if learns && a.costs != nil && done != store.RefundedBefore {
		a.costs.Learn(kept.Taken.Question.Tenant, kept.Taken.Question.Queue, "", ask.Tokens)
	}
	return route.OK(settledView{ask.Reservation, kept.Taken.Question.Cost, ask.Tokens, settleResults[done]}), nil
}

// committed settles a reservation, or tells a part of it, final or not. After a change of the policy what lacks is taken from the limits in force; where less was used the
// reservation stands, and is settled as it was, so that nothing that is told later counts.
func (a *API) committed(ctx context.Context, kept store.Reservation, actual admission.Tokens, final bool) (done store.Refund, err error) {
	tell := a.config.Store.Commit
	if !final {
		tell = a.config.Store.CommitPart
	}
	taken := kept.Taken
	version, of := taken.Version, taken.Question
	err = a.limits.with(ctx, func(snapshot *policy.Compiled) error {
		if taken.Question, err = questionOf(snapshot, question{Scope: of.Scope(), Tokens: of.Cost}); err != nil {
			return err
		}
		if kept.Counted {
			taken.Question.Usage = snapshot.UsageTenants()
		}
		taken.Version, taken.Beside = snapshot.Version(), besideNow(snapshot, kept.Taken.Beside)
		counts, changed := actual, final && taken.Version != version
		if changed {
			counts = max(actual, of.Cost)
		}
		if done, err = tell(ctx, kept.Ref, taken, counts); err == nil && done == store.RefundStale {
			return store.ErrStale
		}
		if err == nil && changed && counts != actual && done == store.Refunded {
			done = store.RefundStale
		}
		return err
	})
	return done, err
}
