package policies

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func newPolicyHistory(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "history", Short: "List the versions that are kept, the newest first", Args: cli.NoArgs,
		Example: `  headgate policy history --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				versions, err := s.PolicyVersions(ctx)
				if err != nil {
					return err
				}
				view := historyView{Versions: []versionView{}}
				for _, v := range versions {
					view.Versions = append(view.Versions, versionViewOf(v))
				}
				if len(view.Versions) == 0 {
					cli.None(c, "the built-in policy is in force: nobody has stored another one")
				}
				return o.Print(c, view, view.write)
			})
		},
	}
}

func newPolicyShow(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "show VERSION", Short: "Print a version that is kept", Args: cli.OneArg("VERSION (headgate policy get prints the one in force)"),
		Example: `  headgate policy show 17 --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			version, err := versionArg(args[0])
			if err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				text, err := s.PolicyVersion(ctx, version)
				if err != nil {
					return unknownVersion(err)
				}
				return printText(text, c.OutOrStdout())
			})
		},
	}
}

func newPolicyRollback(o *cli.Operator) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "rollback VERSION", Short: "Put a version that is kept in force again",
		Long: `Stores the document of a version that is kept as the version after the one in force, to the
byte but for its number. Nothing is undone in the history.`,
		Args:    cli.OneArg("VERSION"),
		Example: `  headgate policy rollback 17 --reason "too strict" --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			version, err := versionArg(args[0])
			if err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				done, err := rollout.Rollback(ctx, s, version, cli.EditBy(reason))
				if err != nil {
					return unknownVersion(err)
				}
				view := resultViewOf(done, false)
				return o.Print(c, view, view.write)
			})
		},
	}
	cli.ReasonFlag(c, &reason)
	return c
}

func versionArg(text string) (int64, error) {
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version < 1 {
		return 0, cli.Usage(&admission.FieldError{Field: "VERSION", Value: strconv.Quote(text), Allowed: "1 or more; headgate policy history lists those that are kept"})
	}
	return version, nil
}

// unknownVersion makes an answer of a version that is not kept.
func unknownVersion(err error) error {
	if errors.Is(err, store.ErrUnknownVersion) {
		return cli.Nothing("%w: headgate policy history lists those that are kept", err)
	}
	return err
}

// summaryOf reads what the audit keeps of the changes of an edit.
func summaryOf(entry store.AuditEntry) (policy.Summary, bool) {
	var s policy.Summary
	err := json.Unmarshal(entry.Changes, &s)
	return s, err == nil
}
