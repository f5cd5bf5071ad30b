package ops

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewAdaptive returns the command headgate adaptive.
func NewAdaptive() *cobra.Command {
	c := &cobra.Command{
		Use: "adaptive", Short: "See limits that move by themselves, and stop them", Args: cli.NoArgs,
		Long: `Limits of downstreams, and parts of limits of admission, that the policy lets move by themselves (adaptive,
see docs/guides/adaptive-limits.md): what is in force, and why it moved last. freeze keeps one where it
is until thaw, override puts another in force for a time.`,
		Example: `  headgate adaptive list --redis localhost:6379
  headgate adaptive freeze mail-out --reason "their maintenance" --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newAdaptiveList(), newFreeze("freeze", "Keep a limit from moving", true), newFreeze("thaw", "Let a limit move again", false), newOverride())
	return c
}

func newAdaptiveList() *cobra.Command {
	var o cli.Operator
	c := &cobra.Command{
		Use: "list", Short: "List limits that move by themselves, and why they did", Args: cli.NoArgs,
		Long: `Lists every limit that moves by itself: what is in force, jobs at a time, with /s dispatches a
second, with % a part of what the policy says; between which bounds, how many jobs run, and what came of the last look at it.`,
		Example: `  headgate adaptive list --redis localhost:6379
  headgate adaptive list --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				now, err := s.Time(ctx)
				if err != nil {
					return err
				}
				all, err := shown.ReadAdaptives(ctx, s)
				if err != nil {
					return err
				}
				return o.Print(c, all, func(to io.Writer) { writeAdaptives(to, all, now) })
			})
		},
	}
	o.Add(c)
	return c
}

func writeAdaptives(to io.Writer, all shown.Adaptives, now time.Time) {
	if len(all.Adaptive) == 0 {
		_, _ = io.WriteString(to, "no limit moves by itself\n")
		return
	}
	t := report.NewTable(to, 1, "name", "of", "limit", "min", "max", "running", "looked", "last step")
	for _, a := range all.Adaptive {
		step := a.LastStep()
		if a.Frozen != nil {
			step = "frozen by "
			if a.Override != nil {
				step = "set until " + a.Override.Until.UTC().Format(time.DateTime) + "Z, then " + a.InWords(a.Override.Back) + ", by "
			}
			step += held(a.Frozen.Author) + " since " + sinceWhen(a.Frozen.Since, now)
			if a.Frozen.Reason != "" {
				step += ", " + report.Tame(a.Frozen.Reason, cli.ShownText)
			}
		}
		if a.Signal != nil {
			step += "; " + a.Signal.InWords()
		}
		if a.DeadBand > 0 {
			step += fmt.Sprintf("; the dead band held it %d times", a.DeadBand)
		}
		t.AppendRow(table.Row{
			report.Tame(a.Name, cli.ShownText), report.Tame(a.Gate.Words(), cli.ShownText), a.InWords(a.Limit), a.InWords(a.Min), a.InWords(a.Max), a.Running, sinceWhen(a.Looked, now), step,
		})
	}
	t.Render()
}

// frozenView is what freeze and thaw did.
type frozenView struct {
	Name   string         `json:"name"`
	Gate   store.GateName `json:"gate"`
	Frozen bool           `json:"frozen"`
	Was    bool           `json:"was"` // whether it was frozen before
}

func newFreeze(verb, short string, frozen bool) *cobra.Command {
	var o cli.Operator
	var reason string
	long := `Leaves the limit where it is, whatever its loop finds, until headgate adaptive thaw. The policy's
bounds still hold.`
	if !frozen {
		long = "Ends what freeze began: the loop goes on from the limit that is in force."
	}
	c := &cobra.Command{
		Use: verb + " NAME", Short: short, Args: cli.OneArg("NAME"), Long: long + "\n\nExit code 3 says that the policy has no adaptive limit of that name, or that there is nothing to end.",
		Example: fmt.Sprintf(`  headgate adaptive %[1]s mail-out --reason "their maintenance" --redis localhost:6379
  headgate adaptive %[1]s mail-out --json --redis localhost:6379`, verb),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.CheckReason(reason); err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				return freeze(ctx, c, s, &o, args[0], frozen, cli.By(reason))
			})
		},
	}
	o.Add(c)
	cli.ReasonFlag(c, &reason)
	return c
}

func freeze(ctx context.Context, c *cobra.Command, s store.Deployment, o *cli.Operator, name string, frozen bool, by store.Intervention) error {
	gate, err := shown.FindAdaptive(ctx, s, name)
	if err != nil {
		return err
	}
	was, err := s.Freeze(ctx, gate, frozen, by)
	if err != nil {
		return err
	}
	if !frozen && !was {
		return cli.Nothing("%s is not frozen: headgate adaptive list tells what is", name)
	}
	return o.Print(c, frozenView{name, gate, frozen, was}, func(to io.Writer) {
		if frozen {
			fmt.Fprintf(to, "the limit of %s stays where it is\n", gate.Words())
		} else {
			fmt.Fprintf(to, "the limit of %s moves again\n", gate.Words())
		}
	})
}

// overrideView is what override did.
type overrideView struct {
	Name  string         `json:"name"`
	Gate  store.GateName `json:"gate"`
	Limit float64        `json:"limit,omitempty"`
	For   string         `json:"for,omitempty"`
	Off   bool           `json:"off"`
}

func newOverride() *cobra.Command {
	var o cli.Operator
	var reason string
	var limit float64
	var duration time.Duration
	var off bool
	c := &cobra.Command{
		Use: "override NAME", Short: "Put a limit in force for a time", Args: cli.OneArg("NAME"),
		Long: `Puts a limit in force instead of what its loop has found, between its min and max, for a time in which
the loop leaves it alone. Then the one of before comes back by itself. --off ends it before that.

Exit code 3 says that the policy has no adaptive limit of that name, or that there is nothing to end.`,
		Example: `  headgate adaptive override mail-out --limit 12 --for 10m --reason "they asked for it" --redis localhost:6379
  headgate adaptive override mail-out --off --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			set := c.Flags().Changed("limit") || c.Flags().Changed("for")
			switch {
			case off && set:
				return cli.FieldError("off", "true", "neither --limit nor --for beside it")
			case !off && (duration < store.MinOverride || duration > store.MaxOverride):
				return cli.FieldError("for", admission.DurationText(duration), admission.DurationText(store.MinOverride)+" to "+admission.DurationText(store.MaxOverride))
			}
			if err := cli.CheckReason(reason); err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				return override(ctx, c, s, &o, args[0], limit, duration, cli.By(reason))
			})
		},
	}
	o.Add(c)
	c.Flags().Float64Var(&limit, "limit", 0, "`N` jobs at a time, of a dispatch jobs a second, or of limits percent")
	c.Flags().DurationVar(&duration, "for", 0, "`DURATION` such as 10m, 1s to 168h")
	c.Flags().BoolVar(&off, "off", false, "end it: what its loop had found is in force again")
	cli.ReasonFlag(c, &reason)
	return c
}

func override(ctx context.Context, c *cobra.Command, s store.Deployment, o *cli.Operator, name string, limit float64, duration time.Duration, by store.Intervention) error {
	gate, err := shown.FindAdaptive(ctx, s, name)
	if err != nil {
		return err
	}
	whole := 0
	if duration > 0 {
		if whole, err = shown.OverrideLimit(gate, limit); err != nil {
			return cli.Usage(err)
		}
	}
	number, err := s.Override(ctx, gate, whole, duration, by)
	if err != nil {
		return err
	}
	if duration == 0 {
		if number == 0 {
			return cli.Nothing("the limit of %s is not set for a time: headgate adaptive list tells what is", name)
		}
		return o.Print(c, overrideView{Name: name, Gate: gate, Off: true}, func(to io.Writer) { fmt.Fprintf(to, "the limit of %s moves again\n", gate.Words()) })
	}
	return o.Print(c, overrideView{name, gate, limit, duration.String(), false}, func(to io.Writer) {
		fmt.Fprintf(to, "the limit of %s is %g for %s\n", gate.Words(), limit, duration)
	})
}
