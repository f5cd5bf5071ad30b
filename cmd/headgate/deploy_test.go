package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/cmd/headgate/internal/config"
)

// deployed is a file below the root of the house.
func deployed(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkCommand fails unless the binary knows the command and its flags.
func checkCommand(t *testing.T, args []string) {
	t.Helper()
	c, rest, err := newRoot(io.Discard, io.Discard).Find(args)
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err != nil || !c.Runnable() || !c.HasParent() {
		t.Errorf("headgate %s: %v", strings.Join(args, " "), err)
	}
}

// object is as much of a Kubernetes object as the binary has a say in.
type object struct {
	Kind     string `yaml:"kind"`
	Metadata struct{ Name string }
	Data     map[string]string `yaml:"data"`
	Spec     struct {
		Template struct {
			Spec struct {
				Grace           int `yaml:"terminationGracePeriodSeconds"`
				SecurityContext struct {
					NonRoot bool `yaml:"runAsNonRoot"`
					User    int  `yaml:"runAsUser"`
				} `yaml:"securityContext"`
				Containers []container `yaml:"containers"`
				Sidecars   []container `yaml:"initContainers"`
			} `yaml:"spec"`
		} `yaml:"template"`
		Metrics []struct {
			Type     string `yaml:"type"`
			External struct {
				Metric struct {
					Name     string `yaml:"name"`
					Selector struct {
						Labels map[string]string `yaml:"matchLabels"`
					} `yaml:"selector"`
				} `yaml:"metric"`
			} `yaml:"external"`
		} `yaml:"metrics"`
	} `yaml:"spec"`
}

type container struct {
	Args  []string `yaml:"args"`
	Env   []struct{ Name string }
	Ports []struct {
		Number int `yaml:"containerPort"`
	} `yaml:"ports"`
	Startup   probe `yaml:"startupProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Readiness probe `yaml:"readinessProbe"`
	Mounts    []struct {
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTP struct {
		Path string `yaml:"path"`
	} `yaml:"httpGet"`
}

func manifests(t *testing.T, file string) (all []object) {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(deployed(t, "deploy", "k8s", file))); ; {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

// TestManifestsNameWhatThereIs holds commands, flags, options, paths of probes, ports and metrics to those of the binary.
func TestManifestsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	gauges, rules := deployed(t, "admin", "internal", "gauge", "collector.go"), strings.ReplaceAll(deployed(t, "deploy", "rules", "headgate.yml"), ":", "_")
	kinds := map[string]int{}
	for _, o := range manifests(t, "headgate.yaml") {
		kinds[o.Kind]++
		for name, text := range o.Data {
			checkConfiguration(t, name, text)
		}
		for _, m := range o.Spec.Metrics {
			if m.Type != "External" {
				continue
			}
			if name := m.External.Metric.Name; !strings.Contains(gauges, `"`+name+`"`) && !strings.Contains(rules, "- record_ "+name+"\n") {
				t.Errorf("there is no metric %s", m.External.Metric.Name)
			}
			for label := range m.External.Metric.Selector.Labels {
				if !strings.Contains(gauges, `"`+label+`"`) {
					t.Errorf("there is no label %s", label)
				}
			}
		}
		pod := o.Spec.Template.Spec
		if len(pod.Containers) > 0 && (!pod.SecurityContext.NonRoot || pod.SecurityContext.User == 0) {
			t.Errorf("%s runs as root", o.Metadata.Name)
		}
		for _, c := range pod.Containers {
			checkContainer(t, o.Metadata.Name, &c)
		}
		if strings.HasSuffix(o.Metadata.Name, "worker") && o.Kind == "Deployment" && pod.Grace <= 30 {
			t.Errorf("%d s end before a drain", pod.Grace)
		}
	}
	for _, kind := range []string{"Deployment", "PodDisruptionBudget"} {
		if kinds[kind] != 2 {
			t.Errorf("%d of %s, want 2", kinds[kind], kind)
		}
	}
	if kinds["HorizontalPodAutoscaler"] != 2 || kinds["ConfigMap"] != 1 {
		t.Errorf("got %v", kinds)
	}
}

// checkContainer holds a container's command, probes, ports and variables to the binary.
func checkContainer(t *testing.T, of string, c *container) {
	t.Helper()
	api, reference := deployed(t, "admin", "internal", "openapi", "openapi.yaml"), deployed(t, "docs", "CONFIG.md")
	checkCommand(t, c.Args)
	for _, p := range []probe{c.Startup, c.Liveness, c.Readiness} {
		if path := p.HTTP.Path; path != "" && !strings.Contains(api, "\n  "+path+":\n") {
			t.Errorf("there is no %s to probe", path)
		}
	}
	for _, port := range c.Ports {
		if !strings.Contains(strings.Join(c.Args, " "), ":"+"9080") || port.Number != 9080 {
			t.Errorf("%s does not listen on %d: %q", of, port.Number, c.Args)
		}
	}
	for _, variable := range c.Env {
		if !strings.Contains(reference, "`"+variable.Name+"`") {
			t.Errorf("there is no variable %s", variable.Name)
		}
	}
}

// TestTheSidecarNamesWhatThereIs, as TestManifestsNameWhatThereIs.
func TestTheSidecarNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	for _, o := range manifests(t, "sidecar.yaml") {
		if pod := o.Spec.Template.Spec; len(pod.Sidecars) != 1 || !pod.SecurityContext.NonRoot {
			t.Errorf("%+v", pod)
		} else {
			checkContainer(t, o.Metadata.Name, &pod.Sidecars[0])
		}
	}
}

// TestComposeNamesWhatThereIs holds the command lines of the services to the binary, Prometheus' targets to the addresses at which
// they listen, and the commands that comments show to the binary too.
func TestComposeNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	text, scrapes := deployed(t, "docker-compose.yml"), deployed(t, "deploy", "prometheus.yml")
	var file struct {
		Services map[string]struct {
			Image   string
			Command []string
			Grace   time.Duration `yaml:"stop_grace_period"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	own := 0
	for name, service := range file.Services {
		if service.Image != "headgate" {
			continue
		}
		own++
		checkCommand(t, service.Command)
		if at := slices.Index(service.Command, "--metrics"); at >= 0 && !strings.Contains(scrapes, `["`+name+service.Command[at+1]+`"]`) {
			t.Errorf("deploy/prometheus.yml does not scrape %s%s", name, service.Command[at+1])
		}
		if service.Command[0] == "worker" && service.Grace <= 30*time.Second {
			t.Errorf("%s is killed after %s, before a drain ends", name, service.Grace)
		}
	}
	if own != 3 || !strings.Contains(scrapes, `["serve:9080"]`) {
		t.Errorf("%d services are Headgate's; deploy/prometheus.yml is\n%s", own, scrapes)
	}
	shown := regexp.MustCompile(`(?m)(?:^ *# +|: )headgate ([a-z][a-z-]+ [^#\n']*)`)
	for _, path := range [][]string{{"docker-compose.yml"}, {"deploy", "prometheus.yml"}, {"deploy", "k8s", "headgate.yaml"}, {"deploy", "rules", "headgate.yml"}} {
		for _, match := range shown.FindAllStringSubmatch(deployed(t, path...), -1) {
			if fault := lineFault(match[1]); fault != "" {
				t.Errorf("%s: headgate %s: %s", path[len(path)-1], match[1], fault)
			}
		}
	}
}

func checkConfiguration(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(config.Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Config.Worker.DrainTimeout.Seconds() != 30 || loaded.Config.Redis.Store.Replicas != 1 {
		t.Errorf("%+v", loaded.Config)
	}
}

var (
	execStart = regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`)
	alertLine = regexp.MustCompile(`(?m)^\s*- alert: (\S+)$`)
)

// TestUnitsNameWhatThereIs holds the command lines of units to the binary, and the units to systemd's own check.
func TestUnitsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"headgate-worker.service", "headgate-serve.service"} {
		text := deployed(t, "deploy", "systemd", name)
		start := execStart.FindStringSubmatch(text)
		if start == nil {
			t.Fatalf("%s starts nothing", name)
		}
		checkCommand(t, strings.Fields(start[2]))
		unit := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(unit, []byte(strings.ReplaceAll(text, start[1], binary)), 0o600); err != nil {
			t.Fatal(err)
		}
		verify := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit)
		var said bytes.Buffer
		verify.Stdout, verify.Stderr = &said, &said
		err := verify.Run()
		if errors.Is(err, exec.ErrNotFound) {
			t.Log("systemd-analyze is not here: the unit was not verified by it")
			continue
		}
		if err != nil || strings.Contains(said.String(), name) {
			t.Errorf("systemd-analyze: %v\n%s", err, said.String())
		}
	}
}

// TestEveryAlertIsInTheRunbook: an alert that nobody knows what to do about wakes people for nothing.
func TestEveryAlertIsInTheRunbook(t *testing.T) {
	t.Parallel()
	runbook := deployed(t, "docs", "OPERATIONS.md")
	rules, err := filepath.Glob(filepath.Join("..", "..", "deploy", "rules", "*.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range rules {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, alert := range alertLine.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(runbook, "### "+alert[1]+"\n") {
				t.Errorf("%s has no entry in docs/OPERATIONS.md", alert[1])
			}
		}
	}
}
