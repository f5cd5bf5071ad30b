package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/store"
)

type minuteView struct {
	At      *time.Time       `json:"at"`
	Allowed int64            `json:"allowed"`
	Refused int64            `json:"refused"`
	Tokens  admission.Tokens `json:"tokens"`
	// Partial says that the scope was counted for a part of the minute only.
	Partial bool `json:"partial"`
}

type countsView struct {
	At      *time.Time      `json:"timestamp"`
	Scope   admission.Scope `json:"scope"`
	Metrics figuresView     `json:"metrics"`
	// Classes are of a tenant in a queue.
	Classes map[admission.Priority]classView `json:"priority_breakdown,omitempty"`
	Allowed int64                            `json:"allowed"`
	Refused int64                            `json:"refused"`
	Minutes []minuteView                     `json:"minutes"`
}

// usage shows what tenants used by day and queue. As CSV the cursor of the next page is in a header.
func (a *API) usage(r *route.Request) (*route.Answer, error) {
	query := r.URL.Query()
	tenant, err := r.Bind(query.Get("tenant"))
	if err != nil {
		return nil, err
	}
	from, first := shown.ParseDay("from", query.Get("from"))
	to, last := shown.ParseDay("to", query.Get("to"))
	limit, number := strconv.Atoi(cmp.Or(query.Get("limit"), strconv.Itoa(shown.UsagePage)))
	if err := errors.Join(first, last, number); err != nil {
		return nil, err
	}
	page, err := shown.ReadUsage(r.Context(), a.config.Store, shown.UsageQuery{
		Tenant: tenant, Queue: query.Get("queue"), From: from, To: to, Cursor: query.Get("cursor"), Limit: limit,
	})
	if err != nil || query.Get("format") != "csv" {
		return route.OK(page), err
	}
	return &route.Answer{Raw: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
		if page.Cursor != "" {
			w.Header().Set("Headgate-Cursor", page.Cursor)
		}
		_ = shown.WriteUsage(w, page.Usage) // An error is that whoever asked is gone.
	})}, nil
}

// wayOf is the way of a question.
func wayOf(q *store.Question) tally.Path {
	return tally.Path{Tenant: q.Tenant, Queue: q.Queue, Class: q.Class}
}

// note counts the questions of a call, all of them allowed or all refused. A peek asks for no tokens.
func (a *API) note(made *decision) {
	a.tally.Note(func(add func(tally.Path, tally.Sum)) {
		for i := range made.questions {
			one := tally.Sum{Refused: 1}
			if made.view.Allowed {
				one = tally.Sum{Allowed: 1}
			}
			if !made.peek {
				one.Tokens = made.questions[i].Cost
			}
			add(wayOf(&made.questions[i]), one)
		}
		made.beside.note(made, add)
	})
}

// Refusal is a decision that was refused, for the log.
type Refusal struct {
	Scope, By admission.Scope
	Reason    admission.Reason
	Tokens    admission.Tokens
	Wait      time.Duration
	// Count is how many there were for the reason since the last that was told, this one included.
	Count int64
}

// tell tells of a refusal if one of its reason is due.
func (a *API) tell(made *decision) {
	for i := range made.answers {
		v := &made.answers[i].Verdict
		if v.Decision == admission.Admitted {
			continue
		}
		if count, due := a.refusals.Count(v.Reason, time.Now()); due {
			answer := &made.view.Answers[i]
			a.config.Refused(Refusal{answer.Scope, v.Scope, v.Reason, answer.Tokens, v.RetryAfter, count})
		}
		return // A call counts once: what its other questions are told follows from this one.
	}
	made.beside.tell(a, made)
}

// try asks a candidate in shadow about the questions of a call, as producers do about jobs. What does not reach Redis is
// not counted, and nothing else. A peek takes no tokens under any limits.
func (a *API) try(ctx context.Context, made *decision) {
	if made.peek || made.view.Source == sourceBlind || made.policy == nil || made.policy.ShadowID() == "" {
		return
	}
	var questions []store.Question
	for i := range made.questions {
		q, verdict := made.questions[i], &made.answers[i].Verdict
		limits, in := made.policy.ShadowFor(q.Tenant, q.Queue, q.Class)
		limited := verdict.Reason == admission.ReasonLimited || verdict.Reason == admission.ReasonTooCostly
		if in && q.Tenant != "" && (limited || verdict.Decision == admission.Admitted) {
			q.Limits = downTo(wayOf(&q).Level(), limits)
			questions = append(questions, q)
		}
	}
	if len(questions) == 0 {
		return
	}
	if err := a.config.Store.Shadow(ctx, made.policy.Version(), made.policy.ShadowID(), questions); err != nil {
		a.config.Missed("a candidate in shadow was not asked", err)
	}
}
