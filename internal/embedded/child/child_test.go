package child_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/embedded/child"
)

// start runs a server that ends with the test.
func start(t *testing.T, args ...string) *child.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a redis-server")
	}
	binary, err := child.Find()
	if err != nil {
		t.Fatalf("%v: install it, on Debian with: apt-get install redis-server", err)
	}
	server, err := child.Start(t.Context(), child.Config{Binary: binary, Dir: t.TempDir(), Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// answers says whether somebody accepts connections at the address.
func answers(t *testing.T, addr string) bool {
	t.Helper()
	dialer := net.Dialer{Timeout: time.Minute} // Where nobody listens it fails at once.
	conn, err := dialer.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func TestServer(t *testing.T) {
	t.Parallel()
	t.Run("answers when Start returns and is gone when Stop returns", func(t *testing.T) {
		t.Parallel()
		server := start(t)
		if !answers(t, server.Addr()) || !server.Running() {
			t.Fatal("the server does not run")
		}
		server.Stop()
		if answers(t, server.Addr()) || server.Running() {
			t.Fatal("the server still runs")
		}
	})
	t.Run("comes back on the same address with another process", func(t *testing.T) {
		t.Parallel()
		server := start(t)
		addr, pid := server.Addr(), server.PID()
		server.Kill()
		if answers(t, addr) {
			t.Fatal("a killed server answers")
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if server.Addr() != addr || server.PID() == pid || !answers(t, addr) {
			t.Fatalf("after Restart: address %s, process %d; before: %s, %d", server.Addr(), server.PID(), addr, pid)
		}
	})
	t.Run("restarts a running server too", func(t *testing.T) {
		t.Parallel()
		server := start(t)
		pid := server.PID()
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if server.PID() == pid {
			t.Fatal("the process is still the first one")
		}
	})
	t.Run("is ended once by many", func(t *testing.T) {
		t.Parallel()
		server := start(t)
		done := make(chan struct{})
		for range 4 {
			go func() { server.Kill(); server.Stop(); done <- struct{}{} }()
		}
		for range 4 {
			<-done
		}
		if server.Running() {
			t.Fatal("the server still runs")
		}
	})
	t.Run("takes a password", func(t *testing.T) {
		t.Parallel()
		start(t, "--requirepass", "open-sesame")
	})
	t.Run("tells what the server said when it does not start", func(t *testing.T) {
		t.Parallel()
		server := start(t) // Only to skip or fail as the others do.
		server.Close()
		binary, err := child.Find()
		if err != nil {
			t.Fatal(err)
		}
		_, err = child.Start(t.Context(), child.Config{Binary: binary, Dir: t.TempDir(), Args: []string{"--no-such-setting", "1"}})
		if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
			t.Fatalf("error is %v, should quote the server", err)
		}
	})
	t.Run("gives each server its own port", func(t *testing.T) {
		t.Parallel()
		seen := map[string]bool{}
		for range 8 {
			server := start(t)
			if seen[server.Addr()] {
				t.Fatalf("two servers got %s", server.Addr())
			}
			seen[server.Addr()] = true
			server.Kill() // The port stays taken while the server is down.
		}
	})
}

func TestFind(t *testing.T) {
	t.Run("says when there is none", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := child.Find(); !errors.Is(err, child.ErrNotFound) {
			t.Fatalf("error is %v, should be ErrNotFound", err)
		}
	})
	t.Run("takes valkey-server where there is no redis-server", func(t *testing.T) {
		dir := t.TempDir()
		valkey := filepath.Join(dir, "valkey-server")
		if err := os.WriteFile(valkey, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir)
		if path, err := child.Find(); err != nil || path != valkey {
			t.Fatalf("found %q, %v; should be %q", path, err, valkey)
		}
	})
}
