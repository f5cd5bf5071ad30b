package report

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/loadtest/internal/figures"
)

// example is a run with something of everything.
func example() *figures.Figures {
	const n = 100
	rising, falling := make([]float64, n), make([]float64, n)
	for i := range n {
		rising[i], falling[i] = float64(i), float64(n-i)
	}
	falling[3] = -1 // A slice without jobs.
	b := figures.Bound{Scope: admission.Global, Rate: 10, Burst: 5}
	return &figures.Figures{
		Scenario: "demo", System: "headgate", DurationS: 8, WallS: 10, Broken: []string{`a <script>alert("promise")</script>`},
		Bounds: []figures.Bound{b},
		Series: figures.Series{
			Slice: 0.1, P50: falling, P99: rising, BystanderP50: falling, BystanderP99: rising, Depth: falling,
			Bounds:   []figures.BoundLine{{Bound: b, Asked: rising, Admitted: rising}},
			Tenants:  []figures.Line{{Name: "a&b", Values: rising}},
			Classes:  []figures.Line{{Name: "high", Values: falling}},
			Overload: []figures.Line{{Name: "arrives", Values: rising}}, ClassWaits: []figures.Line{{Name: "high", Values: falling}},
			Shares:   make([]figures.ShareOf, 1000),
			Breakers: []figures.BreakerLine{{Downstream: "api", At: []float64{0, 1, 2}, State: []string{"closed", "open", "half-open"}}},
		},
	}
}

func TestThePageStandsAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made")
	section := Section{
		Scenario: "demo", Configuration: "a < b", Runs: []*figures.Figures{example()},
		Rows: []Row{{"lost", []string{"0"}}},
	}
	if err := Write(dir, Report{When: "now", Machine: "here", Sections: []Section{section}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, Index))
	if err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	elements := map[string]int{}
	for node := range root.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		elements[node.Data]++
		for _, attribute := range node.Attr {
			if attribute.Namespace == "xmlns" || attribute.Key == "xmlns" {
				continue // The name of a language, which nobody fetches.
			}
			for _, part := range []string{"//", "url(", "javascript:"} {
				if strings.Contains(attribute.Val, part) {
					t.Errorf("<%s %s=%q> refers to something outside", node.Data, attribute.Key, attribute.Val)
				}
			}
		}
	}
	for _, name := range []string{"script", "link", "img", "iframe", "object", "image", "use"} {
		if elements[name] > 0 {
			t.Errorf("the page has %d <%s>", elements[name], name)
		}
	}
	if style := string(text); strings.Contains(style, "@import") || strings.Contains(style, "url(") {
		t.Error("the style refers to something outside")
	}
	// Bystanders, all waits, depth, shares; classes, tenants, an overload's goodput and its classes' waits, a bound and breakers.
	const plots = 10
	if elements["svg"] != plots || elements["html"] != 1 || elements["td"] != 2 {
		t.Errorf("the page has %d plots, should have %d: %v", elements["svg"], plots, elements)
	}
	if !strings.Contains(string(text), "headgate: a &lt;script&gt;alert(") {
		t.Error("the broken promise is not told, or not escaped")
	}
	checkImages(t, dir, plots)
}

func checkImages(t *testing.T, dir string, want int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "demo-*.png"))
	if err != nil || len(files) != want {
		t.Fatalf("%d images, should be %d: %v", len(files), want, err)
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if image, err := png.Decode(file); err != nil || image.Bounds().Dx() < 500 {
			t.Errorf("%s is no image: %v", name, err)
		}
		_ = file.Close()
	}
}
