package keyspace_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/keyspace"
)

var update = flag.Bool("update", false, "write docs/design/keys.md")

// beginOf is what a name begins with, up to what varies.
func beginOf(name string) string {
	if at := strings.IndexFunc(name, func(r rune) bool { return r >= 'A' && r <= 'Z' }); at >= 0 {
		return name[:at]
	}
	return name
}

// scripts returns the text of all Lua, without comments.
func scripts(t *testing.T) string {
	t.Helper()
	comment := regexp.MustCompile(`(?m)--.*$`)
	var all strings.Builder
	err := filepath.WalkDir("../../lua/scripts", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".lua" {
			return err
		}
		text, err := os.ReadFile(path)
		all.WriteString(comment.ReplaceAllString(string(text), ""))
		return err
	})
	if err != nil || all.Len() == 0 {
		t.Fatal(err, all.Len())
	}
	return all.String()
}

// found returns what the first group of patterns finds in a text.
func found(text string, patterns ...string) map[string]bool {
	names := map[string]bool{}
	for _, pattern := range patterns {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names[match[1]] = true
		}
	}
	return names
}

// compare fails for each name that the scripts have and the schema has not.
func compare(t *testing.T, what string, used map[string]bool, names []string) {
	t.Helper()
	known := map[string]bool{}
	for _, name := range names {
		if known[beginOf(name)] {
			t.Errorf("%s %s is there twice", what, name)
		}
		known[beginOf(name)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !known[name] {
			t.Errorf("the scripts have %s %q, schema.go has not", what, name)
		}
	}
}

// TestTheScriptsPackTheCore in the order that is declared here; -update writes what state.lua says of it.
func TestTheScriptsPackTheCore(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../lua/scripts/fragments/state.lua", "-- go test ./internal/keyspace -run TestTheScriptsPackTheCore -update\n", "-- end\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	written, after, found := strings.Cut(rest, end)
	if !ok || !found {
		t.Fatalf("%s has no place for the core", file)
	}
	var want strings.Builder
	list := func(name string, one func(i int, field string) string) {
		fmt.Fprintf(&want, "local %s = {", name)
		for i, field := range keyspace.Core {
			if i%6 == 0 {
				want.WriteString("\n ")
			}
			want.WriteString(" " + one(i, field) + ",")
		}
		want.WriteString("\n}\n")
	}
	list("CORE", func(_ int, field string) string { return "'" + field + "'" })
	list("CORE_AT", func(i int, field string) string { return fmt.Sprintf("['%s'] = %d", field, i+1) })
	fmt.Fprintf(&want, "local CORE_SIZE, CORE_FORMAT = %d, '<%s'\n", len(keyspace.Core), strings.Repeat("d", len(keyspace.Core)))
	if written == want.String() {
		return
	}
	if !*update {
		t.Fatalf("%s says\n%swant\n%s", file, written, want.String())
	}
	if err := os.WriteFile(file, []byte(before+begin+want.String()+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTheScriptsUseTheSchema: each key and each field of the state that a script names is in the schema, and the other way round, but for
// what Go alone writes.
func TestTheScriptsUseTheSchema(t *testing.T) {
	t.Parallel()
	text := scripts(t)
	kinds := make([]string, len(keyspace.Schema))
	for i, kind := range keyspace.Schema {
		kinds[i] = kind.Name
	}
	keys := found(text, `\bcall\.prefix \.\. '([a-z]+:?)`, `\bkeys\.([a-z]+)\b`)
	compare(t, "key", keys, kinds)

	fields := make([]string, len(keyspace.State))
	for i, field := range keyspace.State {
		fields[i] = field.Name
	}
	state := found(text, `\bstate_(?:get|num|set|add)\('([a-z]+:?)'`, `'HGET', call\.state, '([a-z]+:?)'`, `'HDEL', call\.state, '([a-z]+:?)'`)
	for list := range found(text, `(?s)\bstate_load\(\{([^}]*)\}\)`, `(?s)\bstate_fields(?:, \w+)? = \{([^}]*)\}`, `(?s)for _, field in ipairs\(\{([^}]*)\}\)`) {
		maps.Copy(state, found(list, `'([a-z]+:?)'`))
	}
	compare(t, "field", state, fields)

	text += goText(t)
	for _, name := range kinds {
		begin := beginOf(name)
		if !keys[begin] && !strings.Contains(text, "'"+begin) && !strings.Contains(text, `"`+begin) {
			t.Errorf("nobody has a key %q", name)
		}
	}
	for _, name := range fields {
		begin := beginOf(name)
		if !strings.Contains(text, "'"+begin) && !strings.Contains(text, `"`+begin) {
			t.Errorf("nobody has a field %q", name)
		}
	}
}

// goText returns the Go that names keys and fields beside the scripts.
func goText(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{".", "../redisconn", "../migrate", "../../store/redisstore"} {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "schema.go" {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// TestTheCoreIsOfTheState: what is packed is declared, once.
func TestTheCoreIsOfTheState(t *testing.T) {
	t.Parallel()
	for i, field := range keyspace.Core {
		declared := slices.ContainsFunc(keyspace.State, func(f keyspace.Field) bool {
			return f.Name == field || strings.HasPrefix(field, beginOf(f.Name)) && f.Name != beginOf(f.Name)
		})
		if !declared || slices.Index(keyspace.Core, field) != i {
			t.Errorf("%s is no field of the state, or is packed twice", field)
		}
	}
	core := strings.Repeat("\x00", 8*len(keyspace.Core)-8) + "\x00\x00\x00\x00\x00\x00\x04\xc0"
	last := keyspace.Core[len(keyspace.Core)-1]
	if text, ok := keyspace.CoreText(core, last); !ok || text != "-2.5" {
		t.Errorf("%s is %q, %v", last, text, ok)
	}
	for _, bad := range []struct{ core, field string }{{core[1:], last}, {core, "pv"}, {"", last}} {
		if text, ok := keyspace.CoreText(bad.core, bad.field); ok {
			t.Errorf("%s of %d bytes is %q", bad.field, len(bad.core), text)
		}
	}
}

func TestAQueuesFieldIsReadPackedOrNot(t *testing.T) {
	t.Parallel()
	one, half := "\x00\x00\x00\x00\x00\x00\xf0\x3f", "\x00\x00\x00\x00\x00\x00\xe0\x3f"
	for field, want := range map[string]string{
		"Q" + one + half: "1|0.5", "1|0.5|0": "1|0.5|0", "": "", "Q" + one + "x": "", "Q": "",
	} {
		if got := keyspace.QueueText(field); got != want {
			t.Errorf("%q is read as %q, want %q", field, got, want)
		}
	}
	state := keyspace.Unpacked(map[string]string{keyspace.CoreField: strings.Repeat("\x00", 8*len(keyspace.Core)), "q:mail": "Q" + one, "qs": "Q" + one})
	if state["q:mail"] != "1" || state["qs"] != "Q"+one {
		t.Errorf("the state is read as %q", state)
	}
}

const (
	tablesBegin = "<!-- go test ./internal/keyspace -run Page -update -->\n"
	tablesEnd   = "<!-- end of the schema -->\n"
)

// TestThePageIsTheSchema: docs/design/keys.md has the schema as it is.
func TestThePageIsTheSchema(t *testing.T) {
	t.Parallel()
	const page = "../../docs/design/keys.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), tablesBegin)
	_, after, ended := strings.Cut(rest, tablesEnd)
	if !begun || !ended {
		t.Fatalf("%s has no place for the schema", page)
	}
	var b strings.Builder
	b.WriteString("| key | type | holds |\n| --- | --- | --- |\n")
	for _, kind := range keyspace.Schema {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", kind.Name, kind.Type, kind.Holds)
	}
	b.WriteString("\n## Fields of the state\n\nTimes are in microseconds, tokens in millionths.\n\n| field | holds |\n| --- | --- |\n")
	for _, field := range keyspace.State {
		fmt.Fprintf(&b, "| `%s` | %s |\n", field.Name, field.Holds)
	}
	fmt.Fprintf(&b, "\nIn `%s`, in this order: `%s`.\n", keyspace.CoreField, strings.Join(keyspace.Core, "`, `"))
	want := before + tablesBegin + b.String() + tablesEnd + after
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what schema.go says: go test ./internal/keyspace -run Page -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}
