package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/store"
)

// How often drain looks, and for how long each time it suspends enqueueing: a drain that is killed ends by itself.
const (
	drainEvery = 250 * time.Millisecond
	drainHold  = 30 * time.Second
	drainRenew = 10 * time.Second
	drainCount = 2 * time.Second // for one count
)

// drainFlags are the flags of headgate drain.
type drainFlags struct {
	cli.Operator

	timeout time.Duration
	keep    bool
	by      store.Intervention
}

// NewDrain returns the command headgate drain.
func NewDrain() *cobra.Command {
	var f drainFlags
	c := &cobra.Command{
		Use: "drain QUEUE", Short: "Let a queue run empty", Args: cli.OneArg("QUEUE"),
		Long: `Suspends enqueueing for a queue and waits until none of its jobs is left but dead letters; then
enqueueing goes on, unless --keep-suspended. Producers are refused meanwhile, and told why. Jobs
that wait for a time are waited for too: cancel them, or give a --timeout.

Exit codes: 0 the queue is empty, 1 it is not, 2 a wrong command line, 3 no such queue.`,
		Example: `  headgate drain mail --redis localhost:6379
  headgate drain mail --timeout 5m --keep-suspended --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			if f.timeout < 0 {
				return cli.FieldError("timeout", f.timeout.String(), "0, for none, or more")
			}
			f.by = cli.By(store.DrainReason)
			return f.With(c, func(ctx context.Context, s store.Deployment) error { return f.run(ctx, c, s, args[0]) })
		},
	}
	f.Add(c)
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "give up after `DURATION`, such as 5m, 1ns or more; by default never")
	c.Flags().BoolVar(&f.keep, "keep-suspended", false, "leave enqueueing suspended, also when it was given up; headgate resume ends that")
	return c
}

// drainedView is what became of a drain.
type drainedView struct {
	Queue     string  `json:"queue"`
	Drained   bool    `json:"drained"`
	Waiting   int64   `json:"waiting"`
	Ready     int64   `json:"ready"`
	Running   int64   `json:"running"`
	Later     int64   `json:"later"`
	Spilled   int64   `json:"spilled"`
	Suspended bool    `json:"suspended"` // whether enqueueing still is
	TookS     float64 `json:"took_s"`
}

func (f *drainFlags) run(ctx context.Context, c *cobra.Command, s store.Deployment, queue string) error {
	state, err := s.Queue(ctx, queue)
	if err != nil {
		return err
	}
	bounded := ctx
	if f.timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	began := time.Now()
	before := state.Suspended
	forever := before != nil && before.Until.IsZero()
	left, failed := f.wait(bounded, c, s, queue, forever)
	// What follows belongs to the end of a drain, however it ended.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	view := drainedView{
		Queue: queue, Drained: failed == nil, Waiting: left.Waiting, Ready: left.Ready, Running: left.Running, Later: left.Later, Spilled: left.Spilled,
		Suspended: f.keep || before != nil && (forever || time.Until(before.Until) > 0), TookS: time.Since(began).Seconds(),
	}
	switch {
	case forever: // As it was before.
	case f.keep:
		err = s.Suspend(end, store.QueueGate(queue), 0, f.by)
	case view.Suspended:
		err = f.restore(end, s, queue, before)
	default:
		_, err = s.Resume(end, store.QueueGate(queue), f.by)
	}
	printed := f.Print(c, view, func(to io.Writer) {
		if view.Drained {
			fmt.Fprintf(to, "queue %s is empty\n", queue)
		}
	})
	return errors.Join(failed, err, printed)
}

// restore leaves the suspension of before where it ends later than the drain's, or puts what is left of it in place of that.
func (f *drainFlags) restore(ctx context.Context, s store.Deployment, queue string, before *store.Suspension) error {
	state, err := s.Queue(ctx, queue)
	if err != nil || state.Suspended != nil && state.Suspended.Since.Equal(before.Since) && state.Suspended.Reason == before.Reason {
		return err
	}
	by := store.Intervention{Author: before.Author, Reason: before.Reason, Act: f.by.Act}
	return s.Suspend(ctx, store.QueueGate(queue), time.Until(before.Until), by)
}

// wait suspends enqueueing, unless it is for good, and returns when nothing is left, or with what is when ctx ends.
func (f *drainFlags) wait(ctx context.Context, c *cobra.Command, s store.Deployment, queue string, suspended bool) (store.Remaining, error) {
	painter := report.NewPainter(c.ErrOrStderr())
	defer painter.Done(true)
	ticker := time.NewTicker(drainEvery)
	defer ticker.Stop()
	var left store.Remaining
	var renewed time.Time
	for {
		if !suspended && time.Since(renewed) >= drainRenew {
			if _, err := s.Drain(ctx, queue, drainHold, f.by); err != nil {
				return left, err
			}
			renewed = time.Now()
		}
		now, err := remaining(ctx, s, queue)
		switch {
		case err == nil && now.Total() == 0:
			return now, nil
		case err == nil:
			left = now
		case ctx.Err() == nil:
			return left, err
		}
		line := "headgate: queue " + queue + ": " + counted(left)
		painter.Paint(line, line)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return left, fmt.Errorf("queue %s is not empty: %s; headgate queue show %s tells what holds them back", queue, counted(left), queue)
		}
	}
}

// remaining counts once also when ctx ends meanwhile, so that the last word is of what is left.
func remaining(ctx context.Context, store store.Deployment, queue string) (store.Remaining, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainCount)
	defer cancel()
	return store.Remaining(ctx, queue)
}

func counted(left store.Remaining) string {
	text := fmt.Sprintf("%d waiting, %d ready, %d running, %d later", left.Waiting, left.Ready, left.Running, left.Later)
	if left.Spilled > 0 {
		text += fmt.Sprintf(", %d spilled", left.Spilled)
	}
	return text
}
