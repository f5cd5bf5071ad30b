package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

// releaseLine is the heading of a release in the form of Keep a Changelog.
var releaseLine = regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$`)

// TestTheVersionIsTheNewestRelease holds `headgate version` and the image of the manifests to CHANGELOG.md.
func TestTheVersionIsTheNewestRelease(t *testing.T) {
	t.Parallel()
	newest := releaseLine.FindStringSubmatch(deployed(t, "CHANGELOG.md"))
	if newest == nil || cli.Release != "v"+newest[1] {
		t.Fatalf("the binary is %s, CHANGELOG.md has %v", cli.Release, newest)
	}
	if said := version(); !strings.HasPrefix(said, "headgate "+cli.Release) {
		t.Errorf("it says %q", said)
	}
	for _, image := range regexp.MustCompile(`image: \S+/headgate:(\S+)`).FindAllStringSubmatch(deployed(t, "deploy", "k8s", "headgate.yaml"), -1) {
		if image[1] != cli.Release {
			t.Errorf("the manifests run %s", image[1])
		}
	}
}
