package admin_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// layOut has the partitions of a plant say a layout, as a migration does.
func (p *plant) layOut(layout string) {
	p.tb.Helper()
	client := redistest.Shared(p.tb).Client(p.tb)
	for _, part := range p.store.Partitions() {
		must(p.tb, client.HSet(p.tb.Context(), redisstore.KeysOf(part).State(), "partitions", layout).Err())
	}
}

// layouts are what a migration leaves, by what a call is to be told of it, and ready.
var layouts = []struct{ layout, told, ready string }{
	{"1>5", "is being migrated", "is being migrated"},
	{"5", "start the server anew", "another number of partitions"},
	{">redis://there:6379", "start the server anew", "moved to another Redis"},
}

// TestCallsOfAMigratedDeploymentAreToldSo asks a server that has not looked yet.
func TestCallsOfAMigratedDeploymentAreToldSo(t *testing.T) {
	t.Parallel()
	for _, l := range layouts {
		t.Run(l.layout, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, p *plant) {
				t.Helper()
				p.layOut(l.layout)
				asks := []ask{
					{op: checkOp, body: `{"scope":"acme","peek":true}`},
					{op: "GET /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "a"}},
					{op: "PUT /api/v1/queues/{queue}/pause", path: map[string]string{"queue": "mail"}, body: `{"reason":"x"}`},
				}
				if l.layout != "1>5" { // Meanwhile these wait, or are answered, as without Redis.
					asks = append(asks, ask{op: checkOp, body: `{"scope":"acme"}`}, ask{op: "POST /api/v1/jobs", body: someJob})
				}
				for _, a := range asks {
					got := p.want(http.StatusServiceUnavailable, "operator", a)
					if !strings.Contains(string(got.body), l.told) || strings.Contains(string(got.body), "there:6379") || got.header.Get("Retry-After") == "" {
						t.Errorf("%s %s: %v %s", a.op, a.body, got.header, got.body)
					}
				}
				if got := p.want(http.StatusServiceUnavailable, "", ask{op: "GET /api/v1/health/ready"}); !strings.Contains(string(got.body), l.ready) || strings.Contains(string(got.body), "there:6379") {
					t.Errorf("ready says %s", got.body)
				}
				p.want(http.StatusOK, "", ask{op: "GET /api/v1/health/live"})
			})
		})
	}
}

// TestServeEndsWithAMigration: lists, which Redis does not refuse, are refused while it is under way; a server of before ends once it has ended.
func TestServeEndsWithAMigration(t *testing.T) {
	t.Parallel()
	for layout, want := range map[string]error{"5": admission.ErrPartitions, ">redis://there:6379": admission.ErrMoved} {
		t.Run(layout, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, p *plant) {
				t.Helper()
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("it did not end in a minute"))
				defer cancel()
				_, ended := p.listen(ctx)
				list := ask{op: "GET /api/v1/queues"}
				p.want(http.StatusOK, "viewer", list)
				p.layOut("1>5")
				for p.call("viewer", list).status == http.StatusOK {
					if ctx.Err() != nil {
						t.Fatal("a list was answered for a minute")
					}
				}
				if got := p.want(http.StatusServiceUnavailable, "viewer", list); !strings.Contains(string(got.body), "is being migrated") {
					t.Errorf("%s", got.body)
				}
				p.want(http.StatusOK, "viewer", ask{op: "GET /metrics"})
				p.layOut(layout)
				if err := <-ended; !errors.Is(err, want) {
					t.Errorf("it ended with %v", err)
				}
				p.want(http.StatusServiceUnavailable, "viewer", list)
			})
		})
	}
}
