package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
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

// hidden stands for what is not shown.
const hidden = "***"

// maskURL shows the address of a Redis without what may be a secret.
func maskURL(text string) string {
	if !strings.Contains(text, "://") {
		if strings.Contains(text, "@") {
			return hidden
		}
		return text
	}
	target, err := url.Parse(text)
	// A password that is not encoded may begin a path, and somebody may have written one as a parameter.
	if err != nil || strings.Contains(target.Path+target.Fragment, "@") || strings.ContainsAny(target.RawQuery, "@:") ||
		strings.Contains(strings.ToLower(target.RawQuery), "pass") {
		return hidden
	}
	if target.User == nil {
		return text
	}
	if _, given := target.User.Password(); !given {
		target.User = url.User("xxxxx") // Some write a password where the user goes.
	}
	return target.Redacted()
}

// maskTarget shows the host of a URL: receivers take tokens in paths and queries.
func maskTarget(text string) string {
	target, err := url.Parse(text)
	if err != nil || target.Host == "" {
		return hidden
	}
	shown := target.Scheme + "://" + target.Host
	if target.User != nil || strings.Trim(target.Path, "/") != "" || target.RawQuery != "" || target.Fragment != "" {
		shown += "/" + hidden
	}
	return shown
}

// maskArguments shows a command without its arguments.
func maskArguments(text string) string {
	var command []string
	if json.Unmarshal([]byte(text), &command) != nil {
		return hidden
	}
	for i := range command[1:] {
		command[1+i] = hidden
	}
	return quoteJSON(command)
}
