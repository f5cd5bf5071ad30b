package main

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// quick is a worker of two jobs at a time that says what it begins, and ends it when the file is there that it names.
var quick = map[string]string{
	"python": `
import os, time
from headgate import Client, Worker
worker = Worker(Client(), {"mail": 1}, slots=2, wait=0.2)

@worker.handler("slow")
def slow(job):
    print("begun", flush=True)
    while not os.path.exists(job.json()):
        time.sleep(0.02)

worker.run()
`,
	"typescript": `
import { existsSync } from "node:fs";
import { Client, Worker } from "headgate";
const worker = new Worker(new Client(), { queues: { mail: 1 }, slots: 2, wait: 0.2, handlers: { async slow(job) {
  console.log("begun");
  while (!existsSync(job.json())) await new Promise((resolve) => setTimeout(resolve, 20));
} } });
await worker.run();
`,
}

// TestAJobThatEndsWhileItIsAskedForWhatIsHeldRunsOnce: the answer tells of it still, and comes after its end.
func TestAJobThatEndsWhileItIsAskedForWhatIsHeldRunsOnce(t *testing.T) {
	t.Parallel()
	for _, l := range []language{python, script} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			address, producer, worker, viewer := clientPlant(t)
			dir, _ := l.programs(t)
			end := filepath.Join(t.TempDir(), "end")
			enqueueBy(t, dir, `from headgate import Client; Client().enqueue("acme", "mail", "slow", "`+end+`", id="one")`, address, producer)
			target, err := url.Parse(address)
			must(t, err)
			forward := httputil.NewSingleHostReverseProxy(target)
			var taken, broken, late, answered atomic.Bool
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				isLease := strings.HasSuffix(r.URL.Path, "/leases")
				if isLease && taken.Load() && broken.CompareAndSwap(false, true) {
					panic(http.ErrAbortHandler) // So it asks for what is held.
				}
				got := httptest.NewRecorder()
				forward.ServeHTTP(got, r)
				if isLease && strings.Contains(got.Body.String(), `"one"`) {
					if !taken.CompareAndSwap(false, true) && bytes.Contains(body, []byte(`"held":true`)) && late.CompareAndSwap(false, true) {
						if err := os.WriteFile(end, nil, 0o600); err != nil {
							t.Error(err)
						}
						awaitCensus(t, address, viewer, 0) //nolint:contextcheck // It has the test's own.
						time.Sleep(500 * time.Millisecond) //nolint:forbidigo // The worker has heard of the end.
						defer answered.Store(true)
					}
				}
				maps.Copy(w.Header(), got.Header())
				w.WriteHeader(got.Code)
				_, _ = w.Write(got.Body.Bytes())
			}))
			t.Cleanup(proxy.Close)
			c, out := l.run(t, dir, quick[l.name], proxy.URL, worker)
			for until := time.Now().Add(20 * time.Second); !answered.Load() && time.Now().Before(until); {
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // It is soon.
			}
			time.Sleep(500 * time.Millisecond) //nolint:forbidigo // What would begin again has begun.
			must(t, c.Process.Signal(syscall.SIGTERM))
			_ = c.Wait() // What it said tells.
			if n := strings.Count(out.String(), "begun"); n != 1 || !answered.Load() {
				t.Errorf("it was begun %d times, late answer %t\n%s", n, answered.Load(), out.String())
			}
		})
	}
}

// enqueueBy runs a program in Python that enqueues, dir being any of l.programs.
func enqueueBy(t *testing.T, dir, program, address, key string) {
	t.Helper()
	enqueue, said := python.run(t, filepath.Join(dir, "..", "python"), program, address, key)
	if err := enqueue.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
}

// awaitCensus waits until so many jobs live.
func awaitCensus(t *testing.T, address, key string, live float64) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
		if census(t, address, key)["live"] == live {
			return
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // It is soon.
	}
	t.Errorf("%v", census(t, address, key))
}

// wrong is a worker whose jobs end in ways that the server, or the client itself, does not take.
var wrong = map[string]string{
	"python": `
from headgate import Client, Fail, Worker
worker = Worker(Client(), {"mail": 1}, slots=8)

@worker.handler("large")
def large(job):
    job.set_result(b"x" * 65537)

@worker.handler("text")
def text(job):
    job.set_result("no bytes")

@worker.handler("kind")
def kind(job):
    raise Fail("it failed", kind="bogus")

worker.run()
`,
	"typescript": `
import { Client, Fail, Worker } from "headgate";
const worker = new Worker(new Client(), { queues: { mail: 1 }, slots: 8, handlers: {
  large(job) { job.setResult(Buffer.alloc(65537)); },
  text(job) { job.setCost(1.5); },
  kind() { throw new Fail("it failed", { kind: "bogus" }); },
} });
await worker.run();
`,
}

// TestAnEndThatIsNotAllowedIsAFailure: the job has its attempts, and is a dead letter that says why after the last. It would have run again for ever.
func TestAnEndThatIsNotAllowedIsAFailure(t *testing.T) {
	t.Parallel()
	for _, l := range []language{python, script} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			address, producer, worker, viewer := clientPlant(t)
			dir, _ := l.programs(t)
			enqueueBy(t, dir, `
from headgate import Client
for type in ("large", "text", "kind"):
    Client().enqueue("acme", "mail", type, id=type, max_attempts=1)
`, address, producer)
			c, out := l.run(t, dir, wrong[l.name], address, worker)
			letters := ""
			for until := time.Now().Add(10 * time.Second); strings.Count(letters, `"id":`) < 3 && time.Now().Before(until); {
				time.Sleep(50 * time.Millisecond) //nolint:forbidigo // It is soon.
				letters = ask(t, address, viewer, "dead-letters")
			}
			must(t, c.Process.Signal(syscall.SIGTERM))
			_ = c.Wait() // What it said tells.
			for _, id := range []string{"large", "text", "kind"} {
				if !strings.Contains(letters, `"id":"`+id+`"`) {
					t.Errorf("%s is no dead letter: %s\n%s", id, letters, out.String())
				}
			}
		})
	}
}

// through is a program that makes calls that a proxy answers, and says how each ended and how often it was asked.
var through = map[string]string{
	"python": `
from headgate import Client, HeadgateError
client = Client(retries=1)
for call in (lambda: client.enqueue("acme", "limited", "x"), lambda: client.enqueue("acme", "page", "x"), lambda: client.complete("w", "acme", "one", "t"), lambda: client.check("acme")):
    try:
        print("answered", call())
    except HeadgateError as error:
        print(type(error).__name__, error.status)
`,
	"typescript": `
import { Client } from "headgate";
const client = new Client({ retries: 1 });
for (const call of [() => client.enqueue({ tenant: "acme", queue: "limited", type: "x" }), () => client.enqueue({ tenant: "acme", queue: "page", type: "x" }),
  () => client.complete("w", { tenant: "acme", id: "one", token: "t" }), () => client.check({ scope: "acme" })]) {
  await call().then((value) => console.log("answered", value), (error) => console.log(error.name, error.status));
}
`,
}

// TestAnswersOfAProxyAreNoneOfTheServer: its 429 and its pages are no verdicts, and after its 502 and 503 what was asked may have been done.
func TestAnswersOfAProxyAreNoneOfTheServer(t *testing.T) {
	t.Parallel()
	for _, l := range []language{python, script} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			var calls [4]atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				answer := func(call, status int, media, text string) {
					calls[call].Add(1)
					w.Header().Set("Content-Type", media)
					w.WriteHeader(status)
					_, _ = io.WriteString(w, text)
				}
				switch {
				case strings.HasSuffix(r.URL.Path, "/complete"):
					answer(2, http.StatusBadGateway, "text/html", "<h1>502 Bad Gateway</h1>")
				case strings.HasSuffix(r.URL.Path, "/check"):
					answer(3, http.StatusServiceUnavailable, "text/plain", "upstream connect error or disconnect/reset before headers")
				case bytes.Contains(body, []byte(`"page"`)):
					answer(1, http.StatusOK, "text/html", "<h1>Welcome</h1>")
				default:
					answer(0, http.StatusTooManyRequests, "application/json", `{"message":"API rate limit exceeded"}`)
				}
			}))
			t.Cleanup(server.Close)
			dir, _ := l.programs(t)
			c, out := l.run(t, dir, through[l.name], server.URL, "hgk_none")
			want := "TooManyRequests 429\nNetworkError 0\nOutcomeUnknown 502\nOutcomeUnknown 503\n"
			if err := c.Wait(); err != nil || out.String() != want {
				t.Errorf("%v\n%s", err, out.String())
			}
			for call, times := range []int64{2, 2, 2, 1} { // A check is not to be charged twice.
				if got := calls[call].Load(); got != times {
					t.Errorf("call %d was made %d times, want %d", call, got, times)
				}
			}
		})
	}
}

// deaf is a worker whose job says when it is cancelled, as it is to be before the lease ends.
var deaf = map[string]string{
	"python": `
from headgate import Client, Worker
worker = Worker(Client(), {"mail": 1}, lease=3, drain=0)

@worker.handler("slow")
def slow(job):
    print("begun", flush=True)
    if job.cancelled.wait(15):
        print("cancelled", flush=True)

worker.run()
`,
	"typescript": `
import { Client, Worker } from "headgate";
const worker = new Worker(new Client(), { queues: { mail: 1 }, lease: 3, drain: 0, handlers: { async slow(job) {
  console.log("begun");
  await new Promise((resolve) => job.signal.addEventListener("abort", resolve));
  console.log("cancelled");
} } });
await worker.run();
`,
}

// TestAJobIsCancelledBeforeALeaseEndsThatCannotBeRenewed: the server is not heard of, and has somebody else run it then.
func TestAJobIsCancelledBeforeALeaseEndsThatCannotBeRenewed(t *testing.T) {
	t.Parallel()
	for _, l := range []language{python, script} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			address, producer, worker, _ := clientPlant(t)
			dir, _ := l.programs(t)
			enqueueBy(t, dir, `from headgate import Client; Client().enqueue("acme", "mail", "slow", id="one")`, address, producer)
			target, err := url.Parse(address)
			must(t, err)
			forward := httputil.NewSingleHostReverseProxy(target)
			gone := make(chan struct{})
			var silent atomic.Bool
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if silent.Load() {
					<-gone
					panic(http.ErrAbortHandler)
				}
				forward.ServeHTTP(w, r)
			}))
			t.Cleanup(proxy.Close)
			t.Cleanup(func() { close(gone) })
			c, out := l.run(t, dir, deaf[l.name], proxy.URL, worker)
			awaitLog(t, out.String, "begun", 1)
			silent.Store(true)
			for until := time.Now().Add(3500 * time.Millisecond); !strings.Contains(out.String(), "cancelled") && time.Now().Before(until); {
				time.Sleep(20 * time.Millisecond) //nolint:forbidigo // It is soon.
			}
			if !strings.Contains(out.String(), "cancelled") {
				t.Errorf("it runs on after its lease:\n%s", out.String())
			}
			must(t, c.Process.Kill())
			_ = c.Wait() // It was killed.
		})
	}
}
