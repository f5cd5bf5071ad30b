package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMigrateSaysWhatItWouldDoAndDoesIt(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	for i := range 40 {
		j := admission.NewJob(fmt.Sprintf("t%d", i), "mail", "welcome", nil)
		_, err := p.producer.Enqueue(t.Context(), j)
		must(t, err)
	}
	p.setPolicy(`{"queues": {"mail": {"max_running": 8}}}`)
	_, err := p.store.Partitions()[0].Register(t.Context(), "w1", mailPool, 1, time.Minute)
	must(t, err)
	dry := p.object(cli.ExitOK, "migrate --partitions 4 --dry-run")
	if dry["jobs"] != 40.0 || dry["from"] != 1.0 || dry["to"] != 4.0 || dry["migrated"] != false || fmt.Sprint(dry["busy"]) != "[worker w1]" || dry["policy_version"] != 2.0 {
		t.Errorf("%v", dry)
	}
	if out := p.run(cli.ExitNothing, "migrate --partitions 4 --wait 0s"); !strings.Contains(out.stderr, "worker w1; stop them first") {
		t.Errorf("%+v", out)
	}
	if c, err := p.store.Census(t.Context()); err != nil || c.Ready != 1 {
		t.Errorf("after two that changed nothing: %+v, %v", c, err)
	}
	for more := true; more; {
		more, err = p.store.Partitions()[0].Reclaim(t.Context(), "w1")
		must(t, err)
	}
	done := p.object(cli.ExitOK, "migrate --partitions 4")
	if done["migrated"] != true || done["moving"] != dry["moving"] {
		t.Errorf("%v after %v", done, dry)
	}
	if out := p.run(cli.ExitOK, "migrate --partitions 4"); !strings.Contains(out.stdout, "has 4 partitions; 0 jobs have moved") {
		t.Errorf("a second time: %+v", out)
	}
	if queue := p.object(cli.ExitOK, "queue show mail"); queue["waiting"] != 40.0 {
		t.Errorf("%v", queue)
	}
	if _, err := p.producer.Enqueue(t.Context(), admission.NewJob("acme", "mail", "welcome", nil)); !errors.Is(err, admission.ErrPartitions) {
		t.Errorf("a producer that was there before: %v", err)
	}
}

func TestMigrateRefusesWithWords(t *testing.T) {
	t.Parallel()
	here, there := newPlant(t), redistest.Start(t, redistest.Options{})
	here.enqueue("one")
	here.setPolicy(`{"queues": {"mail": {"max_running": 2}}}`)
	for line, want := range map[string]string{
		"migrate":                           "invalid --partitions 0: allowed is 1 to 256",
		"migrate --partitions 257":          "invalid --partitions 257: allowed is 1 to 256",
		"migrate --partitions 4 --wait -1s": "invalid --wait -1s: allowed is 0 or more",
		"migrate --partitions 4":            "invalid max_running of queue mail 2: allowed is 4 or more: one for each partition",
	} {
		if out := here.run(cli.ExitUsage, line); !strings.Contains(out.stderr, want) {
			t.Errorf("%s: %+v", line, out)
		}
	}
	if out := here.run(cli.ExitFailure, "migrate --partitions 2 --to ftp://x"); !strings.Contains(out.stderr, "--to: open the store: redis address has an unknown scheme") {
		t.Errorf("%+v", out)
	}
	other, err := redisstore.Open(t.Context(), there.Client(t), redisstore.Config{Prefix: here.prefix()})
	must(t, err)
	p, err := producer.New(other, producer.Config{Policy: new(policy.Unlimited())})
	must(t, err)
	_, err = p.Enqueue(t.Context(), admission.NewJob("acme", "mail", "welcome", nil))
	must(t, err)
	if out := here.run(cli.ExitFailure, "migrate --partitions 2 --to "+there.URL()); !strings.Contains(out.stderr, "the target holds another deployment") {
		t.Errorf("%+v", out)
	}
	if out := runHeadgate(t.Context(), "migrate", "--partitions", "2", "--redis", there.URL(), "--prefix", "nobody"); out.code != cli.ExitFailure || !strings.Contains(out.stderr, "there is no deployment under nobody{0}:") {
		t.Errorf("%+v", out)
	}
}

// prefix returns that of the plant's keys.
func (p *plant) prefix() string { return p.where[len(p.where)-1] }

func (p *plant) setPolicy(text string) {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "policy.json")
	must(p.t, os.WriteFile(file, []byte(text), 0o600))
	p.run(cli.ExitOK, "policy set "+file)
}

// movingSite is a deployment with processes of its own: producers, workers that deliver to a server, migrations.
type movingSite struct {
	*testing.T

	server   *redistest.Server
	client   *redis.Client
	receiver *httptest.Server

	mu struct {
		sync.Mutex

		delivered map[string]int // by id
	}
}

func newMovingSite(t *testing.T) *movingSite {
	t.Helper()
	s := &movingSite{T: t, server: redistest.Start(t, redistest.Options{})}
	s.client = s.server.Client(t)
	s.mu.delivered = map[string]int{}
	s.receiver = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.delivered[r.Header.Get("Webhook-Id")]++
	}))
	t.Cleanup(s.receiver.Close)
	return s
}

// start starts headgate on a Redis as a process of its own.
func (s *movingSite) start(redis string, stderr io.Writer, args ...string) *exec.Cmd {
	s.Helper()
	binary, err := os.Executable()
	must(s.T, err)
	c := exec.CommandContext(context.WithoutCancel(s.Context()), binary, append(args, "--redis", redis)...) //nolint:gosec // It is this binary.
	c.Env = append(os.Environ(), asCommand+"=1")
	c.Stderr = stderr
	must(s.T, c.Start())
	s.Cleanup(func() { _ = c.Process.Kill() }) // Most have ended.
	return c
}

func (s *movingSite) worker(redis string) *exec.Cmd {
	s.Helper()
	return s.start(redis, s.Output(), "worker", "--queue", "mail", "--deliver", s.receiver.URL, "--allow-private", "--concurrency", "4")
}

// until waits until something is so.
func (s *movingSite) until(what string, so func() bool) {
	s.Helper()
	redistest.Await(s, what, so)
}

func (s *movingSite) delivered() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.delivered)
}

// produce sends jobs until so many are in, each again for as long as it is refused, over whatever store there is.
func (s *movingSite) produce(jobs int, in func(n int)) error {
	var p *producer.Producer
	for n := 0; n < jobs && s.Context().Err() == nil; {
		if p == nil {
			st, err := redisstore.Open(s.Context(), s.client, redisstore.Config{})
			if errors.Is(err, admission.ErrMigrating) {
				<-time.After(5 * time.Millisecond) // The machine is the migration's.
				continue
			}
			if err == nil {
				p, err = producer.New(st, producer.Config{Policy: new(policy.Unlimited())})
			}
			if err != nil {
				return err
			}
		}
		job := admission.NewJob(fmt.Sprintf("tenant-%d", n%50), "mail", "welcome", nil)
		job.ID = fmt.Sprintf("job-%d", n)
		switch _, err := p.Enqueue(s.Context(), job); {
		case errors.Is(err, admission.ErrPartitions):
			p = nil
		case errors.Is(err, admission.ErrUnavailable):
		case err != nil:
			return err
		default:
			n++
			in(n)
		}
	}
	return nil
}

// migrate runs the command until it has ended, and kills it each time it gets a little further: how far is counted from when it says that
// it works, since how long a process takes to start is the machine's affair. It returns how often.
func (s *movingSite) migrate(partitions int, args ...string) (kills int) {
	s.Helper()
	state, to := keyspace.New(keyspace.DefaultPrefix, 0).State(), strconv.Itoa(partitions)
	layout := func() string { return s.client.HGet(s.Context(), state, "partitions").Val() }
	for {
		var said lockedBuffer
		m := s.start(s.server.URL(), io.MultiWriter(&said, s.Output()), append([]string{"migrate", "--partitions", to}, args...)...)
		ended := make(chan error, 1)
		go func() { ended <- m.Wait() }()
		s.until("the migration begins", func() bool { return strings.Contains(said.String(), "prepare partitions") || len(ended) > 0 })
		select {
		case err := <-ended:
			must(s.T, err)
			return kills
		case <-time.After(time.Duration(kills*10) * time.Millisecond):
			killed := m.Process.Kill()
			err := <-ended
			switch {
			case errors.Is(killed, os.ErrProcessDone): // It ended as the time was over.
				must(s.T, err)
			case killed != nil:
				s.Fatal(killed)
			case err != nil:
				kills++
			}
		}
		if at := layout(); at == to || strings.HasPrefix(at, ">") { // It is there, or says where it has moved.
			return kills // It was killed once it had ended.
		}
	}
}

// audit asks that all jobs are accounted for, and that each was delivered once.
func (s *movingSite) audit(store store.Deployment, jobs int64) {
	s.Helper()
	census, err := store.Census(s.Context())
	must(s.T, err)
	if !census.Conserved() || census.Accepted != jobs || census.Left["completed"] != jobs || census.Live != 0 {
		s.Errorf("%+v", census)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.mu.delivered {
		if n != 1 {
			s.Errorf("%s was delivered %d times", id, n)
		}
	}
}

// TestMigrateUnderLoad lets a deployment grow while a producer goes on and kills the migration each time it gets a little further.
// Nothing is lost, and every job runs once.
func TestMigrateUnderLoad(t *testing.T) {
	t.Parallel()
	s := newMovingSite(t)
	const jobs, partitions = 1200, 4
	var mu sync.Mutex
	admitted := 0
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return admitted
	}
	produced := make(chan error, 1)
	go func() {
		produced <- s.produce(jobs, func(n int) {
			mu.Lock()
			defer mu.Unlock()
			admitted = n
		})
	}()
	first := s.worker(s.server.URL())
	s.until("a worker works under load", func() bool { return count() > 300 && s.delivered() > 20 })
	must(t, first.Process.Signal(syscall.SIGTERM))
	must(t, first.Wait())

	kills := s.migrate(partitions)
	if kills == 0 {
		t.Error("no migration was killed")
	}
	second := s.worker(s.server.URL())
	must(t, <-produced)
	s.until("all jobs have run", func() bool { return s.delivered() == jobs })
	must(t, second.Process.Signal(syscall.SIGTERM))
	must(t, second.Wait())

	st, err := redisstore.Open(t.Context(), s.client, redisstore.Config{Partitions: partitions})
	must(t, err)
	s.audit(st, jobs)
	t.Logf("killed %d times", kills)
}

// TestMigrateToAClusterIsKilledAndGoesOn moves a backlog from one Redis to three masters, whose worker has each job once.
func TestMigrateToAClusterIsKilledAndGoesOn(t *testing.T) {
	t.Parallel()
	s, cluster := newMovingSite(t), redistest.StartNodes(t, 3, false)
	const jobs, partitions = 600, 6
	must(t, s.produce(jobs, func(int) {}))
	if kills := s.migrate(partitions, "--to", cluster.URL()); kills == 0 {
		t.Error("no migration was killed")
	} else {
		t.Logf("killed %d times", kills)
	}
	if _, err := redisstore.Open(t.Context(), s.client, redisstore.Config{}); !errors.Is(err, admission.ErrMoved) {
		t.Errorf("where it was: %v", err)
	}
	st, err := redisstore.Open(t.Context(), cluster.Client(t), redisstore.Config{Partitions: partitions})
	must(t, err)
	last := s.worker(cluster.URL())
	s.until("all jobs have run", func() bool { return s.delivered() == jobs })
	must(t, last.Process.Signal(syscall.SIGTERM))
	must(t, last.Wait())
	s.audit(st, jobs)
}
