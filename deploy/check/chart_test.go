package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// helm runs the helm that make deploy-check builds.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	binary := os.Getenv("HELM")
	if binary == "" {
		t.Fatal("HELM does not say where helm is: make deploy-check builds it")
	}
	text, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput() //nolint:gosec // It is helm.
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return string(text)
}

// objects reads manifests by kind and name. What only the chart has is left out: the label of the release, and the sum by which pods are replaced.
func objects(t *testing.T, text string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if o == nil {
			continue
		}
		strip(o)
		name, _ := o["metadata"].(map[string]any)["name"].(string)
		all[o["kind"].(string)+" "+name] = o
	}
	return all
}

func strip(value any) {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "app.kubernetes.io/instance")
		if notes, ok := v["annotations"].(map[string]any); ok {
			if delete(notes, "checksum/config"); len(notes) == 0 {
				delete(v, "annotations")
			}
		}
		for _, one := range v {
			strip(one)
		}
	case []any:
		for _, one := range v {
			strip(one)
		}
	}
}

// TestTheChartIsTheManifests: without values a release named headgate is deploy/k8s, another one has names and labels of its own, and helm finds no fault.
func TestTheChartIsTheManifests(t *testing.T) {
	t.Parallel()
	chart := filepath.Join("..", "helm", "headgate")
	const kubernetes = "--kube-version=1.34.0"
	helm(t, "lint", "--strict", kubernetes, chart)
	text, err := os.ReadFile(filepath.Join("..", "k8s", "headgate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want, got := objects(t, string(text)), objects(t, helm(t, "template", "headgate", chart, kubernetes))
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s: %v, want %v", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d objects, want %d", len(got), len(want))
	}
	other := helm(t, "template", "other", chart, kubernetes, "--set", "worker.autoscaling.enabled=false,worker.replicas=7,image.tag=v9,secret=theirs")
	fixed := objects(t, other)
	if fixed["HorizontalPodAutoscaler other-worker"] != nil || !strings.Contains(other, "replicas: 7") || strings.Count(other, ":v9\n") != 2 || strings.Count(other, "secretName: theirs") != 2 {
		t.Errorf("%s", other)
	}
	if n := strings.Count(other, "app.kubernetes.io/instance: other"); fixed["Deployment other-serve"] == nil || n < 9 {
		t.Errorf("%d labels name the release\n%s", n, other)
	}
}
