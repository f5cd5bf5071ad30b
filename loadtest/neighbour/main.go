package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/loadtest/internal/calls"
)

// options are what a run is told.
type options struct {
	binary      string
	connections int
	span        time.Duration
	// pace is the pause between two calls of the neighbour.
	pace time.Duration
}

// attackWord is the first argument of a process that attacks.
const attackWord = "attack"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == attackWord {
		err = attackAs(ctx, os.Args[2:])
	} else {
		var o options
		flag.StringVar(&o.binary, "headgate", "", "`FILE` of the binary; by default one is built")
		flag.IntVar(&o.connections, "connections", 128, "connections of the attacker, up to 1000")
		flag.DurationVar(&o.span, "span", 10*time.Second, "how long each route is attacked, up to 1m")
		route := flag.String("route", "", "attack only the routes whose `NAME` holds this")
		flag.DurationVar(&o.pace, "pace", 8*time.Millisecond, "pause between two calls of the neighbour")
		flag.Parse()
		o.connections, o.span = min(max(o.connections, 1), 1000), min(o.span, time.Minute)
		some := slices.DeleteFunc(slices.Clone(attacks), func(a attack) bool { return !strings.Contains(a.name, *route) })
		err = run(ctx, o, some, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "neighbour:", err)
		stop()
		os.Exit(1)
	}
}

// row is what the neighbour saw of one attack, and of the round alone before it.
type row struct {
	route       string
	alone, with measured
	attack      tally
}

// run makes the attacks, one after the other.
func run(ctx context.Context, o options, attacks []attack, out, notes io.Writer) error {
	store, err := embedded.Open(ctx, embedded.Config{Log: notes})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	server, err := calls.Start(ctx, o.binary, store.Options().Addr, notes,
		access.Principal{Name: "evil", Role: access.Admin, Tenant: "evil"}, access.Principal{Name: "victim", Role: access.Operator, Tenant: "victim"})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	evil, victim := server.Others[0], server.Others[1]
	var rows []row
	for _, a := range attacks {
		r := row{route: a.name}
		if r.alone, err = neighbour(ctx, o, server.Address, victim); err != nil {
			return err
		}
		if r.with, r.attack, err = attacked(ctx, o, server.Address, evil, victim, a); err != nil {
			return err
		}
		fmt.Fprintln(notes, r.line())
		rows = append(rows, r)
	}
	return report(out, rows)
}

// attacked measures the neighbour while another process attacks.
func attacked(ctx context.Context, o options, address, evil, victim string, a attack) (measured, tally, error) {
	self, err := os.Executable()
	if err != nil {
		return measured{}, tally{}, err
	}
	// An attacker has a machine of its own: what it computes takes nothing from the server here.
	process := exec.CommandContext(ctx, "nice", "-n", "19", self, attackWord, address, a.name, strconv.Itoa(o.connections), (o.span + o.span/5).String()) //nolint:gosec // It is this program.
	process.Env = append(os.Environ(), keyVariable+"="+evil)
	process.Stderr = os.Stderr
	told, err := process.StdoutPipe()
	if err != nil {
		return measured{}, tally{}, err
	}
	if err := process.Start(); err != nil {
		return measured{}, tally{}, err
	}
	defer func() { _ = process.Process.Kill() }()
	if err := awaitBegun(told); err != nil {
		return measured{}, tally{}, err
	}
	with, err := neighbour(ctx, o, address, victim)
	if err != nil {
		return with, tally{}, err
	}
	done, err := readTally(told)
	if err == nil {
		err = process.Wait()
	}
	return with, done, err
}

// line is a row for whoever watches.
func (r row) line() string {
	return fmt.Sprintf("%-28s check p99 %s ms (alone %s), enqueue p99 %s ms (alone %s), refused %d of %d; the attacker's calls: %s", r.route,
		millis(r.with.check), millis(r.alone.check), millis(r.with.enqueue), millis(r.alone.enqueue), r.with.refused, r.with.calls, r.attack)
}

func millis(all []time.Duration) string {
	return strconv.FormatFloat(float64(p99(all).Microseconds())/1e3, 'f', 1, 64)
}

// p99 is the 99th percentile.
func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, len(sorted)*99/100)]
}

// report prints the table, and what package targets reads.
func report(out io.Writer, rows []row) error {
	fmt.Fprintln(out, "| attacked | its calls/s, and those let in | check p99, alone -> with | enqueue p99, alone -> with | refused for the neighbour |")
	fmt.Fprintln(out, "| --- | --- | --- | --- | --- |")
	var worstCheck, worstEnqueue float64
	refused := 0
	for _, r := range rows {
		check, enqueue := ratio(r.with.check, r.alone.check), ratio(r.with.enqueue, r.alone.enqueue)
		worstCheck, worstEnqueue, refused = max(worstCheck, check), max(worstEnqueue, enqueue), refused+r.with.refused
		fmt.Fprintf(out, "| `%s` | %s | %s -> %s ms (%.1f x) | %s -> %s ms (%.1f x) | %d of %d |\n", r.route, r.attack, millis(r.alone.check), millis(r.with.check), check,
			millis(r.alone.enqueue), millis(r.with.enqueue), enqueue, r.with.refused, r.with.calls)
	}
	_, err := fmt.Fprintf(out, "\nBenchmarkNeighbour 1 %.3f check-ratio %.3f enqueue-ratio %d refused\n", worstCheck, worstEnqueue, refused)
	return err
}

func ratio(with, alone []time.Duration) float64 {
	return float64(p99(with)) / float64(max(p99(alone), time.Microsecond))
}
