package admin_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// TestCursorsNameNobodyElse: a cursor is text that a tenant can read, and so it has no job of another in it, whatever was walked over; and all of the
// tenant's own are listed.
func TestCursorsNameNobodyElse(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		own := policy.Unlimited()
		own.Version = 1
		text, err := policy.Marshal(own)
		must(t, err)
		must(t, p.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: text, Window: time.Minute}))
		enqueuer, err := producer.New(p.store, producer.Config{Uncounted: true})
		must(t, err)
		neighbours := []string{p.tenant("aaron", p.store.PartitionOf("acme")), p.tenant("zeta", p.store.PartitionOf("acme"))} // In the order of keys one is before acme, and one behind it.
		const others, mine = 400, 5
		var jobs []admission.Job
		put := func(tenant string, n int, delay time.Duration) {
			for i := range n {
				job := admission.NewJob(tenant, "mail", "t", nil)
				job.ID, job.Delay = fmt.Sprint("job-", i), delay
				jobs = append(jobs, job)
			}
		}
		put(neighbours[0], others/2, time.Hour)
		put(neighbours[1], others/2, time.Hour)
		put("acme", mine, 2*time.Hour)
		_, err = enqueuer.EnqueueBatch(t.Context(), jobs)
		must(t, err)
		for _, query := range []string{"limit=1", "limit=2&place=later"} {
			seen, pages := map[string]bool{}, 0
			for cursor, first := "", true; first || cursor != ""; first = false {
				page := p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/jobs", query: query + "&cursor=" + cursor})
				for _, job := range page.jobs(t) {
					seen[job["id"].(string)] = true
				}
				cursor, _ = page.object(t)["cursor"].(string)
				raw, err := base64.RawURLEncoding.DecodeString(cursor)
				must(t, err)
				var c store.ListCursor
				if cursor != "" {
					must(t, json.Unmarshal(raw, &c))
				}
				if says := fmt.Sprintf("%s: %q, %q, %q", raw, c.Jobs.Rest, c.Jobs.After, c.Set.Key); strings.Contains(says, "zeta") || strings.Contains(says, "aaron") {
					t.Fatalf("%s: a cursor says %s", query, says)
				}
				if pages++; pages > others {
					t.Fatalf("%s: it does not end", query)
				}
			}
			if len(seen) != mine || pages < 2 {
				t.Errorf("%s: %d of %d are listed, on %d pages", query, len(seen), mine, pages)
			}
		}
	})
}
