package policies

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/store"
)

// adoptNews is after how many tenants it is told how many are done, and shownValues how many values are listed for people.
const (
	adoptNews   = 1024
	shownValues = 20
)

// adoptView tells what moved from the policy into records, or would.
type adoptView struct {
	// Tenants are those of whom the policy has no more what their records have. Of these Stored were stored, and the others said it already.
	Tenants int `json:"tenants"`
	Stored  int `json:"stored"`
	// From is the version of the policy that was read, Version the one since: the same where there was nothing to move.
	From    int64 `json:"from"`
	Version int64 `json:"version"`
	// BytesBefore is the length of the policy as it was, Bytes as it is.
	BytesBefore int `json:"bytes_before"`
	Bytes       int `json:"bytes"`
	// Overruled were not in force, and are gone. Left stay in the policy.
	Overruled []policyValue `json:"overruled"`
	Left      []policyValue `json:"left"`
	DryRun    bool          `json:"dry_run,omitempty"`
}

// policyValue is a value that the policy has, or had, of one tenant.
type policyValue struct {
	Tenant string `json:"tenant"`
	Path   string `json:"path"`
	Reason string `json:"reason,omitempty"`
}

func valuesOf(all []rollout.PolicyValue) []policyValue {
	views := make([]policyValue, len(all))
	for i, one := range all {
		views[i] = policyValue(one)
	}
	return views
}

func adoptViewOf(done rollout.Adopted, dry bool) adoptView {
	return adoptView{
		Tenants: done.Tenants, Stored: done.Stored, From: done.From, Version: done.To, BytesBefore: done.Before, Bytes: done.Bytes,
		Overruled: valuesOf(done.Overruled), Left: valuesOf(done.Left), DryRun: dry,
	}
}

func (v adoptView) write(to io.Writer) {
	switch {
	case v.Tenants == 0:
		fmt.Fprintln(to, "the policy has nothing of these tenants that a record can have")
	case v.DryRun:
		fmt.Fprintf(to, "nothing was stored: of %d tenants %d records would be, and version %d of the policy with %d bytes would follow version %d with %d\n",
			v.Tenants, v.Stored, v.Version, v.Bytes, v.From, v.BytesBefore)
	default:
		fmt.Fprintf(to, "%d tenants have by their records what they had by the policy: %d records stored, version %d of the policy has %d bytes, version %d had %d\n",
			v.Tenants, v.Stored, v.Version, v.Bytes, v.From, v.BytesBefore)
	}
	list := func(what string, all []policyValue) {
		if len(all) > 0 {
			fmt.Fprintf(to, "%d %s:\n", len(all), what)
		}
		for _, one := range all[:min(len(all), shownValues)] {
			line := "  " + one.Path
			if one.Reason != "" {
				line += "  " + one.Reason
			}
			fmt.Fprintln(to, line)
		}
		if more := len(all) - shownValues; more > 0 {
			fmt.Fprintf(to, "  %d more with --json\n", more)
		}
	}
	were, stay := "were not in force, because the record says otherwise, and are gone", "stay in the policy"
	if v.DryRun {
		were, stay = "are not in force, because the record says otherwise, and would be gone", "would stay in the policy"
	}
	list(were, v.Overruled)
	list(stay, v.Left)
}

func newRecordAdopt(o *cli.Operator) *cobra.Command {
	var spec rollout.AdoptSpec
	c := &cobra.Command{
		Use: "adopt", Short: "Move what the policy has of single tenants into their records", Args: cli.NoArgs,
		Long: `Moves the tier, weights, caps, rate of dispatches, bounds of depth, limits and semaphores that the policy has for single
tenants into the records of these tenants, so that an edit of one is no edit of the whole document any more. What is in force stays what it is, for each
tenant and at each moment: first it stores the records, each with what the tenant has by the policy and
not by its record yet, then the policy without that. Buckets stay as they are. Where a record says
something else than the policy the record is in force and stays, and the value of the policy is gone; it
is listed. All values of a tenant whose record would have more than 64 queues or semaphores, or 8 KiB, stay in the policy; they are
listed, too, with --json all of them.

If somebody edits the policy meanwhile, or this is cut off, the policy stays as it is: run the same again,
and it goes on. It is refused during a roll-out, and where the policy has "tenant_records": false. The
audit has one entry of the records and one of the policy.

A process of 0.1 admits nothing while the policy has "tenant_records": see before that none is left.`,
		Example: `  headgate record adopt --dry-run --redis localhost:6379
  headgate record adopt --tenants acme,bolt --reason "records, first two" --redis localhost:6379
  headgate record adopt --reason "records" --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, tenant := range spec.Tenants {
				if err := admission.ValidateTenant(tenant); err != nil {
					return cli.Usage(fmt.Errorf("--tenants: %w", err))
				}
			}
			if c.Flags().Changed("tenants") && len(spec.Tenants) == 0 {
				return cli.FieldError("tenants", "", "names of tenants, acme,bolt, or no --tenants for all")
			}
			if err := cli.CheckReason(spec.Reason); err != nil {
				return err
			}
			spec.Author = cli.Author()
			spec.Observe = func(done, of int) {
				if done%adoptNews == 0 {
					cli.None(c, fmt.Sprintf("records of %d of %d tenants", done, of))
				}
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				done, err := rollout.Adopt(ctx, s, spec)
				if err != nil && done.Stored > 0 && !spec.DryRun {
					cli.None(c, fmt.Sprintf("%d records were stored until then; what is in force for their tenants is as before", done.Stored))
				}
				if err != nil {
					return err
				}
				view := adoptViewOf(done, spec.DryRun)
				return o.Print(c, view, view.write)
			})
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&spec.Tenants, "tenants", nil, "`NAMES` of those whose values are moved, acme,bolt; by default all")
	flags.BoolVar(&spec.DryRun, "dry-run", false, "tell what would be moved and what would stay, and store nothing")
	cli.ReasonFlag(c, &spec.Reason)
	return c
}
