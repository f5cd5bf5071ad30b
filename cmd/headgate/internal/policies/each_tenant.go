package policies

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/policy"
)

// eachTenantSetting is the limit of each tenant in a queue, or with a class that of its jobs of the class.
func eachTenantSetting() setting {
	var f limitFlags
	var class string
	var given *pflag.FlagSet
	return setting{
		word: "each-tenant", field: []string{"each_tenant"}, flags: []string{"each-tenant", "each-tenant-per", "each-tenant-burst", "each-tenant-off", "class"},
		add: func(flags *pflag.FlagSet) {
			given = flags
			flags.Int64Var(&f.tokens, "each-tenant", 0, "`NUMBER` of tokens that come back to each tenant in --each-tenant-per, for its jobs in the queue")
			flags.DurationVar(&f.per, "each-tenant-per", time.Second, "`DURATION` in which they do")
			flags.Int64Var(&f.burst, "each-tenant-burst", 0, "largest `NUMBER` of tokens at once; by default what comes in a second, 1 at least")
			flags.BoolVar(&f.off, "each-tenant-off", false, "no limit of each tenant in the queue")
			flags.StringVar(&class, "class", "", "`CLASS` whose jobs --each-tenant limits; by default all of the tenant's in the queue")
		},
		edits: func() ([]policy.Patch, error) {
			if f.off && f.tokens != 0 {
				return nil, cli.FieldError("each-tenant-off", "true", "it or --each-tenant, not both")
			}
			value, err := f.json("each-tenant", "--each-tenant-off")
			return one(value, append([]string{"each_tenant"}, ofClass(given, class)...)...), err
		},
	}
}

// ofClass is where the limit of a class is, beside that of the queue.
func ofClass(given *pflag.FlagSet, class string) []string {
	if given.Changed("class") {
		return []string{"priority_limits", class}
	}
	return []string{"limit"}
}

// inQueueSettings are those of a tier that hold in a queue of its tenants where --queue names one: the limit and the overflow. Without it
// they are of each tenant over all its queues.
func inQueueSettings() []setting {
	var queue, class string
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
		word: "queues", field: []string{"queues"}, flags: []string{"queue", "class"},
		add: func(flags *pflag.FlagSet) {
			given = flags
			flags.StringVar(&queue, "queue", "", "`QUEUE` in which --tokens, --off and --overflow hold for each tenant, or * for every queue for which nothing nearer is said")
			flags.StringVar(&class, "class", "", "`CLASS` whose jobs in --queue the limit is of; by default all of the tenant's there")
		},
	}
	in.edits = func() (all []policy.Patch, err error) {
		if !given.Changed("queue") {
			return nil, cli.FieldError("queue", "(none)", "a queue or *, beside --class")
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
			all[0].Path = ofClass(given, class)
		} else if given.Changed("class") {
			return nil, cli.FieldError("class", strconv.Quote(class), "it beside --tokens or --off")
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

// changed reports whether one of some flags was given.
func changed(given *pflag.FlagSet, flags []string) bool {
	return slices.ContainsFunc(flags, given.Changed)
}
