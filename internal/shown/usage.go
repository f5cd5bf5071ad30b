package shown

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// UsagePage is how many lines of usage a page has where nobody says how many.
const UsagePage = 1000

// day is how long a day takes, in UTC.
const day = 24 * time.Hour

// Usage is what one tenant used in one queue in a day.
type Usage struct {
	// Day is as in 2026-11-24, in UTC.
	Day string `json:"day"`
	// Queue is store.UsageRest for the tenant's other queues, and both are of other tenants.
	Tenant string `json:"tenant"`
	Queue  string `json:"queue"`
	Jobs   int64  `json:"jobs"`
	Calls  int64  `json:"calls"`
	// Tokens.
	Reserved  admission.Tokens `json:"reserved"`
	Committed admission.Tokens `json:"committed"`
	Refunded  admission.Tokens `json:"refunded"`
	Added     admission.Tokens `json:"added"`
}

// Usages are a page of usage, by day, tenant and queue.
type Usages struct {
	Usage []Usage `json:"usage"`
	// Cursor is that of the next page, empty at the end.
	Cursor string `json:"cursor"`
}

// UsageQuery says which usage. The zero UsageQuery is all that is kept.
type UsageQuery struct {
	Tenant, Queue string
	// From and To are the first day and the last; zero is the first that is kept, and the one under way.
	From, To time.Time
	// Cursor is that of the page before, and Limit how many lines one has; zero is UsagePage.
	Cursor string
	Limit  int
}

// ParseDay reads a day as in 2026-11-24.
func ParseDay(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return at, &admission.FieldError{Field: field, Value: strconv.Quote(text), Allowed: "a day (UTC) as in 2026-11-24"}
	}
	return at, nil
}

// usageCursor is after which line a page begins.
func usageCursor(text string) (after store.DayUsage, err error) {
	if text == "" {
		return after, nil
	}
	parts := strings.Split(text, ":")
	if len(parts) == 3 {
		if after.Day, err = time.Parse(time.DateOnly, parts[0]); err == nil {
			after.Tenant, after.Queue = parts[1], parts[2]
			return after, nil
		}
	}
	return after, &admission.FieldError{Field: "cursor", Value: strconv.Quote(text), Allowed: "that of the page before"}
}

func (q *UsageQuery) validate() error {
	for _, name := range []struct{ field, value string }{{"tenant", q.Tenant}, {"queue", q.Queue}} {
		if name.value == "" || name.value == store.UsageRest {
			continue
		}
		if err := admission.ValidateName(name.field, name.value, true); err != nil {
			return err
		}
	}
	if !q.From.IsZero() && !q.To.IsZero() && q.To.Before(q.From) {
		return &admission.FieldError{Field: "to", Value: q.To.Format(time.DateOnly), Allowed: "a day not before from, " + q.From.Format(time.DateOnly)}
	}
	return nil
}

// EachUsage yields usage by day, tenant and queue, a day at a time as the loop goes on. An error ends it.
func EachUsage(ctx context.Context, s store.Deployment, q UsageQuery) iter.Seq2[store.DayUsage, error] {
	return func(yield func(store.DayUsage, error) bool) {
		after, err := usageCursor(q.Cursor)
		if err == nil {
			err = q.validate()
		}
		var now time.Time
		if err == nil {
			now, err = s.Time(ctx)
		}
		if err != nil {
			yield(store.DayUsage{}, err)
			return
		}
		today := now.UTC().Truncate(day)
		first, last := today.Add(-store.UsageDays*day), today
		for _, from := range []time.Time{q.From, after.Day} {
			if from.After(first) {
				first = from.UTC().Truncate(day)
			}
		}
		if !q.To.IsZero() && q.To.Before(last) {
			last = q.To
		}
		for at := first; !at.After(last); at = at.Add(day) {
			all, err := s.Usage(ctx, store.UsageQuery{Day: at, Tenant: q.Tenant, Queue: q.Queue})
			if err != nil {
				yield(store.DayUsage{}, fmt.Errorf("read usage of %s: %w", at.Format(time.DateOnly), err))
				return
			}
			for i := range all {
				if store.CompareUsage(&all[i], &after) > 0 && !yield(all[i], nil) {
					return
				}
			}
		}
	}
}

// ReadUsage returns a page of usage.
func ReadUsage(ctx context.Context, s store.Deployment, q UsageQuery) (Usages, error) {
	page := Usages{Usage: []Usage{}}
	for u, err := range EachUsage(ctx, s, q) {
		if err != nil {
			return page, err
		}
		if len(page.Usage) == cmp.Or(q.Limit, UsagePage) {
			last := &page.Usage[len(page.Usage)-1]
			page.Cursor = last.Day + ":" + last.Tenant + ":" + last.Queue
			break
		}
		page.Usage = append(page.Usage, UsageOf(&u))
	}
	return page, nil
}

// UsageOf shows usage.
func UsageOf(u *store.DayUsage) Usage {
	return Usage{
		Day: u.Day.Format(time.DateOnly), Tenant: u.Tenant, Queue: u.Queue, Jobs: u.Jobs, Calls: u.Calls,
		Reserved: u.Reserved, Committed: u.Committed(), Refunded: u.Refunded, Added: u.Added,
	}
}

// WriteUsage writes usage as CSV (RFC 4180), with a line of names first.
func WriteUsage(to io.Writer, all []Usage) error {
	w := csv.NewWriter(to)
	rows := [][]string{{"day", "tenant", "queue", "jobs", "calls", "reserved", "committed", "refunded", "added"}}
	for i := range all {
		u := &all[i]
		row := []string{u.Day, u.Tenant, u.Queue}
		for _, n := range []int64{u.Jobs, u.Calls, int64(u.Reserved), int64(u.Committed), int64(u.Refunded), int64(u.Added)} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		rows = append(rows, row)
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	return nil
}
