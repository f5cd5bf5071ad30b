//go:build traefik

package gateway

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// startTraefik runs deploy/traefik with the addresses of a test, by the binary that make traefik has built, and returns where it listens.
func startTraefik(t *testing.T, headgate, application string) (url string) {
	t.Helper()
	folder, address := t.TempDir(), free(t)
	for name, changes := range map[string]map[string]string{
		"traefik.yml": {"127.0.0.1:8080": address, "filename: dynamic.yml": "filename: " + filepath.Join(folder, "dynamic.yml")},
		"dynamic.yml": {"http://127.0.0.1:9081": "http://" + headgate, "http://127.0.0.1:8000": "http://" + application},
	} {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(deployed(t, "traefik/"+name, changes)), 0o600))
	}
	traefik := exec.CommandContext(context.WithoutCancel(t.Context()), os.Getenv("HEADGATE_TRAEFIK"), "--configfile", filepath.Join(folder, "traefik.yml"))
	run(t, address, traefik)
	url = "http://" + address
	for range 1000 { // It listens before it has read what it is to do.
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/", nil)
		must(t, err)
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, answer.Body.Close())
		if answer.StatusCode == http.StatusOK {
			return url
		}
	}
	t.Fatal("it passes nothing on")
	return ""
}

// TestTraefikAsks runs Traefik by the configuration in deploy.
func TestTraefikAsks(t *testing.T) {
	t.Parallel()
	asks(t, startTraefik, http.StatusInternalServerError, false)
}
