package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/policydoc"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// triggerPart is a trigger, which is put as a whole.
var triggerPart = part{noun: "trigger", path: shown.TriggersOwn.Path, show: showPart(shown.TriggersOwn), settings: func() []setting { return nil }}

// NewTrigger returns the command headgate trigger.
func NewTrigger() *cobra.Command {
	var o cli.Operator
	c := cli.Parent("trigger", "See what the policy does by itself about load, try it on the last hour, change it", `A trigger reduces a limit, pauses or suspends a queue, or sheds, while something that is measured is
beyond a bound (docs/guides/triggers.md). Each edit is a version of the whole policy (see headgate policy).

Exit codes: 0 done, 1 a failure, as a file that is wrong, 2 a wrong command line, 3 there is no such trigger.`,
		`  headgate trigger list --redis localhost:6379
  headgate trigger try smtp-ill smtp-ill.json --redis localhost:6379
  headgate trigger set smtp-ill smtp-ill.json --reason "they fall over" --redis localhost:6379`)
	o.Add(c)
	c.AddCommand(newTriggerList(&o), newTriggerShow(&o), newTriggerTry(&o), newTriggerSet(&o), newTriggerUnset(&o))
	return c
}

func newTriggerList(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the triggers, and which of them act", Args: cli.NoArgs,
		Long: "Lists the triggers of the policy: what each does to what, and since when and why those do that act now.",
		Example: `  headgate trigger list --redis localhost:6379
  headgate trigger list --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				current, err := rollout.Current(ctx, s)
				if err != nil {
					return err
				}
				view, err := shown.TriggersOf(ctx, s, current)
				if err != nil {
					return err
				}
				if len(view.Triggers) == 0 {
					cli.None(c, "the policy has no triggers")
				}
				return o.Print(c, view, func(to io.Writer) { writeTriggers(to, view, current) })
			})
		},
	}
}

func writeTriggers(to io.Writer, v shown.Triggers, current policy.Policy) {
	if len(v.Triggers) == 0 {
		return
	}
	t := report.NewTable(to, 1, "name", "when", "does", "of", "acts since", "why")
	for _, one := range v.Triggers {
		when, since := "", "-"
		if one.Own != nil {
			p := current.Trigger(one.Name)
			if when = p.Metric + " of " + p.MeasuredOf + " " + p.When.Words(); p.Disabled {
				since = "disabled"
			}
		}
		if one.Active {
			since = cli.At(one.Since)
		}
		t.AppendRow(table.Row{one.Name, when, one.Do, report.Tame(one.Of, cli.ShownText), since, report.Tame(one.Why, cli.ShownText)})
	}
	t.Render()
}

func newTriggerShow(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Print a trigger as the policy has it", Args: cli.OneArg("NAME"),
		Example: `  headgate trigger show smtp-ill --redis localhost:6379
  headgate trigger show smtp-ill --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if err := triggerThere(ctx, s, args[0]); err != nil {
					return err
				}
				return triggerPart.show(ctx, o, c, s, args[0], nil)
			})
		},
	}
}

// triggerThere is an error where the policy has no trigger of a name.
func triggerThere(ctx context.Context, s store.Deployment, name string) error {
	current, err := rollout.Current(ctx, s)
	if err != nil {
		return err
	}
	if _, there := current.Triggers[name]; !there {
		return cli.Nothing("the policy has no trigger %s: headgate trigger list tells which there are", strconv.Quote(name))
	}
	return nil
}

func newTriggerTry(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "try NAME [FILE]", Short: "Tell how often a trigger would have begun to act in the last hour", Args: cli.Args(1, 2, "NAME and perhaps FILE"),
		Long: `Tells what the trigger of that name, or the one in FILE ("-" reads standard input), would have done in the
last hour: by the history of load, a point each 10 s, which a scheduler keeps where the policy has a
"load", and of breaker_state by the transitions that are kept, each second. Nothing is stored.`,
		Example: `  headgate trigger try smtp-ill --redis localhost:6379
  echo '{"when":{"metric":"queue_depth","above":1000},"do":"pause","of":"queue mail"}' | headgate trigger try deep - --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			var text []byte
			var err error
			if len(args) > 1 {
				if text, err = policydoc.ReadText(args[1], c.InOrStdin()); err != nil {
					return err
				}
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				view, err := tryTrigger(ctx, s, args[0], text)
				if err != nil && text != nil {
					return ofTrigger(args[1], err)
				}
				if err != nil {
					return err
				}
				return o.Print(c, view, func(to io.Writer) { writeTrial(to, view) })
			})
		},
	}
}

// tryTrigger tries the text of a trigger, or for none the policy's own.
func tryTrigger(ctx context.Context, s store.Deployment, name string, text []byte) (v shown.TriggerTrial, err error) {
	current, err := rollout.Current(ctx, s)
	if err != nil {
		return v, err
	}
	if text == nil {
		if err := triggerThere(ctx, s, name); err != nil {
			return v, err
		}
	} else if current, err = current.With(json.RawMessage(text), triggerPart.path(name)...); err != nil {
		return v, err
	}
	return shown.TryTrigger(ctx, s, current.Trigger(name))
}

// ofTrigger says of an error which file has the trigger, unless it is the name that is wrong, or the policy may have no trigger.
func ofTrigger(file string, err error) error {
	if bad, ok := errors.AsType[*admission.FieldError](err); ok && bad.Field == "triggers" {
		return err
	}
	return cli.InFile("trigger", file, err)
}

func writeTrial(to io.Writer, v shown.TriggerTrial) {
	if v.Points == 0 {
		fmt.Fprintf(to, "nothing is known of %s of %s in the last hour\n", v.Metric, report.Tame(v.Of, cli.ShownText))
		return
	}
	number := func(x *float64) string { return strconv.FormatFloat(*x, 'g', 4, 64) }
	fmt.Fprintf(to, "%s of %s was %s to %s, in %d points since %s\n", v.Metric, report.Tame(v.Of, cli.ShownText), number(v.Least), number(v.Most), v.Points, cli.At(v.From))
	fmt.Fprintf(to, "it would have begun to act %d times, and acted for %s\n", v.Fired, time.Duration(v.ActiveMS)*time.Millisecond)
	for _, span := range v.Spans {
		end := "now"
		if span.To != nil {
			end = cli.At(span.To)
		}
		fmt.Fprintf(to, "  %s to %s\n", cli.At(&span.From), end)
	}
}

func newTriggerSet(o *cli.Operator) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "set NAME FILE", Short: "Store a trigger, in the place of one of that name", Args: cli.Args(2, 2, "NAME and FILE"),
		Long: `Stores the trigger in FILE, JSON as "triggers" of a policy has it (docs/POLICY.md); "-" reads standard
input. It is looked at within a second. The policy needs a "load".`,
		Example: `  headgate trigger set smtp-ill smtp-ill.json --reason "they fall over" --redis localhost:6379
  echo '{"when":{"metric":"error_rate","of":"queue mail","above":0.05},"do":"reduce_limit","of":"downstream smtp","by":-0.3}' | headgate trigger set smtp-ill - --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			text, err := policydoc.ReadText(args[1], c.InOrStdin())
			if err := errors.Join(err, cli.CheckReason(reason)); err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if err := triggerPart.set(ctx, s, args[0], one(json.RawMessage(text)), reason); err != nil {
					return ofTrigger(args[1], err)
				}
				return triggerPart.show(ctx, o, c, s, args[0], nil)
			})
		},
	}
	cli.ReasonFlag(c, &reason)
	return c
}

func newTriggerUnset(o *cli.Operator) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "unset NAME", Short: "Take a trigger away", Args: cli.OneArg("NAME"),
		Long:    "Takes a trigger out of the policy. What it does ends within a second.",
		Example: `  headgate trigger unset smtp-ill --reason "it is mended" --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if err := triggerPart.unset(ctx, s, args[0], nil, reason); err != nil {
					return err
				}
				return triggerPart.show(ctx, o, c, s, args[0], nil)
			})
		},
	}
	cli.ReasonFlag(c, &reason)
	return c
}
