package admin_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/admin"
)

// TestThePagesAreTrue: docs/API.md names every path and every metric, and every test that docs/SECURITY.md names is one.
func TestThePagesAreTrue(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	p := newPlant(t, func(c *admin.Config) { c.Registry = registry })
	p.enqueue("acme", "one")
	p.work(t.Context(), 1, "")
	p.want(200, "operator", ask{op: "POST /api/v1/rate-limit/check", body: `{"scope":"acme"}`})
	page, err := os.ReadFile("../docs/API.md")
	must(t, err)
	text := strings.ReplaceAll(string(page), "\n", " ")
	for path := range p.spec.Paths.Map() {
		if !strings.Contains(text, path) {
			t.Errorf("docs/API.md does not name %s", path)
		}
	}
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		if !strings.Contains(text, family.GetName()) {
			t.Errorf("docs/API.md does not name %s", family.GetName())
		}
	}
	page, err = os.ReadFile("../docs/SECURITY.md")
	must(t, err)
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllSubmatch(page, -1)
	have := testNames(t, "..")
	if len(named) < 20 {
		t.Errorf("docs/SECURITY.md names %d tests", len(named))
	}
	for _, name := range named {
		if !have[string(name[1])] {
			t.Errorf("docs/SECURITY.md names %s, which is no test", name[1])
		}
	}
}

// testNames returns the names of all tests and fuzz targets below a directory.
func testNames(tb testing.TB, root string) map[string]bool {
	tb.Helper()
	names, pattern := map[string]bool{}, regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)`)
	must(tb, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, found := range pattern.FindAllSubmatch(text, -1) {
			names[string(found[1])] = true
		}
		return err
	}))
	return names
}
