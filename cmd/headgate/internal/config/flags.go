package config

import (
	"slices"

	"github.com/spf13/pflag"
)

// Given returns what the flags of options were given, by path, for Sources.Flags. Only the paths named are looked for:
// another command may have a flag of the same name that means something else.
func Given(flags *pflag.FlagSet, paths ...string) map[string]any {
	given := map[string]any{}
	for _, o := range options() {
		if o.Flag == "" || !slices.Contains(paths, o.Path) {
			continue
		}
		found := flags.Lookup(o.Flag)
		if found == nil || !found.Changed {
			continue
		}
		given[o.Path] = found.Value.String()
		if list, ok := found.Value.(pflag.SliceValue); ok {
			given[o.Path] = list.GetSlice()
		}
	}
	return given
}

// The sections of the processes: those that say something to them.
var (
	WorkerSections = []string{"redis", "retention", "worker", "scheduler", "guard", "metrics", "tracing", "log"}
	ServeSections  = []string{"redis", "retention", "serve", "guard", "tracing", "log"}
)

// Paths are the options of sections that have flags, but for PathCommand.
func Paths(sections []string) (paths []string) {
	for _, o := range options() {
		if o.Flag != "" && o.Path != PathCommand && slices.Contains(sections, o.section()) {
			paths = append(paths, o.Path)
		}
	}
	return paths
}
