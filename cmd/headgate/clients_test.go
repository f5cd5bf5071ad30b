package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// language is one that has a client in clients, and how its programs are run.
type language struct {
	name string
	// fence begins a program in the README, extension is that of its file.
	fence, extension string
	command          []string
	env              func(dir string) string
}

var (
	python = language{"python", "```python\n", ".py", []string{"python3", "-W", "error"}, func(dir string) string {
		return "PYTHONPATH=" + dir
	}}
)

// programs returns those of the README of a language, in their order.
func (l language) programs(t *testing.T) (dir string, all []string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "clients", l.name))
	must(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	must(t, err)
	for i, part := range strings.Split(string(text), l.fence) {
		if i > 0 {
			program, _, _ := strings.Cut(part, "```")
			all = append(all, program)
		}
	}
	if len(all) != 2 {
		t.Fatalf("the README of clients/%s has %d programs, want one of a producer and one of a worker", l.name, len(all))
	}
	return dir, all
}

// run begins a program; what it says is in the buffer.
func (l language) run(t *testing.T, dir, program, address, key string) (*exec.Cmd, *lockedBuffer) {
	t.Helper()
	if _, err := exec.LookPath(l.command[0]); err != nil {
		t.Fatalf("%s is missing: make deps installs it, or apt-get install python3 nodejs: %v", l.command[0], err)
	}
	file := filepath.Join(t.TempDir(), "program"+l.extension)
	must(t, os.WriteFile(file, []byte(program), 0o600))
	var out lockedBuffer
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	c := exec.CommandContext(ctx, l.command[0], append(l.command[1:len(l.command):len(l.command)], file)...) //nolint:gosec // It is of a README.
	c.Env = append(os.Environ(), "HEADGATE_URL="+address, "HEADGATE_KEY="+key, "PYTHONDONTWRITEBYTECODE=1", l.env(dir))
	c.Stdout, c.Stderr, c.WaitDelay = &out, &out, 5*time.Second
	must(t, c.Start())
	return c, &out
}

// clientPlant is headgate serve with a key of each role that a client has.
func clientPlant(t *testing.T) (address, producer, worker, viewer string) {
	t.Helper()
	lines := ""
	made := map[string]string{}
	for _, role := range []string{"producer", "worker", "viewer"} {
		key, line := makeKey(t, "--name", role, "--role", role)
		made[role], lines = key, lines+line+"\n"
	}
	file := filepath.Join(t.TempDir(), "keys")
	must(t, os.WriteFile(file, []byte(lines), 0o600))
	address, stop := startServe(t, &lockedBuffer{}, "--keys-file", file)
	t.Cleanup(stop)
	return address, made["producer"], made["worker"], made["viewer"]
}

// census is what a server says of its jobs.
func census(t *testing.T, address, key string) map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/api/v1/census", http.NoBody)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	text, err := io.ReadAll(response.Body)
	must(t, errors.Join(err, response.Body.Close()))
	return decode(t, string(text))
}

// testReadme runs the programs of a README as they stand: what the producer enqueues the worker does, once, and SIGTERM ends it well.
func testReadme(t *testing.T, l language) {
	t.Helper()
	address, producer, worker, viewer := clientPlant(t)
	dir, programs := l.programs(t)
	first, said := l.run(t, dir, programs[0], address, producer)
	if err := first.Wait(); err != nil {
		t.Fatalf("the producer: %v\n%s", err, said.String())
	}
	for _, want := range []string{"welcome-ada admitted", "welcome-ada 200", "welcome-bob 201", "welcome-cyd 201", "allowed"} {
		if !strings.Contains(said.String(), want+"\n") {
			t.Errorf("the producer does not say %q:\n%s", want, said.String())
		}
	}
	second, did := l.run(t, dir, programs[1], address, worker)
	for _, name := range []string{"ada", "bob", "cyd"} {
		awaitLog(t, did.String, "hello "+name+"\n", 1)
	}
	must(t, second.Process.Signal(syscall.SIGTERM))
	if err := second.Wait(); err != nil {
		t.Errorf("the worker: %v\n%s", err, did.String())
	}
	if n := strings.Count(did.String(), "hello "); n != 3 {
		t.Errorf("%d jobs were done, want 3\n%s", n, did.String())
	}
	if got := census(t, address, viewer); got["accepted"] != 3.0 || got["live"] != 0.0 {
		t.Errorf("%v", got)
	}
	for _, key := range []string{producer, worker} {
		if strings.Contains(said.String()+did.String(), key) {
			t.Error("a key was printed")
		}
	}
}

func TestTheProgramsOfThePythonReadme(t *testing.T) {
	t.Parallel()
	testReadme(t, python)
}

// killed is a worker that is killed while it runs a job.
const killed = `
import time
from headgate import Client, Worker
worker = Worker(Client(), {"mail": 1}, lease=1)

@worker.handler("slow")
def slow(job):
    print("begun", flush=True)
    time.sleep(60)

worker.run()
`

// heir does what the killed one left.
const heir = `
from headgate import Client, Worker
worker = Worker(Client(), {"mail": 1}, lease=1)

@worker.handler("slow")
def slow(job):
    print("done", job.id, job.json(), flush=True)
    worker.stop()

worker.run()
`

// TestTheJobOfAKilledPythonWorkerRunsElsewhere: it comes back after the lease, and nothing is lost.
func TestTheJobOfAKilledPythonWorkerRunsElsewhere(t *testing.T) {
	t.Parallel()
	address, producer, worker, viewer := clientPlant(t)
	dir, _ := python.programs(t)
	enqueue, said := python.run(t, dir, `from headgate import Client; Client().enqueue("acme", "mail", "slow", {"n": 7}, id="one")`, address, producer)
	if err := enqueue.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	victim, begun := python.run(t, dir, killed, address, worker)
	awaitLog(t, begun.String, "begun", 1)
	must(t, victim.Process.Kill())
	_ = victim.Wait() // It was killed.
	next, done := python.run(t, dir, heir, address, worker)
	if err := next.Wait(); err != nil || done.String() != "done one {'n': 7}\n" {
		t.Errorf("%v\n%s", err, done.String())
	}
	if got := census(t, address, viewer); got["accepted"] != 1.0 || got["live"] != 0.0 {
		t.Errorf("%v", got)
	}
}
