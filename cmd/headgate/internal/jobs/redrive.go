package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// redriveFlags are the flags of headgate redrive.
type redriveFlags struct {
	cli.Operator

	query   store.ListQuery
	limit   int
	dryRun  bool
	options producer.RedriveOptions
}

// NewRedrive returns the command headgate redrive.
func NewRedrive() *cobra.Command {
	var f redriveFlags
	c := &cobra.Command{
		Use: "redrive (TENANT ID... | --queue QUEUE)", Short: "Run dead letters again",
		Long: `Brings dead letters back through admission, like new jobs: limits are charged, attempts count
from zero, the history stays. Of a queue it takes those that had died when it began, the oldest
first, and waits for tokens where a limit asks for it. One that is refused stays dead.
With --dry-run it only tells how many it would try; limits and deadlines decide at the time.

Exit codes: 0 all are on their way, 1 a failure, 2 a wrong command line, 3 some were refused, or
there was none.`,
		Example: `  headgate redrive acme order-17 order-18 --redis localhost:6379
  headgate redrive --queue mail --died-of max_attempts --limit 100 --redis localhost:6379
  headgate redrive --queue mail --died-of max_attempts --dry-run --redis localhost:6379
  headgate redrive --queue mail --tenant acme --redis localhost:6379
  headgate redrive --queue mail --why "smtp is back" --without-limits --drop-deadline --redis localhost:6379`,
		Args: keyOrQueue(&f.query.Queue, math.MaxInt),
		RunE: func(c *cobra.Command, args []string) error {
			if f.limit < 0 {
				return cli.FieldError("limit", strconv.Itoa(f.limit), "0, for all, or more")
			}
			if len(args) > 0 && (f.query.Reason != "" || f.query.Tenant != "" || f.limit != 0 || f.dryRun) {
				return cli.Usage(errors.New("--tenant, --died-of, --limit and --dry-run are for the dead letters of a --queue"))
			}
			return f.With(c, func(ctx context.Context, s store.Deployment) error { return diedOf(f.run(ctx, c, s, args), audited) })
		},
	}
	f.Add(c)
	flags := c.Flags()
	flags.StringVar(&f.query.Queue, "queue", "", "all of `QUEUE`")
	flags.StringVar(&f.query.Tenant, "tenant", "", "with --queue, those of `TENANT` only")
	diedOfFlag(c, &f.query.Reason)
	flags.IntVar(&f.limit, "limit", 0, "at most `N` of the queue; 0 takes all")
	flags.BoolVar(&f.dryRun, "dry-run", false, "with --queue, tell how many would be tried, and change nothing")
	flags.StringVar(&f.options.Reason, "why", "", fmt.Sprintf("`TEXT` of up to %d bytes for the audit", store.MaxReason))
	flags.BoolVar(&f.options.WithoutLimits, "without-limits", false, "check and charge no limit")
	flags.BoolVar(&f.options.DropDeadline, "drop-deadline", false, "take away deadlines that have passed; without it such jobs are refused")
	return c
}

// redrivenView is what became of a redrive.
type redrivenView struct {
	Redriven int `json:"redriven"`
	// Refused counts by reason; Errors name the first of them.
	Refused map[string]int `json:"refused"`
	Errors  []refusedView  `json:"errors"`
}

// countedView is what a dry run says of the dead letters of a queue.
type countedView struct {
	DryRun bool `json:"dry_run"`
	Dead   int  `json:"dead"`
}

// countDead tells how many dead letters a query names, the oldest first and at most most unless 0.
func countDead(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, query store.ListQuery, age time.Duration, most int, would string) error {
	view := countedView{DryRun: true}
	err := eachDead(ctx, s, query, age, most, func(keys []admission.Key) error {
		view.Dead += len(keys)
		return nil
	})
	if err != nil {
		return err
	}
	if err := o.Print(c, view, func(to io.Writer) { fmt.Fprintf(to, "%d dead letters would be %s\n", view.Dead, would) }); err != nil {
		return err
	}
	if view.Dead == 0 {
		return cli.Nothing("no dead letter of queue %s is like that", query.Queue)
	}
	return nil
}

type refusedView struct {
	Tenant string `json:"tenant"`
	ID     string `json:"id"`
	Error  string `json:"error"`
}

// shownErrors is how many refused letters are named.
const shownErrors = 20

func (v *redrivenView) refuse(result producer.RedriveResult) {
	reason := string(result.Verdict.Reason)
	if errors.Is(result.Err, admission.ErrNotDead) {
		reason = string(admission.ReasonGone)
	}
	if reason == "" {
		reason = "unreadable"
	}
	v.Refused[reason]++
	if len(v.Errors) < shownErrors {
		v.Errors = append(v.Errors, refusedView{result.Key.Tenant, result.Key.ID, result.Err.Error()})
	}
}

func (v *redrivenView) refused() int {
	n := 0
	for _, count := range v.Refused {
		n += count
	}
	return n
}

func (v *redrivenView) write(to io.Writer) {
	fmt.Fprintf(to, "%d dead letters are on their way again\n", v.Redriven)
	for _, reason := range slices.Sorted(maps.Keys(v.Refused)) {
		fmt.Fprintf(to, "%d were refused: %s\n", v.Refused[reason], reason)
	}
	for _, e := range v.Errors {
		fmt.Fprintf(to, "  %s %s: %s\n", e.Tenant, e.ID, report.Tame(e.Error, 0))
	}
}

func (f *redriveFlags) run(ctx context.Context, c *cobra.Command, s store.Deployment, args []string) error {
	if f.dryRun {
		return countDead(ctx, &f.Operator, c, s, f.query, 0, f.limit, "tried again")
	}
	p, err := producer.New(s, producer.Config{Logger: f.ProducerLogger(c.ErrOrStderr())})
	if err != nil {
		return err
	}
	who := cli.By(f.options.Reason)
	f.options.Author, f.options.Act = who.Author, who.Act
	view := &redrivenView{Refused: map[string]int{}, Errors: []refusedView{}}
	painter := report.NewPainter(c.ErrOrStderr())
	do := func(keys []admission.Key) error {
		return f.portion(ctx, p, keys, view, func(note string) {
			line := fmt.Sprintf("headgate: %d redriven, %d refused%s", view.Redriven, view.refused(), note)
			painter.Paint(line, line)
		})
	}
	if len(args) == 0 {
		err = eachDead(ctx, s, f.query, 0, f.limit, do)
	} else {
		for portion := range slices.Chunk(cli.KeysOf(args), store.MaxBatchJobs) {
			if err = do(portion); err != nil {
				break
			}
		}
	}
	painter.Done(true)
	p.FlushOrLog()
	if _, invalid := errors.AsType[*admission.FieldError](err); invalid || errors.Is(err, store.ErrUnknownQueue) {
		return err
	}
	if printed := f.Print(c, view, view.write); err != nil || printed != nil {
		return errors.Join(err, printed)
	}
	switch {
	case view.refused() > 0:
		return cli.Nothing("%d dead letters were refused and stay dead", view.refused())
	case view.Redriven == 0:
		return cli.Nothing("no dead letter of queue %s is like that", f.query.Queue)
	}
	return nil
}

// The longest wait for tokens before a letter counts as refused, and the shortest between two tries.
const (
	longestRedriveWait  = time.Minute
	shortestRedriveWait = 10 * time.Millisecond
)

// portion redrives letters of one call. Those of a queue that lack tokens are tried again when there are some.
func (f *redriveFlags) portion(ctx context.Context, p *producer.Producer, keys []admission.Key, view *redrivenView, progress func(note string)) error {
	for {
		results, err := p.RedriveWith(ctx, f.options, keys...)
		if results == nil {
			return err
		}
		keys = keys[:0:0]
		wait := shortestRedriveWait
		for _, r := range results {
			retry := r.Verdict.RetryAfter
			switch {
			case r.Err == nil:
				view.Redriven++
			case errors.Is(r.Err, admission.ErrOutcomeUnknown), errors.Is(r.Err, admission.ErrUnavailable):
				return r.Err
			case f.query.Queue != "" && errors.Is(r.Err, admission.ErrLimited) && retry <= longestRedriveWait:
				keys, wait = append(keys, r.Key), max(wait, min(retry, time.Second))
			default:
				view.refuse(r)
			}
		}
		if len(keys) == 0 {
			progress("")
			return nil
		}
		progress(fmt.Sprintf(", %d wait for tokens", len(keys)))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return cli.ErrInterrupted
		}
	}
}
