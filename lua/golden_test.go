package lua

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// TestGoldens holds the assembled texts, so that a change of a fragment shows in every script that it changes.
func TestGoldens(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		text, err := assemble(name)
		check(t, err)
		path := filepath.Join("testdata", name+".lua")
		if *update {
			check(t, os.WriteFile(path, []byte(text), 0o644))
			continue
		}
		golden, err := os.ReadFile(path)
		check(t, err)
		if string(golden) != text {
			t.Errorf("%s differs from what is assembled: go test ./lua -update, and read the diff", path)
		}
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
		head, body, _ := strings.Cut(string(source), "\n-- @include ")
		var lines strings.Builder
		for line := range strings.Lines(head) {
			if strings.HasPrefix(line, "--") {
				lines.WriteString(line)
			}
		}
		comment := lines.String()
		code := strings.TrimPrefix(head, comment)
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
