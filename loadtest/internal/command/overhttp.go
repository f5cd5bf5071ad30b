package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/loadtest/internal/calls"
	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
)

const (
	// httpRate is the default of -rate with -http.
	httpRate = 5000
	// clientPercent is how much garbage the client lets gather, in percent of what lives, where GOGC does not say: the
	// pauses of its own collector are no answer of the server's.
	clientPercent = 400
	// keyVariable holds the API key for a server of somebody's.
	keyVariable = "HEADGATE_KEY"
)

// The targets of calls: 95 % of them take no longer, in milliseconds.
const (
	checkTarget  = 5
	readTarget   = 10
	updateTarget = 50
)

// httpDocument is what -http prints as JSON.
type httpDocument struct {
	Machine   string  `json:"machine"`
	Server    string  `json:"server"`
	Rate      float64 `json:"rate_per_s"`
	DurationS float64 `json:"duration_s"`
	Tenants   int     `json:"tenants"`

	*calls.Result
}

// overHTTP measures a server, one that runs or one of its own, and prints what came of it.
func (f *flags) overHTTP(ctx context.Context, stdout, stderr io.Writer) error {
	spec := f.spec
	if !f.given["rate"] {
		spec.Rate = httpRate
	}
	plan, err := load.New(defaultScenario, spec)
	if err != nil {
		return err
	}
	server, end, err := f.server(ctx, stderr)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(clientPercent)
	}
	result, err := calls.Run(ctx, server, plan)
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	d := httpDocument{machine(), server.Address, spec.Rate, spec.Duration.Seconds(), spec.Tenants, result}
	if err := f.printCalls(stdout, d); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case len(result.Failed) > 0:
		return fmt.Errorf("%w: calls failed", errBroken)
	}
	return nil
}

// server returns the server to call, and what ends it.
func (f *flags) server(ctx context.Context, stderr io.Writer) (server calls.Server, end func() error, err error) {
	if f.serve != "" {
		return calls.Server{Address: f.serve, Key: os.Getenv(keyVariable)}, func() error { return nil }, nil
	}
	store, err := embedded.Open(ctx, embedded.Config{Addr: f.redis, Log: stderr})
	if err != nil {
		return server, nil, err
	}
	server, err = calls.Start(ctx, f.binary, store.Options().Addr, stderr)
	if err != nil {
		return server, nil, errors.Join(err, store.Close())
	}
	return server, func() error { return errors.Join(server.Close(), store.Close()) }, nil
}

func (f *flags) printCalls(stdout io.Writer, d httpDocument) error {
	if f.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(d)
	}
	fmt.Fprintf(stdout, "%s for %.4g s: %.4g checks/s of %d tenants at four levels, and beside them reads and updates of limits\n", d.Server, d.DurationS, d.Rate, d.Tenants)
	t := newTable(stdout, "calls", "answered", "p50 ms", "p95 ms", "p99 ms", "longest ms", "target of p95", "")
	for _, row := range []struct {
		name   string
		of     figures.Latency
		target float64
	}{{"check", d.Checks, checkTarget}, {"read a limit", d.Reads, readTarget}, {"change a limit", d.Updates, updateTarget}} {
		word := "reached"
		if row.of.Count == 0 || row.of.P95 > row.target {
			word = "missed"
		}
		t.AppendRow(table.Row{row.name, row.of.Count, ms(row.of.P50), ms(row.of.P95), ms(row.of.P99), ms(row.of.Max), fmt.Sprintf("%g ms", row.target), word})
	}
	t.Render()
	fmt.Fprintf(stdout, "%.0f checks/s were answered, %d of them with a refusal; the generator was late by %s ms at p95\n", d.PerSecond, d.Denied, ms(d.Late.P95))
	for _, what := range slices.Sorted(maps.Keys(d.Failed)) {
		fmt.Fprintf(stdout, "FAILED: %s, %d times\n", what, d.Failed[what])
	}
	return nil
}

func ms(x float64) string { return fmt.Sprintf("%.3g", x) }
