package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/store"
)

// settings are a worker's file, as one of them writes it.
func settings(url, level, more string) string {
	return fmt.Sprintf("worker:\n  queues: [q]\n  deliver: {url: %q, allow_private: true}\n%slog: {level: %s}\n", url, more, level)
}

// mount writes a file the way Kubernetes mounts a ConfigMap: the file links to one below a link that is switched in one
// step.
func mount(t *testing.T, dir, text string) {
	t.Helper()
	version := filepath.Join(dir, ".."+rand.Text())
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(version, "headgate.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(version), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "headgate.yaml")
	if _, err := os.Lstat(link); err != nil {
		if err := os.Symlink(filepath.Join("..data", "headgate.yaml"), link); err != nil {
			t.Fatal(err)
		}
	}
}

// lockedBuffer keeps what several goroutines write, and can be read meanwhile.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// awaitLog waits until a log says something so many times.
func awaitLog(t *testing.T, log func() string, want string, times int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if strings.Count(log(), want) >= times {
			return
		}
	}
	t.Fatalf("waited in vain for %q in\n%s", want, log())
}

// TestWorkerFollowsItsFile changes the file of a worker under load in every way that files are changed. Each job is
// delivered once, to the receiver that was in force when it began.
func TestWorkerFollowsItsFile(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	first := newReceiver(t, func(http.ResponseWriter, string, int) {})
	second := newReceiver(t, func(http.ResponseWriter, string, int) {})
	dir := t.TempDir()
	name := filepath.Join(dir, "headgate.yaml")
	mount(t, dir, settings(first.URL, "info", ""))

	stderr := &lockedBuffer{}
	log := stderr.String
	stop := d.start(stderr, "worker", "--config", name)
	number := 0
	send := func(n int) {
		for range n {
			number++
			d.enqueue(fmt.Sprintf("job-%d", number))
		}
	}
	send(20)
	d.await("a job to end", func(c store.Census) bool { return c.Left["completed"] > 0 }) // So SIGHUP is heard.

	mount(t, dir, settings(second.URL, "debug", "  concurrency: 20\n"))
	awaitLog(t, log, `"changed":["worker.deliver.url","log.level"]`, 1)
	awaitLog(t, log, `"option":"worker.concurrency"`, 1)
	d.idle()
	before := first.deliveries()
	send(20)
	d.idle()
	if got := first.deliveries(); got != before {
		t.Errorf("the first receiver got %s, after the second was in force", got)
	}
	if !strings.Contains(log(), `"outcome":"completed"`) {
		t.Errorf("the level debug is not in force: %s", log())
	}

	// A mistake changes nothing, and all of it is said.
	mount(t, dir, settings(first.URL, "loud", "  lease: 1ns\n  sesame: 1\n"))
	awaitLog(t, log, "configuration is wrong: the old one stays in force", 1)
	for _, want := range []string{`log.level \"loud\"`, "worker.lease 1ns", "unknown key worker.sesame"} {
		if !strings.Contains(log(), want) {
			t.Errorf("%q is not in %s", want, log())
		}
	}
	send(20)
	d.idle()
	if got := first.deliveries(); got != before {
		t.Errorf("the first receiver got %s, by a file that is wrong", got)
	}

	// A plain file in the place of the link, and SIGHUP.
	if err := os.WriteFile(filepath.Join(dir, "new"), []byte(settings(first.URL, "info", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "new"), name); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, log, `"changed":["worker.deliver.url","log.level"]`, 2)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, log, `"changed":[]`, 1)
	send(20)
	c := d.idle()
	if code := stop(); code != cli.ExitOK || int(c.Left["completed"]) != number || c.Dead != 0 {
		t.Errorf("exit code %d: %+v\n%s", code, c, log())
	}
	got := strings.Split(first.deliveries()+", "+second.deliveries(), ", ")
	if len(got) != number {
		t.Errorf("%d deliveries of %d jobs", len(got), number)
	}
}

// TestComponentsHaveLevelsOfTheirOwn lets a downstream fail, with every log off but that of circuit breakers.
func TestComponentsHaveLevelsOfTheirOwn(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	for i := range 3 {
		d.enqueue(fmt.Sprintf("job-%d", i), "--downstream", "smtp", "--max-attempts", "1")
	}
	log := &lockedBuffer{}
	stop := d.start(log, "worker", "--queue", "q", "--log", "off", "--set", "log.levels.breaker=info", "--set", "log.format=console",
		"--set", "worker.breaker.failure_threshold=2", "--concurrency", "1", "--exec", "false")
	awaitLog(t, log.String, "circuit breaker changed", 1)
	if code := stop(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "WRN") || !strings.Contains(line, "component=breaker") || !strings.Contains(line, "downstream=smtp") {
			t.Errorf("got %s", line)
		}
	}
}
