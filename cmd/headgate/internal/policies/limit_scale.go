package policies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// scaleTimes are for how long limits may be scaled.
var scaleTimes = admission.DurationText(store.MinScaleTime) + " to " + admission.DurationText(store.MaxScaleTime)

// limitScale is headgate limit scale.
type limitScale struct {
	*cli.Operator

	duration time.Duration
	off      bool
	reason   string
}

func newLimitScale(o *cli.Operator) *cobra.Command {
	s := &limitScale{Operator: o}
	c := &cobra.Command{
		Use: "scale [SCOPE (PART --for DURATION | --off)]", Short: "Put a part of all limits in force for a time, in an emergency", Args: cli.Args(0, 2, "SCOPE and PART"),
		Long: `Scales limits to a part of what the policy says, from the next job or check on, everywhere; what limiters
hold on lease already may be spent for a second more. When the time is over, by the clock of Redis, the
policy's limits are in force again, whoever is there to see. SCOPE is all, global for the limit of all
alone, or a tenant for its limits at every level; of two that hold for one limit the one counts that
leaves less. Of a token bucket rate and burst are scaled, the burst not below a token; of a fixed window
the tokens. Nothing else changes: neither the policy, nor how many jobs run.

Without SCOPE it lists what is in force. Exit code 3 says that there is nothing to end.`,
		Example: `  headgate limit scale all 0.5 --for 10m --reason "db on fire" --redis localhost:6379
  headgate limit scale acme 0.1 --for 1h --redis localhost:6379
  headgate limit scale all --off --redis localhost:6379
  headgate limit scale --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return s.list(c)
			}
			target, part, err := s.read(args)
			if err != nil {
				return err
			}
			return s.With(c, func(ctx context.Context, d store.Deployment) error { return s.scale(ctx, c, d, target, part) })
		},
	}
	c.Flags().DurationVar(&s.duration, "for", 0, "`DURATION` such as 10m, "+scaleTimes)
	c.Flags().BoolVar(&s.off, "off", false, "end it: the policy's limits are in force again")
	cli.ReasonFlag(c, &s.reason)
	return c
}

// read checks what is to be done.
func (s *limitScale) read(args []string) (target store.GateName, part float64, err error) {
	target, err = store.ScaleTarget(args[0])
	switch {
	case err != nil:
		return "", 0, cli.Usage(err)
	case s.off && (len(args) > 1 || s.duration != 0):
		return "", 0, cli.FieldError("off", "true", "neither PART nor --for beside it")
	case !s.off && len(args) == 1:
		return "", 0, cli.Usage(errors.New("say to what part, as in headgate limit scale " + args[0] + " 0.5 --for 10m, or --off to end it"))
	case !s.off && s.duration == 0:
		return "", 0, cli.FieldError("for", "0s", scaleTimes)
	}
	if !s.off {
		if part, err = strconv.ParseFloat(args[1], 64); err != nil {
			return "", 0, cli.Usage(fmt.Errorf("invalid part %q: allowed is %s to 1", args[1], store.PartText(store.MinScale)))
		}
	}
	if err := store.ValidateScale(target, part, s.duration, cli.By("")); err != nil {
		return "", 0, cli.Usage(err)
	}
	return target, part, cli.CheckReason(s.reason)
}

// scaledView is what became of it.
type scaledView struct {
	Scope store.GateName `json:"scope"`
	Part  float64        `json:"part,omitempty"`
	Until *time.Time     `json:"until,omitempty"`
	Off   bool           `json:"off"`
}

func (s *limitScale) scale(ctx context.Context, c *cobra.Command, d store.Deployment, target store.GateName, part float64) error {
	now, err := d.Time(ctx)
	if err != nil {
		return err
	}
	was, err := d.ScaleLimits(ctx, target, part, s.duration, cli.By(s.reason))
	if err != nil {
		return err
	}
	if s.off {
		if !was {
			return cli.Nothing("limits of %s are not scaled: headgate limit scale tells what is", target.Words())
		}
		return s.Print(c, scaledView{Scope: target, Off: true}, func(to io.Writer) { fmt.Fprintf(to, "limits of %s are the policy's again\n", target.Words()) })
	}
	view := scaledView{Scope: target, Part: part, Until: shown.Stamp(now.Add(s.duration))}
	return s.Print(c, view, func(to io.Writer) {
		fmt.Fprintf(to, "limits of %s are scaled to %s%s\n", target.Words(), store.PartText(part), cli.Until(view.Until))
	})
}

func (s *limitScale) list(c *cobra.Command) error {
	if s.off || s.duration != 0 || s.reason != "" {
		return cli.Usage(errors.New("say whose limits: all, global or a tenant"))
	}
	return s.With(c, func(ctx context.Context, d store.Deployment) error {
		all, err := shown.ReadScales(ctx, d)
		if err != nil {
			return err
		}
		return s.Print(c, all, func(to io.Writer) { writeScales(to, all) })
	})
}

func writeScales(to io.Writer, all shown.Scales) {
	if len(all.Scales) == 0 {
		_, _ = io.WriteString(to, "no limit is scaled\n")
		return
	}
	t := report.NewTable(to, 1, "limits of", "scaled to", "who", "since", "until", "why")
	for _, s := range all.Scales {
		t.AppendRow(table.Row{
			report.Tame(s.Scope.Words(), cli.ShownText), store.PartText(s.Part), report.Tame(s.Author, cli.ShownText), cli.At(s.Since), cli.At(s.Until),
			report.Tame(s.Reason, cli.ShownText),
		})
	}
	t.Render()
}
