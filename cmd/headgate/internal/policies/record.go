package policies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// NewRecord returns the command headgate record.
func NewRecord() *cobra.Command {
	var o cli.Operator
	c := cli.Parent("record", "Show or change what single tenants have beside the policy", `A tenant's record has its tier, weights and a cap of its own, bounds of its depth, and limits of its own at any
of its scopes, before what the policy says of them. It is stored by itself: to change one costs the same with ten tenants and with a
million, where an entry of the policy is an edit of the whole document. The policy allows records by
"tenant_records": true, once every process is of a release that has them. An edit is in force from the next
job on, and in limiters half a second later where they are asked for others too, else a second.

Exit codes: 0 done, 1 a failure, as a file that is wrong, 2 a wrong command line, 3 the tenant has no record.`,
		`  headgate record set acme --tokens 100 --per 1s --burst 200 --reason "new contract" --redis localhost:6379
  headgate record set acme --tier premium --weight high=5 --redis localhost:6379
  headgate record set acme:mail:low --tokens 1000 --window 24h --redis localhost:6379
  headgate record get acme --redis localhost:6379
  headgate record list --name-prefix ac --redis localhost:6379
  headgate record export --redis localhost:6379 > records.jsonl
  headgate record diff records.jsonl --redis localhost:6379
  headgate record import records.jsonl --redis localhost:6379
  headgate record delete acme --reason "contract is over" --redis localhost:6379
  headgate record adopt --dry-run --redis localhost:6379`)
	o.Add(c)
	c.AddCommand(newRecordGet(&o), newRecordSet(&o), newRecordDelete(&o), newRecordList(&o), newRecordExport(&o), newRecordDiff(&o), newRecordImport(&o), newRecordAdopt(&o))
	return c
}

func newRecordGet(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "get TENANT", Aliases: []string{"show"}, Short: "Show the record of a tenant", Args: cli.OneArg("TENANT"),
		Example: `  headgate record get acme --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := admission.ValidateTenant(args[0]); err != nil {
				return cli.Usage(err)
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error { return showRecord(ctx, o, c, s, args[0]) })
		},
	}
}

func showRecord(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, tenant string) error {
	stored, _, err := rollout.ReadRecord(ctx, s, tenant)
	if err != nil {
		return err
	}
	v, ok := shown.RecordOf(stored)
	if !ok {
		return cli.Nothing("tenant %s has no record: what the policy says applies", tenant)
	}
	return o.Print(c, v, func(to io.Writer) {
		fmt.Fprintf(to, "tenant %s, version %d of its record:\n%s\n", v.Tenant, v.Version, v.Record)
	})
}

func newRecordSet(o *cli.Operator) *cobra.Command {
	var f limitFlags
	var shares shareFlags
	var none, dry bool
	c := &cobra.Command{
		Use: "set SCOPE (--tokens NUMBER | --off | --none) [--tier TIER] [--weight WEIGHTS] [--max-running NUMBER] [--dispatch NUMBER] [--semaphore LIMITS] [--overflow WHAT --max-jobs NUMBER]", Short: "Set a limit, the tier, weights, the cap, the rate of dispatches or a bound of a tenant's record", Args: cli.OneArg("SCOPE"),
		Long: `Sets the limit of a tenant, of tenant:queue, of tenant:queue:priority or of tenant:queue:type=TYPE in the
tenant's record, and leaves the others there as they are. TYPE is a type of job, or * for each type of which
the record says nothing there. Of a tenant it sets the tier, weights class by class, how many of its jobs
workers hold at a time, and how many start in a time, with a limit or without one: --tier '' and a weight, a
--max-running or a --dispatch of 0 take them out. A tier is one of the policy's, whose max_running the tenant has
unless it has one of its own. --max-running of tenant:queue is how many of its jobs of that queue they hold, before
the policy's of it there. --semaphore gpu=4 limits the tenant's semaphore gpu, * each that is not named, and gpu= takes it
out. --dispatch-off says that as many start as may, although the policy bounds that.
--overflow, --max-jobs and --max-bytes bound the jobs that a tenant may have in all its queues, or of tenant:queue
in that queue; --overflow none says that there is no bound, and --overflow '' takes it out. --dry-run makes all checks, tells what would change in the record and, as headgate policy dry-run does, what would have become
of what the tenant asked for in the last hour, and stores nothing.`,
		Example: `  headgate record set acme --tokens 100 --per 1s --burst 200 --reason "new contract" --redis localhost:6379
  headgate record set acme --tier premium --weight high=5,low=1 --redis localhost:6379
  headgate record set acme --max-running 5 --redis localhost:6379
  headgate record set acme:mail --max-running 2 --redis localhost:6379
  headgate record set acme --dispatch 5 --dispatch-per 1s --dispatch-burst 10 --redis localhost:6379
  headgate record set acme --semaphore gpu=4,*=10 --redis localhost:6379
  headgate record set acme --overflow reject --max-jobs 100000 --redis localhost:6379
  headgate record set acme:mail --overflow spillover --max-jobs 1000 --redis localhost:6379
  headgate record set acme:mail --off --redis localhost:6379
  headgate record set acme:mail:type=report --tokens 5 --redis localhost:6379
  headgate record set acme --tokens 50 --per 1s --dry-run --redis localhost:6379
  headgate record set acme:mail --none --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			scope := admission.Scope(args[0])
			tenant, _, _, err := policy.LimitParts(scope)
			if err != nil {
				return cli.Usage(err)
			}
			if tenant == "" {
				return cli.FieldError("scope", args[0], "a tenant, tenant:queue, tenant:queue:priority or tenant:queue:type=TYPE; for the limit of all headgate limit set global")
			}
			change, err := shares.change(c.Flags(), scope, &f, none)
			if err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if dry {
					return tryRecord(ctx, o, c, s, tenant, change)
				}
				done, err := editRecord(ctx, s, tenant, f.reason, change)
				if err != nil {
					return err
				}
				if done.Version == policy.NoRecord {
					return o.Print(c, goneView{Deleted: 1}, func(to io.Writer) { fmt.Fprintf(to, "tenant %s has no record any more\n", tenant) })
				}
				return showRecord(ctx, o, c, s, tenant)
			})
		},
	}
	flags := c.Flags()
	f.add(flags)
	shares.add(flags)
	flags.BoolVar(&f.off, "off", false, "no limit, also where the policy has one")
	flags.BoolVar(&none, "none", false, "take the limit out of the record: what the policy says applies again")
	flags.BoolVar(&dry, "dry-run", false, "tell what would change and what that would have done in the last hour, and store nothing")
	cli.ReasonFlag(c, &f.reason)
	return c
}

// shareFlags are the tier, the weights, the cap, the rate of dispatches and a bound of a record.
type shareFlags struct {
	tier       string
	weights    map[string]int
	maxRunning int
	bound      boundFlags
	dispatch   dispatchFlags
	semaphores semaphoreFlags
}

// shareWords are the flags of what a tenant has in all its queues alone, rateWords those of them of its dispatches, and placeWords those of what it has in all or in one.
var (
	rateWords  = append([]string{"dispatch-off"}, dispatchWords...)
	shareWords = append([]string{"tier", "weight", "semaphore"}, rateWords...)
	placeWords = append([]string{"max-running"}, boundWords...)
)

func (s *shareFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.tier, "tier", "", "`TIER` of the policy that the tenant has, such as premium; '' takes it out of the record")
	flags.StringToIntVar(&s.weights, "weight", nil, "`WEIGHTS` of the tenant by class, high=5,low=1, each 1 to 1000, or 0 to take it out of the record")
	flags.IntVar(&s.maxRunning, "max-running", 0, fmt.Sprintf("`NUMBER` of the tenant's jobs, or of its jobs in a queue, that workers hold at a time, 1 to %d, or 0 to take it out of the record", policy.MaxMaxRunning))
	s.dispatch.add(flags)
	s.dispatch.addOff(flags)
	s.bound.add(flags)
	s.semaphores.add(flags)
}

// change returns what the flags make of a record.
func (s *shareFlags) change(flags *pflag.FlagSet, scope admission.Scope, f *limitFlags, none bool) (func(policy.OwnLimits) (policy.OwnLimits, error), error) {
	shares := changed(flags, shareWords)
	if shares && scope.Level() != admission.LevelTenant {
		return nil, cli.FieldError("scope", string(scope), "a tenant with --tier, --weight, --semaphore or --dispatch: a tenant has them in all its queues")
	}
	if err := errors.Join(s.dispatch.read(flags), s.semaphores.read()); err != nil {
		return nil, err
	}
	_, queue, class, err := policy.LimitParts(scope)
	bounds := changed(flags, placeWords)
	switch {
	case err != nil:
		return nil, cli.Usage(err)
	case bounds && class != "":
		return nil, cli.FieldError("scope", string(scope), "a tenant or tenant:queue with --"+strings.Join(placeWords, ", --"))
	case (shares || bounds) && !none && !f.off && f.tokens == 0:
		return func(r policy.OwnLimits) (policy.OwnLimits, error) { return s.put(flags, queue, r), nil }, nil
	}
	limit, err := f.limit(none)
	if err != nil {
		return nil, err
	}
	return func(r policy.OwnLimits) (policy.OwnLimits, error) {
		return s.put(flags, queue, r).WithLimit(scope, limit)
	}, nil
}

// put returns a record with those that flags name in it, the cap and the bound of a queue, or over all where it is empty.
func (s *shareFlags) put(flags *pflag.FlagSet, queue string, r policy.OwnLimits) policy.OwnLimits {
	if changed(flags, boundWords) {
		r = r.WithOverflow(queue, s.bound.over(flags, r.OverflowAt(queue)))
	}
	if flags.Changed("tier") {
		r.Tier = s.tier
	}
	if flags.Changed("max-running") {
		r = r.WithMaxRunning(queue, s.maxRunning)
	}
	if changed(flags, rateWords) {
		r.Dispatch = s.dispatch.said
	}
	r.Semaphores = s.semaphores.over(r.Semaphores)
	r.Weights = maps.Clone(r.Weights)
	for class, weight := range s.weights {
		if r.Weights == nil {
			r.Weights = policy.Weights{}
		}
		if r.Weights[admission.Priority(class)] = admission.Weight(weight); weight == 0 {
			delete(r.Weights, admission.Priority(class))
		}
	}
	return r
}

// limit returns the limit that the flags say; nil takes it away.
func (f *limitFlags) limit(none bool) (*admission.Limit, error) {
	if none && (f.off || f.tokens != 0) {
		return nil, cli.FieldError("none", "true", "it, --off or --tokens")
	}
	if none {
		return nil, nil //nolint:nilnil // as it says
	}
	text, err := f.json("tokens", "--off")
	if err != nil {
		return nil, err
	}
	r, err := policy.UnmarshalRecord(fmt.Appendf(nil, `{"limit":%s}`, text))
	return r.Limit, err
}

func editRecord(ctx context.Context, s store.Deployment, tenant, reason string, change func(policy.OwnLimits) (policy.OwnLimits, error)) (rollout.RecordResult, error) {
	read := func(ctx context.Context) (rollout.Rules, error) { return rollout.ReadRules(ctx, s) }
	return rollout.EditRecord(ctx, s, read, tenant, cli.EditBy(reason), change)
}

// goneView tells how many records were taken away, or with DryRun would be, and the first tenants of these.
type goneView struct {
	Deleted int64    `json:"deleted"`
	DryRun  bool     `json:"dry_run,omitempty"`
	Tenants []string `json:"tenants,omitempty"`
}

// triedRecord is what an edit of a record would do, and would have done.
type triedRecord struct {
	Tenant   string           `json:"tenant"`
	From     int64            `json:"from"`
	Changes  []shown.Change   `json:"changes"`
	Forecast rollout.Forecast `json:"forecast"`
}

func tryRecord(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, tenant string, change func(policy.OwnLimits) (policy.OwnLimits, error)) error {
	would, forecast, err := rollout.TryRecord(ctx, s, tenant, rollout.Edit{Expected: rollout.AnyVersion}, change)
	if err != nil {
		return err
	}
	v := triedRecord{tenant, would.Version, shown.ChangesOf(would.Changes), forecast}
	return o.Print(c, v, func(to io.Writer) {
		fmt.Fprintf(to, "nothing was stored: the record of tenant %s would change in %d values\n", tenant, len(v.Changes))
		writeChanges(to, v.Changes)
		writeForecast(to, forecast)
	})
}

func newRecordDelete(o *cli.Operator) *cobra.Command {
	var all, dry, yes bool
	var reason string
	c := &cobra.Command{
		Use: "delete (TENANT | --all --yes)", Aliases: []string{"unset"}, Short: "Take the record of a tenant away, or all", Args: cli.Args(0, 1, "TENANT"),
		Long: `Takes the record of a tenant away: what the policy says applies to it again. With --all and --yes those of
all tenants, of which the audit has one entry; headgate record export keeps them in a file. --all --dry-run tells
how many there are, and of whom.`,
		Example: `  headgate record delete acme --reason "contract is over" --redis localhost:6379
  headgate record delete acme --dry-run --redis localhost:6379
  headgate record delete --all --dry-run --redis localhost:6379
  headgate record delete --all --yes --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return cli.Usage(errors.New("say which: a TENANT, or --all"))
			}
			if all && !yes && !dry {
				return cli.Usage(errors.New("this takes the records of all tenants away: say so with --yes, look first with --dry-run, or keep them with headgate record export"))
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if all && dry {
					return countRecords(ctx, o, c, s)
				}
				if all {
					return deleteRecords(ctx, o, c, s, reason)
				}
				if err := admission.ValidateTenant(args[0]); err != nil {
					return cli.Usage(err)
				}
				none := func(policy.OwnLimits) (policy.OwnLimits, error) { return policy.OwnLimits{}, nil }
				if dry {
					return tryRecord(ctx, o, c, s, args[0], none)
				}
				done, err := editRecord(ctx, s, args[0], reason, none)
				if err == nil && len(done.Changes) == 0 {
					return cli.Nothing("tenant %s has no record", args[0])
				}
				if err != nil {
					return err
				}
				return o.Print(c, goneView{Deleted: 1}, func(to io.Writer) { fmt.Fprintf(to, "tenant %s has no record any more\n", args[0]) })
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "those of all tenants")
	c.Flags().BoolVar(&yes, "yes", false, "with --all: yes, those of all tenants")
	c.Flags().BoolVar(&dry, "dry-run", false, "tell what would change and, of one tenant, what that would have done in the last hour, and store nothing")
	cli.ReasonFlag(c, &reason)
	return c
}

// shownTenants is how many of those whose records would go are named.
const shownTenants = 20

// countRecords tells how many records deleteRecords would take away, and of whom.
func countRecords(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment) error {
	view, seen := goneView{DryRun: true}, map[string]bool{}
	err := eachRecord(ctx, s, store.RecordsQuery{}, func(page []store.TenantRecord) error {
		for _, r := range page {
			if seen[r.Tenant] { // One may be on two pages.
				continue
			}
			seen[r.Tenant] = true
			if len(view.Tenants) < shownTenants {
				view.Tenants = append(view.Tenants, r.Tenant)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	view.Deleted = int64(len(seen))
	return o.Print(c, view, func(to io.Writer) {
		fmt.Fprintf(to, "nothing was deleted: %d records would be\n", view.Deleted)
		for _, tenant := range view.Tenants {
			fmt.Fprintf(to, "- %s\n", tenant)
		}
		if more := view.Deleted - int64(len(view.Tenants)); more > 0 {
			fmt.Fprintf(to, "and %d more, which headgate record list tells\n", more)
		}
	})
}

// deleteRecords takes all records away.
func deleteRecords(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, reason string) error {
	m, err := newImporter(ctx, s, reason)
	if err != nil {
		return err
	}
	var gone atomic.Int64
	err = eachRecord(ctx, s, store.RecordsQuery{}, func(page []store.TenantRecord) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(recordWriters)
		for _, r := range page {
			group.Go(func() error {
				if gone.Add(1)%recordNews == 0 {
					cli.None(c, fmt.Sprintf("%d records deleted", gone.Load()))
				}
				return m.put(ctx, r.Tenant, policy.OwnLimits{})
			})
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
	return o.Print(c, goneView{Deleted: gone.Load()}, func(to io.Writer) { fmt.Fprintf(to, "%d records deleted\n", gone.Load()) })
}

func newRecordList(o *cli.Operator) *cobra.Command {
	q := store.RecordsQuery{}
	c := &cobra.Command{
		Use: "list", Short: "List records of tenants, a page of them", Args: cli.NoArgs,
		Long: `Lists records, in no order. One that is there all the while is on one page at least. The last line
tells the --cursor of the next page, where there is one.`,
		Example: `  headgate record list --redis localhost:6379
  headgate record list --name-prefix ac --limit 100 --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := q.Least(); err != nil {
				return cli.Usage(err)
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				page, err := shown.ReadRecords(ctx, s, q)
				if err != nil {
					return err
				}
				if len(page.Records) == 0 && page.Cursor == "" {
					cli.None(c, "no tenant like that has a record")
				}
				return o.Print(c, page, func(to io.Writer) { writeRecords(to, page) })
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&q.Prefix, "name-prefix", "", "those of tenants whose names begin with `TEXT`")
	flags.IntVar(&q.Limit, "limit", 100, "`NUMBER` that make a page, 1 to "+strconv.Itoa(store.MaxRecordsPage))
	flags.StringVar(&q.Cursor, "cursor", "", "`TEXT` that the page before has told")
	return c
}

func writeRecords(to io.Writer, page shown.Records) {
	if len(page.Records) > 0 {
		t := report.NewTable(to, 3, "tenant", "version", "record")
		for _, r := range page.Records {
			t.AppendRow(table.Row{r.Tenant, r.Version, string(r.Record)})
		}
		t.Render()
	}
	if page.Cursor != "" {
		fmt.Fprintf(to, "more: --cursor %s\n", page.Cursor)
	}
}
