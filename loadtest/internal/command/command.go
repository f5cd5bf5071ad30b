package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/redis/go-redis/v9/logging"

	"github.com/headgate/headgate/internal/trace"
	"github.com/headgate/headgate/loadtest/internal/drive"
	"github.com/headgate/headgate/loadtest/internal/load"
)

// Exit codes.
const (
	exitOK     = 0
	exitBroken = 1
	exitUsage  = 2
)

var (
	errBroken      = errors.New("a promise was broken")
	errInterrupted = errors.New("the run was interrupted: what is printed is of a part of it")
)

// Systems open what can be measured. Failsafe is nil in a program that does not link it.
type Systems struct{ Headgate, Unshed, Capped, Asynq, Gradient, Failsafe drive.Open }

// Run runs the load test that the arguments ask for and returns its exit code. When ctx ends jobs arrive no more, and
// what has been measured is printed.
func Run(ctx context.Context, systems Systems, args []string, stdout, stderr io.Writer) int {
	logging.Disable() // go-redis writes a line of its own for each failed dial; what matters is counted.
	f, err := parse(args, systems.Failsafe != nil, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "loadtest: %v\nloadtest: see go run loadtest/main.go -help\n", err)
		return exitUsage
	}
	f.systems = map[string]drive.Open{
		headgateName: systems.Headgate, unshedName: systems.Unshed, cappedName: systems.Capped, asynqName: systems.Asynq,
		gradientName: systems.Gradient, failsafeName: systems.Failsafe,
	}
	if err := f.run(ctx, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "loadtest: %v\n", err)
		return exitBroken
	}
	return exitOK
}

func (f *flags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.trace != "" {
		if err := f.readTrace(stderr); err != nil {
			return err
		}
	}
	if f.http {
		return f.overHTTP(ctx, stdout, stderr)
	}
	if f.findLimit {
		return f.find(ctx, stdout, stderr)
	}
	var results []result
	for _, scenario := range f.scenarios {
		one, err := f.measure(ctx, scenario, stdout, stderr)
		if errors.Is(err, load.ErrNoServer) {
			fmt.Fprintf(stderr, "loadtest: %v\n", err)
			continue
		}
		if err != nil {
			return err
		}
		results = append(results, one)
		if ctx.Err() != nil {
			break
		}
	}
	if f.row {
		for i := range results {
			for _, run := range results[i].runs {
				writeBroken(stderr, run)
			}
		}
		return errors.Join(writeRow(stdout, &f.spec, results), verdict(results))
	}
	if f.json {
		if err := writeJSON(stdout, results); err != nil {
			return err
		}
	}
	if f.report != "" && len(results) > 0 {
		if err := writeReport(f.report, results); err != nil {
			return err
		}
		fmt.Fprintf(stderr, "loadtest: the report is in %s\n", f.report)
	}
	return verdict(results)
}

// verdict is the error of runs that were carried out and are not as they should be.
func verdict(results []result) error {
	var bad error
	for i := range results {
		for _, run := range results[i].runs {
			if run.Interrupted {
				return errInterrupted
			}
			if run.System == headgateName && len(run.Broken) > 0 {
				bad = errBroken
			}
		}
	}
	return bad
}

// readTrace reads the trace and sets its rate: that which was given, else the one that fits the duration.
func (f *flags) readTrace(stderr io.Writer) error {
	file, err := os.Open(f.trace)
	if err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	defer func() { _ = file.Close() }()
	read, err := trace.Read(file, trace.Columns{}, load.MaxArrivals)
	if err != nil {
		return fmt.Errorf("read the trace %s: %w", f.trace, err)
	}
	if len(read.Bad) > 0 {
		fmt.Fprintf(stderr, "loadtest: %d bad rows of %s are left out, the first at line %d: %v\n", len(read.Bad), f.trace, read.Bad[0].Line, read.Bad[0].Err)
	}
	if len(read.Rows) == 0 {
		return fmt.Errorf("the trace %s has no good row", f.trace)
	}
	f.spec.Trace = read
	return nil
}

// specFor returns the spec of a scenario.
func (f *flags) specFor(scenario string) load.Spec {
	spec := f.spec
	if scenario == traceScenario && !f.given["rate"] {
		spec.Rate = float64(len(spec.Trace.Rows)) / spec.Duration.Seconds()
	}
	return spec
}
