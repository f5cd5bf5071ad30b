package config

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// Changes returns the paths of the options of some sections that another configuration has other values for: those that a
// process that runs can change, and those that it cannot.
func (l *Loaded) Changes(to *Loaded, sections []string) (live, fixed []string) {
	for _, path := range union(l.table, to.table) {
		section, _, _ := strings.Cut(path, delimiter)
		before, after := l.state(path), to.state(path)
		if before == after || !slices.Contains(sections, section) {
			continue
		}
		if after.live || before.live {
			live = append(live, path)
		} else {
			fixed = append(fixed, path)
		}
	}
	return live, fixed
}

// state is what can be told of an option. One that is not set differs from one with an empty value.
type state struct {
	live, there bool
	text        string
	content     [sha256.Size]byte // of the file of secrets that text names
}

func (l *Loaded) state(path string) state {
	i := slices.IndexFunc(l.table, func(o Option) bool { return o.Path == path })
	if i < 0 || strings.HasPrefix(path, breakersPath+delimiter) && !l.Given(path) {
		return state{}
	}
	o := &l.table[i]
	text := o.show(&l.Config)
	return state{live: o.Live, there: l.Given(path) || o.Default != "", text: text, content: l.contents[text]}
}

// union returns the paths of two tables, in their order.
func union(before, after []Option) (paths []string) {
	for _, table := range [][]Option{before, after} {
		for i := range table {
			if !slices.Contains(paths, table[i].Path) {
				paths = append(paths, table[i].Path)
			}
		}
	}
	return paths
}

// Keeping returns the configuration with another's values for what a process that runs cannot change about its handler.
func (l *Loaded) Keeping(started *Loaded) *Loaded {
	kept := *l
	kept.Config.Worker.Timeout = started.Config.Worker.Timeout
	kept.Config.Worker.Concurrency = started.Config.Worker.Concurrency
	return &kept
}
