package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// part is a kind of thing that may have settings of its own in the policy: a tenant, a queue, a tier, a downstream.
type part struct {
	noun string
	path func(name string) []string
	// settings returns what a thing may have, and what flags say of it.
	settings func() []setting
	// lost says what applies once all is taken away.
	lost string
	// show prints a thing after an edit of fields.
	show func(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, name string, fields [][]string) error
}

// setting is something that a thing may have of its own.
type setting struct {
	word  string // of unset
	field []string
	flags []string // that say it; nil is one of the name of word
	add   func(*pflag.FlagSet)
	edits func() ([]policy.Patch, error)
}

func one(value json.RawMessage, field ...string) []policy.Patch {
	return []policy.Patch{{Path: field, Value: value}}
}

func numberSetting(word, field, usage string) setting {
	var n int64
	return setting{
		word: word, field: strings.Split(field, "."),
		add: func(flags *pflag.FlagSet) { flags.Int64Var(&n, word, 0, usage) },
		edits: func() ([]policy.Patch, error) {
			return one(json.RawMessage(strconv.FormatInt(n, 10)), strings.Split(field, ".")...), nil
		},
	}
}

func textSetting(word, field, usage string) setting {
	var text string
	return setting{
		word: word, field: strings.Split(field, "."),
		add: func(flags *pflag.FlagSet) { flags.StringVar(&text, word, "", usage) },
		edits: func() ([]policy.Patch, error) {
			return one(json.RawMessage(strconv.Quote(text)), strings.Split(field, ".")...), nil
		},
	}
}

func durationSetting(word, path, usage string) setting {
	var d time.Duration
	field := strings.Split(path, ".")
	return setting{
		word: word, field: field,
		add:   func(flags *pflag.FlagSet) { flags.DurationVar(&d, word, 0, usage) },
		edits: func() ([]policy.Patch, error) { return one(json.RawMessage(strconv.Quote(d.String())), field...), nil },
	}
}

// limitSetting is the limit of a tenant or a tier.
func limitSetting() setting {
	var f limitFlags
	return setting{
		word: "limit", field: []string{"limit"}, flags: []string{"tokens", "per", "burst", "algorithm", "window", "anchor", "zone", "off"},
		add: func(flags *pflag.FlagSet) {
			f.add(flags)
			flags.BoolVar(&f.off, "off", false, "no limit")
		},
		edits: func() ([]policy.Patch, error) {
			value, err := f.json("tokens", "--off")
			return one(value, "limit"), err
		},
	}
}

// dispatchSetting is a rate of dispatches. unset is the command that takes it away.
func dispatchSetting(unset string) setting {
	var f dispatchFlags
	return setting{
		word: "dispatch", field: []string{"dispatch"}, flags: dispatchWords, add: f.add,
		edits: func() ([]policy.Patch, error) {
			value, err := f.json("dispatch", unset)
			return one(value, "dispatch"), err
		},
	}
}

// dispatchWords are the flags that dispatchFlags adds.
var dispatchWords = []string{"dispatch", "dispatch-per", "dispatch-burst"}

// dispatchFlags are a rate of dispatches.
type dispatchFlags struct {
	limitFlags

	// said is what the flags say for a record, once they are read: nil takes it out.
	said *admission.Limit
}

func (f *dispatchFlags) add(flags *pflag.FlagSet) {
	flags.Int64Var(&f.tokens, "dispatch", 0, "`NUMBER` of jobs that start in --dispatch-per")
	flags.DurationVar(&f.per, "dispatch-per", time.Second, "`DURATION` in which they do, "+perTimes)
	flags.Int64Var(&f.burst, "dispatch-burst", 0, "largest `NUMBER` of jobs that start at once; by default what starts in a second, 1 at least")
}

// addOff adds the flag by which a record says that there is no such rate.
func (f *dispatchFlags) addOff(flags *pflag.FlagSet) {
	flags.BoolVar(&f.off, "dispatch-off", false, "no rate of dispatches, also where the policy has one")
}

// read reads what the flags say for a record.
func (f *dispatchFlags) read(flags *pflag.FlagSet) error {
	switch {
	case f.off && changed(flags, dispatchWords):
		return cli.FieldError("dispatch-off", "true", "it or --"+strings.Join(dispatchWords, ", --")+", not both")
	case !f.off && (!changed(flags, dispatchWords) || f.tokens == 0 && flags.Changed("dispatch") && !changed(flags, dispatchWords[1:])):
		return nil
	}
	text, err := f.json("dispatch", "--dispatch-off")
	if err != nil {
		return err
	}
	r, err := policy.UnmarshalRecord(fmt.Appendf(nil, `{"dispatch":%s}`, text))
	f.said = r.Dispatch
	return err
}

// semaphoreFlags are limits of a tenant's semaphores for its record.
type semaphoreFlags struct {
	words map[string]string
	said  map[string]policy.SemaphoreRules
}

func (f *semaphoreFlags) add(flags *pflag.FlagSet) {
	flags.StringToStringVar(&f.words, "semaphore", nil, fmt.Sprintf("`LIMITS` of the tenant's semaphores, gpu=4,*=10, each 0 to %d, or gpu= to take it out of the record", policy.MaxSemaphoreMax))
}

// read reads what the flag says.
func (f *semaphoreFlags) read() error {
	f.said = make(map[string]policy.SemaphoreRules, len(f.words))
	for name, word := range f.words {
		if word == "" {
			continue
		}
		most, err := strconv.Atoi(word)
		if err != nil {
			return cli.FieldError("semaphore", name+"="+word, fmt.Sprintf("NAME=NUMBER with 0 to %d, or NAME= to take it out of the record", policy.MaxSemaphoreMax))
		}
		f.said[name] = policy.SemaphoreRules{Max: most}
	}
	return nil
}

// over returns a copy of those of a record with what the flag says.
func (f *semaphoreFlags) over(of map[string]policy.SemaphoreRules) map[string]policy.SemaphoreRules {
	of = maps.Clone(of)
	if of == nil && len(f.said) > 0 {
		of = make(map[string]policy.SemaphoreRules, len(f.said))
	}
	maps.Copy(of, f.said)
	for name, word := range f.words {
		if word == "" {
			delete(of, name)
		}
	}
	return of
}

// weightsSetting are shares by class; each class is changed for itself.
func weightsSetting() setting {
	var weights map[string]int
	return setting{
		word: "weights", field: []string{"priority_weights"}, flags: []string{"weight"},
		add: func(flags *pflag.FlagSet) {
			flags.StringToIntVar(&weights, "weight", nil, "`WEIGHTS` by class, high=5,low=1, each 1 to 1000")
		},
		edits: func() (all []policy.Patch, err error) {
			for _, class := range slices.Sorted(maps.Keys(weights)) {
				all = append(all, policy.Patch{Path: []string{"priority_weights", class}, Value: json.RawMessage(strconv.Itoa(weights[class]))})
			}
			return all, nil
		},
	}
}

func maxRunningSetting(ofWhat string) setting {
	return numberSetting("max-running", "max_running", fmt.Sprintf("`NUMBER` of %sjobs that workers hold at a time, 1 to %d, or 0 for no bound of its own", ofWhat, policy.MaxMaxRunning))
}

// newSet returns the command that changes the settings that flags name, and leaves the others as they are.
func (p part) newSet(o *cli.Operator, long, example string) *cobra.Command {
	var reason string
	settings := p.settings()
	argument := strings.ToUpper(p.noun)
	c := &cobra.Command{
		Use: "set " + argument, Short: "Say what a " + p.noun + " has of its own", Args: cli.OneArg(argument), Long: long, Example: example,
		RunE: func(c *cobra.Command, args []string) error {
			edits, err := editsOf(p.noun, settings, c.Flags())
			if err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, st store.Deployment) error {
				if err := p.set(ctx, st, args[0], edits, reason); err != nil {
					return err
				}
				fields := make([][]string, len(edits))
				for i, e := range edits {
					fields[i] = e.Path
				}
				return p.show(ctx, o, c, st, args[0], fields)
			})
		},
	}
	for _, s := range settings {
		s.add(c.Flags())
	}
	cli.ReasonFlag(c, &reason)
	return c
}

// editsOf returns what the flags say that were given, or all that is wrong with them.
func editsOf(noun string, settings []setting, flags *pflag.FlagSet) (all []policy.Patch, err error) {
	var words []string
	for _, s := range settings {
		names := s.flags
		if names == nil {
			names = []string{s.word}
		}
		words = append(words, "--"+names[0])
		if slices.ContainsFunc(names, flags.Changed) {
			edits, bad := s.edits()
			all, err = append(all, edits...), errors.Join(err, bad)
		}
	}
	if len(all) == 0 && err == nil {
		return nil, cli.Usage(fmt.Errorf("say what the %s is to have: %s", noun, strings.Join(words, ", ")))
	}
	return all, err
}

// set stores the policy with edits of a thing.
func (p part) set(ctx context.Context, store store.Deployment, name string, edits []policy.Patch, reason string) error {
	_, err := rollout.Change(ctx, store, cli.EditBy(reason), func(current policy.Policy) (policy.Policy, error) {
		var whole []policy.Patch
		for _, e := range edits {
			whole = append(whole, policy.Patch{Path: append(p.path(name), e.Path...), Value: e.Value})
		}
		return current.Edited(whole...)
	})
	return err
}

// newUnset returns the command that takes settings away, or all of them.
func (p part) newUnset(o *cli.Operator, example string) *cobra.Command {
	var reason string
	words := p.words()
	argument := strings.ToUpper(p.noun)
	c := &cobra.Command{
		Use: "unset " + argument + " [SETTING...]", Short: "Take away what a " + p.noun + " has of its own",
		Long:    "Takes settings of a " + p.noun + " away: " + strings.Join(words, ", ") + "; without any, all of them.\n" + p.lost,
		Example: example,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usage(fmt.Errorf("%s takes a %s, and perhaps what to take away", c.CommandPath(), argument))
			}
			for _, word := range args[1:] {
				if !slices.Contains(words, word) {
					return cli.Usage(fmt.Errorf("there is no setting %q: there are %s", word, strings.Join(words, ", ")))
				}
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if err := p.unset(ctx, s, args[0], args[1:], reason); err != nil {
					return err
				}
				return p.show(ctx, o, c, s, args[0], p.fields(args[1:]))
			})
		},
	}
	cli.ReasonFlag(c, &reason)
	return c
}

func (p part) words() (words []string) {
	for _, s := range p.settings() {
		words = append(words, s.word)
	}
	return words
}

// fields are where the settings of some words are, those of all for none.
func (p part) fields(words []string) (all [][]string) {
	for _, s := range p.settings() {
		if len(words) == 0 || slices.Contains(words, s.word) {
			all = append(all, s.field)
		}
	}
	return all
}

// unset stores the policy without settings of a thing, all of them for no words.
func (p part) unset(ctx context.Context, store store.Deployment, name string, words []string, reason string) error {
	_, err := rollout.Change(ctx, store, cli.EditBy(reason), func(current policy.Policy) (policy.Policy, error) {
		edits := []policy.Patch{{Path: p.path(name)}}
		if len(words) > 0 {
			edits = nil
			for _, field := range p.fields(words) {
				edits = append(edits, policy.Patch{Path: append(p.path(name), field...)})
			}
		}
		next, err := current.Edited(edits...)
		if err != nil {
			return current, err
		}
		changes, err := policy.Diff(current, next)
		if err == nil && len(changes) == 0 {
			return current, cli.Nothing("%s: the %s has nothing like that of its own", name, p.noun)
		}
		return next, err
	})
	return err
}

// newPartList returns the command that lists the things of a section of the policy.
func newPartList(o *cli.Operator, use, short, long, example string, section shown.Section) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				current, err := rollout.Current(ctx, s)
				if err != nil {
					return err
				}
				view, err := shown.PartsOf(current, section, "", 0)
				if err != nil {
					return err
				}
				if len(view.Parts) == 0 {
					cli.None(c, "the policy says nothing of "+string(section))
				}
				return o.Print(c, view, func(to io.Writer) { writeParts(to, view) })
			})
		},
	}
}

func writeParts(to io.Writer, v shown.Parts) {
	if len(v.Parts) == 0 {
		return
	}
	t := report.NewTable(to, 2, "name", "its own")
	for _, p := range v.Parts {
		t.AppendRow(table.Row{p.Name, spaced(p.Own)})
	}
	t.Render()
}

// showPart prints what a thing of a section has of its own.
func showPart(section shown.Section) func(context.Context, *cli.Operator, *cobra.Command, store.Deployment, string, [][]string) error {
	return func(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, name string, _ [][]string) error {
		current, err := rollout.Current(ctx, s)
		if err != nil {
			return err
		}
		own, err := current.At(section.Path(name)...)
		if err != nil {
			return err
		}
		view := shown.Part{Name: name, Own: own}
		return o.Print(c, view, func(to io.Writer) { fmt.Fprintf(to, "%s: %s\n", name, orNothing(own)) })
	}
}

// spaced writes JSON so that it can be wrapped between its members.
func spaced(text json.RawMessage) string { return strings.ReplaceAll(string(text), `,"`, `, "`) }

func orNothing(own json.RawMessage) string {
	if own == nil {
		return "nothing of its own"
	}
	return string(own)
}
