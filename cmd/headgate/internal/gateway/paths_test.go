package gateway

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestAPathIsAskedAboutAsItIs, by Envoy's ext_authz: what is no 200 is an answer to its client, and a redirect of ours would send that to a path which the
// application does not have.
func TestAPathIsAskedAboutAsItIs(t *testing.T) {
	t.Parallel()
	p := policy.Unlimited()
	p.QueueLimits = map[admission.Scope]admission.Limit{
		admission.Scope("acme:" + httplimit.RouteName("GET /orders/{id}")): {Tokens: 60, Per: time.Hour, Burst: 2},
	}
	limits, err := limiter.New(store.Single(memory.New(memory.Config{}), nil), limiter.Config{Policy: &p, Timeout: 10 * time.Second})
	must(t, err)
	authz := Authz{Listen: free(t), Tenant: []string{"fixed:acme"}, Routes: []string{"GET /orders/{id}"}}
	gateways, err := New(limits, zerolog.Nop(), nil, prometheus.NewRegistry(), authz, RLS{}, Mapping{})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gateways.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	answers(t, authz.Listen, ended, &bytes.Buffer{})
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, row := range []struct {
		path   string
		status int
	}{
		{"/authz", 200},
		{"/authz/", 200},
		{"/authz//a//b", 200},
		{"/authz/a/./b", 200},
		{"/authz/orders/1", 200},
		{"/authz//orders/../orders/1", 200},
		{"/authz/orders//1", 429}, // By now the queue has none left.
		{"/authz/nginx", 200},
		{"/authzz", 404},
		{"/", 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+authz.Listen+row.path, http.NoBody)
		must(t, err)
		got, err := client.Do(r)
		must(t, err)
		must(t, got.Body.Close())
		if got.StatusCode != row.status {
			t.Errorf("%s: %d to %q, want %d", row.path, got.StatusCode, got.Header.Get("Location"), row.status)
		}
	}
}
