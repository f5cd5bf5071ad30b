package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goName is a name of a package with what it exports, and perhaps a field or a method of that.
var goName = regexp.MustCompile(`(^|[^\w./])([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)

// TestPagesNameGoThatThereIs: what the pages name of a public package is in it, as its last folder is called, or is a method of something there that they call
// so. docs/VERSIONS.md names what there was once.
func TestPagesNameGoThatThereIs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "api.txt"))
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for section := range strings.SplitSeq("\n"+string(text), "\n# ") {
		path, declarations, _ := strings.Cut(section, "\n")
		exports[path[strings.LastIndex(path, "/")+1:]] += declarations
	}
	root, named := filepath.Join("..", ".."), 0
	openFolders(t, root)
	for _, p := range pages(t, root) {
		if p.path == "CHANGELOG.md" || p.path == "docs/VERSIONS.md" {
			continue
		}
		for _, span := range code.FindAllString(fence.ReplaceAllString(p.text, ""), -1) {
			for _, found := range goName.FindAllStringSubmatch(span, -1) {
				of, known := exports[found[2]]
				if !known {
					continue
				}
				if named++; !exportsName(of, found[3], found[4]) {
					t.Errorf("%s: package %s has no %s", p.path, found[2], strings.TrimPrefix(strings.TrimSpace(found[0][len(found[1]):]), found[2]+"."))
				}
			}
		}
	}
	if named < 100 {
		t.Errorf("%d names of Go were found: are these the pages?", named)
	}
}

// exportsName reports whether declarations have a name at the top or as a method and, where it is a type, a member of it.
func exportsName(declarations, name, member string) bool {
	has := func(pattern string) bool { return regexp.MustCompile(`(?m)^` + pattern).MatchString(declarations) }
	isType := has(`type:? ` + name + `\b`)
	if !isType || member == "" {
		return isType || has(`(func|(const|var):?) (\(\w+ \*?\w+\) )?`+name+`\b`)
	}
	return has(`type:? `+name+`\b.*[\s,:]`+member+`\b`) || has(`func \(\w+ \*?`+name+`\) `+member+`\b`)
}
