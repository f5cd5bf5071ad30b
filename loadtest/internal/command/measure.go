package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/headgate/headgate/loadtest/internal/drive"
	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
)

const headgateName = "headgate"

// result is a scenario's runs.
type result struct {
	scenario      string
	configuration configuration
	// systems are in the order of their columns.
	systems []string
	runs    []*figures.Figures
}

// of returns the runs of a system.
func (r *result) of(name string) []*figures.Figures {
	return slices.DeleteFunc(slices.Clone(r.runs), func(f *figures.Figures) bool { return f.System != name })
}

// typical returns the run of a system whose p99 is the median: plots are of one run.
func (r *result) typical(name string) *figures.Figures {
	runs := r.of(name)
	slices.SortStableFunc(runs, func(a, b *figures.Figures) int { return cmp.Compare(a.Wait.P99, b.Wait.P99) })
	return runs[len(runs)/2]
}

// measure runs a scenario, in alternating rounds if it compares, and prints what came of it.
func (f *flags) measure(ctx context.Context, scenario string, stdout, stderr io.Writer) (result, error) {
	plan, err := load.New(scenario, f.specFor(scenario))
	if err != nil {
		return result{}, err
	}
	r := result{scenario: scenario, configuration: describe(plan), systems: []string{headgateName}}
	rounds := 1
	if f.compare != "" {
		r.systems, rounds = append(r.systems, f.compared...), f.rounds
	}
	if !f.json && !f.row {
		r.configuration.write(stdout)
	}
	for round := range rounds {
		order := slices.Clone(r.systems)
		if round%2 == 1 {
			slices.Reverse(order) // Who goes first has the machine as the last one left it.
		}
		for _, name := range order {
			title := scenario
			if len(r.systems) > 1 {
				title = fmt.Sprintf("%s, %s, round %d of %d", scenario, name, round+1, rounds)
			}
			one, err := f.once(ctx, plan, name, title, stderr)
			if err != nil {
				return result{}, fmt.Errorf("%s, %s: %w", scenario, name, err)
			}
			r.runs = append(r.runs, one)
			if ctx.Err() != nil && len(r.of(headgateName)) > 0 && round > 0 {
				break
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	if !f.json && !f.row {
		r.write(stdout)
	}
	return r, nil
}

// once runs a plan through a system.
func (f *flags) once(ctx context.Context, plan *load.Plan, name, title string, stderr io.Writer) (*figures.Figures, error) {
	bar := newProgress(stderr, title, len(plan.Arrivals), f.json || f.row)
	defer bar.done()
	ran, err := drive.Run(ctx, plan, f.systems[name], drive.Config{
		Redis: f.redis, AsynqPoll: f.asynqPoll, Notes: f.notes(stderr), Progress: bar.show,
	})
	if err != nil {
		return nil, err
	}
	return figures.Of(ran), nil
}

// notes is where a store says what it is: it is said once.
func (f *flags) notes(stderr io.Writer) io.Writer {
	if f.noted {
		return io.Discard
	}
	f.noted = true
	return stderr
}
