package check

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

// TestComposeIsValid loads docker-compose.yml as docker compose does: by its schema, with what services ask of each other,
// for all profiles. What services mount or build from must be there.
func TestComposeIsValid(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithProfiles([]string{"*"}), cli.WithWorkingDirectory(root))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := project.ServiceNames()
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "demo echo grafana prometheus redis serve worker" {
		t.Errorf("services %s", got)
	}
	for name, service := range project.Services {
		if service.Image != "" && !strings.Contains(service.Image, ":") && service.Build == nil {
			t.Errorf("%s runs whatever %s is newest", name, service.Image)
		}
		if service.Build != nil && !exists(t, service.Build.Context, "Dockerfile") {
			t.Errorf("%s: no Dockerfile in %s", name, service.Build.Context)
		}
		for _, volume := range service.Volumes {
			if volume.Type == "bind" && !exists(t, volume.Source) {
				t.Errorf("%s mounts %s, which is not there", name, volume.Source)
			}
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q", name, port.Published, port.HostIP)
			}
		}
	}
}

func exists(t *testing.T, path ...string) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return len(found) == 1
}
