package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// all reads every page and returns the ids as often as they were listed, sorted. between runs after each page.
func (y *yard) all(q store.ListQuery, between func(page int)) []string {
	y.tb.Helper()
	ids := []string{}
	for page := range 10_000 {
		p, err := y.store.List(y.tb.Context(), q)
		check(y.tb, err)
		if len(p.Jobs) > q.Limit {
			y.tb.Fatalf("a page of %d jobs, limit %d", len(p.Jobs), q.Limit)
		}
		for _, j := range p.Jobs {
			ids = append(ids, j.Key.ID)
		}
		if q.Cursor = p.Cursor; p.Cursor == "" {
			slices.Sort(ids)
			return ids
		}
		if between != nil {
			between(page)
		}
	}
	y.tb.Fatal("the listing does not end")
	return nil
}

func TestListByPlace(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.kill("d1", "d2")
	y.admit(mail("acme", "running"), mail("bakery", "ready"))
	y.read(1)
	later, other := mail("acme", "later"), mail("acme", "other")
	later.Delay = time.Hour
	other.Queue, other.Type, other.Deadline = "report", "monthly", time.Now().Add(time.Hour)
	y.admit(later, other, mail("bakery", "waiting"))
	for _, row := range []struct {
		query store.ListQuery
		want  string
	}{
		{store.ListQuery{}, "d1 d2 later other ready running waiting"},
		{store.ListQuery{Place: store.PlaceDead}, "d1 d2"},
		{store.ListQuery{Place: store.PlaceDead, Queue: "mail", Reason: "discarded"}, "d1 d2"},
		{store.ListQuery{Place: store.PlaceDead, Queue: "report"}, ""},
		{store.ListQuery{Place: store.PlaceDead, Reason: "expired"}, ""},
		{store.ListQuery{Place: store.PlaceDead, Before: time.Now().Add(-time.Minute)}, ""},
		{store.ListQuery{Place: admission.PlaceLater}, "later"},
		{store.ListQuery{Place: store.PlaceRunning}, "running"},
		{store.ListQuery{Place: admission.PlaceReady}, "ready"},
		{store.ListQuery{Place: admission.PlaceWaiting}, "other waiting"},
		{store.ListQuery{Place: admission.PlaceWaiting, Queue: "mail"}, "waiting"},
		{store.ListQuery{Place: admission.PlaceWaiting, Tenant: "acme"}, "other"},
		{store.ListQuery{Tenant: "bakery"}, "ready waiting"},
		{store.ListQuery{Type: "monthly"}, "other"},
	} {
		row.query.Limit = 2
		if got := strings.Join(y.all(row.query, nil), " "); got != row.want {
			t.Errorf("%+v lists %s", row.query, got)
		}
	}
	page, err := y.store.List(t.Context(), store.ListQuery{})
	check(t, err)
	for _, j := range page.Jobs {
		want := admission.Place(j.Key.ID)
		switch j.Key.ID {
		case "d1", "d2":
			want = store.PlaceDead
		case "other":
			want = admission.PlaceWaiting
		}
		if j.Place != want || want == store.PlaceDead && j.Text != "bad | address" || want == store.PlaceRunning && j.Worker != "w1" {
			t.Errorf("%s: %+v", j.Key, j)
		}
	}
}

// TestListDeadSkipsNothing: what is purged between two pages moves nobody out of sight, also among equal times.
func TestListDeadSkipsNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.store.conn.Now = "1700000000000000" // All die at one instant.
	y.register(60)
	var want []string
	for i := range 60 {
		id := fmt.Sprintf("j%02d", i)
		want = append(want, id)
		y.admit(mail("acme", id))
	}
	y.read(60)
	for _, id := range want {
		y.finish(id, store.Finish{Outcome: store.Kill, Reason: "discarded"})
	}
	listed := []string{}
	got := y.all(store.ListQuery{Place: store.PlaceDead, Queue: "mail", Limit: 7}, func(page int) {
		gone := want[7*page : 7*page+7]
		listed = append(listed, gone...)
		for _, id := range gone {
			_, err := y.store.Purge(t.Context(), []admission.Key{{Tenant: "acme", ID: id}}, store.Intervention{})
			check(t, err)
		}
	})
	if !slices.Equal(got, want) || len(listed) != 56 {
		t.Errorf("listed %v", got)
	}
}

// TestListManyTenants walks hashes that HSCAN cuts into batches of no exact size.
func TestListManyTenants(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var want []string
	var jobs []admission.Job
	for i := range 700 {
		j := mail(fmt.Sprintf("tenant-%d", i%400), fmt.Sprintf("j%03d", i))
		j.Downstream = []string{"", "smtp", "sms"}[i%3]
		if i%4 == 0 {
			j.Deadline = time.Now().Add(time.Hour)
		}
		want, jobs = append(want, j.ID), append(jobs, j)
	}
	y.admit(jobs...)
	for _, q := range []store.ListQuery{{Place: admission.PlaceWaiting, Limit: 13}, {Limit: 13}, {Limit: 1000}, {Place: admission.PlaceWaiting, Limit: 1000}} {
		if got := y.all(q, nil); !slices.Equal(got, want) {
			t.Errorf("%+v lists %d jobs, want %d", q, len(got), len(want))
		}
	}
	top, partial, err := y.store.WaitingTenants(t.Context(), "mail", 3)
	if err != nil || partial || len(top) != 3 || top[0].Waiting != 2 {
		t.Errorf("tenants %v, %t, %v", top, partial, err)
	}
	// Whoever leaves between two pages takes nobody with him.
	gone := map[string]bool{}
	got := y.all(store.ListQuery{Place: admission.PlaceWaiting, Limit: 50}, func(page int) {
		for i := 10 * page; i < 10*page+10 && i < len(jobs); i++ {
			_, _, err := y.store.Cancel(t.Context(), admission.Key{Tenant: jobs[i].Tenant, ID: jobs[i].ID}, store.Intervention{})
			check(t, err)
			gone[jobs[i].ID] = true
		}
	})
	for _, id := range want {
		if !gone[id] && !slices.Contains(got, id) {
			t.Errorf("%s was there all the while and is not listed", id)
		}
	}
}

func TestListRefusesBadCalls(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.kill("d1", "d2")
	page, err := y.store.List(t.Context(), store.ListQuery{Place: store.PlaceDead, Limit: 1})
	check(t, err)
	for want, q := range map[string]store.ListQuery{
		`invalid cursor "nonsense": allowed is what the page before ended with, or nothing to begin`:              {Cursor: "nonsense"},
		`allowed is one of a listing with the same place, queue, tenant, type and reason`:                         {Place: store.PlaceDead, Queue: "mail", Cursor: page.Cursor},
		`invalid place "nowhere": allowed is waiting, later, spilled, ready, running or dead, or nothing for all`: {Place: "nowhere"},
		`invalid limit 1001: allowed is 1 to 1000 jobs`:                                                           {Limit: 1001},
		`invalid limit -1: allowed is 1 to 1000 jobs`:                                                             {Limit: -1},
		`invalid queue "a b"`:  {Queue: "a b"},
		`invalid tenant "a:b"`: {Tenant: "a:b"},
		`invalid reason "expired": allowed is a reason or a time for dead letters only`:                                                              {Reason: "expired"},
		`invalid reason "failed": allowed is bad_payload, discarded, dropped, expired, max_attempts, poison, queue_timeout, record_gone, unreadable`: {Place: store.PlaceDead, Reason: "failed"},
	} {
		if _, err := y.store.List(t.Context(), q); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}
