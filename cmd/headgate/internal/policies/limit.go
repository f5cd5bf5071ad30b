package policies

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// NewLimit returns the command headgate limit.
func NewLimit() *cobra.Command {
	var o cli.Operator
	c := cli.Parent("limit", "Show, set or take away the limit of one scope", `A scope is global, a tenant, tenant:queue or tenant:queue:priority; of one type of job
tenant:queue:type=TYPE, and with type=* of each type of which the tenant has none; or of a dimension that
the policy declares: +user for each of its values, +user@premium for those of tenants of a tier, +user:123
for one. Each edit is a version of the whole policy (see headgate policy), and producers follow it within a
second.

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 the scope has no limit of its own.`,
		`  headgate limit get acme --redis localhost:6379
  headgate limit set acme --tokens 100 --per 1s --burst 50 --reason "new contract" --redis localhost:6379
  headgate limit set acme --tokens 1000 --window 24h --zone Europe/Berlin --redis localhost:6379
  headgate limit set +user:123 --tokens 10 --per 1s --redis localhost:6379
  headgate limit set acme --algorithm sliding_window --tokens 500 --window 1m --redis localhost:6379
  headgate limit set acme:mail:low --off --redis localhost:6379
  headgate limit set acme:mail:type=report --tokens 5 --redis localhost:6379
  headgate limit delete acme --reason "contract is over" --redis localhost:6379
  headgate limit scale all 0.5 --for 10m --reason "db on fire" --redis localhost:6379
  headgate limit top --sort refused --redis localhost:6379`)
	o.Add(c)
	c.AddCommand(newLimitGet(&o), newLimitSet(&o), newLimitDelete(&o), newLimitScale(&o), newLimitTop(&o))
	return c
}

func newLimitGet(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "get SCOPE", Aliases: []string{"show"}, Short: "Show the limit of a scope, its own and the one in force", Args: cli.OneArg("SCOPE"),
		Example: `  headgate limit get acme:mail --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error { return showLimit(ctx, o, c, s, args[0]) })
		},
	}
}

// limitInForce reads the limit of a scope by the policy in force.
func limitInForce(ctx context.Context, s store.Deployment, scope string) (shown.LimitConfig, error) {
	current, err := rollout.Current(ctx, s)
	if err != nil {
		return shown.LimitConfig{}, err
	}
	compiled, err := current.Prepare()
	if err != nil {
		return shown.LimitConfig{}, err
	}
	return shown.ReadLimitConfig(ctx, s, current, compiled, admission.Scope(scope))
}

func showLimit(ctx context.Context, o *cli.Operator, c *cobra.Command, store store.Deployment, scope string) error {
	config, err := limitInForce(ctx, store, scope)
	if err != nil {
		return err
	}
	return o.Print(c, config, func(to io.Writer) { writeLimit(to, config) })
}

// limitEdited is a limit after an edit of the policy, with what is to be known of that.
type limitEdited struct {
	shown.LimitConfig

	Note string `json:"note,omitempty"`
}

// showEdited is showLimit after an edit of the policy, and says so where the tenant's record goes before that.
func showEdited(ctx context.Context, o *cli.Operator, c *cobra.Command, store store.Deployment, scope string) error {
	config, err := limitInForce(ctx, store, scope)
	if err != nil {
		return err
	}
	var note string
	if config.Recorded {
		note = fmt.Sprintf("the limit of %s is in the %s, which goes before the policy: headgate record set %s --tokens NUMBER --per DURATION changes it, --none takes it out", scope, config.Rule.Of, scope)
		fmt.Fprintf(c.ErrOrStderr(), "headgate: note: %s\n", note)
	}
	return o.Print(c, limitEdited{config, note}, func(to io.Writer) { writeLimit(to, config) })
}

func writeLimit(to io.Writer, config shown.LimitConfig) {
	whose := "by default"
	switch {
	case config.Recorded:
		whose = "by its record"
	case config.Own != nil:
		whose = "its own limit"
	case config.Rule != nil:
		whose = config.Rule.Of
	}
	if r := config.Reserved; r != nil {
		defer fmt.Fprintf(to, "%d%% of it are kept for %s: others get %s and hold %d\n", r.Percent, policy.ClassWords(r.Classes), r.Others.Words(), r.Others.Burst)
	}
	l := config.InForce
	if l == nil {
		fmt.Fprintf(to, "%s has no limit, %s\n", config.Scope, whose)
		return
	}
	whose += scaledWords(config.Scaled)
	if l.Window != "" {
		fmt.Fprintf(to, "%s gets %s, %s%s\n", config.Scope, l.Words(), whose, store.SharesWords(config.Shares))
		return
	}
	fmt.Fprintf(to, "%s gets %s and holds %d, %s%s\n", config.Scope, l.Words(), l.Burst, whose, store.SharesWords(config.Shares))
}

// perTimes are those over which the tokens of a limit may come in.
var perTimes = admission.DurationText(admission.MinLimitPer) + " to " + admission.DurationText(admission.MaxLimitPer)

// scaledWords say of a limit what part of it is in force, nothing for all of it.
func scaledWords(s *shown.Scaled) string {
	if s == nil {
		return ""
	}
	return ", scaled to " + store.PartText(s.Part) + cli.Until(s.Until)
}

// limitFlags say a limit.
type limitFlags struct {
	tokens, burst                   int64
	per                             time.Duration
	algorithm, window, anchor, zone string
	off                             bool
	reason                          string
	given                           *pflag.FlagSet
}

func (f *limitFlags) add(flags *pflag.FlagSet) {
	f.given = flags
	flags.Int64Var(&f.tokens, "tokens", 0, "`NUMBER` of tokens that come back in --per, 1 to "+strconv.FormatInt(int64(admission.MaxLimitTokens), 10))
	flags.DurationVar(&f.per, "per", time.Second, "`DURATION` in which they do, "+perTimes)
	flags.Int64Var(&f.burst, "burst", 0, "largest `NUMBER` of tokens at once; by default what comes in a second, 1 at least")
	flags.StringVar(&f.algorithm, "algorithm", "", "`NAME` of how tokens come back: "+strings.Join(policy.Algorithms, ", ")+"; by default the first, with --window the second; the last is the first with --burst 1")
	flags.StringVar(&f.window, "window", "", "`LENGTH` of windows that have --tokens each, in the place of --per: 1s to 744h, of fixed ones or month")
	flags.StringVar(&f.anchor, "anchor", "", "`TIME` of day at which a fixed window begins, such as 06:00; by default midnight")
	flags.StringVar(&f.zone, "zone", "", "`ZONE` of that, such as Europe/Berlin; by default UTC")
}

// windows returns the limit of windows that the flags say.
func (f *limitFlags) windows() (json.RawMessage, error) {
	for _, other := range []string{"per", "burst"} {
		if f.given.Changed(other) {
			return nil, cli.FieldError(other, f.given.Lookup(other).Value.String(), "none beside --window, which has --tokens each")
		}
	}
	algorithm := cmp.Or(f.algorithm, policy.FixedWindow)
	l, err := policy.WindowLimit(algorithm, admission.Tokens(f.tokens), f.window, f.anchor, f.zone)
	if bad, wrong := errors.AsType[*admission.FieldError](err); wrong {
		return nil, cli.FieldError(bad.Field, bad.Value, bad.Allowed)
	}
	if err := l.Validate("limit"); err != nil {
		return nil, cli.Usage(err)
	}
	limit := map[string]any{"algorithm": algorithm, "tokens": f.tokens, "window": f.window}
	if f.anchor != "" {
		limit["anchor"] = f.anchor
	}
	if f.zone != "" {
		limit["zone"] = f.zone
	}
	return json.Marshal(limit)
}

// json returns the limit as the policy has it. flag is the one of its tokens, and none says how to have no limit.
func (f *limitFlags) json(flag, none string) (json.RawMessage, error) {
	if f.off && f.tokens != 0 {
		return nil, cli.FieldError("off", "true", "it or --tokens, not both")
	}
	if f.off {
		return json.RawMessage(`{"enabled":false}`), nil
	}
	if most := int64(admission.MaxLimitTokens); f.tokens < 1 || f.tokens > most {
		return nil, cli.FieldError(flag, strconv.FormatInt(f.tokens, 10), "1 to "+strconv.FormatInt(most, 10)+"; for no limit "+none)
	}
	switch {
	case f.algorithm != "" && !slices.Contains(policy.Algorithms, f.algorithm):
		return nil, cli.FieldError("algorithm", strconv.Quote(f.algorithm), strings.Join(policy.Algorithms, ", "))
	case (f.algorithm == policy.TokenBucket || f.algorithm == policy.LeakyBucket) && f.window != "":
		return nil, cli.FieldError("window", strconv.Quote(f.window), "none with --algorithm "+f.algorithm)
	case f.algorithm == policy.LeakyBucket && f.burst == 0:
		f.burst = 1
	case f.window != "" || f.algorithm != "" && f.algorithm != policy.TokenBucket && f.algorithm != policy.LeakyBucket:
		return f.windows()
	}
	for _, beside := range []struct{ flag, value string }{{"anchor", f.anchor}, {"zone", f.zone}} {
		if beside.value != "" {
			return nil, cli.FieldError(beside.flag, strconv.Quote(beside.value), "none without --window")
		}
	}
	if f.per < admission.MinLimitPer || f.per > admission.MaxLimitPer {
		per := "per"
		if flag != "tokens" {
			per = flag + "-per"
		}
		return nil, cli.FieldError(per, f.per.String(), perTimes)
	}
	limit := admission.Limit{Tokens: admission.Tokens(f.tokens), Per: f.per, Burst: admission.Tokens(f.burst)}
	if f.burst == 0 {
		limit.Burst = limit.DefaultBurst()
	}
	if err := limit.Validate("limit"); err != nil {
		return nil, cli.Usage(err)
	}
	return json.Marshal(map[string]any{"tokens": limit.Tokens, "per": limit.Per.String(), "burst": limit.Burst})
}

func newLimitSet(o *cli.Operator) *cobra.Command {
	var f limitFlags
	c := &cobra.Command{
		Use: "set SCOPE (--tokens NUMBER | --off)", Short: "Give a scope a limit of its own", Args: cli.OneArg("SCOPE"),
		Example: `  headgate limit set acme --tokens 100 --per 1s --burst 50 --reason "new contract" --redis localhost:6379
  headgate limit set acme:mail:low --off --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			value, err := f.json("tokens", "--off")
			if err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if err := editLimit(ctx, s, args[0], value, f.reason); err != nil {
					return err
				}
				return showEdited(ctx, o, c, s, args[0])
			})
		},
	}
	flags := c.Flags()
	f.add(flags)
	flags.BoolVar(&f.off, "off", false, "no limit, also where the tier has one")
	cli.ReasonFlag(c, &f.reason)
	return c
}

func newLimitDelete(o *cli.Operator) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "delete SCOPE", Aliases: []string{"unset"}, Short: "Take a scope's own limit away", Args: cli.OneArg("SCOPE"),
		Long: `Takes the limit of a scope away that is its own. A tenant then has that of its tier, a queue, a class or a
type of a tenant what its tier or the queue has for each tenant, if either has.`,
		Example: `  headgate limit delete acme --reason "contract is over" --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if err := editLimit(ctx, s, args[0], nil, reason); err != nil {
					return err
				}
				return showEdited(ctx, o, c, s, args[0])
			})
		},
	}
	cli.ReasonFlag(c, &reason)
	return c
}

// errNoOwnLimit is a limit that cannot be taken away.
var errNoOwnLimit = errors.New("the scope has no limit of its own")

// editLimit stores the policy with another limit of a scope; nil takes it away.
func editLimit(ctx context.Context, store store.Deployment, scope string, value json.RawMessage, reason string) error {
	path, err := policy.LimitPath(admission.Scope(scope))
	if err != nil {
		return err
	}
	_, err = rollout.Change(ctx, store, cli.EditBy(reason), func(current policy.Policy) (policy.Policy, error) {
		own, err := current.At(path...)
		if err != nil {
			return current, err
		}
		if own == nil && value == nil {
			return current, cli.Nothing("%s: %w", scope, errNoOwnLimit)
		}
		return current.With(value, path...)
	})
	return err
}

// topBudget is how long reading what was counted may take.
const topBudget = 10 * time.Second

func newLimitTop(o *cli.Operator) *cobra.Command {
	var order string
	var most, minutes int
	const longest = int(store.CountedFor/time.Minute) + 1
	c := &cobra.Command{
		Use: "top", Short: "List the scopes with the most decisions in the last minutes", Args: cli.NoArgs,
		Long: fmt.Sprintf(`Lists what limits decided on the jobs and checks of those scopes that have the most, in the last minutes,
the one under way included. Counted are the %d scopes with the most in each minute, of types of jobs where
these have a limit, and those in the policy's "observe", by all processes but those that are told not to.`, store.TopScopes),
		Example: `  headgate limit top --redis localhost:6379
  headgate limit top --sort refused --limit 10 --minutes 60 --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case !slices.Contains(shown.Orders, order):
				return cli.FieldError("sort", strconv.Quote(order), "one of "+strings.Join(shown.Orders, ", "))
			case most < 1 || most > store.MaxPage:
				return cli.FieldError("limit", strconv.Itoa(most), fmt.Sprintf("1 to %d scopes", store.MaxPage))
			case minutes < 1 || minutes > longest:
				return cli.FieldError("minutes", strconv.Itoa(minutes), fmt.Sprintf("1 to %d", longest))
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				counted, err := s.LastMinutes(ctx, minutes, topBudget)
				if err != nil {
					return err
				}
				view := shown.TopOf(counted, order, most)
				if len(view.Scopes) == 0 {
					cli.None(c, "nothing like that was counted in the last minutes")
				}
				return o.Print(c, view, func(to io.Writer) { writeTop(to, view) })
			})
		},
	}
	c.Flags().StringVar(&order, "sort", shown.ByRequests, "by `WHAT`, the most first: "+strings.Join(shown.Orders, ", "))
	c.Flags().IntVar(&most, "limit", 20, fmt.Sprintf("largest `NUMBER` of scopes, up to %d", store.MaxPage))
	c.Flags().IntVar(&minutes, "minutes", 5, fmt.Sprintf("`NUMBER` of minutes, up to %d", longest))
	return c
}

func writeTop(to io.Writer, v shown.Top) {
	if len(v.Scopes) == 0 {
		return
	}
	t := report.NewTable(to, 1, "scope", "requests", "allowed", "refused", "tokens")
	for _, s := range v.Scopes {
		t.AppendRow(table.Row{s.Scope, s.Requests, s.Allowed, s.Refused, s.Tokens})
	}
	t.Render()
	fmt.Fprintf(to, "Since %s.\n", cli.Clock(*v.Since))
}
