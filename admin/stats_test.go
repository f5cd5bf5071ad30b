package admin_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/admin"
)

// TestAServerTellsOfItsOwnCalls: those that went well, those that were not as described or not allowed, and its connections, of which one
// that never showed a credential is stale once it is idle.
func TestAServerTellsOfItsOwnCalls(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.Version = "v9" })
	address := p.serve(t)
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	must(t, err)
	defer func() { _ = connection.Close() }()
	call := func(path, credential string) (int, []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, strings.NewReader(""))
		must(t, err)
		r.Header.Set("Authorization", credential)
		response, err := http.DefaultClient.Do(r)
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		must(t, err)
		return response.StatusCode, text
	}
	for path, want := range map[string]int{"/api/v1/queues": http.StatusOK, "/api/v1/load/mail?history=never": http.StatusBadRequest} {
		if status, text := call(path, p.keys["viewer"]); status != want {
			t.Errorf("%s is answered %d: %s", path, status, text)
		}
	}
	if status, _ := call("/api/v1/queues", "Bearer nobody's"); status != http.StatusUnauthorized {
		t.Errorf("a wrong credential is answered %d", status)
	}
	_, text := call("/api/v1/stats", p.keys["viewer"])
	var v struct {
		Daemon struct {
			Version string `json:"version"`
		} `json:"daemon_info"`
		Resources struct {
			PerMinute  int `json:"requests_per_minute"`
			Concurrent int `json:"concurrent_requests"`
		} `json:"resource_status"`
		Since, Recent struct {
			Total  int     `json:"total_requests"`
			Failed int     `json:"failed_requests"`
			P99    float64 `json:"p99_response_time_ms"`
		}
		Security struct {
			Events   int `json:"total_security_events"`
			Invalid  int `json:"validation_failures"`
			Rejected int `json:"requests_rejected"`
		} `json:"security_summary"`
		Connections struct {
			Total, Active, Stale int
		} `json:"connection_summary"`
	}
	text = []byte(strings.NewReplacer("performance_metrics_5m", "Recent", "performance_metrics", "Since").Replace(string(text)))
	must(t, json.Unmarshal(text, &v))
	// The plant has read the description before.
	if v.Daemon.Version != "v9" || v.Since.Total != 4 || v.Recent.Total != 4 || v.Since.Failed != 0 || !(v.Recent.P99 > 0) || v.Resources.PerMinute != 4 || v.Resources.Concurrent != 1 {
		t.Errorf("%s", text)
	}
	if v.Security.Invalid != 1 || v.Security.Rejected != 1 || v.Security.Events != 2 {
		t.Errorf("turned away: %s", text)
	}
	if v.Connections.Total < 2 || v.Connections.Active < 2 || v.Connections.Stale < 1 {
		t.Errorf("connections: %s", text)
	}
}
