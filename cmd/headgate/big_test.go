//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store/redisstore"
)

// A bigLine is a command line and how it ends; a long one is ended after a few seconds, as by Ctrl+C.
type bigLine struct {
	line string
	code int
	long bool
}

// bigLines are the commands that ask Redis anything, in the order in which they are run: who looks, who changes, who ends jobs.
// FILE is a policy with a cap for each tenant, OTHER one with other caps, PART a part of one, RULES those of a roll-out, TRACE a trace, TRIGGER a trigger, RECORDED a part by which tenants have records, RECORDS these.
var bigLines = []bigLine{
	{line: "policy set FILE --replace --reason all"},
	{line: "policy set OTHER --replace --reason all"},
	{line: "tenant set t7 --max-running 9"},
	{line: "semaphore show gpu"},
	{line: "semaphore list"},
	{line: "semaphore release gpu nobody"},
	{line: "queue list"},
	{line: "queue settings"},
	{line: "queue show mail"},
	{line: "queue peek mail --tenants 100"},
	{line: "load"},
	{line: "load mail"},
	{line: "anomaly list"},
	{line: "forecast"},
	{line: "forecast mail", code: cli.ExitNothing},
	{line: "stats"},
	{line: "doctor", code: -1},
	{line: "holds"},
	{line: "audit"},
	{line: "usage"},
	{line: "tenant list"},
	{line: "tenant show t7"},
	{line: "tier list"},
	{line: "downstream list"},
	{line: "breaker list"},
	{line: "adaptive list"},
	{line: "limit top"},
	{line: "limit get t7"},
	{line: "job list"},
	{line: "job list --place waiting --limit 1000"},
	{line: "job show evil-7 7"},
	{line: "dead list --limit 1000"},
	{line: "dead show dying dead-3"},
	{line: "explain queue mail"},
	{line: "explain tenant t7"},
	{line: "explain scope t7:mail"},
	{line: "explain downstream d3"},
	{line: "explain job evil-7 7"},
	{line: "policy get"},
	{line: "policy history"},
	{line: "policy show 1"},
	{line: "policy export envoy --scope t7"},
	{line: "policy diff FILE", code: cli.ExitNothing},
	{line: "policy dry-run FILE"},
	{line: "policy suggest --tenant nobody", code: cli.ExitNothing},
	{line: "policy merge PART"},
	{line: "policy rollout start RULES --percent 10 --reason trial"},
	{line: "policy rollout show"},
	{line: "policy rollout share 50"},
	{line: "policy rollout shadow", code: cli.ExitNothing},
	{line: "policy rollout promote"},
	{line: "policy rollout start RULES --percent 10"},
	{line: "policy rollout abandon"},
	{line: "queue set mail --max-running 50 --max-running-per-tenant 5"},
	{line: "queue unset mail"},
	{line: "tenant unset t7"},
	{line: "tier set gold --tokens 5"},
	{line: "tier unset gold"},
	{line: "downstream set smtp --max-running 20 --max-parked 1000"},
	{line: "adaptive freeze mail-out --reason calm"},
	{line: "adaptive thaw mail-out"},
	{line: "adaptive override mail-out --limit 12 --for 10m"},
	{line: "downstream set printer --max-running 3"},
	{line: "downstream unset printer"},
	{line: "limit set t7 --tokens 100"},
	{line: "limit delete t7"},
	{line: "limit scale all 0.5 --for 10m --reason fire"},
	{line: "limit scale"},
	{line: "limit scale all --off"},
	{line: "trigger set deep TRIGGER"},
	{line: "trigger list"},
	{line: "trigger show deep"},
	{line: "trigger try deep"},
	{line: "trigger unset deep"},
	{line: "policy merge RECORDED"},
	{line: "record import RECORDS"},
	{line: "record diff RECORDS"},
	{line: "record set t7 --tokens 100 --dry-run"},
	{line: "record set t7 --tokens 100"},
	{line: "record get t7"},
	{line: "record list --limit 1000"},
	{line: "record export"},
	{line: "record adopt --dry-run"},
	{line: "record adopt"},
	{line: "record delete t7"},
	{line: "record delete --all --yes"},
	{line: "policy rollback 1"},
	{line: "breaker open d4 --reason test --for 1h"},
	{line: "breaker show d4"},
	{line: "breaker close d4 --reason test"},
	{line: "breaker reset d4 --reason test"},
	{line: "pause --queue mail --reason test"},
	{line: "resume --queue mail"},
	{line: "pause --tenant t7"},
	{line: "resume --tenant t7"},
	{line: "pause --downstream d5"},
	{line: "resume --downstream d5"},
	{line: "pause --queue mail --enqueue"},
	{line: "resume --queue mail --enqueue"},
	{line: "enqueue --tenant t7 --queue mail --type welcome --payload hello --id one"},
	{line: "enqueue --tenant t7 --queue mail --type welcome --payload hello --id one"},
	{line: "redrive dying dead-4"},
	{line: "redrive --queue dying --dry-run"},
	{line: "redrive --queue dying --limit 10"},
	{line: "dead purge dying dead-15"},
	{line: "dead purge --queue dying --dry-run"},
	{line: "dead purge --queue dying --yes"},
	{line: "worker --exec true --queue mail", long: true, code: -1},
	{line: "serve --address 127.0.0.1:0 --insecure-no-auth", long: true, code: -1},
	{line: "replay TRACE --column-tenant customer --speed 1e6"},
	{line: "job cancel evil-8 8"},
	{line: "job cancel --all --tenant evil-7 --queue mail --dry-run"},
	{line: "job cancel --all --tenant evil-7 --queue mail"},
	{line: "drain mail --timeout 2s", code: 1},
	{line: "migrate --partitions 2 --dry-run"},
	{line: "migrate --partitions 2"},
}

// bigElsewhere are the commands that ask no Redis, or are run against a full one elsewhere.
var bigElsewhere = map[string]string{
	"config": "reads files", "completion": "prints", "version": "prints", "policy reference": "prints", "policy schema": "prints",
	"demo": "has a store of its own", "key": "reads and writes a file",
	"mirror": "reads pages of logs that have bounds: package mirror", "outbox": "enqueues what a database has, as enqueue does: package outbox",
	"anomaly try": "reads a file", "replay costs": "reads a file", "policy sync": "is policy set of what a database has",
}

// TestNoCommandHoldsRedisUp has jobs, lanes and tenants with caps in by the command line, runs every command on them, and finds no call
// in the SLOWLOG of Redis that took longer than it may.
func TestNoCommandHoldsRedisUp(t *testing.T) {
	t.Parallel()
	server := redistest.StartWatched(t)
	s, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{})
	must(t, err)
	enqueuer, err := producer.New(s, producer.Config{})
	must(t, err)
	p := &plant{t: t, store: s, producer: enqueuer, where: []string{"--redis", server.URL()}}
	p.run(cli.ExitOK, "tenant set t7 --max-running 9") // Redis compiles a script when it first meets it, 2 to 3 ms of the largest.
	p.run(cli.ExitOK, "tier set standard --off")
	p.enterBig(server.Size(1_000_000), server.Size(300_000), server.Size(20_000), server.Size(200_000), server.Size(20_000))
	server.Held(t, "headgate enqueue --jsonl")
	names := strings.NewReplacer(bigFiles(t, server.Size(20_000))...)
	for _, l := range bigLines {
		ctx, stop := t.Context(), func() {}
		if l.long {
			ctx, stop = context.WithTimeout(ctx, 3*time.Second)
		}
		out := runHeadgate(ctx, append(strings.Fields(names.Replace(l.line)), p.where...)...)
		stop()
		if l.code >= 0 && out.code != l.code {
			t.Errorf("headgate %s: exit code %d: %.300s", l.line, out.code, out.stderr)
		}
		server.Held(t, "headgate "+l.line)
	}
}

// TestEveryCommandIsRunOnABigDeployment, or it is said why not.
func TestEveryCommandIsRunOnABigDeployment(t *testing.T) {
	t.Parallel()
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "headgate ")
		if _, elsewhere := bigElsewhere[path]; elsewhere || path == "help" {
			return
		}
		run := !c.Runnable() || c.HasSubCommands()
		for _, l := range bigLines {
			run = run || strings.HasPrefix(l.line+" ", path+" ")
		}
		if !run {
			t.Errorf("headgate %s is neither run nor named with a reason", path)
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(newRoot(io.Discard, io.Discard))
}

// enterBig enqueues jobs, the first of them in lanes of made-up downstreams of a thousand tenants, the others of so many tenants; those that
// wait for a time; and dead letters of one queue.
func (p *plant) enterBig(jobs, lanes, tenants, timers, dead int) {
	p.t.Helper()
	from, to := io.Pipe()
	go func() {
		lines := bufio.NewWriter(to)
		for i := range jobs {
			if i < lanes {
				fmt.Fprintf(lines, `{"tenant":"evil-%d","queue":"mail","type":"welcome","id":"%d","downstream":"d%d","payload":"hello"}`+"\n", i%1000, i, i)
			} else {
				fmt.Fprintf(lines, `{"tenant":"t%d","queue":"mail","type":"welcome","id":"%d","payload":"hello"}`+"\n", i%tenants, i)
			}
		}
		for i := range timers {
			fmt.Fprintf(lines, `{"tenant":"late","queue":"report","type":"welcome","id":"%d","delay":"%dms"}`+"\n", i, time.Hour.Milliseconds()+int64(i))
		}
		for i := range dead {
			fmt.Fprintf(lines, `{"tenant":"dying","queue":"dying","type":"welcome","id":"dead-%d"}`+"\n", i)
		}
		_ = lines.Flush()
		_ = to.Close()
	}()
	var said strings.Builder
	if code := execute(p.t.Context(), append(strings.Fields("enqueue --jsonl"), p.where...), from, io.Discard, &said); code != cli.ExitOK {
		p.t.Fatalf("exit code %d: %.500s", code, said.String())
	}
	p.killIn("dying", dead)
}

// bigRecords writes a record for each of many tenants.
func bigRecords(t *testing.T, tenants int) string {
	t.Helper()
	var lines bytes.Buffer
	for i := range tenants {
		fmt.Fprintf(&lines, `{"tenant":"t%d","record":{"limit":{"tokens":%d,"per":"1s"}}}`+"\n", i, i+1)
	}
	path := filepath.Join(t.TempDir(), "records.jsonl")
	must(t, os.WriteFile(path, lines.Bytes(), 0o600))
	return path
}

// bigFiles writes what bigLines name, and returns the names and paths in turns.
func bigFiles(t *testing.T, tenants int) []string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, document any) string {
		text, err := json.Marshal(document)
		must(t, err)
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	each := func(most int) map[string]any {
		of := map[string]any{}
		for i := range tenants {
			of[fmt.Sprint("t", i)] = map[string]any{"max_running": most + i%3}
		}
		return of
	}
	caps := func(most int) map[string]any {
		return map[string]any{
			"tenants": each(most), "usage": map[string]any{}, "load": map[string]any{}, "downstreams": map[string]any{"smtp": map[string]any{"max_running": 40}},
			"adaptive": map[string]any{"mail-out": map[string]any{"of": "downstream smtp", "min": 5}}, "semaphores": map[string]any{"gpu": map[string]any{"max": 4}},
		}
	}
	part := map[string]any{"tenants": map[string]any{"t9": map[string]any{"max_running": 11}, "t8": nil}}
	return []string{
		"FILE", write("caps.json", caps(5)), "OTHER", write("other.json", caps(6)), "PART", write("part.json", part),
		"RULES", write("rules.json", map[string]any{"tenants": each(7)}), "TRACE", writeTrace(t, 300),
		"TRIGGER", write("trigger.json", map[string]any{"when": map[string]any{"metric": "queue_depth", "above": 1e9}, "do": "pause", "of": "queue mail"}),
		"RECORDED", write("recorded.json", map[string]any{"tenant_records": true}), "RECORDS", bigRecords(t, tenants),
	}
}
