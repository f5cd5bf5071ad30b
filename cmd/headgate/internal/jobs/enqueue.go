package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/intake"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/telemetry"
)

const enqueueHelp = `Asks for jobs to enter, and says what came of each: admitted, a duplicate (it is in already, by
its id), or refused, why, and when to try again.

One job is described by flags. With --jsonl there is one for each line of standard input, a
JSON object with these names; flags fill what a line does not say:

  tenant queue type priority downstream id      as the flags
  cost max_attempts                             numbers
  deadline timeout delay                        "5m"; a deadline may also be "2031-05-04T12:00:00Z"
  run_at                                        "2031-05-04T12:00:00Z"
  payload                                       a string is sent as its text, anything else as JSON
  payload_base64                                bytes, instead of payload
  headers                                       {"name": "value"}

Lines that are no job are reported with their numbers and counted; with --strict the first one
ends the run. When Redis gives no answer nothing further is sent. Jobs with ids of their own may
then all be sent again: those that are in are duplicates.

Exit codes: 0 all are in, 1 something failed, 2 the command line is wrong, 3 some were refused
or were no jobs.`

// enqueueFlags are the flags of enqueue.
type enqueueFlags struct {
	cli.Target

	spec    intake.Spec
	payload string
	jsonl   bool
	strict  bool
	json    bool
	verbose bool
}

// NewEnqueue returns the command headgate enqueue.
func NewEnqueue() *cobra.Command {
	f := &enqueueFlags{}
	c := &cobra.Command{
		Use: "enqueue", Short: "Ask for jobs to enter, one or as JSON lines", Long: enqueueHelp, Args: cli.NoArgs,
		Example: `  headgate enqueue --redis localhost:6379 --tenant acme --queue mail --type welcome --payload '{"to":"ada@example.com"}'
  headgate enqueue --redis localhost:6379 --tenant acme --queue mail --type report --payload @report.json --priority high --deadline 5m
  headgate enqueue --redis localhost:6379 --jsonl --json < jobs.jsonl
  echo '{"tenant":"acme","queue":"mail","type":"welcome","id":"w-1","payload":{"to":"ada"}}' | headgate enqueue --redis localhost:6379 --jsonl`,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	f.Add(flags)
	flags.StringVar(&f.spec.Tenant, "tenant", "", "`NAME` of the customer (required)")
	flags.StringVar(&f.spec.Queue, "queue", "", "`NAME` of the queue (required)")
	flags.StringVar(&f.spec.Type, "type", "", "`NAME` of the type, by which workers know what to do (required)")
	flags.StringVar(&f.spec.Priority, "priority", string(admission.Medium), "`CLASS` of urgency, one of the queue's")
	flags.StringVar(&f.spec.Downstream, "downstream", "", "`NAME` of what the job calls, for its circuit breaker; SERVICE+ACCOUNT for one account of a service")
	flags.Int64Var(&f.spec.Cost, "cost", 1, "`TOKENS` that the job takes from its limits, 1 to 1000000")
	flags.StringVar(&f.spec.Deadline, "deadline", "", "latest `TIME` of its start, 5m from now or 2031-05-04T12:00:00Z")
	flags.StringVar(&f.spec.Timeout, "timeout", "", "longest `TIME` of a run, 30s; by default the worker's")
	flags.StringVar(&f.spec.Delay, "delay", "", "`TIME` after which it may start, 10m; its tokens are taken at once")
	flags.StringVar(&f.spec.RunAt, "run-at", "", "earliest `TIME` of its start, 2031-05-04T12:00:00Z")
	flags.IntVar(&f.spec.MaxAttempts, "max-attempts", 0, "`N` runs in all if it fails, 1 to 255 (default 5)")
	flags.StringToStringVar(&f.spec.Headers, "header", nil, "`NAME=VALUE` that travels with the payload, as often as need be")
	flags.StringVar(&f.spec.ID, "id", "", "`NAME` of the job: one tenant's id is one job, however often it is sent; by default a new one")
	flags.StringVar(&f.payload, "payload", "", "`TEXT` for the handler; @FILE reads it from a file, - from standard input")
	flags.BoolVar(&f.jsonl, "jsonl", false, "read jobs from standard input, one JSON object a line")
	flags.BoolVar(&f.strict, "strict", false, "with --jsonl: end at the first line that is no job")
	flags.BoolVar(&f.json, "json", false, "print one JSON object; everything else goes to standard error")
	flags.BoolVar(&f.verbose, "verbose", false, "with --jsonl: also give the verdict of each job, and report every bad line")
	return c
}

func (f *enqueueFlags) run(c *cobra.Command) error {
	if err := f.prepare(c); err != nil {
		return cli.Usage(err)
	}
	exporter, err := f.Traces(logs.New(c.ErrOrStderr(), f.Loaded.Logs()).Logger(logs.Producer))
	if err != nil {
		return err
	}
	defer exporter.Close(c.Context())
	observed, err := telemetry.New(telemetry.Config{Tracer: exporter.Provider()})
	if err != nil {
		return err
	}
	return f.With(c.Context(), c.ErrOrStderr(), func(ctx context.Context, s store.Deployment) error {
		p, err := producer.New(s, producer.Config{Logger: f.ProducerLogger(c.ErrOrStderr()), Observer: observed.Producer()})
		if err != nil {
			return err
		}
		sent := time.Now()
		now, err := s.Time(ctx)
		if err != nil {
			return fmt.Errorf("read the clock of redis: %w", err)
		}
		tally, err := f.enqueue(ctx, c, p, now.Sub(sent))
		if f.jsonl || tally.Submitted > 0 {
			err = errors.Join(err, f.write(c.OutOrStdout(), tally))
		}
		p.FlushOrLog()
		if n := tally.Refusals(); err == nil && n+tally.BadLines > 0 {
			return &cli.RefusedError{Refused: n, Bad: tally.BadLines}
		}
		return err
	})
}

// prepare checks the flags against each other and reads the payload. The job is checked against the local clock, so that
// a bad one is told without a Redis.
func (f *enqueueFlags) prepare(c *cobra.Command) error {
	bad := []error{f.Validate()}
	if f.jsonl {
		for _, name := range []string{"id", "payload"} {
			if c.Flags().Changed(name) {
				bad = append(bad, fmt.Errorf("--%s is for one job, and with --jsonl there are many", name))
			}
		}
		return errors.Join(bad...)
	}
	if f.strict {
		bad = append(bad, errors.New("--strict is for --jsonl"))
	}
	payload, err := readPayload(f.payload, c.InOrStdin())
	f.spec.Payload = payload
	_, wrong := f.spec.Job(time.Now())
	return errors.Join(append(bad, err, wrong)...)
}

// readPayload reads TEXT, @FILE or -. One byte more than is allowed is enough to refuse it.
func readPayload(text string, stdin io.Reader) ([]byte, error) {
	from := stdin
	switch name, isFile := strings.CutPrefix(text, "@"); {
	case isFile:
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read payload: %w", err)
		}
		defer func() { _ = file.Close() }()
		from = file
	case text != "-":
		return []byte(text), nil
	}
	payload, err := io.ReadAll(io.LimitReader(from, admission.DefaultMaxPayload+1))
	if err != nil {
		return nil, fmt.Errorf("read payload: %w", err)
	}
	return payload, nil
}

func (f *enqueueFlags) enqueue(ctx context.Context, c *cobra.Command, p *producer.Producer, ahead time.Duration) (intake.Tally, error) {
	if !f.jsonl {
		job, err := f.spec.Job(time.Now().Add(ahead))
		if err != nil {
			return intake.Tally{}, cli.Usage(err)
		}
		tally, err := intake.One(ctx, p, job)
		if errors.Is(err, admission.ErrInvalid) { // Its class, which only the policy knows.
			return tally, cli.Usage(err)
		}
		return tally, err
	}
	stderr := c.ErrOrStderr()
	painter := report.NewPainter(stderr)
	shown, painted := 0, time.Now()
	tally, err := intake.Lines(ctx, p, c.InOrStdin(), intake.Config{
		Flags: f.spec, Strict: f.strict, Verbose: f.verbose, Ahead: ahead,
		Bad: func(line int, err error) {
			if shown++; f.verbose || shown <= cli.ShownBadRows {
				painter.Done(true)
				fmt.Fprintf(stderr, "headgate: line %d: %s\n", line, strings.ReplaceAll(err.Error(), "\n", "; "))
			}
		},
		Progress: func(t intake.Tally) {
			if now := time.Now(); now.Sub(painted) >= report.PaintEvery {
				painted = now
				line := progress(t)
				painter.Paint(line, line)
			}
		},
	})
	painter.Done(true)
	if more := shown - cli.ShownBadRows; more > 0 && !f.verbose {
		fmt.Fprintf(stderr, "headgate: %d more bad lines; --verbose reports all\n", more)
	}
	if tally.Interrupted {
		err = cli.ErrInterrupted
	}
	return tally, err
}

func progress(t intake.Tally) string {
	return fmt.Sprintf("headgate: %d sent: %d admitted, %d duplicates, %d refused; %d bad lines", t.Submitted, t.Admitted, t.Duplicates, t.Refusals(), t.BadLines)
}

// write prints what came of the jobs.
func (f *enqueueFlags) write(to io.Writer, tally intake.Tally) error {
	if f.json {
		return tally.WriteJSON(to)
	}
	if len(tally.Verdicts) > 0 {
		tally.WriteVerdicts(to)
	}
	if f.jsonl {
		tally.WriteCounts(to)
	}
	return nil
}
