package explain

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

// String is what Write writes, without its last line break.
func (e Explanation) String() string {
	var text strings.Builder
	e.Write(&text)
	return strings.TrimSuffix(text.String(), "\n")
}

// Write writes an explanation for people. What anybody may have written, such as reasons, is made fit for a terminal.
func (e Explanation) Write(to io.Writer) {
	line := func(format string, args ...any) { fmt.Fprintln(to, plain(fmt.Sprintf(format, args...))) }
	line("%s %s: %s", e.Kind, e.Name, e.Summary)
	for _, r := range e.Reasons {
		mark := "-"
		if r.Binds {
			mark = "!"
		}
		line("%s %s: %s%s", mark, r.Kind, r.Text, until(r.Until))
		if r.Rule != nil {
			line("    rule:   %s", r.Rule)
		}
		if r.Change != "" {
			line("    change: %s", r.Change)
		}
	}
	if e.PolicyVersion == 0 {
		line("The built-in policy is in force.")
		return
	}
	line("Version %d of the policy is in force.", e.PolicyVersion)
}

// String names a rule, its place, its value and who changed it last.
func (r *Rule) String() string {
	text := r.Of
	if r.Path != "" {
		text += ", " + r.Path + " = " + string(r.Value)
	}
	if c := r.Changed; c != nil {
		text += fmt.Sprintf(", since version %d by %s%s", c.Version, c.Author, because(c.Reason))
	}
	return text
}

// plain leaves out what a terminal would obey.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", until " + clock(t)
}

// clock writes a time for people, in UTC.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
