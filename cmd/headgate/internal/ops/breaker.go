package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewBreaker returns the command headgate breaker.
func NewBreaker() *cobra.Command {
	var o cli.Operator
	c := cli.Parent("breaker", "See, open, close and reset circuit breakers", `Each downstream that jobs name has one circuit breaker for all workers. It opens when calls fail
and closes when probes pass; an operator may do either, and all workers follow within a second.
All accounts of a service (SERVICE+ACCOUNT) have the service's.

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 nobody knows the downstream.`,
		`  headgate breaker list --redis localhost:6379
  headgate breaker show smtp --redis localhost:6379
  headgate breaker open smtp --for 30m --reason "provider maintenance" --redis localhost:6379
  headgate breaker reset smtp --reason "maintenance is over" --redis localhost:6379`)
	o.Add(c)
	c.AddCommand(newBreakerList(&o), newBreakerShow(&o), newBreakerReset(&o))
	c.AddCommand(newBreakerForce(&o, breaker.Open, "Let no job of a downstream run", `Opens the breaker of a downstream: its jobs wait and burn no attempt, those that run go on. When
the time is over, probes decide. One of which nobody knows yet can be opened too.`,
		`  headgate breaker open smtp --for 30m --reason "provider maintenance" --redis localhost:6379
  headgate breaker open smtp --reason "until they have paid" --redis localhost:6379`))
	c.AddCommand(newBreakerForce(&o, breaker.Closed, "Let all jobs of a downstream run, whatever their calls come to", `Closes the breaker of a downstream and keeps it closed, however many calls fail. When the time is
over it counts from nothing. To close it and let it judge again at once, reset it.`,
		`  headgate breaker close smtp --for 10m --reason "their status page lies" --redis localhost:6379
  headgate breaker close smtp --reason "it has a breaker of its own" --json --redis localhost:6379`))
	return c
}

func newBreakerList(o *cli.Operator) *cobra.Command {
	var state string
	c := &cobra.Command{
		Use: "list", Short: "List the breakers of all downstreams", Args: cli.NoArgs,
		Example: `  headgate breaker list --redis localhost:6379
  headgate breaker list --state open --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"", breaker.Closed.String(), breaker.Open.String(), breaker.HalfOpen.String()}, state) {
				return cli.Usage(cli.FieldError("state", strconv.Quote(state), "closed, open or half-open"))
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				states, err := s.Breakers(ctx)
				if err != nil {
					return err
				}
				all := shown.BreakersIn(states, state)
				if len(states) == 0 {
					cli.None(c, "there is no breaker yet: no worker has called a downstream within a day")
				}
				return o.Print(c, all, func(to io.Writer) { writeBreakers(to, all) })
			})
		},
	}
	c.Flags().StringVar(&state, "state", "", "only those in the `STATE` closed, open or half-open")
	return c
}

func newBreakerShow(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show the breaker of one downstream, and who voted for what it does", Args: cli.OneArg("NAME"),
		Example: `  headgate breaker show smtp --redis localhost:6379
  headgate breaker show smtp --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := admission.ValidateName("NAME", args[0], false); err != nil {
				return cli.Usage(err)
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error { return showBreaker(ctx, o, c, s, args[0]) })
		},
	}
}

// showBreaker writes the state of a breaker.
func showBreaker(ctx context.Context, o *cli.Operator, c *cobra.Command, store store.Deployment, downstream string) error {
	state, err := store.Breaker(ctx, downstream)
	if err != nil {
		return err
	}
	view := shown.BreakerOf(&state)
	return o.Print(c, view, func(to io.Writer) { writeBreaker(to, view) })
}

// forceFlags are the flags of the commands that change a breaker.
type forceFlags struct {
	duration time.Duration
	reason   string
}

// validate reports everything that is wrong about a change.
func (f *forceFlags) validate(downstream string) error {
	bad := []error{admission.ValidateService("NAME", downstream, false)}
	if f.duration != 0 && (f.duration < time.Millisecond || f.duration > store.MaxForce) {
		bad = append(bad, cli.FieldError("for", f.duration.String(), "0, until it is reset, or 1ms to "+store.MaxForce.String()))
	}
	if n := len(f.reason); n == 0 || n > store.MaxReason {
		bad = append(bad, cli.FieldError("reason", fmt.Sprintf("of %d bytes", n), "1 to "+strconv.Itoa(store.MaxReason)+" bytes, for those who will ask"))
	}
	return cli.Usage(errors.Join(bad...))
}

func (f *forceFlags) addReason(c *cobra.Command) {
	c.Flags().StringVar(&f.reason, "reason", "", "`TEXT` that is kept and shown (required)")
}

func newBreakerForce(o *cli.Operator, to breaker.State, short, long, example string) *cobra.Command {
	var f forceFlags
	word := "open"
	if to == breaker.Closed {
		word = "close"
	}
	c := &cobra.Command{
		Use: word + " NAME --reason TEXT", Short: short, Long: long, Example: example, Args: cli.OneArg("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(args[0]); err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if _, err := s.Breaker(ctx, args[0]); errors.Is(err, store.ErrNoBreaker) {
					fmt.Fprintf(c.ErrOrStderr(), "headgate: note: no call of downstream %s was seen yet\n", args[0])
				}
				if _, err := s.ForceBreaker(ctx, args[0], to, f.duration, cli.By(f.reason)); err != nil {
					return err
				}
				return showBreaker(ctx, o, c, s, args[0])
			})
		},
	}
	c.Flags().DurationVar(&f.duration, "for", 0, "`DURATION` such as 30m, 1ms to "+admission.DurationText(store.MaxForce)+"; by default until headgate breaker reset")
	f.addReason(c)
	return c
}

func newBreakerReset(o *cli.Operator) *cobra.Command {
	var f forceFlags
	c := &cobra.Command{
		Use: "reset NAME --reason TEXT", Short: "Close a breaker, and let it judge again", Args: cli.OneArg("NAME"),
		Long: `Closes the breaker of a downstream, whether it opened of itself or was forced, with nothing
counted and its trips forgotten, so that the next one is as short as the first. One that was not
closed starts slowly: a few jobs at a time, twice as many each second.`,
		Example: `  headgate breaker reset smtp --reason "provider is back" --redis localhost:6379
  headgate breaker reset smtp --reason "end of maintenance" --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(args[0]); err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if _, err := s.ResetBreaker(ctx, args[0], cli.By(f.reason)); err != nil {
					return err
				}
				return showBreaker(ctx, o, c, s, args[0])
			})
		},
	}
	f.addReason(c)
	return c
}
