package house

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLines is the longest a Go file may be.
const maxLines = 450

// unit is a package as `go list -json` prints it.
type unit struct {
	ImportPath     string
	Name           string
	Dir            string
	Doc            string // the first sentence
	GoFiles        []string
	IgnoredGoFiles []string
	TestGoFiles    []string
	XTestGoFiles   []string
	Imports        []string // of GoFiles
	TestImports    []string // of TestGoFiles
}

// inspect returns what is out of order in a package, each as a sentence. Tests that live outside their package
// (package x_test) may import what they like: they are users of the house.
func inspect(u unit) (faults []string, err error) {
	path, ok := within(u.ImportPath)
	if !ok {
		return nil, fmt.Errorf("package %s is not of module %s", u.ImportPath, module)
	}
	home, ok := roomOf(path)
	if !ok {
		faults = append(faults, "is on no floor: add it to the floors in internal/house/floors_test.go")
	} else {
		for _, imported := range u.Imports {
			faults = append(faults, judge(home, imported, false)...)
		}
		for _, imported := range u.TestImports {
			faults = append(faults, judge(home, imported, true)...)
		}
	}
	faults = append(faults, names(u)...)
	long, err := longFiles(u)
	for i, fault := range faults {
		faults[i] = u.ImportPath + " " + fault
	}
	return append(faults, long...), err
}

// judge returns what is wrong with one import by a package of the room. A test is excused from what keeps a
// production package small, but not from the floors.
func judge(home room, imported string, test bool) (faults []string) {
	path, ok := within(imported)
	switch {
	case !ok && standard(imported):
		return nil
	case !ok && !test:
		return judgeLibrary(home, imported)
	case !ok:
		return nil
	}
	target, ok := roomOf(path)
	switch {
	case !ok || target.path == home.path: // A package on no floor is reported as itself.
	case slices.Contains(mayAlso, edge{home.path, target.path}):
	case isReserved(target.path):
		if !test && !slices.Contains(reserved[target.path], home.path) {
			faults = append(faults, fmt.Sprintf("imports %s, which is for %s", imported, guests(target.path)))
		}
	case home.leaf:
		faults = append(faults, fmt.Sprintf("imports %s, but leaves know nobody upstairs", imported))
	case target.floor == home.floor:
		faults = append(faults, fmt.Sprintf("imports %s, its sibling: siblings do not know each other", imported))
	case target.floor > home.floor:
		faults = append(faults, fmt.Sprintf("imports %s, which is upstairs: imports point down", imported))
	}
	return faults
}

func judgeLibrary(home room, imported string) (faults []string) {
	for _, library := range libraries {
		if strings.HasPrefix(imported, library.path) && !slices.Contains(library.rooms, home.path) {
			return []string{fmt.Sprintf("imports %s: %s", imported, library.why)}
		}
	}
	if !home.leaf && home.floor <= pureFloor {
		return []string{fmt.Sprintf("imports %s, but floors 0 and 1 use the standard library only", imported)}
	}
	return nil
}

func isReserved(path string) bool {
	_, ok := reserved[path]
	return ok
}

func guests(path string) string {
	if len(reserved[path]) == 0 {
		return "tests"
	}
	return strings.Join(reserved[path], ", ") + " and tests"
}

// names checks what a folder is called and that it says why it exists.
func names(u unit) (faults []string) {
	if emptyNames[u.Name] || emptyNames[filepath.Base(u.ImportPath)] {
		faults = append(faults, "has a name that says nothing: name it after what it does, or move the code to its only caller")
	}
	if u.Name != "main" && !slices.Contains(u.GoFiles, "doc.go") {
		faults = append(faults, "has no doc.go that says why it exists")
	}
	return faults
}

// longFiles returns the Go files that nobody reads to the end.
func longFiles(u unit) (faults []string, err error) {
	for _, file := range slices.Concat(u.GoFiles, u.IgnoredGoFiles, u.TestGoFiles, u.XTestGoFiles) {
		text, err := os.ReadFile(filepath.Join(u.Dir, file))
		if err != nil {
			return nil, fmt.Errorf("count lines: %w", err)
		}
		if lines := bytes.Count(text, []byte("\n")); lines >= maxLines {
			faults = append(faults, fmt.Sprintf("%s/%s has %d lines: split it below %d", u.ImportPath, file, lines, maxLines))
		}
	}
	return faults, nil
}
