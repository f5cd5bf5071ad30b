package command

import (
	"regexp"
	"strings"
	"testing"
)

// releaseLine is the heading of a release in the form of Keep a Changelog.
var releaseLine = regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$`)

// TestTheVersionIsTheNewestRelease holds `headgate version` and the image of the manifests to CHANGELOG.md.
func TestTheVersionIsTheNewestRelease(t *testing.T) {
	t.Parallel()
	newest := releaseLine.FindStringSubmatch(deployed(t, "CHANGELOG.md"))
	if newest == nil || release != "v"+newest[1] {
		t.Fatalf("the binary is %s, CHANGELOG.md has %v", release, newest)
	}
	if said := version(); !strings.HasPrefix(said, "headgate "+release) {
		t.Errorf("it says %q", said)
	}
	for _, image := range regexp.MustCompile(`image: \S+/headgate:(\S+)`).FindAllStringSubmatch(deployed(t, "deploy", "k8s", "headgate.yaml"), -1) {
		if image[1] != release {
			t.Errorf("the manifests run %s", image[1])
		}
	}
}
