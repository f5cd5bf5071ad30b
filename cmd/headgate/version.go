package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), version())
			return err
		},
	}
}

// version names the release and, where it is known, the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "headgate " + cli.Release
	}
	commit, changed := "", ""
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			commit = ", commit " + setting.Value[:min(12, len(setting.Value))]
		case "vcs.modified":
			if setting.Value == "true" {
				changed = " with changes"
			}
		}
	}
	return fmt.Sprintf("headgate %s%s%s, %s %s/%s", cli.Release, commit, changed, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
