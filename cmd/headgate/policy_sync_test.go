//go:build unix

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/redistest"
)

// TestPolicySyncTakesLimitsFromATable: nothing without --apply, nothing where a row is wrong, and what has no row goes with --remove alone; on both databases.
func TestPolicySyncTakesLimitsFromATable(t *testing.T) {
	t.Parallel()
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		testPolicySync(t, dbtest.PostgreSQL(t))
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		testPolicySync(t, dbtest.MariaDB(t))
	})
}

func testPolicySync(t *testing.T, server *dbtest.Server) {
	t.Helper()
	db := server.Open(t)
	exec := func(statement string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	on := []string{"--redis", redistest.Shared(t).Addr(), "--prefix", redistest.Prefix(t)}
	run := func(want int, args ...string) string {
		t.Helper()
		var out, notes bytes.Buffer
		if code := execute(t.Context(), append(args, on...), strings.NewReader(""), &out, &notes); code != want {
			t.Errorf("%v: exit code %d: %s%s", args, code, out.String(), notes.String())
		}
		return out.String() + notes.String()
	}
	says := func(said string, all ...string) {
		t.Helper()
		for _, part := range all {
			if !strings.Contains(said, part) {
				t.Errorf("%q is not in\n%s", part, said)
			}
		}
	}
	sync := func(want int, args ...string) string {
		t.Helper()
		return run(want, append([]string{"policy", "sync", "--from", server.URL(), "--table", "throttlex_policy"}, args...)...)
	}
	run(0, "limit", "set", "old", "--tokens", "5", "--burst", "9")
	run(0, "tenant", "set", "acme", "--tier", "premium")
	exec(`CREATE TABLE throttlex_policy (policy_key varchar(255), type varchar(30), capacity bigint, refill_rate decimal(20, 6), window_seconds integer)`)
	exec(`INSERT INTO throttlex_policy VALUES ('global', 'TOKEN_BUCKET', 5000, 1000, 60), ('tenant:acme', 'token_bucket', 100, 10, 60),
		('tenant:acme|queue:mail', 'token_bucket', 7, 0.05, NULL), ('tenant:acme|queue:mail|priority:high', 'token_bucket', 3, 1, 60)`)
	says(sync(0), "+ /global/burst 5000", "+ /queue_limits/acme:mail/per \"1m\"", "version 3 would follow version 2", "would take away: 1\n  old\n")
	says(run(0, "policy", "history", "--json"), `"version": 2`)
	says(sync(0, "--apply", "--reason", "contracts"), "version 3 is in force")
	says(run(0, "limit", "get", "acme:mail"), "3 tokens a minute and holds 7")
	said := run(0, "policy", "get")
	says(said, `"old"`, `"premium"`)
	says(run(0, "audit", "--json"), "contracts")
	says(sync(0, "--apply"), "nothing differs: version 3 has what 4 rows say")
	exec(`DELETE FROM throttlex_policy WHERE policy_key = 'tenant:acme|queue:mail|priority:high'`)
	says(sync(0), "  acme:mail:high\n  old\n")
	says(sync(0, "--remove", "--apply", "--reason", "gone"), "version 4 is in force", "taken away: 2")
	said = run(0, "policy", "get")
	if says(said, `"premium"`); strings.Contains(said, `"old"`) || strings.Contains(said, "acme:mail:high") {
		t.Errorf("what has no row is there: %s", said)
	}
	exec(`INSERT INTO throttlex_policy VALUES ('tenant:ok', 'token_bucket', 1, 1, 1), ('ip:1.2.3.4', 'token_bucket', 1, 1, 1), ('tenant:global', 'token_bucket', 1, 1, 1),
		('tenant:a|priority:high', 'token_bucket', 1, 1, 1), ('tenant:b', 'sliding_window', 1, 1, 1), ('tenant:c', 'token_bucket', 0, NULL, 1), ('tenant:acme', 'token_bucket', 1, 1, 1)`)
	says(sync(1, "--apply"), `row "ip:1.2.3.4": invalid key`, `row "tenant:global": invalid tenant`, `row "tenant:a|priority:high": invalid key`,
		`row "tenant:b": invalid algorithm "sliding_window": allowed is token_bucket`, `row "tenant:c": invalid capacity "0"`, `invalid refill_rate ""`, `one row of a scope`)
	if strings.Contains(run(0, "policy", "get"), `"ok"`) {
		t.Error("a table with a wrong row has changed the policy")
	}
	says(run(1, "policy", "sync", "--from", server.URL(), "--table", "nosuch"), "read the table nosuch")
	says(run(2, "policy", "sync", "--from", server.URL(), "--table", "policy; DROP TABLE policy"), "invalid --table")
	says(run(2, "policy", "sync", "--from", server.URL(), "--reason", "why"), "with --apply")
	exec(`CREATE TABLE narrow (policy_key varchar(255), type varchar(30), refill_rate integer)`)
	says(run(1, "policy", "sync", "--from", server.URL(), "--table", "narrow"), "without a column capacity")
}
