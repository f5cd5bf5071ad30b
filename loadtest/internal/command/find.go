package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/search"
)

// Where a limit is looked for.
const (
	minRate   = 10
	maxRate   = 200_000
	precision = 0.05
	breaks    = 2
	// plenty is a limit in tokens a second that no rate reaches: it is checked and refuses nobody.
	plenty = 100_000_000
)

// limitDocument is what -find-limit prints as JSON.
type limitDocument struct {
	Machine       string        `json:"machine"`
	Configuration configuration `json:"configuration"`
	// Rate is the highest that held, BoundMS the bound of what Of names.
	Rate    float64        `json:"rate_per_s"`
	Of      string         `json:"of"`
	BoundMS float64        `json:"bound_ms"`
	AtMax   bool           `json:"at_max"`
	Steps   []stepDocument `json:"steps"`
}

type stepDocument struct {
	Rate  float64 `json:"rate_per_s"`
	P99MS float64 `json:"p99_ms"`
	Holds bool    `json:"holds"`
	Why   string  `json:"why,omitempty"`
}

// find searches for the highest rate and prints the steps as they come.
func (f *flags) find(ctx context.Context, stdout, stderr io.Writer) error {
	scenario := f.scenarios[0]
	spec := f.specFor(scenario)
	spec.TenantLimit, spec.GlobalLimit = cmp.Or(spec.TenantLimit, plenty), cmp.Or(spec.GlobalLimit, plenty)
	plan, err := load.New(scenario, spec)
	if err != nil {
		return err
	}
	d := limitDocument{Machine: machine(), Configuration: describe(plan), Of: "Enqueue to handler", BoundMS: millis(f.p99)}
	of := func(run *figures.Figures) figures.Latency { return run.Wait }
	if scenario == traceScenario {
		d.Of, of = "light tenants' wait", func(run *figures.Figures) figures.Latency { return run.Light }
	}
	if !f.json {
		d.Configuration.write(stdout)
		fmt.Fprintf(stdout, "the highest rate with a p99 of %s of at most %s:\n", d.Of, f.p99)
	}
	limits := search.Config{Start: spec.Rate, Min: min(minRate, spec.Rate), Max: max(maxRate, spec.Rate), Precision: precision, Breaks: breaks}
	found, err := search.Find(ctx, limits, func(ctx context.Context, rate float64) (search.Step, error) {
		spec.Rate = rate
		step, err := f.step(ctx, scenario, spec, of, stderr)
		if err == nil && !f.json {
			fmt.Fprintln(stdout, stepLine(step))
		}
		return step, err
	})
	if err != nil {
		return err
	}
	d.Rate, d.AtMax = found.Rate, found.AtMax
	if f.json {
		for _, step := range found.Steps {
			d.Steps = append(d.Steps, stepDocument{step.Rate, millis(step.P99), step.Holds, step.Why})
		}
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(d)
	}
	switch {
	case found.Rate == 0:
		fmt.Fprintf(stdout, "no rate from %g jobs/s on holds the bound\n", limits.Min)
	case found.AtMax:
		fmt.Fprintf(stdout, "%.0f jobs/s hold the bound, and higher rates are not tried\n", found.Rate)
	default:
		fmt.Fprintf(stdout, "limit: %.0f jobs/s, to %.0f %%\n", found.Rate, 100*precision)
	}
	return nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func stepLine(s search.Step) string {
	word := "holds"
	if !s.Holds {
		word = "breaks"
	}
	line := fmt.Sprintf("  %9.0f jobs/s  p99 %10.3f ms  %s", s.Rate, millis(s.P99), word)
	if s.Why != "" {
		line += ": " + s.Why
	}
	return line
}

// step measures at one rate. A broken promise ends the search, since the rest says nothing then, but for those of
// which the search is.
func (f *flags) step(ctx context.Context, scenario string, spec load.Spec, of func(*figures.Figures) figures.Latency, stderr io.Writer) (search.Step, error) {
	plan, err := load.New(scenario, spec)
	if err != nil {
		return search.Step{}, err
	}
	run, err := f.once(ctx, plan, headgateName, fmt.Sprintf("%.0f jobs/s", spec.Rate), stderr)
	switch {
	case err != nil:
		return search.Step{}, err
	case run.Interrupted:
		return search.Step{}, errInterrupted
	case len(run.Broken) > run.Overload:
		return search.Step{}, fmt.Errorf("%w at %.0f jobs/s: %s", errBroken, spec.Rate, run.Broken[0])
	}
	step := search.Step{Rate: spec.Rate, P99: time.Duration(of(run).P99 * float64(time.Millisecond))}
	if bad := run.Unavailable + run.Unknown; bad > 0 {
		step.Why = fmt.Sprintf("%d jobs got no answer", bad)
	}
	if n := refused(run); n > 0 {
		step.Why = fmt.Sprintf("%.0f jobs were refused", n)
	}
	step.Holds = step.Why == "" && step.P99 <= f.p99
	return step, nil
}
