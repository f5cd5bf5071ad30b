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

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

// TestANameIsOfOneFile: no two fragments define the same name, and no file has a variable of a name that a fragment defines: what a script
// is made of follows from the names that its files use.
func TestANameIsOfOneFile(t *testing.T) {
	t.Parallel()
	for file, s := range files() {
		for _, name := range slices.Concat(s.defines, declared(s.text)) {
			if home := homes()[name]; home != "" && home != file {
				t.Errorf("%s has a %s of its own beside that of %s", file, name, home)
			}
		}
	}
}

// TestEveryNameIsThere: a file uses names of Lua and Redis, its own, and those of fragments alone.
func TestEveryNameIsThere(t *testing.T) {
	t.Parallel()
	const language = "and break do else elseif end false for function if in local nil not or repeat return then true until while " +
		"error ipairs math next pairs pcall redis string table tonumber tostring type unpack select cjson struct cmsgpack bit " +
		"call keys reset scripts shared memory remembered KEYS ARGV"
	word := regexp.MustCompile(`^[A-Za-z_]`)
	for file, s := range files() {
		has := map[string]bool{}
		for name := range strings.FieldsSeq(language) {
			has[name] = true
		}
		for _, name := range declared(s.text) {
			has[name] = true
		}
		for name := range s.uses {
			if word.MatchString(name) && !has[name] && homes()[name] == "" && !regexp.MustCompile(`[{,] `+name+` =|:`+name+`\(`).MatchString(s.text) {
				t.Errorf("%s uses %s, which is nobody's", file, name)
			}
		}
	}
}

var aside = regexp.MustCompile(`--.*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"`)

// bare returns a text without its comments and strings.
func bare(text string) string { return aside.ReplaceAllString(text, "") }

var declarations = []*regexp.Regexp{
	regexp.MustCompile(`\blocal function (\w+)`), regexp.MustCompile(`\blocal (\w+(?:, \w+)*)`),
	regexp.MustCompile(`\bfunction[\w.: ]*\(([^)]*)\)`), regexp.MustCompile(`\bfor (\w+(?:, \w+)*) (?:=|in)`),
}

// declared returns the names of all functions, variables and parameters that a text declares anywhere.
func declared(text string) []string {
	var all []string
	for _, of := range declarations {
		for _, found := range of.FindAllStringSubmatch(bare(text), -1) {
			all = append(all, strings.Split(found[1], ", ")...)
		}
	}
	return all
}

// TestFragmentsAreFew, so that one finds what one looks for by the names of files.
func TestFragmentsAreFew(t *testing.T) {
	t.Parallel()
	found, err := fs.Glob(sources, fragments+"/*.lua")
	check(t, err)
	if len(found) == 0 || len(found) > 30 {
		t.Errorf("%d fragments, want at most 30", len(found))
	}
}

// TestNoFunctionIsMadeInACall: functions are made once in the life of a library, so none stands within another.
func TestNoFunctionIsMadeInACall(t *testing.T) {
	t.Parallel()
	opened := regexp.MustCompile(`\b(function|if|do|repeat|end|until)\b`)
	for file, s := range files() {
		var open []string
		functions := 0
		for i, line := range strings.Split(bare(s.text), "\n") {
			for _, word := range opened.FindAllString(line, -1) {
				switch word {
				case "end", "until":
					if last := len(open) - 1; open[last] == "function" {
						functions--
					}
					open = open[:len(open)-1]
				case "function":
					if functions++; functions > 1 {
						t.Errorf("%s: line %d makes a function in a call", file, i+1)
					}
					open = append(open, word)
				default:
					open = append(open, word)
				}
			}
		}
		if len(open) != 0 {
			t.Errorf("%s leaves %v open", file, open)
		}
	}
}

// TestCallStateIsSetByWhoIsUsed: a field of a call that a file sets when it begins is used only where that file is among those of a script, so
// that no call sees what another one left.
func TestCallStateIsSetByWhoIsUsed(t *testing.T) {
	t.Parallel()
	field := regexp.MustCompile(`\bcall\.([a-z_]+)\b`)
	setters := map[string][]*source{}
	for _, s := range files() {
		if !s.resets || s.script {
			continue
		}
		_, set, _ := strings.Cut(s.text, "function reset."+s.name+"()")
		set, _, _ = strings.Cut(set, "end")
		for _, found := range field.FindAllStringSubmatch(set, -1) {
			setters[found[1]] = append(setters[found[1]], s)
		}
	}
	if len(setters) < 40 {
		t.Fatalf("only %d fields are set", len(setters))
	}
	for _, name := range Names() {
		made, err := collect(nil, paths[name], nil)
		check(t, err)
		for _, s := range made {
			for _, found := range field.FindAllStringSubmatch(s.text, -1) {
				among := func(of *source) bool { return slices.Contains(made, of) }
				if of := setters[found[1]]; len(of) > 0 && !slices.ContainsFunc(of, among) {
					t.Errorf("%s uses call.%s in %s, and %s is not among its files", name, found[1], s.name, of[0].name)
				}
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
		text, want := script.Eval()
		if sha, err := client.ScriptLoad(t.Context(), text).Result(); err != nil || sha != want {
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
		comment, _, _ := strings.Cut(string(source), "\nfunction ")
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
