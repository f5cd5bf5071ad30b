package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// target is what pause and resume are about.
type target struct {
	cli.Operator

	queue, tenant, downstream string
	enqueue                   bool
}

func (t *target) add(c *cobra.Command, what, enqueue string) {
	t.Add(c)
	flags := c.Flags()
	flags.StringVar(&t.queue, "queue", "", "`QUEUE` to "+what)
	flags.StringVar(&t.tenant, "tenant", "", "`TENANT` to "+what+"; with --queue, in that queue alone")
	flags.StringVar(&t.downstream, "downstream", "", "`DOWNSTREAM` whose jobs to "+what+", or SERVICE+ACCOUNT for those of one account")
	flags.BoolVar(&t.enqueue, "enqueue", false, enqueue)
}

// gate names the target.
func (t *target) gate() (store.GateName, error) {
	var bad []error
	if t.queue != "" {
		bad = append(bad, admission.ValidateName("queue", t.queue, true))
	}
	if t.tenant != "" {
		bad = append(bad, admission.ValidateTenant(t.tenant))
	}
	if t.downstream != "" {
		bad = append(bad, admission.ValidateDownstream("downstream", t.downstream, false))
	}
	if err := errors.Join(bad...); err != nil {
		return "", cli.Usage(err)
	}
	switch {
	case t.downstream != "" && (t.queue != "" || t.tenant != "" || t.enqueue):
		return "", cli.Usage(errors.New("--downstream goes with none of --queue, --tenant and --enqueue"))
	case t.downstream != "":
		return store.DownstreamGate(t.downstream), nil
	case t.queue == "" && t.tenant == "":
		return "", cli.Usage(errors.New("say what with --queue, with --tenant, with both for a tenant in a queue, or with --downstream"))
	case t.tenant == "":
		return store.QueueGate(t.queue), nil
	case t.queue == "":
		return store.TenantGate(t.tenant), nil
	}
	return store.TenantQueueGate(t.tenant, t.queue), nil
}

// pausedView is what became of a pause or a resume.
type pausedView struct {
	Gate store.GateName `json:"gate"`
	// Dispatch and Enqueue say what is held back now: "paused", "resumed" or, where nothing was done, "".
	Dispatch string     `json:"dispatch,omitempty"`
	Enqueue  string     `json:"enqueue,omitempty"`
	Running  int        `json:"running"` // jobs that had passed before
	Until    *time.Time `json:"until,omitempty"`
}

// NewPause returns the command headgate pause.
func NewPause() *cobra.Command {
	var t target
	var duration time.Duration
	var reason string
	c := &cobra.Command{
		Use: "pause (--queue QUEUE | --tenant TENANT | --downstream DOWNSTREAM)", Short: "Hold back the jobs of a queue, a tenant or a downstream", Args: cli.NoArgs,
		Long: `Keeps the jobs of a queue, of a tenant, of a tenant in a queue, or of a downstream from the
workers. Those that run go on, and producers go on enqueueing. With --enqueue it is the other way
round: producers are refused, with the reason, and what has entered runs; that is not for
downstreams. For both, call it twice.`,
		Example: `  headgate pause --queue mail --reason "provider maintenance" --redis localhost:6379
  headgate pause --tenant acme --for 10m --redis localhost:6379
  headgate pause --downstream smtp --reason "they move" --redis localhost:6379
  headgate pause --queue mail --tenant acme --enqueue --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			gate, err := t.gate()
			if err != nil {
				return err
			}
			if duration < 0 || duration > 0 && duration < time.Millisecond || duration > admission.MaxDelay {
				return cli.FieldError("for", duration.String(), "0, until resumed, or 1ms to "+admission.MaxDelay.String())
			}
			if err := cli.CheckReason(reason); err != nil {
				return err
			}
			return t.With(c, func(ctx context.Context, s store.Deployment) error {
				return t.pause(ctx, c, s, gate, duration, reason)
			})
		},
	}
	t.add(c, "hold back", "refuse what is enqueued, instead of holding back what has entered")
	c.Flags().DurationVar(&duration, "for", 0, "`DURATION` of the pause, such as 10m, 1ms to "+admission.DurationText(admission.MaxDelay)+"; by default until headgate resume")
	c.Flags().StringVar(&reason, "reason", "", fmt.Sprintf("`TEXT` of up to %d bytes that is shown, and with --enqueue told to producers", store.MaxReason))
	return c
}

func (t *target) pause(ctx context.Context, c *cobra.Command, s store.Deployment, gate store.GateName, duration time.Duration, reason string) error {
	if t.queue != "" {
		if _, err := s.Queue(ctx, t.queue); errors.Is(err, store.ErrUnknownQueue) {
			fmt.Fprintf(c.ErrOrStderr(), "headgate: note: no job of queue %s was seen yet\n", t.queue)
		}
	}
	view := pausedView{Gate: gate}
	if duration > 0 {
		now, err := s.Time(ctx)
		if err != nil {
			return err
		}
		view.Until = shown.Stamp(now.Add(duration))
	}
	text := gate.Words() + " is paused"
	if t.enqueue {
		if err := s.Suspend(ctx, gate, duration, cli.By(reason)); err != nil {
			return err
		}
		view.Enqueue, text = "paused", "enqueueing is suspended for "+gate.Words()
	} else {
		held, err := s.Pause(ctx, gate, duration, cli.By(reason))
		if err != nil {
			return err
		}
		view.Dispatch, view.Running = "paused", held
		if held > 0 {
			text += fmt.Sprintf("; %d jobs had passed before and go on", held)
		}
	}
	return t.Print(c, view, func(to io.Writer) { fmt.Fprintln(to, text+cli.Until(view.Until)) })
}

// NewResume returns the command headgate resume.
func NewResume() *cobra.Command {
	var t target
	var reason string
	c := &cobra.Command{
		Use: "resume (--queue QUEUE | --tenant TENANT | --downstream DOWNSTREAM)", Short: "End what pause began", Args: cli.NoArgs,
		Long: `Lets the jobs of a queue, of a tenant, of a tenant in a queue, or of a downstream run and be
enqueued again. A pause is named as it was set: that of a tenant in a queue is not that of the
tenant.

Exit code 3 says that nothing was paused.`,
		Example: `  headgate resume --queue mail --redis localhost:6379
  headgate resume --queue mail --tenant acme --enqueue --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			gate, err := t.gate()
			if err == nil {
				err = cli.CheckReason(reason)
			}
			if err != nil {
				return err
			}
			return t.With(c, func(ctx context.Context, s store.Deployment) error { return t.resume(ctx, c, s, gate, cli.By(reason)) })
		},
	}
	t.add(c, "resume", "resume enqueueing alone")
	cli.ReasonFlag(c, &reason)
	return c
}

func (t *target) resume(ctx context.Context, c *cobra.Command, store store.Deployment, gate store.GateName, by store.Intervention) error {
	view := pausedView{Gate: gate}
	suspended, err := store.Resume(ctx, gate, by)
	if err != nil {
		return err
	}
	if suspended {
		view.Enqueue = "resumed"
	}
	if !t.enqueue {
		paused, err := store.Unpause(ctx, gate, by)
		if err != nil {
			return err
		}
		if paused {
			view.Dispatch = "resumed"
		}
	}
	if view.Dispatch+view.Enqueue == "" {
		return cli.Nothing("%s is not paused: headgate holds tells what is", gate.Words())
	}
	return t.Print(c, view, func(to io.Writer) { fmt.Fprintln(to, gate.Words()+" is resumed") })
}
