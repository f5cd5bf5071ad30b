package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// keyVariable hands the attacker its key: arguments are for everybody to see.
const keyVariable = "NEIGHBOUR_KEY"

// attack is what an attacker calls: a method and a path, and a body for the nth call.
type attack struct {
	name, method, path string
	body               func(n int64) string
}

// attacks are the routes that a tenant's key may call, and the bodies that cost most on them.
var attacks = func() []attack {
	constant := func(body string) func(int64) string { return func(int64) string { return body } }
	job := func(size int, id func(n int64) string) func(int64) string {
		payload := strings.Repeat("x", size)
		return func(n int64) string {
			return `{"tenant":"evil","queue":"mail","type":"t","id":"` + id(n) + `","payload":"` + payload + `"}`
		}
	}
	fresh := func(n int64) string { return "e" + strconv.FormatInt(n, 10) }
	same := func(int64) string { return "same" }
	var many []string
	for i := range 64 {
		many = append(many, fmt.Sprintf(`{"scope":"evil:q%d"}`, i))
	}
	const check, jobs = "/api/v1/rate-limit/check", "/api/v1/jobs"
	return []attack{
		{"check", http.MethodPost, check, constant(`{"scope":"evil:mail"}`)},
		{"check of 64", http.MethodPost, check, constant(`{"checks":[` + strings.Join(many, ",") + `]}`)},
		{"check, bodies of zeros", http.MethodPost, check, constant(`{"checks":[` + strings.Repeat("0,", 31<<10) + `0]}`)},
		{"jobs", http.MethodPost, jobs, job(100, fresh)},
		{"jobs of 1 MB", http.MethodPost, jobs, job(1<<20-1024, fresh)},
		{"duplicates of 1 MB", http.MethodPost, jobs, job(1<<20-1024, same)},
		{"jobs, bodies of zeros", http.MethodPost, jobs, constant(`{"payload":[` + strings.Repeat("0,", 500<<10) + `0]}`)},
		{"list jobs", http.MethodGet, jobs + "?limit=1000", constant("")},
		{"list letters", http.MethodGet, "/api/v1/dead-letters?limit=1000", constant("")},
		{"look at a job", http.MethodGet, jobs + "/evil/same", constant("")},
		{"payload", http.MethodGet, jobs + "/evil/same/payload", constant("")},
		{"cancel", http.MethodDelete, jobs + "/evil/none", constant("")},
		{"redrive", http.MethodPost, "/api/v1/dead-letters/redrive", constant(`{"filter":{"queue":"mail","before":"2090-01-01T00:00:00Z"}}`)},
		{"purge", http.MethodPost, "/api/v1/dead-letters/purge", constant(`{"filter":{"queue":"mail","before":"2090-01-01T00:00:00Z"}}`)},
		{"status", http.MethodGet, "/api/v1/rate-limit/status/evil:mail", constant("")},
		{"explain", http.MethodGet, "/api/v1/explain/job/evil:same", constant("")},
		{"the tenant", http.MethodGet, "/api/v1/tenants/evil", constant("")},
		{"not for it", http.MethodGet, "/api/v1/queues", constant("")},
		{"the description", http.MethodGet, "/api/v1/openapi.json", constant("")},
		{"health", http.MethodGet, "/api/v1/health/ready", constant("")},
		{"nowhere", http.MethodGet, "/api/v1/nowhere", constant("")},
	}
}()

// caller calls with a key.
type caller struct {
	client       *http.Client
	address, key string
}

func newCaller(address, key string, connections int) *caller {
	transport := &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, DisableCompression: true}
	return &caller{&http.Client{Transport: transport, Timeout: time.Minute}, address, key}
}

// call returns the status of a call.
func (c *caller) call(ctx context.Context, method, path, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.address+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}

// tally counts what became of an attacker's calls.
type tally struct {
	made, good, failed int64
	span               time.Duration
}

// String says how many calls a second there were.
func (t tally) String() string {
	seconds := max(t.span.Seconds(), 1e-3)
	return fmt.Sprintf("%.0f, %.0f", float64(t.made)/seconds, float64(t.good)/seconds)
}

// begun is the line by which an attacker says that all its connections call.
const begun = "begun"

// attackAs is the whole of a process that attacks: address, attack, connections and span are its arguments.
func attackAs(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return errors.New("an attacker is told address, attack, connections and span")
	}
	connections, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	span, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	for _, a := range attacks {
		if a.name == args[1] {
			t := a.run(ctx, newCaller(args[0], os.Getenv(keyVariable), connections), connections, span, func() { fmt.Println(begun) })
			_, err := fmt.Println(t.made, t.good, t.failed, t.span.Nanoseconds())
			return err
		}
	}
	return fmt.Errorf("there is no attack %q", args[1])
}

// run calls on every connection, one call after the other, for a span.
func (a attack) run(ctx context.Context, c *caller, connections int, span time.Duration, started func()) tally {
	ctx, stop := context.WithTimeout(ctx, span)
	defer stop()
	began := time.Now()
	base := began.UnixNano()
	var made, good, failed atomic.Int64
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for ctx.Err() == nil {
				status, err := c.call(ctx, a.method, a.path, a.body(base+made.Add(1)))
				switch {
				case err != nil:
					failed.Add(1)
				case status < http.StatusMultipleChoices:
					good.Add(1)
				}
			}
		})
	}
	started()
	all.Wait()
	return tally{made.Load(), good.Load(), failed.Load(), time.Since(began)}
}

// awaitBegun reads until an attacker says that it calls.
func awaitBegun(told io.Reader) error {
	var word string
	if _, err := fmt.Fscanln(told, &word); err != nil || word != begun {
		return fmt.Errorf("the attacker said %q: %w", word, err)
	}
	return nil
}

// readTally reads what an attacker tells at its end.
func readTally(told io.Reader) (t tally, err error) {
	var span int64
	_, err = fmt.Fscanln(bufio.NewReader(told), &t.made, &t.good, &t.failed, &span)
	t.span = time.Duration(span)
	return t, err
}

// measured is what a neighbour saw: how long its calls took, and how many of all were refused or failed.
type measured struct {
	check, enqueue []time.Duration
	refused, calls int
}

// neighbour checks and enqueues, each some hundred times a second, for a span; far below its limits.
func neighbour(ctx context.Context, o options, address, key string) (m measured, err error) {
	ctx, stop := context.WithTimeout(ctx, o.span)
	defer stop()
	c := newCaller(address, key, 2)
	base, n := strconv.FormatInt(time.Now().UnixNano(), 36), 0
	pause := time.NewTicker(max(o.pace, time.Millisecond))
	defer pause.Stop()
	timed := func(path, body string) (time.Duration, bool, error) {
		began := time.Now()
		status, err := c.call(context.WithoutCancel(ctx), http.MethodPost, path, body)
		return time.Since(began), err != nil || status >= http.StatusMultipleChoices, err
	}
	for ctx.Err() == nil {
		n++
		took, bad, _ := timed("/api/v1/rate-limit/check", `{"scope":"victim:mail","peek":true}`)
		m.check = append(m.check, took)
		m.calls++
		if bad {
			m.refused++
		}
		took, bad, _ = timed("/api/v1/jobs", fmt.Sprintf(`{"tenant":"victim","queue":"mail","type":"t","id":"%s-%d","payload":"small"}`, base, n))
		m.enqueue = append(m.enqueue, took)
		m.calls++
		if bad {
			m.refused++
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	if m.calls == 0 {
		return m, context.Cause(ctx)
	}
	return m, nil
}
