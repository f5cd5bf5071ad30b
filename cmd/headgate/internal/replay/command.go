package replay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/policydoc"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/trace"
	"github.com/headgate/headgate/policy"
)

// replayFlags are the flags of headgate.
type replayFlags struct {
	cli.PlayFlags

	config  Config
	columns trace.Columns
	policy  string
	exclude string
	limit   int
}

const replayHelp = `Runs the jobs of a CSV file the whole way, through Redis to a worker: each row is enqueued
when its turn comes, and its handler takes as long as it took then, both faster by --speed.

A row becomes a job by its columns (see --column-...): tenant, type, downstream; cost is
images x steps / 30, rounded up, at least 1; the payload is as long as both prompts. The class
comes from a stable hash of the tenant, a third each for high, medium and low. A row whose
status is FAILED fails every time it runs: a second attempt would fail as well, so by default
there is one. Rows that lack what a job needs are reported, counted and left out. Only arrival and
tenant must have a column; each other one has a value for files without it.

No limit stands in the way unless --policy sets some. Circuit breakers are the product's: ten
failures in a row open one for a minute, at any speed. The replay ends when all rows are in and
nothing is runnable; jobs behind an open breaker are counted as waiting.

Fairness is Jain's index of cost served / weight, over tenants that all had jobs waiting in one
class for 20 dispatches each or more; 1 is perfectly even. Waits are given in time and in
dispatches: how many jobs went to a worker between a job's admission and its own turn. A light
tenant has at most the median number of jobs.`

// NewCommand returns the command headgate replay, with what is below it.
func NewCommand() *cobra.Command {
	f := &replayFlags{}
	c := &cobra.Command{
		Use: "replay FILE.csv", Short: "Run the jobs of a trace", Long: replayHelp, Args: cli.OneArg("the trace's file"),
		Example: `  headgate replay requests.csv --speed 10000
  headgate replay mine.csv --column-arrival time --column-tenant customer --column-run-time took
  headgate replay requests.csv --speed 100000 --concurrency 4 --json > report.json
  headgate replay requests.csv --speed 1e9 --preload --exclude-downstream M0013
  headgate replay requests.csv --speed 10000 --policy policy.json --redis localhost:6379
  headgate replay costs --help                     calls whose cost is known when they end`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0]) },
	}
	f.Add(c)
	c.AddCommand(newCosts())
	flags := c.Flags()
	flags.Float64Var(&f.config.Speed, "speed", 1, "`FACTOR` by which it is faster than the trace, 1 to 1e9")
	flags.IntVar(&f.config.Concurrency, "concurrency", DefaultConcurrency, "`N` jobs in the worker's hands at a time, 1 to 10000")
	flags.Uint64Var(&f.config.Seed, "seed", 1, "`NUMBER` that draws the classes of tenants, payloads and the jitter of breakers")
	flags.IntVar(&f.config.MaxAttempts, "max-attempts", 1, "`N` runs in all of a job that fails, 1 to 255")
	flags.BoolVar(&f.config.Preload, "preload", false, "enqueue every row before the worker starts, so that the order does not depend on timing")
	flags.IntVar(&f.limit, "limit-rows", 0, "take the first `N` rows only; 0 takes all")
	flags.StringVar(&f.policy, "policy", "", "`FILE` of the policy to apply; by default nothing is limited")
	flags.StringVar(&f.exclude, "exclude-downstream", "", "leave the rows of the downstream `NAME` out")
	for _, column := range f.columns.All() {
		meaning := "`COLUMN` of: " + column.Meaning
		if column.Otherwise != nil {
			meaning += fmt.Sprintf(" (a file without it has %q in each row)", *column.Otherwise)
		}
		flags.StringVar(column.Value, "column-"+column.Name, column.Default, meaning)
	}
	return c
}

func (f *replayFlags) run(c *cobra.Command, file string) error {
	stderr := c.ErrOrStderr()
	logger, err := f.Logger(stderr)
	if err != nil {
		return err
	}
	f.config.Redis, f.config.Keep, f.config.Logger, f.config.Progress = f.Redis, f.Keep, logger, stderr
	if err := f.validate(); err != nil {
		return cli.Usage(err)
	}
	f.config.Policy = policy.Unlimited()
	if f.policy != "" {
		if f.config.Policy, err = policydoc.ReadPolicy(f.policy, c.InOrStdin()); err != nil {
			return cli.InFile("policy", f.policy, err)
		}
	}
	if err := f.read(file, c.InOrStdin(), stderr); err != nil {
		return err
	}
	run, classes, err := Run(c.Context(), f.config)
	if err != nil {
		return err
	}
	summary := report.NewSummary(run)
	if f.JSON {
		err = summary.WriteJSON(c.OutOrStdout())
	} else {
		out := c.OutOrStdout()
		summary.WriteTotals(out)
		summary.WriteClasses(out, classes)
		summary.WriteDownstreams(out)
		summary.WriteTenants(out)
	}
	return errors.Join(err, cli.Verdict(summary))
}

// validate reports every bad flag at once.
func (f *replayFlags) validate() error {
	bad := []error{f.config.Validate()}
	if f.config.Speed == 0 || f.config.Concurrency == 0 || f.config.MaxAttempts == 0 {
		bad = append(bad, zeroFlags(f.config))
	}
	if f.limit < 0 {
		bad = append(bad, &admission.FieldError{Field: "--limit-rows", Value: strconv.Itoa(f.limit), Allowed: "0, for all, or more"})
	}
	if f.exclude != "" {
		if admission.ValidateDownstream("downstream", f.exclude, false) != nil {
			bad = append(bad, &admission.FieldError{Field: "--exclude-downstream", Value: fmt.Sprintf("%q", f.exclude), Allowed: "the name of a downstream"})
		}
	}
	return errors.Join(bad...)
}

// zeroFlags reports flags that were given as 0, which a Config takes for not given.
func zeroFlags(c Config) error {
	var bad []error
	for _, flag := range []struct {
		zero          bool
		name, allowed string
	}{
		{c.Speed == 0, "--speed", "1 to 1e9"},
		{c.Concurrency == 0, "--concurrency", "1 to 10000 slots"},
		{c.MaxAttempts == 0, "--max-attempts", "1 to 255 runs"},
	} {
		if flag.zero {
			bad = append(bad, &admission.FieldError{Field: flag.name, Value: "0", Allowed: flag.allowed})
		}
	}
	return errors.Join(bad...)
}

// read reads the trace and reports its bad rows.
func (f *replayFlags) read(name string, stdin io.Reader, notes io.Writer) error {
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("read the trace: %w", err)
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	read, err := trace.Read(from, f.columns, f.limit)
	if err != nil {
		return fmt.Errorf("read the trace %s: %w", name, err)
	}
	for _, bad := range read.Bad[:min(len(read.Bad), cli.ShownBadRows)] {
		fmt.Fprintf(notes, "headgate: %s:%d: bad row: %v\n", name, bad.Line, bad.Err)
	}
	if more := len(read.Bad) - cli.ShownBadRows; more > 0 {
		fmt.Fprintf(notes, "headgate: %s: %d more bad rows\n", name, more)
	}
	if len(read.Rows) == 0 {
		return fmt.Errorf("the trace %s has no good row", name)
	}
	f.config.Trace = read
	if f.exclude != "" {
		f.config.Trace, f.config.Excluded = read.Without(f.exclude)
		if f.config.Excluded == 0 {
			fmt.Fprintf(notes, "headgate: no row has the downstream %s, so nothing is left out\n", f.exclude)
		}
	}
	return nil
}
