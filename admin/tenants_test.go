package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// askedForRecords counts the calls that read records or count them.
type askedForRecords struct {
	store.Deployment
	n *atomic.Int64
}

func (a askedForRecords) Records(ctx context.Context, tenants ...string) ([]store.TenantRecord, error) {
	a.n.Add(1)
	return a.Deployment.Records(ctx, tenants...)
}

func (a askedForRecords) RecordsPage(ctx context.Context, q store.RecordsQuery) (store.RecordsPage, error) {
	a.n.Add(1)
	return a.Deployment.RecordsPage(ctx, q)
}

func (a askedForRecords) RecordTiers(ctx context.Context) (map[string]int64, error) {
	a.n.Add(1)
	return a.Deployment.RecordTiers(ctx)
}

// TestTenantsOfATierAreThoseOfRecordsToo: those that the policy names by their tier in force, then those that a record alone names, each at least once
// whatever is edited between the pages.
func TestTenantsOfATierAreThoseOfRecordsToo(t *testing.T) {
	t.Parallel()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
	must(t, err)
	asked := new(atomic.Int64)
	p := newPlantOn(t, askedForRecords{s, asked}, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenants":{"ann":{"tier":"premium"}}}`})
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/tenants", query: "tier=premium"})
	if n := asked.Load(); n != 0 {
		t.Errorf("a policy without records: they are asked for %d times", n)
	}
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenant_records":true,"tenants":{"ann":{"tier":"premium"},"bob":{"tier":"premium"},"cyd":{"tier":"basic"},"dan":{"tier":"premium"},"eve":{"max_running":5}}}`})
	document, err := p.store.Policy(t.Context())
	must(t, err)
	version := int64(2)
	if !strings.Contains(string(document), `"version":2`) {
		t.Fatalf("%s", document)
	}
	record := func(tenant, text string) {
		t.Helper()
		_, err := p.store.PutRecord(t.Context(), store.RecordEdit{Tenant: tenant, Policy: version, Text: []byte(text)})
		must(t, err)
	}
	record("bob", `{"tier":"basic"}`)
	record("cyd", `{"tier":"premium"}`)
	record("dan", `{"priority_weights":{"high":3}}`)
	const recorded = 2000
	for i := range recorded {
		record(fmt.Sprint("r", i), `{"tier":"`+[]string{"premium", "basic"}[i%2]+`"}`)
	}
	list := func(query string, edit func(page int)) (ordered []string, seen map[string]int, pages int) {
		t.Helper()
		seen = map[string]int{}
		for cursor := ""; ; {
			page := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/tenants", query: query + "&cursor=" + cursor}).object(t)
			got := page["tenants"].([]any)
			if len(got) > 1200 {
				t.Errorf("%s: a page of %d", query, len(got))
			}
			for _, one := range got {
				one := one.(map[string]any)
				name := one["tenant"].(string)
				if tier := one["tier"].(string); !strings.Contains(query, "tier="+tier) && strings.Contains(query, "tier=") {
					t.Errorf("%s: %v", query, one)
				}
				if own := one["own"].(map[string]any); strings.HasPrefix(name, "r") && (len(own) > 0 || one["record"] == nil) {
					t.Errorf("%v", one)
				}
				ordered = append(ordered, name)
				seen[name]++
			}
			pages++
			if cursor, _ = page["cursor"].(string); cursor == "" {
				return ordered, seen, pages
			}
			if edit != nil {
				edit(pages)
			}
		}
	}
	ordered, seen, pages := list("tier=premium&limit=2", nil)
	if strings.Join(ordered[:3], " ") != "ann cyd dan" || pages < 3 {
		t.Errorf("%v on %d pages", ordered[:3], pages)
	}
	whole := func(seen map[string]int, want int) {
		t.Helper()
		for i := 0; i < recorded; i += 2 {
			if seen[fmt.Sprint("r", i)] == 0 {
				t.Errorf("r%d is on no page", i)
			}
		}
		if len(seen) != want {
			t.Errorf("%d tenants, want %d", len(seen), want)
		}
	}
	whole(seen, 3+recorded/2)
	for name, times := range seen {
		if times != 1 {
			t.Errorf("%s comes %d times", name, times)
		}
	}
	next := recorded
	_, seen, _ = list("tier=premium&limit=10", func(int) {
		for range 50 { // Others come while it is read.
			record(fmt.Sprint("n", next), `{"tier":"basic"}`)
			next++
		}
	})
	whole(seen, 3+recorded/2)
	if ordered, _, _ := list("limit=10", nil); strings.Join(ordered, " ") != "ann bob cyd dan eve" {
		t.Errorf("without a tier: %v", ordered)
	}
	before := asked.Load()
	if ordered, _, pages := list("tier=gold&limit=10", nil); len(ordered) != 0 || pages != 1 || asked.Load() != before+2 {
		t.Errorf("a tier that nobody names: %v on %d pages, and asked %d times for records and their tiers", ordered, pages, asked.Load()-before)
	}
	if got := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/tenants", query: "limit=10"}); !strings.Contains(string(got.body), `"tier":"premium","own":{"tier":"basic"},"record":{"tier":"premium"}`) {
		t.Errorf("%s", got.body)
	}
	p.want(http.StatusBadRequest, "viewer", ask{op: "GET /api/v1/tenants", query: "tier=premium&cursor=:x"})
}
