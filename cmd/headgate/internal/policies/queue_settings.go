package policies

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
)

// queuePart is what a queue has of its own.
var queuePart = part{
	noun: "queue", path: shown.QueuesOwn.Path, show: showPart(shown.QueuesOwn),
	settings: func() []setting {
		return []setting{
			classesSetting(),
			durationSetting("horizon", "horizon", "`DURATION` after which a job without a deadline counts as due, 1s to 720h"),
			durationSetting("max-wait", "max_wait", "longest `DURATION` that a job may wait, 1ms to 720h; then it expires"),
			textSetting("expired", "expired_policy", "`WHAT` becomes of a job whose time is over: dead_letter or drop"),
			numberSetting("poison-limit", "poison_limit", "`NUMBER` of workers lost with a job that make it a dead letter, 1 to 254"),
			durationSetting("keep-dead", "keep_dead", "`DURATION` for which dead letters are kept, 1s to 8784h"),
			numberSetting("max-dead", "max_dead", "`NUMBER` of dead letters that are kept, 1 to 100000"),
			numberSetting("most-attempts", "most_attempts", "`NUMBER` of runs that a job may ask for, 1 to 255"),
			durationSetting("least-backoff", "least_backoff", "least `DURATION` that a job's own header may give it to wait after a failed run, 1ms to 24h"),
			durationSetting("reservation-expiry", "reservations.expire_after", "`DURATION` for which the cost of a reservation may be told, 1s to 24h"),
			eachTenantSetting(),
			overflowSetting(),
			maxRunningSetting("its "),
			numberSetting("max-running-per-tenant", "max_running_per_tenant", fmt.Sprintf("`NUMBER` of jobs of each tenant that workers hold at a time, 1 to %d, or 0 for no bound", policy.MaxMaxRunning)),
		}
	},
	lost: "The defaults then apply: headgate queue settings shows what is left. Its jobs stay.",
}

// classesSetting are the classes of a queue, the most urgent first.
func classesSetting() setting {
	var text string
	return setting{
		word: "classes", field: []string{"classes"},
		add: func(flags *pflag.FlagSet) {
			flags.StringVar(&text, "classes", "", "`CLASSES`, the most urgent first, with their weights of 1 to 100: critical=4,high=3,low=1")
		},
		edits: func() ([]policy.Patch, error) {
			var classes []admission.Class
			for part := range strings.SplitSeq(text, ",") {
				name, weight, _ := strings.Cut(part, "=")
				n, err := strconv.Atoi(weight)
				if err != nil {
					return nil, cli.FieldError("classes", strconv.Quote(text), "names with weights, such as high=3,low=1")
				}
				classes = append(classes, admission.Class{Name: admission.Priority(name), Weight: n})
			}
			value, err := json.Marshal(classes)
			return one(value, "classes"), err
		},
	}
}

// overflowSetting bounds the depth of each tenant in the queue.
func overflowSetting() setting {
	var b boundFlags
	var given *pflag.FlagSet
	return setting{
		word: "overflow", field: []string{"overflow"}, flags: boundWords,
		add: func(flags *pflag.FlagSet) {
			given = flags
			b.add(flags)
		},
		edits: func() (all []policy.Patch, err error) {
			if given.Changed("overflow") {
				all = append(all, one(json.RawMessage(strconv.Quote(b.what)), "overflow", "policy")...)
			}
			if given.Changed("max-jobs") {
				all = append(all, one(json.RawMessage(strconv.FormatInt(b.jobs, 10)), "overflow", "max_jobs")...)
			}
			if given.Changed("max-bytes") {
				all = append(all, one(json.RawMessage(strconv.FormatInt(b.bytes, 10)), "overflow", "max_bytes")...)
			}
			return all, nil
		},
	}
}

// boundWords are the flags of a bound of depth, and boundFlags what they say.
var boundWords = []string{"overflow", "max-jobs", "max-bytes"}

type boundFlags struct {
	what        string
	jobs, bytes int64
}

func (b *boundFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&b.what, "overflow", "", "`WHAT` becomes of a job for which its tenant has no room: reject, drop_oldest, spillover or none")
	flags.Int64Var(&b.jobs, "max-jobs", 0, fmt.Sprintf("`NUMBER` of jobs of each tenant for which there is room, 1 to %d, or 0 for no bound", policy.MaxOverflowJobs))
	flags.Int64Var(&b.bytes, "max-bytes", 0, "`BYTES` of jobs of each tenant for which there is room, 1 to 64 GiB, or 0 for no bound")
}

// over returns a bound with what the flags say of it; an empty policy takes it away.
func (b *boundFlags) over(flags *pflag.FlagSet, bound policy.Overflow) policy.Overflow {
	switch {
	case !flags.Changed("overflow"):
	case b.what == "":
		return policy.Overflow{}
	case b.what != string(bound.Policy):
		bound = policy.Overflow{Policy: policy.OverflowPolicy(b.what), MaxJobs: bound.MaxJobs, MaxBytes: bound.MaxBytes}
		if b.what == string(policy.NoBound) {
			bound.MaxJobs, bound.MaxBytes = 0, 0
		}
	}
	if flags.Changed("max-jobs") {
		bound.MaxJobs = int(b.jobs)
	}
	if flags.Changed("max-bytes") {
		bound.MaxBytes = b.bytes
	}
	return bound
}

func newQueueSet(o *cli.Operator) *cobra.Command {
	return queuePart.newSet(o, `Changes the settings of a queue that flags name, and leaves the others as they are. The queue need not
be there yet; * is each queue that the policy does not name. Classes in which jobs wait cannot go.`, `  headgate queue set mail --max-running 50 --max-running-per-tenant 5 --reason "small server" --redis localhost:6379
  headgate queue set mail --each-tenant 50 --each-tenant-burst 100 --redis localhost:6379
  headgate queue set mail --each-tenant 5 --class high --redis localhost:6379
  headgate queue set mail --each-tenant 5 --type report --redis localhost:6379
  headgate queue set '*' --each-tenant 20 --max-wait 1h --redis localhost:6379
  headgate queue set mail --overflow reject --max-jobs 10000 --redis localhost:6379
  headgate queue set llm --reservation-expiry 10m --redis localhost:6379
  headgate queue set calls --classes critical=4,high=3,low=1 --max-wait 30m --expired drop --redis localhost:6379`)
}

func newQueueUnset(o *cli.Operator) *cobra.Command {
	return queuePart.newUnset(o, `  headgate queue unset mail overflow --redis localhost:6379
  headgate queue unset mail --reason "as all" --redis localhost:6379`)
}

// QueueEdits are the commands that change the settings of a queue, and the one that shows them.
func QueueEdits(o *cli.Operator) []*cobra.Command {
	return []*cobra.Command{newQueueSettings(o), newQueueSet(o), newQueueUnset(o)}
}

func newQueueSettings(o *cli.Operator) *cobra.Command {
	return newPartList(o, "settings", "List what the policy says of queues", "Lists the queues that have something of their own in the policy. All others have the defaults.",
		`  headgate queue settings --redis localhost:6379
  headgate queue settings --json --redis localhost:6379`, shown.QueuesOwn)
}

// eachTenantSetting is the limit of each tenant in a queue, or with a class or a type that of its jobs of these.
func eachTenantSetting() setting {
	var f limitFlags
	var class, jobType string
	var given *pflag.FlagSet
	return setting{
		word: "each-tenant", field: []string{"each_tenant"}, flags: []string{"each-tenant", "each-tenant-per", "each-tenant-burst", "each-tenant-off", "class", "type"},
		add: func(flags *pflag.FlagSet) {
			given = flags
			flags.Int64Var(&f.tokens, "each-tenant", 0, "`NUMBER` of tokens that come back to each tenant in --each-tenant-per, for its jobs in the queue")
			flags.DurationVar(&f.per, "each-tenant-per", time.Second, "`DURATION` in which they do, "+perTimes)
			flags.Int64Var(&f.burst, "each-tenant-burst", 0, "largest `NUMBER` of tokens at once; by default what comes in a second, 1 at least")
			flags.BoolVar(&f.off, "each-tenant-off", false, "no limit of each tenant in the queue")
			flags.StringVar(&class, "class", "", "`CLASS` whose jobs --each-tenant limits; by default all of the tenant's in the queue")
			flags.StringVar(&jobType, "type", "", "`TYPE` whose jobs --each-tenant limits, or * for each type of which nothing nearer is said")
		},
		edits: func() ([]policy.Patch, error) {
			if f.off && f.tokens != 0 {
				return nil, cli.FieldError("each-tenant-off", "true", "it or --each-tenant, not both")
			}
			value, err := f.json("each-tenant", "--each-tenant-off")
			if err != nil {
				return nil, err
			}
			path, err := limitOf(given, class, jobType)
			return one(value, append([]string{"each_tenant"}, path...)...), err
		},
	}
}

// limitOf is where the limit of a class or of a type is, beside that of the queue.
func limitOf(given *pflag.FlagSet, class, jobType string) ([]string, error) {
	switch {
	case given.Changed("class") && given.Changed("type"):
		return nil, cli.FieldError("type", strconv.Quote(jobType), "it or --class, not both")
	case given.Changed("class"):
		return []string{"priority_limits", class}, nil
	case given.Changed("type"):
		return []string{"type_limits", jobType}, nil
	}
	return []string{"limit"}, nil
}

// inQueueSettings are those of a tier that hold in a queue of its tenants where --queue names one: the limit and the overflow. Without it
// they are of each tenant over all its queues.
func inQueueSettings() []setting {
	var queue, class, jobType string
	var given *pflag.FlagSet
	limit, overflow := limitSetting(), overflowSetting()
	everywhere, bound := limit.edits, overflow.edits
	unlessInQueue := func(edits func() ([]policy.Patch, error)) func() ([]policy.Patch, error) {
		return func() ([]policy.Patch, error) {
			if given.Changed("queue") { // The setting of queues tells.
				return nil, nil
			}
			return edits()
		}
	}
	limit.edits, overflow.edits = unlessInQueue(everywhere), unlessInQueue(bound)
	in := setting{
		word: "queues", field: []string{"queues"}, flags: []string{"queue", "class", "type"},
		add: func(flags *pflag.FlagSet) {
			given = flags
			flags.StringVar(&queue, "queue", "", "`QUEUE` in which --tokens, --off and --overflow hold for each tenant, or * for every queue for which nothing nearer is said")
			flags.StringVar(&class, "class", "", "`CLASS` whose jobs in --queue the limit is of; by default all of the tenant's there")
			flags.StringVar(&jobType, "type", "", "`TYPE` whose jobs in --queue the limit is of, or * for each type of which nothing nearer is said")
		},
	}
	in.edits = func() (all []policy.Patch, err error) {
		if !given.Changed("queue") {
			return nil, cli.FieldError("queue", "(none)", "a queue or *, beside --class and --type")
		}
		for _, other := range []string{"weight", "max-running"} {
			if given.Changed(other) {
				return nil, cli.FieldError("queue", strconv.Quote(queue), "no --"+other+" beside it: that is of all queues")
			}
		}
		if changed(given, limit.flags) {
			if all, err = everywhere(); err != nil {
				return nil, err
			}
			if all[0].Path, err = limitOf(given, class, jobType); err != nil {
				return nil, err
			}
		} else if given.Changed("class") {
			return nil, cli.FieldError("class", strconv.Quote(class), "it beside --tokens or --off")
		} else if given.Changed("type") {
			return nil, cli.FieldError("type", strconv.Quote(jobType), "it beside --tokens or --off")
		}
		if changed(given, overflow.flags) {
			more, err := bound()
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
		if len(all) == 0 {
			return nil, cli.FieldError("queue", strconv.Quote(queue), "--tokens, --off or --"+strings.Join(overflow.flags, ", --")+" beside it")
		}
		for i := range all {
			all[i].Path = append([]string{"queues", queue}, all[i].Path...)
		}
		return all, nil
	}
	return []setting{limit, overflow, in}
}

// typeSettings are the limit of a tenant, which is one of a type of its jobs in a queue where --queue and --type name these, and what says these.
func typeSettings() (limit, ofType setting) {
	var queue, jobType string
	var given *pflag.FlagSet
	limit = limitSetting()
	edits := limit.edits
	inQueue := func() bool { return given.Changed("queue") || given.Changed("type") }
	limit.edits = func() ([]policy.Patch, error) {
		if inQueue() { // The other setting tells.
			return nil, nil
		}
		return edits()
	}
	return limit, setting{
		word: "queues", field: []string{"queues"}, flags: []string{"type", "queue"},
		add: func(flags *pflag.FlagSet) {
			given = flags
			flags.StringVar(&queue, "queue", "", "`QUEUE` in which --tokens or --off are of jobs of --type")
			flags.StringVar(&jobType, "type", "", "`TYPE` whose jobs in --queue the limit is of, or * for each type of which the tenant has none there")
		},
		edits: func() ([]policy.Patch, error) {
			for _, beside := range []struct{ one, value, other string }{{"queue", queue, "type"}, {"type", jobType, "queue"}} {
				if given.Changed(beside.one) && !given.Changed(beside.other) {
					return nil, cli.FieldError(beside.one, strconv.Quote(beside.value), "it beside --"+beside.other)
				}
			}
			if !changed(given, limit.flags) {
				return nil, cli.FieldError("type", strconv.Quote(jobType), "it beside --tokens or --off")
			}
			all, err := edits()
			if err != nil {
				return nil, err
			}
			all[0].Path = []string{"queues", queue, "type_limits", jobType}
			return all, nil
		},
	}
}

// changed reports whether one of some flags was given.
func changed(given *pflag.FlagSet, flags []string) bool {
	return slices.ContainsFunc(flags, given.Changed)
}
