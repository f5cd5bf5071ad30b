package house

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// list returns the packages of the module in a directory.
func list(t *testing.T, dir string) []unit {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Name,Dir,Doc,GoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports", "./...")
	command.Dir = dir
	command.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off") // A missing module is not the matter here.
	output, err := command.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var units []unit
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var u unit
		err := decoder.Decode(&u)
		if errors.Is(err, io.EOF) {
			return units
		}
		if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		// A folder whose files are all for other systems, or whose name go list alone made up, is no package.
		if len(u.GoFiles)+len(u.TestGoFiles)+len(u.XTestGoFiles) > 0 {
			units = append(units, u)
		}
	}
}

// inspectAll returns all faults of the module in a directory.
func inspectAll(t *testing.T, dir string) (faults []string, packages int) {
	t.Helper()
	units := list(t, dir)
	for _, u := range units {
		found, err := inspect(u)
		if err != nil {
			t.Fatal(err)
		}
		faults = append(faults, found...)
	}
	return faults, len(units)
}

func TestHouse(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	openFolders(t, root)
	faults, packages := inspectAll(t, root)
	for _, path := range beside {
		more, _ := inspectAll(t, filepath.Join(root, path))
		faults = append(faults, more...)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
	if packages < 2 {
		t.Errorf("go list found %d packages: is this the root of the house?", packages)
	}
}

// openFolders reads each folder of the house. `go test` keeps a result until something that the test has opened
// changes; go list opens the folders in a process of its own, so a new file would go unnoticed.
func openFolders(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFaults builds small houses with one thing wrong in each, so that a house in order is known to be looked at.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		files map[string]string // path to imports, or to a whole file
		want  []string          // parts of the faults, in order
	}{
		"a house in order": {
			files: map[string]string{
				"doc.go": module + "/worker", "admission/doc.go": "", "buckets/doc.go": module + "/admission", "store/redisstore/doc.go": module + "/buckets github.com/redis/go-redis/v9",
				"scheduler/doc.go": module + "/store github.com/rs/zerolog", "worker/doc.go": module + "/scheduler",
				"cmd/headgate/main.go": module + "/worker " + module + "/internal/embedded", "internal/embedded/doc.go": "github.com/redis/go-redis/v9",
				"internal/embedded/child/doc.go": "", "internal/redistest/doc.go": module + "/internal/embedded/child testing",
			},
		},
		"an import that points up": {
			files: map[string]string{"buckets/doc.go": module + "/store", "store/doc.go": ""},
			want:  []string{"/buckets imports " + module + "/store, which is upstairs"},
		},
		"an import that points up from a test": {
			files: map[string]string{"store/doc.go": "", "store/x_test.go": module + "/worker", "worker/doc.go": ""},
			want:  []string{"/store imports " + module + "/worker, which is upstairs"},
		},
		"a room that goes out by the front door": {
			files: map[string]string{"doc.go": "", "producer/doc.go": module},
			want:  []string{"/producer imports " + module + ", which is upstairs"},
		},
		"siblings": {
			files: map[string]string{"worker/doc.go": module + "/producer", "producer/doc.go": ""},
			want:  []string{"/worker imports " + module + "/producer, its sibling"},
		},
		"the one edge between services, turned round": {
			files: map[string]string{"scheduler/doc.go": module + "/worker", "worker/doc.go": ""},
			want:  []string{"/scheduler imports " + module + "/worker, its sibling"},
		},
		"go-redis in a service": {
			files: map[string]string{"worker/doc.go": "github.com/redis/go-redis/v9"},
			want:  []string{"/worker imports github.com/redis/go-redis/v9: Redis is reached"},
		},
		"go-redis in a test of a service": {
			files: map[string]string{"worker/doc.go": "", "worker/x_test.go": "github.com/redis/go-redis/v9 " + module + "/internal/redistest", "internal/redistest/doc.go": ""},
		},
		"zerolog below the services": {
			files: map[string]string{"store/doc.go": "github.com/rs/zerolog/log"},
			want:  []string{"/store imports github.com/rs/zerolog/log: only services"},
		},
		"a library in a pure package": {
			files: map[string]string{"policy/doc.go": "github.com/some/library"},
			want:  []string{"/policy imports github.com/some/library, but floors 0 and 1"},
		},
		"redistest in production": {
			files: map[string]string{"worker/doc.go": module + "/internal/redistest", "internal/redistest/doc.go": ""},
			want:  []string{"/worker imports " + module + "/internal/redistest, which is for tests"},
		},
		"the embedded store in a service": {
			files: map[string]string{"producer/doc.go": module + "/internal/embedded", "internal/embedded/doc.go": ""},
			want:  []string{"/producer imports " + module + "/internal/embedded, which is for internal/redistest, loadtest, cmd and tests"},
		},
		"a leaf that looks upstairs": {
			files: map[string]string{"internal/embedded/doc.go": module + "/store", "store/doc.go": ""},
			want:  []string{"/internal/embedded imports " + module + "/store, but leaves know nobody"},
		},
		"a package nobody expected": {
			files: map[string]string{"attic/doc.go": ""},
			want:  []string{"/attic is on no floor: add it to the floors"},
		},
		"a name that says nothing": {
			files: map[string]string{"store/util/doc.go": ""},
			want:  []string{"/store/util has a name that says nothing"},
		},
		"no doc.go": {
			files: map[string]string{"store/admit.go": ""},
			want:  []string{"/store has no doc.go"},
		},
		"a file too long": {
			files: map[string]string{"store/doc.go": "package store\n" + strings.Repeat("\n", maxLines)},
			want:  []string{"/store/doc.go has 451 lines"},
		},
		"a test too long": {
			files: map[string]string{"store/doc.go": "", "store/x_test.go": "package store_test\n" + strings.Repeat("\n", maxLines)},
			want:  []string{"/store/x_test.go has 451 lines"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults, _ := inspectAll(t, build(t, row.files))
			matches := slices.EqualFunc(faults, row.want, strings.Contains)
			if !matches {
				t.Errorf("found %q, should be %q", faults, row.want)
			}
		})
	}
}

// build writes a module and returns its directory.
func build(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module "+module+"\n\ngo 1.26\n")
	for path, text := range files {
		if !strings.HasPrefix(text, "package ") {
			text = source(path, strings.Fields(text))
		}
		write(path, text)
	}
	return dir
}

// source returns a file that imports what it is told.
func source(path string, imports []string) string {
	name := filepath.Base(filepath.Dir(path))
	switch {
	case filepath.Base(path) == "main.go":
		name = "main"
	case name == ".":
		name = "headgate"
	}
	var text strings.Builder
	text.WriteString("package " + name + "\n")
	for _, imported := range imports {
		text.WriteString("import _ \"" + imported + "\"\n")
	}
	return text.String()
}
