package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

var tallyKeys = strings.Fields("admitted bad_lines duplicates interrupted refused retry_after_ms submitted unanswered")

// limit puts a policy in force by which each tenant has three tokens and gets one an hour.
func (d *deployment) limit() {
	d.t.Helper()
	name := filepath.Join(d.t.TempDir(), "policy.json")
	document := `{"tiers": {"standard": {"limit": {"tokens": 1, "per": "1h", "burst": 3}}}, "queues": {"q": {"pressure": {"max_depth": 1000000}}}, "anomalies": {}}`
	if err := os.WriteFile(name, []byte(document), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if out := d.run(d.t.Context(), nil, "policy", "set", name); out.code != cli.ExitOK {
		d.t.Fatalf("set the policy: %+v", out)
	}
}

func TestEnqueueOneJobByFlags(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.limit()
	file := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	job := func(args ...string) output {
		all := append([]string{"--tenant", "acme", "--queue", "q", "--type", "send"}, args...)
		return d.run(t.Context(), strings.NewReader("from stdin"), "enqueue", all...)
	}
	for _, row := range []struct {
		args []string
		code int
		want string // of standard output
	}{
		{[]string{"--id", "a", "--payload", "text", "--priority", "high", "--deadline", "5m", "--downstream", "smtp", "--header", "trace=1"}, cli.ExitOK, "admitted"},
		{[]string{"--id", "a"}, cli.ExitOK, "duplicate"},
		{[]string{"--id", "b", "--payload", "@" + file}, cli.ExitOK, "admitted"},
		{[]string{"--id", "c", "--payload", "-", "--json"}, cli.ExitOK, `"decision":"admitted"`},
		{[]string{"--id", "d"}, cli.ExitNothing, "limited"},
		{[]string{"--id", "d"}, cli.ExitNothing, "\njob refused: scope acme holds 0 tokens, retry after "},
		{[]string{"--id", "d", "--cost", "9"}, cli.ExitNothing, "\njob refused for good: cost is above the burst of 3 tokens of scope acme\n"},
		{[]string{"--id", "e", "--cost", "9", "--json"}, cli.ExitNothing, `"reason":"too_costly","detail":"job refused for good: cost is above the burst of 3 tokens of scope acme"`},
		{[]string{"--id", "a", "--set", "redis.replicas=1"}, cli.ExitOK, "\nthe job is on too few replicas: a failover may lose it\n"},
		{[]string{"--id", "f", "--deadline", "2020-01-01T00:00:00Z"}, cli.ExitNothing, "deadline"},
	} {
		out := job(row.args...)
		if out.code != row.code || !strings.Contains(out.stdout, row.want) {
			t.Errorf("%v: exit code %d, want %d with %q: %s%s", row.args, out.code, row.code, row.want, out.stdout, out.stderr)
		}
		if row.code == cli.ExitNothing && !strings.Contains(out.stderr, "headgate: 1 job was refused") {
			t.Errorf("%v says %s", row.args, out.stderr)
		}
	}
	records := map[string]string{"a": "text", "b": "from a file", "c": "from stdin"}
	c := redistest.Shared(t).Client(t)
	for id, payload := range records {
		record, err := c.HGet(t.Context(), redisstore.Keys(d.store).Jobs(), "acme:"+id).Result()
		if err != nil || !strings.Contains(record, payload) {
			t.Errorf("%s: %q is not in its record: %v", id, payload, err)
		}
	}
}

func TestEnqueueLines(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.limit()
	lines := strings.Join([]string{
		`{"tenant":"acme","type":"send","id":"1","payload":{"a":1}}`,
		`{"tenant":"acme","type":"send","id":"1"}`,
		`{"tenant":"acme","typo":"send"}`,
		``,
		`{"tenant":"acme","type":"send","priority":"no such class"}`,
		`{"tenant":"acme","type":"send","id":"2","deadline":"5m"}`,
		`{"tenant":"acme","type":"send","id":"3"}`,
		`{"tenant":"acme","type":"send","id":"4"}`,
		`{"tenant":"zulu","type":"send","id":"1","cost":2}`,
		`not JSON`,
		`{"tenant":"a b","type":"send"}`,
	}, "\n")
	out := d.run(t.Context(), strings.NewReader(lines), "enqueue", "--jsonl", "--queue", "q", "--json", "--verbose")
	s := decode(t, out.stdout)
	verdicts, _ := s["verdicts"].([]any)
	delete(s, "verdicts")
	checkKeys(t, "the report", s, tallyKeys)
	if out.code != cli.ExitNothing || s["submitted"] != 6.0 || s["admitted"] != 4.0 || s["duplicates"] != 1.0 || s["bad_lines"] != 4.0 || s["unanswered"] != 0.0 {
		t.Errorf("exit code %d: %s", out.code, out.stdout)
	}
	var said []string
	for _, v := range verdicts {
		verdict := v.(map[string]any)
		said = append(said, fmt.Sprint(verdict["line"], " ", verdict["tenant"], " ", verdict["decision"]))
	}
	if got := strings.Join(said, ", "); got != "1 acme admitted, 2 acme duplicate, 6 acme admitted, 7 acme admitted, 8 acme refused, 9 zulu admitted" {
		t.Errorf("got %s", got)
	}
	if refused, _ := s["refused"].(map[string]any); refused["limited"] != 1.0 {
		t.Errorf("refused %v", s["refused"])
	}
	for _, want := range []string{
		`line 3: unknown field "typo"`, `line 5: invalid priority "no such class"`, "line 10: invalid character", "line 11: invalid tenant",
		"1 job was refused, 4 lines are no jobs",
	} {
		if !strings.Contains(out.stderr, "headgate: "+want) {
			t.Errorf("%q is not in %s", want, out.stderr)
		}
	}
	// Once more, as a table, by a deployment that has it all.
	out = d.run(t.Context(), strings.NewReader(`{"tenant":"acme","type":"send","id":"1"}`), "enqueue", "--jsonl", "--queue", "q")
	if out.code != cli.ExitOK || !strings.Contains(out.stdout, "duplicate") {
		t.Errorf("again: %+v", out)
	}
}

// TestEnqueueSaysWhyJobsAreRefused: by the words of who suspended it, or by figures, of each job or of the first of each reason.
func TestEnqueueSaysWhyJobsAreRefused(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	if out := d.run(t.Context(), strings.NewReader(`{"overflows": {"acme:report": {"policy": "reject", "max_jobs": 1}}}`), "policy", "merge", "-"); out.code != cli.ExitOK {
		t.Fatalf("%+v", out)
	}
	if out := d.run(t.Context(), nil, "pause", "--queue", "mail", "--enqueue", "--reason", "closed for moving\a"); out.code != cli.ExitOK {
		t.Fatalf("%+v", out)
	}
	lines := `{"queue":"mail"}` + "\n" + strings.Repeat(`{"queue":"report"}`+"\n", 3)
	in := func(args ...string) string {
		out := d.run(t.Context(), strings.NewReader(lines), "enqueue", append([]string{"--jsonl", "--tenant", "acme", "--type", "send"}, args...)...)
		if out.code != cli.ExitNothing {
			t.Errorf("%v: %+v", args, out)
		}
		return out.stdout
	}
	for _, row := range []struct{ said, want string }{
		{in(), "the first refused, paused: job refused: enqueueing is suspended (closed for moving ), retry after "},
		{in(), "the first refused, overflow: job refused: its tenant has 1 jobs of "},
		{in("--verbose"), "\nline 1: job refused: enqueueing is suspended (closed for moving ), retry after "},
		{in("--verbose"), "\nline 4: job refused: its tenant has 1 jobs of "},
		{in("--verbose", "--json"), `"reason":"paused","detail":"job refused: enqueueing is suspended (closed for moving`},
	} {
		if !strings.Contains(row.said, row.want) {
			t.Errorf("no %q in\n%s", row.want, row.said)
		}
	}
}

func TestManyLinesGoInBatches(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, `{"tenant":"t%d","queue":"q","type":"send","id":"%d"}`+"\n", i%100, i)
	}
	for _, want := range []string{"admitted", "duplicates"} {
		out := d.run(t.Context(), strings.NewReader(lines.String()), "enqueue", "--jsonl", "--json")
		if s := decode(t, out.stdout); out.code != cli.ExitOK || s[want] != 1000.0 {
			t.Errorf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
		}
	}
}

func TestAStrictRunEndsAtABadLine(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	lines := `{"tenant":"acme","type":"send"}` + "\n{\n" + `{"tenant":"acme","type":"send"}`
	out := d.run(t.Context(), strings.NewReader(lines), "enqueue", "--jsonl", "--strict", "--queue", "q", "--json")
	if s := decode(t, out.stdout); out.code != cli.ExitFailure || s["admitted"] != 1.0 || s["bad_lines"] != 1.0 {
		t.Errorf("exit code %d: %s", out.code, out.stdout)
	}
	if !strings.Contains(out.stderr, "headgate: line 2: bad line, and here a strict run ends") {
		t.Errorf("got %s", out.stderr)
	}
}

func TestSlowLinesAreSentAsTheyCome(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	done := make(chan output, 1)
	go func() { done <- d.run(ctx, reader, "enqueue", "--jsonl", "--queue", "q", "--json") }()
	if _, err := io.WriteString(writer, `{"tenant":"acme","type":"send"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	d.await("the line to be sent", func(c store.Census) bool { return c.Accepted == 1 })
	cancel() // The pipe stays open: nothing more comes, and the read would wait for ever.
	out := <-done
	if s := decode(t, out.stdout); out.code != cli.ExitFailure || s["admitted"] != 1.0 || s["interrupted"] != true {
		t.Errorf("exit code %d: %s", out.code, out.stdout)
	}
	_ = writer.Close()
}

func TestInputAndRedisMayFail(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	good := `{"tenant":"acme","type":"send","queue":"q"}` + "\n"
	broken := io.MultiReader(strings.NewReader(good), brokenReader{})
	out := d.run(t.Context(), broken, "enqueue", "--jsonl", "--json")
	if s := decode(t, out.stdout); out.code != cli.ExitFailure || s["admitted"] != 1.0 || !strings.Contains(out.stderr, "read line 2: torn") {
		t.Errorf("got %+v", out)
	}
	server := redistest.Start(t, redistest.Options{})
	d.where = []string{"--redis", server.Addr()} // It is to notice soon.
	reader, writer := io.Pipe()
	done := make(chan output, 1)
	go func() { done <- d.run(t.Context(), reader, "enqueue", "--jsonl", "--json") }()
	if _, err := io.WriteString(writer, good); err != nil {
		t.Fatal(err)
	}
	client := server.Client(t)
	for redistest.State(t, client, "hg{0}:state")["accepted"] != "1" {
		if t.Context().Err() != nil {
			t.Fatal("the line was not sent")
		}
	}
	// Redis may have read this client's question beside the line, and answers both before it reads again: once it answers
	// another question, the line's answer is out.
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Kill(t)
	if _, err := io.WriteString(writer, good); err != nil {
		t.Fatal(err)
	}
	out = <-done
	if s := decode(t, out.stdout); out.code != cli.ExitFailure || s["admitted"] != 1.0 || s["unanswered"] != 1.0 || !strings.Contains(out.stderr, "no answer from line 2 on") {
		t.Errorf("got %+v", out)
	}
	_ = writer.Close()
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("torn") }

func TestAJobIsEnqueuedForLaterFromTheCommandLine(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	at := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
	if out := p.run(cli.ExitOK, "enqueue --tenant acme --queue mail --type t --id soon --delay 1h"); !strings.Contains(out.stdout, "waits for its time") {
		t.Errorf("%s", out.stdout)
	}
	p.run(cli.ExitOK, "enqueue --tenant acme --queue mail --type t --id dated --run-at "+at.Format(time.RFC3339))
	for id, least := range map[string]time.Time{"soon": at.Add(-61 * time.Minute), "dated": at} {
		sight, err := p.store.Look(t.Context(), admission.Key{Tenant: "acme", ID: id})
		if err != nil || sight.Place != admission.PlaceLater || sight.At.Before(least) || sight.At.After(least.Add(2*time.Minute)) {
			t.Errorf("%s: %+v, %v, want one that is due at %s", id, sight, err, least)
		}
	}
	if out := p.run(cli.ExitUsage, "enqueue --tenant acme --queue mail --type t --delay 1h --run-at "+at.Format(time.RFC3339)); !strings.Contains(out.stderr, "invalid") {
		t.Errorf("%s", out.stderr)
	}
}
