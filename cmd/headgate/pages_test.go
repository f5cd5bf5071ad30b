package main

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/policies"
	"github.com/headgate/headgate/cmd/headgate/internal/relay"
)

var (
	inlineCommand = regexp.MustCompile("`(?:source <\\()?headgate ([^`]+)`")
	blockCommand  = regexp.MustCompile(`(?m)^(?:    |\t)(?:HEADGATE_\w+=\S+ |echo .*\| )?headgate ([a-z].*)$`)
	ruleCommand   = regexp.MustCompile(`: headgate ([a-z][^'\n]*)`) // in the description of an alert
	quoted        = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	variable      = regexp.MustCompile(`\bHEADGATE_[A-Z_]+[A-Z]\b`)
	optionName    = regexp.MustCompile("`((?:redis|retention|worker|scheduler|serve|metrics|tracing|log)\\.[a-z_.]+)(?::[^`]*)?`")
)

// TestPagesNameCommandsAndOptionsThatThereAre: each command line, option and variable that a page shows is one.
func TestPagesNameCommandsAndOptionsThatThereAre(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	must(t, err)
	below, err := filepath.Glob("../../docs/*/*.md")
	must(t, err)
	pages = append(pages, below...)
	options, variables := map[string]bool{}, map[string]bool{config.FileVariable: true, relay.DatabaseVariable: true, relay.MirrorVariable: true, policies.SyncVariable: true, "HEADGATE_WORKER_BREAKERS": true}
	for _, option := range reference(t) {
		options[option.Path], variables[option.Env] = true, true
	}
	commands := 0
	for _, path := range append(pages, "../../README.md", "../../deploy/rules/headgate.yml") {
		name := filepath.Base(path)
		text := deployed(t, strings.Split(strings.TrimPrefix(filepath.ToSlash(path), "../../"), "/")...)
		for _, pattern := range []*regexp.Regexp{inlineCommand, blockCommand, ruleCommand} {
			for _, match := range pattern.FindAllStringSubmatch(text, -1) {
				commands++
				if fault := lineFault(match[1]); fault != "" {
					t.Errorf("%s: headgate %s: %s", name, match[1], fault)
				}
			}
		}
		for _, match := range optionName.FindAllStringSubmatch(text, -1) {
			if path := match[1]; !options[path] && !isSection(options, path) {
				t.Errorf("%s: there is no option %s", name, path)
			}
		}
		for _, found := range variable.FindAllString(text, -1) {
			if !variables[found] {
				t.Errorf("%s: there is no variable %s", name, found)
			}
		}
	}
	if commands < 60 {
		t.Errorf("%d commands were found", commands)
	}
}

// TestExamplesOfHelpAreCommandLines: so is each line of the examples of --help.
func TestExamplesOfHelpAreCommandLines(t *testing.T) {
	t.Parallel()
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		for _, match := range regexp.MustCompile(`(?m)\bheadgate ([a-z].*)$`).FindAllStringSubmatch(c.Example, -1) {
			line, _, _ := strings.Cut(match[1], "   ") // What follows is what it does.
			if fault := lineFault(line); fault != "" {
				t.Errorf("headgate %s: %s", line, fault)
			}
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(newRoot(io.Discard, io.Discard))
}

// lineFault tells what is wrong with the command line of an example: its command or its flags.
func lineFault(line string) string {
	line, _, _ = strings.Cut(quoted.ReplaceAllString(line, "TEXT"), " #")
	var args []string
	for word := range strings.FieldsSeq(line) {
		if word == "..." || word == "…" || strings.ContainsAny(word[:1], "<>|&;") {
			break
		}
		args = append(args, strings.TrimRight(word, ",;)"))
	}
	root := newRoot(io.Discard, io.Discard)
	root.InitDefaultCompletionCmd(args...)
	c, rest, err := root.Find(args)
	switch {
	case err != nil:
		return err.Error()
	case !c.HasParent() || c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && c.ValidateArgs(rest[:1]) != nil:
		return "there is no such command"
	}
	for _, word := range rest {
		if word == "--exec" {
			break // What follows is another program's.
		}
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && name != "help" && c.Flag(name) == nil && c.InheritedFlags().Lookup(name) == nil {
			return "there is no flag --" + name
		}
	}
	return ""
}

// isSection tells whether options are below a path.
func isSection(options map[string]bool, path string) bool {
	for option := range options {
		if strings.HasPrefix(option, path+".") {
			return true
		}
	}
	return false
}
