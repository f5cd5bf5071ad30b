package policies

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/policydoc"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func newPolicyRollout(o *cli.Operator) *cobra.Command {
	c := cli.Parent("rollout", "Put other rules in force for a part of the tenants first", `A roll-out is a candidate beside the rules in force: tiers, tenants, queue_limits,
priority_limits, overflows and max_running that replace those of the same name. A tenant has
them if its hash is below the share, so the share may grow without anyone leaving. Each step
is a version of the policy, and stands in the audit.

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 no roll-out is under way.`,
		`  headgate policy rollout start rules.json --percent 5 --reason "raise basic" --redis localhost:6379
  headgate policy rollout start rules.json --percent 100 --shadow --redis localhost:6379
  headgate policy rollout shadow --redis localhost:6379
  headgate policy rollout share 50 --redis localhost:6379
  headgate policy rollout promote --redis localhost:6379
  headgate policy rollout abandon --reason "too much load" --redis localhost:6379`)
	c.AddCommand(newRolloutStart(o), newRolloutShow(o), newRolloutShadow(o), newRolloutShare(o),
		newRolloutEnd(o, "promote", "Put the candidate in force for everybody", rollout.Promote),
		newRolloutEnd(o, "abandon", "End the roll-out; all tenants have the rules that the others had", rollout.Abandon))
	return c
}

// candidate is a roll-out as the policy's JSON has it.
type candidate struct {
	ID      string          `json:"id"`
	Percent int             `json:"percent"`
	Shadow  bool            `json:"shadow,omitempty"`
	Rules   json.RawMessage `json:"rules"`
}

func newRolloutStart(o *cli.Operator) *cobra.Command {
	var reason string
	var begin candidate
	c := &cobra.Command{
		Use: "start FILE", Short: "Begin with the rules in FILE, or change those of the same --id", Args: cli.OneArg("FILE"),
		Long: `Begins a roll-out of the rules in FILE ("-" reads standard input), as in
  {"tiers": {"basic": {"limit": {"tokens": 150, "per": "1s", "burst": 40}}}}
The standard tier has to keep its weights and max_running.`,
		Example: `  headgate policy rollout start rules.json --percent 5 --reason "raise basic" --redis localhost:6379
  headgate policy rollout start rules.json --percent 100 --shadow --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if begin.Rules, err = policydoc.ReadText(args[0], c.InOrStdin()); err != nil {
				return err
			}
			begin.ID = cmp.Or(begin.ID, time.Now().UTC().Format("2006-01-02T150405"))
			text, err := json.Marshal(begin)
			if err != nil {
				return cli.InFile("rules", args[0], fmt.Errorf("%w: %w", admission.ErrInvalid, err))
			}
			return editRollout(o, c, func(ctx context.Context, s store.Deployment) (rollout.Result, error) {
				result, err := rollout.StartCandidate(ctx, s, text, cli.EditBy(reason))
				if bad, ok := errors.AsType[*admission.FieldError](err); !ok || strings.HasPrefix(bad.Field, "rollout.rules.") {
					err = cli.InFile("rules", args[0], err) // Of the file, not of the command line.
				}
				return result, err
			})
		},
	}
	c.Flags().IntVar(&begin.Percent, "percent", 0, fmt.Sprintf("share of the tenants, 0 to %d `PERCENT`", policy.MaxPercent))
	c.Flags().BoolVar(&begin.Shadow, "shadow", false, "put nothing in force, and count what the rules' limits would refuse")
	c.Flags().StringVar(&begin.ID, "id", "", "`NAME` of the roll-out, which decides who is in first; by default the time")
	cli.ReasonFlag(c, &reason)
	return c
}

func newRolloutShow(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Print the roll-out that is under way", Args: cli.NoArgs,
		Example: `  headgate policy rollout show --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				current, err := rollout.Current(ctx, s)
				if err != nil {
					return err
				}
				text, err := current.At("rollout")
				if err != nil {
					return err
				}
				if text == nil {
					return cli.Nothing("%w", rollout.ErrNoCandidate)
				}
				return printText(text, c.OutOrStdout())
			})
		},
	}
}

// shadowView is what a candidate in shadow would have answered, and by which levels it would have refused.
type shadowView struct {
	ID      string           `json:"id"`
	Since   *time.Time       `json:"since"`
	Allowed int64            `json:"allowed"`
	Refused map[string]int64 `json:"refused"`
}

func (v shadowView) write(to io.Writer) {
	fmt.Fprintf(to, "%s, since %s: %d allowed\n", v.ID, cli.Clock(*v.Since), v.Allowed)
	for level := range admission.Levels {
		name := admission.Level(level).String()
		fmt.Fprintf(to, "would be refused by %s: %d\n", name, v.Refused[name])
	}
}

func newRolloutShadow(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "shadow", Short: "Tell what the limits of a candidate in shadow would have answered", Args: cli.NoArgs,
		Example: `  headgate policy rollout shadow --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				counts, err := s.ShadowCounts(ctx)
				if err != nil {
					return err
				}
				if counts.ID == "" {
					return cli.Nothing("nothing was counted for a candidate in shadow yet")
				}
				view := shadowView{counts.ID, shown.Stamp(counts.Since), counts.Allowed, map[string]int64{}}
				for level, refused := range counts.Refused {
					view.Refused[admission.Level(level).String()] = refused
				}
				return o.Print(c, view, view.write)
			})
		},
	}
}

func newRolloutShare(o *cli.Operator) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "share PERCENT", Short: "Change the share of the tenants that have the candidate", Args: cli.OneArg("PERCENT"),
		Example: `  headgate policy rollout share 50 --reason "no complaints" --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			percent, err := strconv.Atoi(args[0])
			if err != nil || percent < 0 || percent > policy.MaxPercent {
				return cli.Usage(&admission.FieldError{Field: "PERCENT", Value: strconv.Quote(args[0]), Allowed: fmt.Sprintf("0 to %d", policy.MaxPercent)})
			}
			return editRollout(o, c, func(ctx context.Context, s store.Deployment) (rollout.Result, error) {
				return rollout.SetShare(ctx, s, percent, cli.EditBy(reason))
			})
		},
	}
	cli.ReasonFlag(c, &reason)
	return c
}

func newRolloutEnd(o *cli.Operator, name, short string, end func(context.Context, store.Deployment, rollout.Edit) (rollout.Result, error)) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: name, Short: short, Args: cli.NoArgs,
		Example: "  headgate policy rollout " + name + " --reason \"a day without complaints\" --redis localhost:6379",
		RunE: func(c *cobra.Command, _ []string) error {
			return editRollout(o, c, func(ctx context.Context, s store.Deployment) (rollout.Result, error) {
				return end(ctx, s, cli.EditBy(reason))
			})
		},
	}
	cli.ReasonFlag(c, &reason)
	return c
}

func editRollout(o *cli.Operator, c *cobra.Command, edit func(context.Context, store.Deployment) (rollout.Result, error)) error {
	return o.With(c, func(ctx context.Context, s store.Deployment) error {
		done, err := edit(ctx, s)
		if errors.Is(err, rollout.ErrNoCandidate) {
			return cli.Nothing("%w", err)
		}
		if err != nil {
			return err
		}
		view := resultViewOf(done, false)
		return o.Print(c, view, view.write)
	})
}
