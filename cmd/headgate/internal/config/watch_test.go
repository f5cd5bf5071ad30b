package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestAFileIsSeenToChange changes a file in the ways that programs do. What Kubernetes does is in the worker's own test.
func TestAFileIsSeenToChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := writeText(t, dir, "headgate.yaml", "first")
	write := func(name, text string) error { return os.WriteFile(name, []byte(text), 0o600) }
	asked := make(chan os.Signal, 1)
	reloads := make(chan string, 16)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		// What is known is older than the file: it changed before anybody watched.
		Watch(ctx, Contents{name: {}}, asked, func(err error) { t.Error(err) }, func() Contents {
			text, _ := os.ReadFile(name)
			reloads <- string(text)
			return Contents{name: sha256.Sum256(text)} // Not what it holds now: the next row may have changed it.
		})
	})
	for _, row := range []struct {
		how, want string
		change    func() error
	}{
		{"not at all, since it was watched", "first", func() error { return nil }},
		{"in place", "second", func() error { return write(name, "second") }},
		{"by another one of its name", "third", func() error {
			return errors.Join(write(filepath.Join(dir, "next"), "third"), os.Rename(filepath.Join(dir, "next"), name))
		}},
		{"by going away", "", func() error { return os.Remove(name) }},
		{"by coming back", "fourth", func() error { return write(name, "fourth") }},
		{"not at all, but somebody asks", "fourth", func() error { asked <- syscall.SIGHUP; return nil }},
	} {
		if err := row.change(); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-reloads:
			if got != row.want {
				t.Errorf("changed %s: read %q, want %q", row.how, got, row.want)
			}
		case <-time.After(poll - time.Second): // Polling must not be what sees it.
			t.Errorf("changed %s: not seen", row.how)
		}
	}
	// Other files, and the same content once more, are no change.
	if err := errors.Join(write(filepath.Join(dir, "other"), "x"), write(name, "fourth")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-reloads:
		t.Error("it was read anew without a change")
	case <-time.After(5 * settle):
	}
	cancel()
	group.Wait()
}

func TestChangesAreToldApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := writeText(t, dir, "secret", "one")
	load := func(text string) *Loaded {
		l, err := Load(Sources{File: writeText(t, dir, "headgate.yaml", text)})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	before := load("worker: {deliver: {secret_file: " + secret + "}, breakers: {a: {window: 5s}}}")
	writeText(t, dir, "secret", "two")
	after := load("log: {level: debug}\nworker: {lease: 30s, timeout: 5s, deliver: {secret_file: " + secret + "}}")
	live, fixed := before.Changes(after, WorkerSections)
	if got := quoteJSON([][]string{live, fixed}); got != `[["worker.deliver.secret_file","log.level"],["worker.lease","worker.timeout","worker.breakers.a.window"]]` {
		t.Errorf("got %s", got)
	}
	if live, fixed := after.Changes(after, WorkerSections); live != nil || fixed != nil {
		t.Errorf("from itself it differs in %v and %v", live, fixed)
	}
	if kept := after.Keeping(before); kept.Config.Worker.Timeout != 0 || after.Config.Worker.Timeout != 5*time.Second {
		t.Errorf("got %v", kept.Config.Worker.Timeout)
	}
}
