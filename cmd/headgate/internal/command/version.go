package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), version())
			return err
		},
	}
}

// version names the build: the module's version, or the commit where there is none.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "headgate, unknown build"
	}
	name, commit, changed := info.Main.Version, "", ""
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
	if name == "" {
		name = "(devel)"
	}
	return fmt.Sprintf("headgate %s%s%s, %s %s/%s", name, commit, changed, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
