package lua

import (
	"flag"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestEveryNameIsIncluded: a file calls functions of what it includes alone, so that whatever it is put together with has them.
func TestEveryNameIsIncluded(t *testing.T) {
	t.Parallel()
	var all []*source
	for _, name := range Names() {
		var err error
		all, err = collect(all, paths[name], nil)
		check(t, err)
	}
	called := regexp.MustCompile(`(?:^|[^.:\w])(\w+)\(`)
	comment := regexp.MustCompile(`(?m)--.*$`)
	for _, s := range all {
		file := fragments + "/" + s.name + ".lua"
		if s.script {
			file = paths[s.name]
		}
		closure, err := collect(nil, file, nil)
		check(t, err)
		has := map[string]bool{}
		for _, other := range closure {
			for _, name := range other.defines {
				has[name] = has[name] || other == s || !other.script
			}
		}
		text := comment.ReplaceAllString(s.text, "")
		for _, found := range called.FindAllStringSubmatch(text, -1) {
			for _, other := range all {
				if name := found[1]; !other.script && slices.Contains(other.defines, name) && !has[name] && !strings.Contains(text, "function "+name+"(") {
					t.Errorf("%s calls %s and does not include %s", file, name, other.name)
				}
			}
		}
	}
}

// TestCallStateIsSetByWhoIsIncluded: a field of a call that a fragment sets when it begins is used only where that fragment is included, so that
// no call sees what another one left.
func TestCallStateIsSetByWhoIsIncluded(t *testing.T) {
	t.Parallel()
	field := regexp.MustCompile(`\bcall\.([a-z_]+)\b`)
	var all []*source
	for _, name := range Names() {
		var err error
		all, err = collect(all, paths[name], nil)
		check(t, err)
	}
	setter := map[string]*source{}
	for _, s := range all {
		if !s.resets {
			continue
		}
		_, set, _ := strings.Cut(s.text, "function reset."+s.name+"()")
		set, _, _ = strings.Cut(set, "end")
		for _, found := range field.FindAllStringSubmatch(set, -1) {
			setter[found[1]] = s
		}
	}
	if len(setter) < 40 {
		t.Fatalf("only %d fields are set", len(setter))
	}
	for _, s := range all {
		file := fragments + "/" + s.name + ".lua"
		if s.script {
			file = paths[s.name]
		}
		closure, err := collect(nil, file, nil)
		check(t, err)
		for _, found := range field.FindAllStringSubmatch(s.text, -1) {
			if of := setter[found[1]]; of != nil && !of.script && !slices.ContainsFunc(closure, func(c *source) bool { return c == of }) {
				t.Errorf("%s uses call.%s and does not include %s", file, found[1], of.name)
			}
		}
	}
}

// write is where to put the library, for `make lua-check`.
var write = flag.String("write", "", "write the library of scripts into this file")

// TestEveryScriptCompiles as a text, and all of them as a library, which is another one for another layout.
func TestEveryScriptCompiles(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Options{}).Client(t)
	for _, name := range Names() {
		script := Scripts("", SingleLayout)[name]()
		if sha, err := client.ScriptLoad(t.Context(), script.Text).Result(); err != nil || sha != script.SHA {
			t.Errorf("%s: %s, %v", name, sha, err)
		}
	}
	script := Scripts("", SingleLayout)["admit"]()
	if *write != "" {
		check(t, os.WriteFile(*write, []byte(strings.SplitN(script.Code(), "\n", 2)[1]), 0o644))
	}
	library, err := client.FunctionLoad(t.Context(), script.Code()).Result()
	check(t, err)
	if library+"_admit" != script.Function {
		t.Errorf("the function is %s in the library %s", script.Function, library)
	}
	found, err := client.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: library}).Result()
	check(t, err)
	if len(found) != 1 || len(found[0].Functions) != len(Names()) {
		t.Errorf("%d libraries, of %d scripts", len(found), len(Names()))
	}
	if other := Scripts("", "3")["admit"](); other.Function == script.Function {
		t.Errorf("two layouts have one library, %s", library)
	}
}

var (
	headKey  = regexp.MustCompile(`(?m)^-- KEYS\[\d+\] \w+`)
	headArg  = regexp.MustCompile(`(?m)^-- ARGV\[(\d+)\] \S+`)
	boundKey = regexp.MustCompile(`KEYS\[\d+\]`)
	boundArg = regexp.MustCompile(`ARGV\[\d+\]`)
)

// TestHeads compares each script's head with what it binds, and asks that nothing below the first lines uses KEYS, or
// ARGV by a literal number.
func TestHeads(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		source, err := sources.ReadFile(paths[name])
		check(t, err)
		comment, _, _ := strings.Cut(string(source), "\n-- @")
		_, body, found := strings.Cut(string(source), "\nfunction scripts."+name+"(KEYS, ARGV)\n")
		if !found {
			t.Errorf("%s has no function scripts.%s", name, name)
		}
		code := ""
		for line := range strings.Lines(body) {
			if !strings.Contains(line, "KEYS[") && !strings.Contains(line, "ARGV[") && !strings.HasPrefix(line, "  call.") {
				break
			}
			code, body = code+line, strings.TrimPrefix(body, line)
		}
		for _, word := range []string{"-- " + name + " ", "\n-- Reply ", "\n-- Never "} {
			if !strings.Contains("\n"+comment, word) {
				t.Errorf("%s: head lacks %q", name, strings.TrimSpace(word))
			}
		}
		if keys, bound := len(headKey.FindAllString(comment, -1)), len(boundKey.FindAllString(code, -1)); keys != 1 || bound != 1 {
			t.Errorf("%s: head names %d keys, first lines bind %d, want 1", name, keys, bound)
		}
		args, bound := headArg.FindAllStringSubmatch(comment, -1), len(boundArg.FindAllString(code, -1))
		for i, arg := range args {
			if arg[1] != strconv.Itoa(i+1) {
				t.Errorf("%s: head names ARGV[%s] as number %d", name, arg[1], i+1)
			}
		}
		variable := strings.Contains(comment, "] ...")
		if bound != len(args) && (!variable || bound != len(args)-1) {
			t.Errorf("%s: head names %d arguments, first lines bind %d", name, len(args), bound)
		}
		if boundKey.MatchString(body) || boundArg.MatchString(body) {
			t.Errorf("%s: KEYS or a literal ARGV index below the first lines", name)
		}
	}
}

// TestNames: a script is known by its name alone, so no two folders have one of the same.
func TestNames(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(sources, "scripts/*/*.lua")
	check(t, err)
	parts, err := fs.Glob(sources, fragments+"/*.lua")
	check(t, err)
	if len(Names()) == 0 || len(Names()) != len(files)-len(parts) {
		t.Errorf("%d names of %d scripts", len(Names()), len(files)-len(parts))
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
