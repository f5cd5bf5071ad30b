package policies

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// recordsDiff tells how a file of records differs from those that tenants have.
type recordsDiff struct {
	// Records are those of the file, Same those that are as in it, Tenants the others.
	Records int64        `json:"records"`
	Same    int64        `json:"same"`
	Tenants []recordDiff `json:"tenants"`
}

// recordDiff is what differs in the record of a tenant, InForce its version, 0 for none.
type recordDiff struct {
	Tenant  string         `json:"tenant"`
	InForce int64          `json:"in_force"`
	Changes []shown.Change `json:"changes"`
}

func (v recordsDiff) write(to io.Writer) {
	for _, one := range v.Tenants {
		was := fmt.Sprintf("version %d of its record", one.InForce)
		if one.InForce == 0 {
			was = "no record"
		}
		fmt.Fprintf(to, "tenant %s, %s:\n", one.Tenant, was)
		writeChanges(to, one.Changes)
	}
	fmt.Fprintf(to, "%d records read, %d differ, %d are as in the file\n", v.Records, len(v.Tenants), v.Same)
}

func newRecordDiff(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "diff FILE|-", Short: "Tell how records in a file differ from those that tenants have", Args: cli.OneArg("FILE, or - for standard input"),
		Long: `Reads lines as headgate record export writes them, and lists every value that headgate record import would
change, by tenant and by its path in the record (a JSON pointer): + is added, - is removed, ~ is changed.
Tenants that are not in the file are not looked at. The exit code is 3 if there are any, and 0 if not.`,
		Example: `  headgate record diff records.jsonl --redis localhost:6379
  headgate record export --redis localhost:6379 | headgate record diff - --json --redis localhost:6380`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				view, err := diffRecords(ctx, c, s, args[0])
				if err != nil {
					return err
				}
				if err := o.Print(c, view, view.write); err != nil {
					return err
				}
				if n := len(view.Tenants); n > 0 {
					return cli.Nothing("%d records differ", n)
				}
				return nil
			})
		},
	}
}

// diffRecords is an import that stores nothing.
func diffRecords(ctx context.Context, c *cobra.Command, s store.Deployment, path string) (v recordsDiff, err error) {
	from, _, err := openRecords(c, path)
	if err != nil {
		return v, err
	}
	defer from.Close()
	m, err := newImporter(ctx, s, "")
	if err != nil {
		return v, err
	}
	v.Tenants = []recordDiff{}
	m.part, m.dry = &policy.Rollout{Percent: policy.MaxPercent}, true
	m.differs = func(was store.TenantRecord, want policy.OwnLimits) error {
		has, err := policy.UnmarshalRecord(was.Text)
		if err != nil {
			return fmt.Errorf("%w: record of tenant %s: %s", policy.ErrStored, was.Tenant, err.Error())
		}
		changes, err := policy.DiffRecords(has, want)
		if len(changes) == 0 { // Of a release that writes it in other words.
			v.Same++
			return err
		}
		one := recordDiff{Tenant: was.Tenant, Changes: shown.ChangesOf(changes)}
		if was.Version != policy.NoRecord {
			one.InForce = was.Version
		}
		v.Tenants = append(v.Tenants, one)
		return err
	}
	err = m.read(ctx, c, path, from)
	v.Records, v.Same = m.did.Records, v.Same+m.did.Same
	return v, err
}
