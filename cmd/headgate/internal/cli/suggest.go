package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// NoArgs is cobra's, with an error that says what to do.
func NoArgs(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c.HasSubCommands():
		return Usage(fmt.Errorf("there is no command %q%s", args[0], meant(c, args[0])))
	case c.Flags().Lookup("queue") != nil:
		return Usage(fmt.Errorf("%s takes no argument, got %q: a queue is named by --queue %s", c.CommandPath(), args[0], args[len(args)-1]))
	}
	return Usage(fmt.Errorf("%s takes no argument, got %q", c.CommandPath(), args[0]))
}

// verbs are words for one thing, of which a command has one.
var verbs = [][]string{
	{"show", "get", "describe", "info", "view", "list", "ls", "top"},
	{"unset", "delete", "remove", "rm", "purge", "cancel"},
	{"set", "update", "edit", "change"},
	{"check", "validate", "dry-run"},
	{"redrive", "retry"},
	{"why", "explain"},
}

// mostMeant is how many commands are named at most.
const mostMeant = 3

// meant names the commands that a word which is none may stand for: those that mean the same here, those of its name under the root and,
// where there are none, near ones and those of its name under others.
func meant(parent *cobra.Command, word string) string {
	same := []string{word}
	for _, verb := range verbs {
		if slices.Contains(verb, word) {
			same = append(same, verb...)
		}
	}
	named := pathsOf(parent, same)
	if parent != parent.Root() {
		named = append(named, pathsOf(parent.Root(), same)...)
	}
	if len(named) == 0 {
		parent.SuggestionsMinimumDistance = 1 + len(word)/4
		named = pathsOf(parent, parent.SuggestionsFor(word))
	}
	if len(named) == 0 && parent == parent.Root() {
		for _, group := range parent.Commands() {
			named = append(named, pathsOf(group, []string{word})...)
		}
	}
	if len(named) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(named[:min(len(named), mostMeant)], " or ") + "?"
}

// pathsOf returns the paths of the commands under a parent that have one of the names, in their order there.
func pathsOf(parent *cobra.Command, names []string) (paths []string) {
	for _, c := range parent.Commands() {
		if slices.Contains(names, c.Name()) {
			paths = append(paths, c.CommandPath())
		}
	}
	return paths
}
