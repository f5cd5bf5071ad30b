package config

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
)

// Print writes the values in force as YAML, each with where it comes from. Secrets are masked: one that is nothing else
// is a comment. What is written can be loaded again, and means the same but for them.
func (l *Loaded) Print(to io.Writer) error {
	var out bytes.Buffer
	var above []string
	for i := range l.table {
		o := &l.table[i]
		if strings.HasPrefix(o.Path, breakersPath+delimiter) && !l.Given(o.Path) {
			continue // It is as in worker.breaker.
		}
		sections := sectionsOf(o.Path)
		below := 0
		for below < min(len(above), len(sections)-1) && above[below] == sections[below] {
			below++
		}
		for ; below < len(sections)-1; below++ {
			fmt.Fprintf(&out, "%s%s:\n", strings.Repeat("  ", below), key(sections[below]))
		}
		above = sections[:len(sections)-1]
		fmt.Fprintf(&out, "%s%s\n", strings.Repeat("  ", len(above)), l.line(o, sections[len(sections)-1]))
	}
	_, err := to.Write(out.Bytes())
	return err
}

// line is an option's own line.
func (l *Loaded) line(o *Option, name string) string {
	from := l.origins[o.Path]
	shown := o.show(&l.Config)
	switch {
	case from == nil && o.Default == "":
		return fmt.Sprintf("# %s: not set: %s", name, strings.ReplaceAll(o.Unset, "`", ""))
	case from == nil:
		return fmt.Sprintf("%s: %s # default", name, quoteJSON(o.plain(&l.Config)))
	case o.masked(shown) == hidden:
		return fmt.Sprintf("# %s: %s, from %s", name, hidden, from.place(o.Path))
	case o.Secret() && o.Type() == "text":
		return fmt.Sprintf("%s: %s # %s", name, quoteJSON(o.masked(shown)), from.place(o.Path))
	case o.Secret(): // A JSON array, which is YAML.
		return fmt.Sprintf("%s: %s # %s", name, cmp.Or(o.masked(shown), "[]"), from.place(o.Path))
	}
	return fmt.Sprintf("%s: %s # %s", name, quoteJSON(o.plain(&l.Config)), from.place(o.Path))
}

// key writes a name as a key of YAML.
func key(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == "" {
		return name
	}
	return quoteJSON(name) // That of a downstream.
}

// sectionsOf are the parts of a path. The name of a downstream is one, whatever is in it.
func sectionsOf(path string) []string {
	below, ok := strings.CutPrefix(path, breakersPath+delimiter)
	if !ok {
		return strings.Split(path, delimiter)
	}
	end := strings.LastIndex(below, delimiter)
	return []string{"worker", "breakers", below[:end], below[end+1:]}
}
