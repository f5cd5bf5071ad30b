package gateway

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// startCaddy runs deploy/caddy with the addresses of a test, and returns where it listens.
func startCaddy(t *testing.T, headgate, application string) (url string) {
	t.Helper()
	folder, address := t.TempDir(), free(t)
	changed := deployed(t, "caddy/Caddyfile", map[string]string{
		"reverse_proxy 127.0.0.1:9081": "reverse_proxy " + headgate, "reverse_proxy 127.0.0.1:8000": "reverse_proxy " + application, "http://127.0.0.1:8080": "http://" + address,
	})
	file := filepath.Join(folder, "Caddyfile")
	must(t, os.WriteFile(file, []byte(changed), 0o600))
	caddy := exec.CommandContext(context.WithoutCancel(t.Context()), "caddy", "run", "--config", file, "--adapter", "caddyfile") //nolint:gosec // It is Caddy.
	caddy.Env = append(os.Environ(), "HOME="+folder, "XDG_DATA_HOME="+folder, "XDG_CONFIG_HOME="+folder)
	run(t, address, caddy)
	return "http://" + address
}

// TestCaddyAsks runs Caddy by the configuration in deploy.
func TestCaddyAsks(t *testing.T) {
	t.Parallel()
	asks(t, startCaddy, http.StatusBadGateway, true)
}
