package main

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestSuggestCommand: of an hour in which acme has 10 tokens a minute, and once 400, and of none; what it prints may be merged.
func TestSuggestCommand(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitNothing, "policy suggest --tenant acme"); !strings.Contains(out.stderr, "no suggestion: nothing was counted in the last hour") {
		t.Errorf("%s", out.stderr)
	}
	now, err := p.store.Time(t.Context())
	must(t, err)
	keys := redisstore.KeysOf(p.store.Partitions()[0])
	for ago := range int64(62) {
		acme := "10:0:10:0"
		if ago == 30 {
			acme = "10:390:400:0"
		}
		must(t, redistest.Shared(t).Client(t).HSet(t.Context(), keys.Counts(now.Unix()/60-ago), "global", "500:0:500:0", "acme", acme, "calm", "100:0:100:0").Err())
	}
	out := p.run(cli.ExitOK, "policy suggest --tenant acme").stdout
	for _, part := range []string{
		"in 60 minutes of 1 tenants the median is 10 tokens, 99 of 100 have 170 at most, the worst has 400", `{"tenants":{"acme":{"limit":{"burst":179,"per":"1m","tokens":221}}}}`,
		"+ /tenants/acme/limit/tokens 221", "would follow version 0", "│ acme ",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	view := p.object(cli.ExitOK, "policy suggest --tenant acme --headroom 2")
	checkKeys(t, "a suggestion", view, strings.Fields("changes dry_run forecast from suggestion version"))
	if out := p.run(cli.ExitNothing, "policy suggest --tenant calm"); !strings.Contains(out.stderr, "no more than chance") {
		t.Errorf("%s", out.stderr)
	}
	if versions := p.object(cli.ExitOK, "policy history")["versions"]; len(versions.([]any)) != 0 {
		t.Errorf("a suggestion was stored: %v", versions)
	}
	p.run(cli.ExitOK, "limit set global --tokens 200 --per 1m --burst 200 --reason launch")
	if out := p.run(cli.ExitOK, "policy suggest --tenant acme").stdout; !strings.Contains(out, "cut: tokens a minute 200, not 221: /global is 200 tokens a minute and 200 at once\n") || !strings.Contains(out, `"tokens":200`) {
		t.Errorf("beyond the global limit:\n%s", out)
	}
	p.refuses(map[string]string{
		"policy suggest":                              "one of --tier, --tenant and --queue",
		"policy suggest --tenant a --queue b":         "one of --tier, --tenant and --queue",
		"policy suggest --tenant a --headroom 0.5":    "headroom 0.5: allowed is 1 to 10",
		"policy suggest --tenant a:b":                 `tenant "a:b": allowed is 1 to 128 bytes`,
		"policy suggest --tier gold":                  "one of the policy's: basic, premium, standard",
		"policy suggest --tenant acme --headroom NaN": "allowed is 1 to 10",
	})
}
