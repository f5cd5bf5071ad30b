package check

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestManifestsAreOfTheirTypes refuses unknown and doubled fields, wrong types, and selectors that choose nothing.
func TestManifestsAreOfTheirTypes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"headgate.yaml", "sidecar.yaml"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("..", "k8s", name))
			if err != nil {
				t.Fatal(err)
			}
			checkTypes(t, text)
		})
	}
}

func checkTypes(t *testing.T, text []byte) {
	t.Helper()
	types := map[string]func() any{
		"v1/ConfigMap": func() any { return &core.ConfigMap{} }, "v1/Service": func() any { return &core.Service{} },
		"apps/v1/Deployment": func() any { return &apps.Deployment{} }, "policy/v1/PodDisruptionBudget": func() any { return &policy.PodDisruptionBudget{} },
		"autoscaling/v2/HorizontalPodAutoscaler": func() any { return &autoscaling.HorizontalPodAutoscaler{} },
	}
	var pods []map[string]string
	var selectors []map[string]string
	names := map[string]bool{}
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(string(text), -1) {
		var head meta.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		newObject, known := types[head.APIVersion+"/"+head.Kind]
		if !known {
			t.Fatalf("there is no %s in %s", head.Kind, head.APIVersion)
		}
		object := newObject()
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
		switch o := object.(type) {
		case *apps.Deployment:
			names[o.Name] = true
			pods, selectors = append(pods, o.Spec.Template.Labels), append(selectors, o.Spec.Selector.MatchLabels)
		case *core.Service:
			selectors = append(selectors, o.Spec.Selector)
		case *policy.PodDisruptionBudget:
			selectors = append(selectors, o.Spec.Selector.MatchLabels)
		case *autoscaling.HorizontalPodAutoscaler:
			if !names[o.Spec.ScaleTargetRef.Name] {
				t.Errorf("there is no %s to scale", o.Spec.ScaleTargetRef.Name)
			}
		}
	}
	for _, selector := range selectors {
		chosen := 0
		for _, labels := range pods {
			all := true
			for name, value := range selector {
				all = all && labels[name] == value
			}
			if all {
				chosen++
			}
		}
		if chosen != 1 {
			t.Errorf("%v chooses the pods of %d deployments, want 1", selector, chosen)
		}
	}
}
