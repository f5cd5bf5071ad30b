package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// plant is a deployment of a test's own, and its commands.
type plant struct {
	t        *testing.T
	store    store.Deployment
	producer *producer.Producer
	where    []string
}

func newPlant(t *testing.T) *plant {
	t.Helper()
	server, prefix := redistest.Shared(t), redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{Prefix: prefix})
	must(t, err)
	p, err := producer.New(s, producer.Config{Policy: new(policy.Unlimited()), Timeout: 20 * time.Second})
	must(t, err)
	return &plant{t: t, store: s, producer: p, where: []string{"--redis", server.URL(), "--prefix", prefix}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a command line on the plant and checks its exit code.
func (p *plant) run(code int, line string) output {
	p.t.Helper()
	out := runHeadgate(p.t.Context(), append(strings.Fields(line), p.where...)...)
	if out.code != code {
		p.t.Errorf("headgate %s: exit code %d, want %d\n%s%s", line, out.code, code, out.stdout, out.stderr)
	}
	return out
}

// object runs a command line with --json and reads its object.
func (p *plant) object(code int, line string) map[string]any {
	p.t.Helper()
	return decode(p.t, p.run(code, line+" --json").stdout)
}

// enqueue enqueues jobs of the tenant acme.
func (p *plant) enqueue(ids ...string) {
	p.t.Helper()
	for _, id := range ids {
		j := admission.NewJob("acme", "mail", "welcome", []byte("hello"))
		j.ID = id
		_, err := p.producer.Enqueue(p.t.Context(), j)
		must(p.t, err)
	}
}

var mailPool = store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}

// kill makes a worker take n jobs of queue mail and make dead letters of them.
func (p *plant) kill(n int) { p.killIn("mail", n) }

// killIn is kill of a queue.
func (p *plant) killIn(queue string, n int) {
	p.t.Helper()
	ctx, partition := p.t.Context(), p.store.Partitions()[0]
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: queue, Weight: 1}}}
	for n > 0 {
		some := min(n, 500)
		_, err := partition.Register(ctx, "w", pool, some, time.Minute)
		must(p.t, err)
		leases, err := partition.Read(ctx, "w", pool.ID(), some, -1, false)
		must(p.t, err)
		if len(leases) == 0 {
			p.t.Fatalf("%d more leases wanted", n)
		}
		for _, l := range leases {
			_, _, err := partition.Finish(ctx, pool.ID(), "w", []store.Finish{{
				Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Outcome: store.Kill, Reason: "discarded", Text: "bad\x1b[2J address",
			}})
			must(p.t, err)
		}
		for more := true; more; {
			more, err = partition.Reclaim(ctx, "w")
			must(p.t, err)
		}
		n -= len(leases)
	}
}

func TestJobCommands(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue("a", "b")
	job := p.object(cli.ExitOK, "job show acme b")
	checkKeys(t, "a job", job, strings.Fields("arrival attempts cost id lost max_attempts payload_bytes place position priority queue tenant type waits"))
	if job["place"] != "waiting" || job["position"] != 2.0 {
		t.Errorf("%v", job)
	}
	waits, _ := job["waits"].([]any)
	checkKeys(t, "a wait", waits[0], []string{"kind", "text"})
	if out := p.run(cli.ExitOK, "job show acme a --payload"); !strings.Contains(out.stdout, "no worker that is registered serves queue mail") || !strings.HasSuffix(out.stdout, "hello\n") {
		t.Errorf("%s", out.stdout)
	}
	list := p.object(cli.ExitOK, "job list --place waiting --limit 1")
	checkKeys(t, "a list", list, []string{"cursor", "jobs"})
	jobs, _ := list["jobs"].([]any)
	checkKeys(t, "a listed job", jobs[0], strings.Fields("at attempts id place priority queue tenant type"))
	cursor, _ := list["cursor"].(string)
	if out := p.run(cli.ExitOK, "job list --place waiting --limit 1 --cursor "+cursor); !strings.Contains(out.stdout, " b ") {
		t.Errorf("second page: %s", out.stdout)
	}
	if got := p.object(cli.ExitOK, "job cancel acme a --reason twice"); got["outcome"] != "cancelled" {
		t.Errorf("%v", got)
	}
	if out := p.run(cli.ExitNothing, "job cancel acme a"); !strings.Contains(out.stderr, "job has ended") {
		t.Errorf("%s", out.stderr)
	}
	if out := p.run(cli.ExitOK, "job show acme a"); out.stdout != "Job a of tenant acme: ended; its id is remembered for a while, nothing else\n" {
		t.Errorf("%s", out.stdout)
	}
	for _, line := range []string{"job show acme none", "job cancel acme none", "dead show acme none", "dead purge acme none"} {
		if out := p.run(cli.ExitNothing, line); !strings.Contains(out.stderr, "unknown job") {
			t.Errorf("%s: %s", line, out.stderr)
		}
	}
	p.run(cli.ExitOK, "job list --tenant nobody")

	_, err := p.store.Partitions()[0].Register(t.Context(), "w", mailPool, 1, time.Minute)
	must(t, err)
	_, err = p.store.Partitions()[0].Read(t.Context(), "w", mailPool.ID(), 1, -1, false)
	must(t, err)
	if out := p.run(cli.ExitOK, "job cancel acme b --reason twice"); !strings.Contains(out.stdout, "its worker ends it with its next heartbeat") {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "job show acme b"); !strings.Contains(out.stdout, "running on worker w since ") || !strings.Contains(out.stdout, "to be cancelled: twice") {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "job list --place running"); !strings.Contains(out.stdout, " w ") {
		t.Errorf("%s", out.stdout)
	}
}

func TestQueueCommands(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.run(cli.ExitOK, "queue list")
	p.enqueue("a", "b")
	queues, _ := p.object(cli.ExitOK, "queue list")["queues"].([]any)
	fields := strings.Fields("classes dead later later_at_least pools queue ready running slots spilled waiting workers")
	checkKeys(t, "a queue", queues[0], fields)
	show := p.object(cli.ExitOK, "queue show mail")
	checkKeys(t, "a queue shown", show, strings.Fields("classes dead gates later later_at_least pools queue ready running slots spilled tenants tenants_partial waiting worker_list workers"))
	peek := p.object(cli.ExitOK, "queue peek mail")
	checkKeys(t, "what is next", peek, strings.Fields("classes queue turn turn_left"))
	p.run(cli.ExitOK, "pause --tenant acme --reason maintenance")
	if out := p.run(cli.ExitOK, "queue show mail"); !strings.Contains(out.stdout, "paused (maintenance)") || !strings.Contains(out.stdout, "no workers") {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "queue peek mail"); !strings.Contains(out.stdout, "gate of tenant acme") {
		t.Errorf("%s", out.stdout)
	}
	for _, line := range []string{"queue show none", "queue peek none", "drain none", "redrive --queue none", "dead purge --queue none --yes"} {
		if out := p.run(cli.ExitNothing, line); !strings.Contains(out.stderr, "unknown queue none") {
			t.Errorf("%s: %s", line, out.stderr)
		}
	}
	p.run(cli.ExitOK, "resume --tenant acme --reason done")
	_, err := p.store.Partitions()[0].Register(t.Context(), "w", mailPool, 1, time.Minute)
	must(t, err)
	if q := p.object(cli.ExitOK, "queue show mail"); q["last_dispatched_at"] == nil {
		t.Errorf("a job went to a worker, the other waits: %v", q)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue("a")
	for _, target := range []string{"--queue mail", "--tenant acme", "--queue mail --tenant acme"} {
		paused := p.object(cli.ExitOK, "pause "+target+" --for 1h --reason why")
		checkKeys(t, "a pause", paused, []string{"dispatch", "gate", "running", "until"})
		p.run(cli.ExitOK, "pause --enqueue "+target)
		if _, err := p.producer.Enqueue(t.Context(), admission.NewJob("acme", "mail", "t", nil)); err == nil {
			t.Errorf("%s: enqueueing is not suspended", target)
		}
		if got := p.object(cli.ExitOK, "resume "+target); got["dispatch"] != "resumed" || got["enqueue"] != "resumed" {
			t.Errorf("%v", got)
		}
		if out := p.run(cli.ExitNothing, "resume "+target); !strings.Contains(out.stderr, "is not paused") {
			t.Errorf("%s", out.stderr)
		}
	}
	job := admission.NewJob("acme", "mail", "t", nil)
	job.ID, job.Downstream = "b", "smtp"
	_, err := p.producer.Enqueue(t.Context(), job)
	must(t, err)
	p.run(cli.ExitOK, "pause --downstream smtp --reason moving")
	if out := p.run(cli.ExitOK, "explain job acme b"); !strings.Contains(out.stdout, "headgate resume --downstream smtp") {
		t.Errorf("%s", out.stdout)
	}
	p.run(cli.ExitOK, "resume --downstream smtp")
	if out := p.run(cli.ExitNothing, "resume --downstream smtp"); !strings.Contains(out.stderr, "downstream smtp is not paused") {
		t.Errorf("%s", out.stderr)
	}
	if out := p.run(cli.ExitOK, "pause --queue soon"); !strings.Contains(out.stderr, "no job of queue soon was seen yet") {
		t.Errorf("%s", out.stderr)
	}
}

func TestDrainWaitsForTheLastJob(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue("a", "b")
	out := p.run(cli.ExitFailure, "drain mail --timeout 1s --json")
	if view := decode(t, out.stdout); view["drained"] != false || view["waiting"] != 2.0 || view["suspended"] != false {
		t.Errorf("%s", out.stdout)
	}
	if !strings.Contains(out.stderr, "queue mail: 2 waiting") || !strings.Contains(out.stderr, "queue mail is not empty") {
		t.Errorf("%s", out.stderr)
	}
	p.enqueue("c") // Enqueueing goes on after a drain that was given up.
	must(t, p.store.Suspend(t.Context(), store.QueueGate("mail"), time.Hour, store.Intervention{Reason: "mine"}))
	if view := p.object(cli.ExitFailure, "drain mail --timeout 1s"); view["suspended"] != true {
		t.Errorf("%v", view)
	}
	q, err := p.store.Queue(t.Context(), "mail")
	if err != nil || q.Suspended == nil || q.Suspended.Reason != "mine" || time.Until(q.Suspended.Until) < 59*time.Minute {
		t.Errorf("a suspension of before: %+v, %v", q.Suspended, err)
	}
	_, err = p.store.Resume(t.Context(), store.QueueGate("mail"), store.Intervention{})
	must(t, err)

	var wait sync.WaitGroup
	wait.Go(func() { out = p.run(cli.ExitOK, "drain mail --keep-suspended --json") })
	eventually(t, func() bool {
		q, err := p.store.Queue(t.Context(), "mail")
		return err == nil && q.Suspended != nil
	})
	p.kill(3) // Dead letters do not keep a queue from being empty.
	wait.Wait()
	view := decode(t, out.stdout)
	checkKeys(t, "a drain", view, strings.Fields("drained later queue ready running spilled suspended took_s waiting"))
	if view["drained"] != true || view["suspended"] != true {
		t.Errorf("%s", out.stdout)
	}
	p.run(cli.ExitOK, "resume --queue mail")
}

// eventually waits for a condition, as long as patience lasts.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatal("it does not come to pass")
		}
	}
}

func TestDoctorCommand(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	report := p.object(cli.ExitOK, "doctor")
	checkKeys(t, "a report", report, []string{"findings", "health"})
	if report["health"] != "warn" {
		t.Errorf("%v", report)
	}
	bad := redistest.Start(t, redistest.Options{MaxMemory: "64mb", MaxMemoryPolicy: "allkeys-lru"})
	out := runHeadgate(t.Context(), "doctor", "--redis", bad.Addr())
	if out.code != cli.ExitFailure || !strings.Contains(out.stdout, "→ CONFIG SET maxmemory-policy noeviction") {
		t.Errorf("%+v", out)
	}
}

// TestDoctorOverACluster names the master that is ill.
func TestDoctorOverACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartNodes(t, 2, false)
	_, err := redisstore.Open(t.Context(), cluster.Client(t), redisstore.Config{Partitions: 2})
	must(t, err)
	out := runHeadgate(t.Context(), "doctor", "--redis", cluster.URL())
	if out.code != cli.ExitOK || !strings.Contains(out.stdout, "2, keys hg{*") {
		t.Errorf("%+v", out)
	}
	last := cluster.Masters[1]
	must(t, last.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	out = runHeadgate(t.Context(), "doctor", "--redis", cluster.URL())
	if out.code != cli.ExitFailure || !strings.Contains(out.stdout, last.Addr()+": maxmemory-policy allkeys-lru") {
		t.Errorf("%+v", out)
	}
}

func TestOperatorsMistakesAreNamed(t *testing.T) {
	t.Parallel()
	const at = " --redis 127.0.0.1:1"
	for _, row := range []struct{ args, want string }{
		{"job show acme x", "say which Redis with --redis, redis://host:6379 for one, or in HEADGATE_REDIS"},
		{"doctor", "say which Redis with --redis"},
		{"job show acme" + at, "headgate job show takes two arguments, TENANT and ID, or one, TENANT:ID, got 1"},
		{"job bogus", `there is no command "bogus"` + "\n"},
		{"job list --limit many" + at, `invalid --limit "many"`},
		{"queue show" + at, "headgate queue show takes one argument, QUEUE, got 0"},
		{"queue peek mail --tenants 0" + at, "invalid --tenants 0: allowed is 1 to 100 tenants"},
		{"dead purge acme" + at, "headgate dead purge takes TENANT and ID, TENANT:ID, or --queue, got 1 arguments"},
		{"dead purge acme x --queue mail" + at, "takes a TENANT and ID or --queue, not both"},
		{"dead purge acme x --reason expired" + at, "choose among the dead letters of a --queue"},
		{"dead purge --queue mail --older-than soon --yes" + at, `invalid --older-than "soon": allowed is a time such as 500ms, 30s, 10m or 24h: those that died longer ago than DURATION only, such as 24h`},
		{"dead purge --queue mail --older-than -1h --yes" + at, "invalid --older-than -1h0m0s: allowed is 0 or more"},
		{"redrive" + at, "headgate redrive takes TENANT and ID, TENANT:ID, or --queue, got 0 arguments"},
		{"redrive acme x --limit 3" + at, "--died-of, --limit and --dry-run are for"},
		{"redrive --queue mail --limit -1" + at, "invalid --limit -1: allowed is 0, for all, or more"},
		{"pause" + at, "say what with --queue, with --tenant, with both"},
		{"pause --downstream smtp --enqueue" + at, "--downstream goes with none of --queue, --tenant and --enqueue"},
		{"resume --downstream smtp --tenant acme" + at, "headgate: headgate resume --help tells what it takes"},
		{"pause --downstream a{b" + at, `invalid downstream "a{b"`},
		{"pause --queue a:b" + at, `invalid queue "a:b"`},
		{"pause --tenant global" + at, `invalid tenant "global"`},
		{"pause --queue mail --for -1s" + at, "invalid --for -1s: allowed is 0, until resumed, or 1ms to"},
		{"pause --queue mail --for long" + at, `invalid --for "long"`},
		{"pause --queue mail --enqueue --reason " + strings.Repeat("x", 1025) + at, "invalid --reason of 1025 bytes: allowed is up to 1024 bytes"},
		{"job cancel acme x --reason " + strings.Repeat("x", 1025) + at, "invalid --reason of 1025 bytes: allowed is up to 1024 bytes"},
		{"resume" + at, "say what with --queue"},
		{"drain mail --timeout -1s" + at, "invalid --timeout -1s: allowed is 0, for none, or more"},
	} {
		out := runHeadgate(t.Context(), strings.Fields(row.args)...)
		if out.code != cli.ExitUsage || !strings.Contains(out.stderr, row.want) || out.stdout != "" {
			t.Errorf("headgate %s: exit code %d: %s", row.args, out.code, out.stderr)
		}
	}
	p := newPlant(t)
	for line, want := range map[string]string{
		"job list --cursor nonsense": `invalid cursor "nonsense"`, "job list --place nowhere": `invalid place "nowhere"`,
		"job list --limit 0": "invalid --limit 0", "job list --limit 1001": "invalid limit 1001", "job show a:b x": `invalid tenant "a:b"`,
		"queue show a:b": `invalid queue "a:b"`, "redrive a:b x": `invalid tenant "a:b"`,
	} {
		if out := p.run(cli.ExitUsage, line); !strings.Contains(out.stderr, want) || out.stdout != "" {
			t.Errorf("%s: %s%s", line, out.stderr, out.stdout)
		}
	}
	for name := range strings.SplitSeq("job,job show,job list,job cancel,queue,queue list,queue show,queue peek,dead,dead list,dead show,dead purge,redrive,pause,resume,drain,doctor", ",") {
		out := runHeadgate(t.Context(), append(strings.Fields(name), "--help")...)
		if out.code != cli.ExitOK || !strings.Contains(out.stdout, "Examples:") {
			t.Errorf("headgate %s --help: exit code %d\n%s", name, out.code, out.stdout)
		}
	}
}
