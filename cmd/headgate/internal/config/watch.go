package config

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The times of Watch.
const (
	// settle is how long files must be left alone before they are read: many programs write one in several steps.
	settle = 100 * time.Millisecond
	// poll is the net under notifications, which know nothing of what a symbolic link leads to, or of other machines.
	poll = 10 * time.Second
)

// Contents tells files apart by what is in them: a sum by name. A file that cannot be read is like an empty one.
type Contents map[string][sha256.Size]byte

func contentsOf(files []string) Contents {
	sums := make(Contents, len(files))
	for _, file := range files {
		bytes, _ := readAll(file)
		sums[file] = sha256.Sum256(bytes)
	}
	return sums
}

// Watch calls reload when one of the files has another content than the one known, and whenever asked, until ctx ends.
// reload returns what is known from then on. The folders are watched rather than the files, so a file may be replaced by
// another one of its name, or by a switch of the link behind it, as Kubernetes does with what is mounted from a ConfigMap.
// When there are no notifications it says why, and polls.
func Watch(ctx context.Context, known Contents, asked <-chan os.Signal, warn func(error), reload func() Contents) {
	watcher, err := fsnotify.NewWatcher()
	var events <-chan fsnotify.Event
	var lost <-chan error // notifications
	if err == nil {
		defer func() { _ = watcher.Close() }()
		events, lost = watcher.Events, watcher.Errors
		err = addFolders(watcher, known)
	}
	if err != nil {
		warn(fmt.Errorf("changes of the configuration are seen after %s only: %w", poll, err))
	}
	quiet, net := time.NewTimer(0), time.NewTicker(poll) // At once, for what changed since it was read.
	defer quiet.Stop()
	defer net.Stop()
	for {
		forced := false
		select {
		case <-ctx.Done():
			return
		case <-events:
			quiet.Reset(settle)
			continue
		case err := <-lost:
			warn(fmt.Errorf("notifications of changes were lost: %w", err))
		case <-asked:
			forced = true
		case <-quiet.C:
		case <-net.C:
		}
		if !forced && maps.Equal(known, contentsOf(slices.Collect(maps.Keys(known)))) {
			continue
		}
		known = reload()
		if watcher != nil {
			_ = addFolders(watcher, known) // What is not watched is polled.
		}
	}
}

func addFolders(watcher *fsnotify.Watcher, known Contents) error {
	for file := range known {
		if err := watcher.Add(filepath.Dir(file)); err != nil {
			return err
		}
	}
	return nil
}
