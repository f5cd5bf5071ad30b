package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The most files and packages that somebody has to open who follows a job from Enqueue to its handler.
const (
	routeFiles    = 12
	routePackages = 6
)

var routeRow = regexp.MustCompile("(?m)^\\| (\\d+) \\| \\[([^\\]]+)\\]\\(\\.\\./\\.\\./([^)]+)\\) \\| `(\\w+)` \\| .+ \\|$")

// TestTheRouteOfAJobIsShort: docs/design/route.md names no more files and packages than that, each function stands in the file that
// the row links to, and no row is left out of the count.
func TestTheRouteOfAJobIsShort(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "design", "route.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := routeRow.FindAllStringSubmatch(string(text), -1)
	if steps := strings.Count(string(text), "\n| ") - 2; len(rows) != steps || steps < 5 {
		t.Fatalf("%d of %d rows are steps with a link and a function", len(rows), steps)
	}
	files, packages := map[string]bool{}, map[string]bool{}
	for _, row := range rows {
		label, path, function := row[2], row[3], row[4]
		if label != path {
			t.Errorf("%s links to %s", label, path)
		}
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
		if err != nil {
			t.Error(err)
			continue
		}
		begins := regexp.MustCompile(`(?m)^(?:func (?:\([^)]+\) )?|local function )` + function + `\b`)
		if !begins.Match(source) {
			t.Errorf("%s has no function %s", path, function)
		}
		files[path] = true
		if strings.HasPrefix(path, "lua/") {
			packages["lua"] = true
		} else {
			packages[filepath.Dir(path)] = true
		}
	}
	if len(files) > routeFiles || len(packages) > routePackages {
		t.Errorf("%d files in %d packages, want %d in %d at the most", len(files), len(packages), routeFiles, routePackages)
	}
}
