package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// late is a worker that says what it runs, and stops once a job has run.
var late = map[string]string{
	"python": `
from headgate import Client, Worker
worker = Worker(Client(), {"mail": 1})

@worker.handler("t")
def run(job):
    print("ran", job.id, flush=True)
    worker.stop()

worker.run()
`,
	"typescript": `
import { Client, Worker } from "headgate";
const worker = new Worker(new Client(), { queues: { mail: 1 }, handlers: { t(job) { console.log("ran", job.id); worker.stop(); } } });
await worker.run();
`,
}

// TestClientsBeginNoLateJobThatWasHeld: of what the session holds, and they have not begun, they hand back what is past its deadline, and run the rest.
func TestClientsBeginNoLateJobThatWasHeld(t *testing.T) {
	t.Parallel()
	const job = `{"tenant":"acme","id":%q,"token":%q,"queue":"mail","type":"t","attempts":0,"payload_base64":""%s}`
	for _, l := range []language{python, script} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var told []string
			fine := false
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				what := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
				mu.Lock()
				defer mu.Unlock()
				answer := `{"jobs":[],"cancelled":[],"lease_ms":15000,"outcome":"released"}`
				switch {
				case what == "workers":
					answer = `{"worker":"w","pool":"p","slots":1,"lease_ms":15000}`
				case what == "leases" && len(told) > 1:
				case what == "leases" && len(told) > 0 && !fine:
					fine = true
					answer = fmt.Sprintf(`{"jobs":[`+job+`],"cancelled":[]}`, "fine", "2-0", "")
				case what == "leases" && strings.Contains(string(body), `"held"`):
					answer = fmt.Sprintf(`{"jobs":[`+job+`],"cancelled":[]}`, "late", "1-0", `,"deadline":"2026-01-01T00:00:00.5Z"`)
				case what == "leases":
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				case what == "release" || what == "complete":
					told = append(told, what+" "+string(body[strings.Index(string(body), `"id"`):][:12]))
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, answer)
			}))
			t.Cleanup(server.Close)
			dir, _ := l.programs(t)
			c, out := l.run(t, dir, late[l.name], server.URL, "hgk_none")
			if err := c.Wait(); err != nil || strings.Count(out.String(), "ran") != 1 || !strings.Contains(out.String(), "ran fine\n") {
				t.Errorf("%v\n%s", err, out.String())
			}
			mu.Lock()
			defer mu.Unlock()
			if len(told) != 2 || !strings.HasPrefix(told[0], "release") || !strings.Contains(told[0], "late") || !strings.HasPrefix(told[1], "complete") {
				t.Errorf("%q", told)
			}
		})
	}
}
