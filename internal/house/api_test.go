package house

import (
	"bytes"
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/api.txt anew")

// TestAPI holds everything that other modules can name against testdata/api.txt, so that no change of it goes unnoticed.
// What may change when is in docs/VERSIONS.md.
func TestAPI(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	openFolders(t, root)
	var api strings.Builder
	packages := 0
	units := list(t, root)
	for _, path := range beside {
		units = append(units, list(t, filepath.Join(root, path))...)
	}
	for _, u := range units {
		if !isPublic(u) {
			continue
		}
		packages++
		api.WriteString("# " + u.ImportPath + "\n\n" + exported(t, u) + "\n")
	}
	if packages < 8 {
		t.Errorf("%d public packages were found: is this the root of the house?", packages)
	}
	golden := filepath.Join("testdata", "api.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(api.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range missing(string(want), api.String()) {
		t.Errorf("gone or changed: %s", line)
	}
	for _, line := range missing(api.String(), string(want)) {
		t.Errorf("new or changed: %s", line)
	}
	if !t.Failed() && string(want) != api.String() {
		t.Error("the order has changed, and with it perhaps the values of constants")
	}
	if t.Failed() {
		t.Log("read docs/VERSIONS.md, write the change into CHANGELOG.md, and run: go test ./internal/house -run API -update")
	}
}

// isPublic reports whether a package is for other modules.
func isPublic(u unit) bool {
	path := strings.Split(u.ImportPath, "/")
	return u.Name != "main" && len(u.GoFiles) > 0 && !slices.ContainsFunc(path, func(folder string) bool {
		return folder == "internal" || folder == "loadtest" || folder == "docs" || folder == "rlstest"
	})
}

// missing returns the lines of one text that the other has not, each behind its package.
func missing(from, in string) (lines []string) {
	has := map[string]bool{}
	for _, line := range placed(in) {
		has[line] = true
	}
	return slices.DeleteFunc(placed(from), func(line string) bool { return has[line] })
}

func placed(text string) (lines []string) {
	of := ""
	for line := range strings.Lines(text) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "# "):
			of = line[2:]
		case line != "":
			lines = append(lines, of+": "+line)
		}
	}
	return lines
}

// exported returns the exported declarations of a package in the order of their text, without comments and bodies.
func exported(t *testing.T, u unit) string {
	t.Helper()
	var all []string
	for _, name := range u.GoFiles {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(u.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				d.Body = nil
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			}
			var text bytes.Buffer
			if err := format.Node(&text, files, declaration); err != nil {
				t.Fatal(err)
			}
			all = append(all, qualify(text.String()))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// qualify puts the first line of a declaration of several lines before each of them, so that every line says by itself
// what it is about.
func qualify(declaration string) string {
	first, rest, several := strings.Cut(declaration, "\n")
	if !several {
		return declaration + "\n"
	}
	head := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(first), " {"), " (")
	var lines strings.Builder
	lines.WriteString(head + "\n")
	for line := range strings.Lines(rest) {
		if words := strings.Fields(line); len(words) > 0 && line != "}\n" && line != ")\n" && line != "}" && line != ")" {
			lines.WriteString(head + ": " + strings.Join(words, " ") + "\n")
		}
	}
	return lines.String()
}
