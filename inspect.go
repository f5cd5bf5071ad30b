package headgate

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// Inspection looks at jobs. It changes nothing.
type Inspection struct{ client *Client }

// Inspect returns what looks at jobs.
func (c *Client) Inspect() Inspection { return Inspection{c} }

// The places of a job, for Filter and Listed, beside PlaceReady, PlaceWaiting, PlaceLater and PlaceSpilled.
const (
	PlaceRunning = store.PlaceRunning
	PlaceDead    = store.PlaceDead
)

// Filter says which jobs. The zero Filter is all that live.
type Filter struct {
	Tenant, Queue, Type string
	// Place is one of the places; empty is all but the dead letters.
	Place Place
	// Reason, of dead letters, is why they died, as in "max_attempts", and Error a part of what their last run said, as in "451"; Before leaves
	// out those that died at that time or later.
	Reason, Error string
	Before        time.Time
}

// Listed is a job of a listing.
type Listed struct {
	Key         Key
	Place       Place
	Queue, Type string
	Priority    Priority
	Attempt     int
	// At is when it is due (later), died (dead), or by when its lane orders it (waiting).
	At time.Time
	// Reason and Error say why it is dead.
	Reason, Error string
}

// Jobs lists jobs, a page at a time as the loop goes on. A job that stays in its place meanwhile is listed; one that moves may be listed
// twice, or not at all. An error ends it.
func (i Inspection) Jobs(ctx context.Context, f Filter) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		q := store.ListQuery{Place: f.Place, Queue: f.Queue, Tenant: f.Tenant, Type: f.Type, Reason: f.Reason, Before: f.Before}
		for {
			page, err := i.client.store.List(ctx, q)
			if err != nil {
				yield(Listed{}, err)
				return
			}
			for _, row := range page.Jobs {
				j := &row.Record.Job
				one := Listed{
					Key: row.Key, Place: row.Place, Queue: j.Queue, Type: j.Type, Priority: j.Priority, Attempt: row.Record.Attempts,
					At: row.At, Reason: row.Reason, Error: row.Text,
				}
				if row.Err == nil && !strings.Contains(one.Error, f.Error) {
					continue
				}
				if !yield(one, row.Err) {
					return
				}
			}
			if q.Cursor = page.Cursor; q.Cursor == "" {
				return
			}
		}
	}
}

// Explain says where a job is and why it waits. ErrUnknownJob means that nobody knows it.
func (i Inspection) Explain(ctx context.Context, key Key) (Explanation, error) {
	return explanationOf(explain.New(ctx, i.client.store, explain.Job, key.String(), shown.Everything))
}

// ExplainTenant says what bounds a tenant and holds it back.
func (i Inspection) ExplainTenant(ctx context.Context, tenant string) (Explanation, error) {
	return explanationOf(explain.New(ctx, i.client.store, explain.Tenant, tenant, shown.Everything))
}

// ExplainQueue says what holds a queue back: pauses, caps, pressure, who works on it. store.ErrUnknownQueue means that nobody has used it.
func (i Inspection) ExplainQueue(ctx context.Context, queue string) (Explanation, error) {
	return explanationOf(explain.New(ctx, i.client.store, explain.Queue, queue, shown.Everything))
}

// ExplainScope says which rules bound a scope, such as "acme:mail:high", and whether one refuses now.
func (i Inspection) ExplainScope(ctx context.Context, scope Scope) (Explanation, error) {
	return explanationOf(explain.New(ctx, i.client.store, explain.Scope, string(scope), shown.Everything))
}

// ExplainDownstream says what holds back the jobs that name a downstream: its breaker, cap and rate, and who opened or paused it.
func (i Inspection) ExplainDownstream(ctx context.Context, downstream string) (Explanation, error) {
	return explanationOf(explain.New(ctx, i.client.store, explain.Downstream, downstream, shown.Everything))
}

// UsageFilter says which usage. The zero UsageFilter is all that is kept.
type UsageFilter struct {
	Tenant, Queue string
	// From and To are the first day and the last, any time of it, in UTC; zero is the first that is kept, and the one under way.
	From, To time.Time
}

// Usage is what one tenant used in one queue in a day.
type Usage struct {
	// Day is when it began, at midnight UTC.
	Day time.Time
	// Queue is "*" for those of the tenant's queues that are not counted each by itself, and both are for tenants that are not.
	Tenant, Queue string
	// Jobs are those that entered, redriven ones again; Calls are reservations without a job.
	Jobs, Calls int64
	// Reserved is what they reserved, Committed what they cost: what was told, and what was reserved where nothing was told, or not yet.
	// Refunded is what they turned out not to have needed, and Added what they have cost beyond what they reserved.
	Reserved, Committed, Refunded, Added Tokens
}

// Usage tells what was used by day, tenant and queue, in that order, a day at a time as the loop goes on: for 35 days and the one under way,
// where the policy has usage kept (Usage of package policy's Policy). What a job used counts on the day on which it entered. An error ends it.
func (i Inspection) Usage(ctx context.Context, f UsageFilter) iter.Seq2[Usage, error] {
	return func(yield func(Usage, error) bool) {
		q := shown.UsageQuery{Tenant: f.Tenant, Queue: f.Queue, From: f.From, To: f.To}
		for u, err := range shown.EachUsage(ctx, i.client.store, q) {
			one := Usage{
				Day: u.Day, Tenant: u.Tenant, Queue: u.Queue, Jobs: u.Jobs, Calls: u.Calls,
				Reserved: u.Reserved, Committed: u.Committed(), Refunded: u.Refunded, Added: u.Added,
			}
			if !yield(one, err) {
				return
			}
		}
	}
}
