package gateway

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// startHAProxy runs deploy/haproxy with the addresses of a test, and returns where it listens.
func startHAProxy(t *testing.T, headgate, application string) (url string) {
	t.Helper()
	binary, err := exec.LookPath("haproxy")
	if err != nil {
		binary = "/usr/sbin/haproxy" // Debian's, which is in nobody's PATH but root's.
	}
	folder, address, inner := t.TempDir(), free(t), free(t)
	lua := deployed(t, "haproxy/headgate.lua", map[string]string{"127.0.0.1:9082": inner})
	must(t, os.WriteFile(filepath.Join(folder, "headgate.lua"), []byte(lua), 0o600))
	changed := deployed(t, "haproxy/haproxy.cfg", map[string]string{
		"server application 127.0.0.1:8000": "server application " + application, "bind 127.0.0.1:8080": "bind " + address,
		"bind 127.0.0.1:9082": "bind " + inner, "server headgate 127.0.0.1:9081": "server headgate " + headgate,
	})
	file := filepath.Join(folder, "haproxy.cfg")
	must(t, os.WriteFile(file, []byte(changed), 0o600))
	run(t, address, exec.CommandContext(context.WithoutCancel(t.Context()), binary, "-db", "-C", folder, "-f", file)) //nolint:gosec // It is HAProxy.
	return "http://" + address
}

// TestHAProxyAsks runs HAProxy by the configuration in deploy.
func TestHAProxyAsks(t *testing.T) {
	t.Parallel()
	asks(t, startHAProxy, http.StatusServiceUnavailable, true)
}

// TestHAProxyGivesUp: a headgate that takes the call and gives no answer is as one that is away.
func TestHAProxyGivesUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it needs HAProxy")
	}
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // The kernel takes the calls.
	must(t, err)
	defer silent.Close()
	url := startHAProxy(t, silent.Addr().String(), free(t))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	began := time.Now()
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	must(t, answer.Body.Close())
	if took := time.Since(began); answer.StatusCode != http.StatusServiceUnavailable || took < 500*time.Millisecond || took > 10*time.Second {
		t.Errorf("%d after %s", answer.StatusCode, took)
	}
}
