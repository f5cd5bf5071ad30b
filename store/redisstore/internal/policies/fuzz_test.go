package policies

import (
	"testing"
)

// FuzzStored: whatever stands in Redis where entries of the audit are kept, it is read or is an error, and what was read can be shown.
func FuzzStored(f *testing.F) {
	for _, seed := range [][2]string{
		{"stored", "5"},
		{"", ""},
		{"", " "},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if entry := auditEntry(map[string]any{"from": name, "to": value, "at": name, "by": value, name: value}); len(entry.Author) > len(name)+len(value) {
			t.Errorf("%+v was read of %q and %q", entry, name, value)
		}
	})
}
