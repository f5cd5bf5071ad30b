package main

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestQueueShowSaysWhatAGateIs: a rate, and a cap of which no partition has a whole unit just now, are no pauses, and a breaker's gate
// is none.
func TestQueueShowSaysWhatAGateIs(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Shared(t), redistest.Prefix(t)
	client := server.Client(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: 2})
	must(t, err)
	p := &plant{t: t, store: s, where: []string{"--redis", server.URL(), "--prefix", prefix}}
	p.setPolicy(`{"queues": {"mail": {"max_running": 2}}, "downstreams": {"api": {"dispatch": {"tokens": 600, "per": "1h", "burst": 2}}}}`)
	p.run(cli.ExitOK, "enqueue --tenant acme --queue mail --type send")
	p.run(cli.ExitOK, "breaker open ill --reason leak")
	states := func(command string) map[string]string { // the last column by the first
		t.Helper()
		found := map[string]string{}
		for line := range strings.Lines(p.run(cli.ExitOK, command).stdout) {
			if cells := strings.Split(line, "│"); len(cells) > 2 {
				found[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[len(cells)-2])
			}
		}
		return found
	}
	shown := states("queue show mail")
	for name, want := range map[string]string{"downstream api": "starts 10 jobs a minute", "downstream ill": "held by its circuit breaker"} {
		if shown[name] != want {
			t.Errorf("%s: %q", name, shown[name])
		}
	}

	if list := states("queue list")["mail"]; !strings.Contains(list, "0 of 2 jobs") {
		t.Errorf("a cap: %s", list)
	}
	for _, part := range s.Partitions() { // As after an edit that lowers the cap far, until the next look at all shares.
		gates := redisstore.KeysOf(part).Gates()
		stored := client.HGet(t.Context(), gates, "q:mail").Val()
		must(t, client.HSet(t.Context(), gates, "q:mail", "-"+stored).Err())
	}
	if list := states("queue list")["mail"]; !strings.Contains(list, "waits for its cap to be shared out") || strings.Contains(list, "paused") {
		t.Errorf("a cap of which there is no whole unit: %s", list)
	}
	queues, _ := p.object(cli.ExitOK, "queue list")["queues"].([]any)
	gate, _ := queues[0].(map[string]any)["gate"].(map[string]any)
	if gate["no_share"] != true || gate["limit"] != 0.0 {
		t.Errorf("%v", gate)
	}
	p.run(cli.ExitOK, "pause --queue mail --reason night")
	if list := states("queue list")["mail"]; !strings.Contains(list, "paused (night)") {
		t.Errorf("a pause: %s", list)
	}
}
