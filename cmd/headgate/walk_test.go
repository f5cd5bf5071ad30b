package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
)

// pageBlock returns the indented block that follows a heading of docs/GETTING-STARTED.md.
func pageBlock(t *testing.T, heading string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/GETTING-STARTED.md")
	must(t, err)
	_, section, ok := strings.Cut(string(page), heading+"\n")
	if !ok {
		t.Fatalf("the page has no %q", heading)
	}
	var block strings.Builder
	for line := range strings.Lines(section) {
		code, ok := strings.CutPrefix(line, "    ")
		switch {
		case ok:
			block.WriteString(code)
		case block.Len() > 0:
			return block.String()
		}
	}
	t.Fatalf("the page has no block after %q", heading)
	return ""
}

// TestTheWalkOfTheGuide does what docs/GETTING-STARTED.md says a new user may do: it runs the page's own lines.
func TestTheWalkOfTheGuide(t *testing.T) {
	t.Parallel()
	block := pageBlock(t, "### A limit, from refused to passed")
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "headgate"), []byte("#!/bin/sh\nexec "+self+" \"$@\"\n"), 0o700))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	const where, serve = "localhost:9080", "headgate serve --insecure-no-auth"
	if strings.Count(block, where) < 3 || strings.Count(block, serve) != 1 {
		t.Fatalf("the block does not call %s of %q:\n%s", where, serve, block)
	}
	block = strings.NewReplacer(where, address, serve, serve+" --address "+address).Replace(block)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	bash := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail; trap 'kill $(jobs -p)' EXIT\n"+block)
	bash.Env = append(os.Environ(), asCommand+"=1", "PATH="+dir+":"+os.Getenv("PATH"), cli.RedisVariable+"="+redistest.Shared(t).URL(), "HEADGATE_REDIS_PREFIX="+redistest.Prefix(t))
	bash.WaitDelay = 10 * time.Second // The server may outlive the shell by a moment.
	out, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rest := string(out)
	for _, want := range []string{
		"acme gets 1 token an hour and holds 1, its own limit", "HTTP/1.1 201 Created", "HTTP/1.1 429 Too Many Requests", "Retry-After: 3", `"reason":"limited"`,
		"tenant acme: a job of 1 token would be refused by acme", "! limit: acme has 0 of 1 tokens left", "/tenants/acme/limit = ", ": on trial", "change: headgate limit set acme",
		"acme gets 100 tokens a second and holds 100, its own limit", "HTTP/1.1 201 Created",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("no %q in its place in\n%s", want, out)
		}
		rest = after
	}
}
