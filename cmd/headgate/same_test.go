package main

import (
	"maps"
	"net/http"
	"reflect"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

// TestTheCommandLineShowsWhatTheAPIShows asks both for the same things. Only the command line, which has Redis's password,
// tells lease tokens and headers.
func TestTheCommandLineShowsWhatTheAPIShows(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue("dead")
	p.kill(1)
	p.enqueue("waiting")
	p.run(cli.ExitOK, "breaker open smtp --for 1h --reason test")
	p.run(cli.ExitOK, "pause --tenant acme --queue mail --reason moving")
	p.run(cli.ExitOK, "pause --queue mail --enqueue --reason late")
	p.run(cli.ExitOK, "tenant set acme --tier premium --max-running 3")
	d := &deployment{t: t, where: p.where, store: p.store}
	server := addressOf(d, "serve", "--address", "127.0.0.1:0", "--insecure-no-auth")
	for line, path := range map[string]string{
		"job show acme waiting": "/jobs/acme/waiting",
		"job list":              "/jobs",
		"dead show acme dead":   "/dead-letters/acme/dead",
		"dead list":             "/dead-letters",
		"queue list":            "/queues",
		"breaker list":          "/breakers",
		"breaker show smtp":     "/breakers/smtp",
		"tenant show acme":      "/tenants/acme",
		"limit get acme":        "/rate-limit/config/acme",
		"audit":                 "/audit",
		"explain tenant acme":   "/explain/tenant/acme",
	} {
		shown, told := p.object(cli.ExitOK, line), decode(t, call(t, http.MethodGet, server+"/api/v1"+path, "", http.StatusOK))
		// A guess is another one each time.
		maps.DeleteFunc(shown, func(name string, _ any) bool {
			return name == "token" || name == "headers" || name == "estimated_wait_ms"
		})
		delete(told, "estimated_wait_ms")
		if len(shown) == 0 || !reflect.DeepEqual(shown, told) {
			t.Errorf("headgate %s shows\n%v\nand GET %s\n%v", line, shown, path, told)
		}
	}
}
