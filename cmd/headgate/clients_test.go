package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
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
	// env lets a program find the client in dir; nil stands for a package installed beside the program.
	env func(dir string) string
}

var (
	python = language{"python", "```python\n", ".py", []string{"python3", "-W", "error"}, func(dir string) string {
		return "PYTHONPATH=" + dir
	}}
	script = language{"typescript", "```js\n", ".mjs", []string{"node"}, nil}
)

// programs returns those of the README of a language, in their order.
func (l language) programs(t *testing.T) (dir string, all []string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "clients", l.name))
	must(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	must(t, err)
	sources, err := filepath.Glob(filepath.Join(dir, "*", "*.*"))
	must(t, err)
	for _, name := range sources { // So that the go command runs the test again where one has changed.
		_, err := os.ReadFile(name)
		must(t, err)
	}
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
	beside := t.TempDir()
	file := filepath.Join(beside, "program"+l.extension)
	must(t, os.WriteFile(file, []byte(program), 0o600))
	var out lockedBuffer
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	c := exec.CommandContext(ctx, l.command[0], append(l.command[1:len(l.command):len(l.command)], file)...) //nolint:gosec // It is of a README.
	c.Env = append(os.Environ(), "HEADGATE_URL="+address, "HEADGATE_KEY="+key, "PYTHONDONTWRITEBYTECODE=1")
	if l.env != nil {
		c.Env = append(c.Env, l.env(dir))
	} else { // As npm install of a directory does.
		must(t, os.Mkdir(filepath.Join(beside, "node_modules"), 0o700))
		must(t, os.Symlink(dir, filepath.Join(beside, "node_modules", "headgate")))
	}
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
	return decode(t, ask(t, address, key, "census"))
}

// ask returns what a server says of something.
func ask(t *testing.T, address, key, about string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/api/v1/"+about, http.NoBody)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	text, err := io.ReadAll(response.Body)
	must(t, errors.Join(err, response.Body.Close()))
	return string(text)
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
	for _, want := range []string{"welcome-ada admitted", "welcome-ada 200", "welcome-bob 201", "welcome-cyd 201", "allowed", "committed 25 of 40"} {
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

func TestTheProgramsOfTheTypeScriptReadme(t *testing.T) {
	t.Parallel()
	testReadme(t, script)
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

// once is a program that enqueues a job and then asks a limit, and says how each ended.
var once = map[string]string{
	"python": `
from headgate import Client, NetworkError
client = Client()
print("enqueued", client.enqueue("acme", "mail", "welcome")["decision"])
try:
    client.check("acme")
except NetworkError as error:
    print("no answer", error.status)
`,
	"typescript": `
import { Client, NetworkError } from "headgate";
const client = new Client();
console.log("enqueued", (await client.enqueue({ tenant: "acme", queue: "mail", type: "welcome" })).decision);
await client.check({ scope: "acme" }).catch((error) => {
  if (!(error instanceof NetworkError)) throw error;
  console.log("no answer", error.status);
});
`,
}

// TestClientsSendAgainWhatIsSafe: a job whose answer was lost is sent again with the id that it had, also after a 503; a check, which would be
// charged twice, is not.
func TestClientsSendAgainWhatIsSafe(t *testing.T) {
	t.Parallel()
	for _, l := range []language{python, script} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			calls := make(chan string, 16)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				var job struct{ ID string }
				if err = errors.Join(err, json.Unmarshal(body, &job)); err != nil {
					t.Error(err)
				}
				calls <- r.URL.Path + " " + job.ID
				switch n := len(calls); {
				case r.URL.Path == "/api/v1/jobs" && n == 2:
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = io.WriteString(w, `{"type":"urn:headgate:problem:unavailable","detail":"away"}`)
				case r.URL.Path == "/api/v1/jobs" && n == 3:
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"id":"x","decision":"duplicate"}`)
				default:
					panic(http.ErrAbortHandler) // The connection ends without an answer.
				}
			}))
			t.Cleanup(server.Close)
			dir, _ := l.programs(t)
			c, out := l.run(t, dir, once[l.name], server.URL, "hgk_none")
			if err := c.Wait(); err != nil || out.String() != "enqueued duplicate\nno answer 0\n" {
				t.Errorf("%v\n%s", err, out.String())
			}
			first, second, third := <-calls, <-calls, <-calls
			if len(first) < len("/api/v1/jobs ")+36 || first != second || second != third {
				t.Errorf("%q, %q, %q", first, second, third)
			}
			if check := <-calls; len(calls) != 0 || check != "/api/v1/rate-limit/check " {
				t.Errorf("%q, and %d calls more", check, len(calls))
			}
		})
	}
}

// again is a program that asks a limit four times, and waits before the last for the server to close what is idle.
var again = map[string]string{
	"python": `
import os, time
from headgate import Client
client = Client(retries=0)
for pause in (0, 0, 0, 1.5):
    time.sleep(pause)
    print(client.check("acme")["allowed"])
if os.fork() == 0:
    print(client.check("acme")["allowed"], flush=True)
    os._exit(0)
os.wait()
print(client.check("acme")["allowed"])
`,
	"typescript": `
import { Client } from "headgate";
const client = new Client({ retries: 0 });
for (const pause of [0, 0, 0, 1500]) {
  await new Promise((resolve) => setTimeout(resolve, pause));
  console.log((await client.check({ scope: "acme" })).allowed);
}
`,
}

// TestClientsKeepTheirConnections: calls share one, a check among them, which is not sent again; what the server has closed meanwhile carries none, and a child of
// fork makes its own.
func TestClientsKeepTheirConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		language
		calls, connections int64
	}{{python, 6, 3}, {script, 4, 2}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var calls, connections atomic.Int64
			var server *httptest.Server
			server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) == 3 { // The program waits after this one.
					time.AfterFunc(100*time.Millisecond, server.CloseClientConnections)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"allowed":true}`)
			}))
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			server.Start()
			t.Cleanup(server.Close)
			dir, _ := row.programs(t)
			c, out := row.run(t, dir, again[row.name], server.URL, "hgk_none")
			if err := c.Wait(); err != nil || strings.Count(strings.ToLower(out.String()), "true\n") != int(row.calls) || calls.Load() != row.calls {
				t.Errorf("%v, %d calls\n%s", err, calls.Load(), out.String())
			}
			if got := connections.Load(); got != row.connections {
				t.Errorf("%d connections for %d calls, want %d", got, row.calls, row.connections)
			}
		})
	}
}

// TestThePythonClientBelievesItsAuthorities, and no others.
func TestThePythonClientBelievesItsAuthorities(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"allowed":true}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	dir, _ := python.programs(t)
	c, out := python.run(t, dir, `
from headgate import Client, HeadgateError
print(Client(ca_file="`+file+`").check("acme")["allowed"])
try:
    Client().check("acme")
except HeadgateError as error:
    print("certificate" in str(error))
`, server.URL, "hgk_none")
	if err := c.Wait(); err != nil || out.String() != "True\nTrue\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// long is a worker whose job ends when the file is there that it names.
var long = map[string]string{
	"python": `
import os, time
from headgate import Client, Worker
worker = Worker(Client(), {"mail": 1}, lease=3)

@worker.handler("slow")
def slow(job):
    print("begun", flush=True)
    while not os.path.exists(job.json()):
        time.sleep(0.02)
    print("cancelled" if job.cancelled.is_set() else "kept", flush=True)

worker.run()
`,
	"typescript": `
import { existsSync } from "node:fs";
import { Client, Worker } from "headgate";
const worker = new Worker(new Client(), { queues: { mail: 1 }, lease: 3, handlers: { async slow(job) {
  console.log("begun");
  while (!existsSync(job.json())) await new Promise((resolve) => setTimeout(resolve, 20));
  console.log(job.signal.aborted ? "cancelled" : "kept");
} } });
await worker.run();
`,
}

// TestAWorkerKeepsItsLeaseAndDrains: a job that takes longer than its lease runs once, and to its end after SIGTERM.
func TestAWorkerKeepsItsLeaseAndDrains(t *testing.T) {
	t.Parallel()
	for _, l := range []language{python, script} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			address, producer, worker, viewer := clientPlant(t)
			dir, _ := l.programs(t)
			end := filepath.Join(t.TempDir(), "end")
			enqueueBy(t, dir, `from headgate import Client; Client().enqueue("acme", "mail", "slow", "`+end+`", id="one")`, address, producer)
			c, out := l.run(t, dir, long[l.name], address, worker)
			awaitLog(t, out.String, "begun", 1)
			other, idle := l.run(t, dir, long[l.name], address, worker) // It would be handed what is not kept.
			awaitLog(t, func() string { return ask(t, address, viewer, "workers") }, `"lease_end"`, 2)
			must(t, c.Process.Signal(syscall.SIGTERM))
			<-time.After(7 * time.Second) // More than two leases, which are long because a busy machine halts processes.
			must(t, os.WriteFile(end, nil, 0o600))
			if err := c.Wait(); err != nil || out.String() != "begun\nkept\n" {
				t.Errorf("%v\n%s", err, out.String())
			}
			must(t, other.Process.Signal(syscall.SIGTERM))
			if err := other.Wait(); err != nil || idle.String() != "" {
				t.Errorf("the other: %v\n%s", err, idle.String())
			}
			if got := census(t, address, viewer); got["accepted"] != 1.0 || got["live"] != 0.0 {
				t.Errorf("%v", got)
			}
		})
	}
}
