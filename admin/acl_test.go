package admin_test

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// documentedRules returns the ACL rules of docs/SECURITY.md, without the password.
func documentedRules(tb testing.TB) []string {
	tb.Helper()
	text, err := os.ReadFile("../docs/SECURITY.md")
	must(tb, err)
	found := regexp.MustCompile(`(?m)^    ACL SETUSER headgate on >PASSWORD (.*)$`).FindSubmatch(text)
	if found == nil {
		tb.Fatal("docs/SECURITY.md has no rules")
	}
	return strings.Fields(string(found[1]))
}

// TestTheDocumentedACLIsEnough runs every operation, a producer, a limiter, a worker and a scheduler as the Redis user of
// docs/SECURITY.md, asserts that Redis denied nothing, also where nobody looked, and then what that user cannot do.
func TestTheDocumentedACLIsEnough(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 2} {
		t.Run(strconv.Itoa(partitions), func(t *testing.T) {
			t.Parallel()
			aclIsEnough(t, partitions)
		})
	}
}

func aclIsEnough(t *testing.T, partitions int) {
	t.Helper()
	server := redistest.Start(t, redistest.Options{})
	root := server.Client(t)
	must(t, root.Do(t.Context(), append([]any{"ACL", "SETUSER", "headgate", "on", ">secret"}, words(documentedRules(t))...)...).Err())
	must(t, root.Do(t.Context(), "ACL", "SETUSER", "default", "-@all", "+ping", "+acl|log").Err())
	options := server.Options()
	options.Username, options.Password = "headgate", "secret"
	client := redis.NewClient(options)
	t.Cleanup(func() { must(t, client.Close()) })
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Partitions: partitions})
	must(t, err)
	p := newPlantOn(t, s, nil)
	for _, part := range []func(*plant){walkMeta, walkJobs, walkLetters, walkPolicy, walkLimits, walkParts, walkQueues} {
		part(p)
	}
	tenant := p.tenant("far", 1) // of another partition than the first, where there is one
	runOne(t, p, tenant)
	runOthers(t, client, s, tenant)
	denied, err := root.ACLLog(t.Context(), 10).Result()
	must(t, err)
	for _, entry := range denied {
		if entry.Object != "config|get" { // The doctor asks, and says what it cannot see.
			t.Errorf("denied %s: %s", entry.Reason, entry.Object)
		}
	}
	if report := p.want(200, "viewer", ask{op: "GET /api/v1/doctor"}); !strings.Contains(string(report.body), "this Redis does not tell whether") {
		t.Errorf("the doctor does not say what it cannot see: %s", report.body)
	}
	for _, command := range [][]any{
		{"FLUSHALL"},
		{"KEYS", "*"},
		{"CONFIG", "SET", "maxmemory", "1"},
		{"CONFIG", "GET", "requirepass"},
		{"CONFIG", "GET", "save"},
		{"RANDOMKEY"},
		{"ACL", "LIST"},
		{"SHUTDOWN"},
		{"DEBUG", "SLEEP", "0"},
		{"MONITOR"},
		{"REPLICAOF", "NO", "ONE"},
		{"GET", "other"},
		{"SET", "hg{x}:x", "1"},
		{"SET", "hg:x", "1"},
		{"SET", "other{0}:x", "1"},
		{"EVAL", "return redis.call('GET', 'other')", "0"},
		{"EVAL", "return redis.call('FLUSHALL')", "0"},
		{"PUBLISH", "x", "y"},
	} {
		if err := client.Do(t.Context(), command...).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "The user executing the script can't") && !strings.Contains(err.Error(), "ACL failure in script") {
			t.Errorf("%v: %v", command, err)
		}
	}
}

func words(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

// runOthers enqueues with a word about replicas, follows the policy, and decides by leases.
func runOthers(t *testing.T, client *redis.Client, s store.Deployment, tenant string) {
	t.Helper()
	careful, err := redisstore.Open(t.Context(), client, redisstore.Config{Replicas: 1, ReplicaTimeout: time.Millisecond})
	must(t, err)
	enqueuer, err := producer.New(careful, producer.Config{})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- enqueuer.Run(ctx) }()
	verdict, err := enqueuer.Enqueue(t.Context(), admission.NewJob(tenant, "run", "t", nil))
	must(t, err)
	if !verdict.Unreplicated {
		t.Error("nobody was asked for replicas")
	}
	stop()
	must(t, <-ended)
	leasing, err := limiter.New(s, limiter.Config{Timeout: 10 * time.Second})
	must(t, err)
	for range 100 {
		_, err := leasing.Check(t.Context(), limiter.Request{Tenant: tenant, Queue: "run"})
		must(t, err)
	}
	leasing.Close(t.Context())
}

// runOne takes a job through a worker with its scheduler.
func runOne(t *testing.T, p *plant, tenant string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	w, err := worker.New(p.store, worker.Config{Queues: []store.QueueWeight{{Queue: "run", Weight: 1}}, Scheduler: scheduler.Config{}})
	must(t, err)
	ran := make(chan struct{})
	worker.Register(w, "t", func(context.Context, worker.Job[[]byte]) error {
		close(ran)
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	if got := p.call("operator", ask{op: "POST /api/v1/jobs", body: `{"tenant":"` + tenant + `","queue":"run","type":"t","id":"r","delay":"1ms"}`}); got.status != 201 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	<-ran
	stop()
	must(t, <-ended)
	if _, err := p.store.Look(t.Context(), admission.Key{Tenant: tenant, ID: "r"}); err != nil {
		t.Error(err)
	}
}
