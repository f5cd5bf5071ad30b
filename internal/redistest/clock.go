package redistest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// ClockVariable is of the environment: how far the clocks of all servers are off that have none of their own, such as 10m or -10m; or
// by how much they step some time after the first server was started, as in -10m@5s. `make clocks` runs the tests of the laws so, and others.
const ClockVariable = "HEADGATE_TEST_CLOCK"

// Clock is the time of day that servers read; see Options. Their monotonic clocks stay as they are. It may be used by several
// goroutines.
type Clock struct {
	file    string
	library string
	mu      struct {
		sync.Mutex
		offset time.Duration
	}
}

// NewClock returns a clock for servers of this test alone, so far ahead of this machine's, or behind it where that is below zero.
func NewClock(tb testing.TB, offset time.Duration) *Clock {
	tb.Helper()
	needRedis(tb)
	c, err := newClock(tb.TempDir(), offset)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func newClock(dir string, offset time.Duration) (*Clock, error) {
	library, err := clockLibrary()
	if err != nil {
		return nil, err
	}
	c := &Clock{file: filepath.Join(dir, "clock"), library: library}
	return c, c.step(offset)
}

// seen is how long a step takes to reach all servers: Valkey 9 reads the time of day once in a millisecond, and goes on by its monotonic clock.
const seen = 2 * time.Millisecond

// Step moves the clock on by so much, or back, and returns when all of its servers go by that.
func (c *Clock) Step(tb testing.TB, by time.Duration) {
	tb.Helper()
	if err := c.step(by); err != nil {
		tb.Errorf("step the clock of redis: %v", err)
	}
	<-time.After(seen)
}

func (c *Clock) step(by time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.offset += by
	file, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(binary.NativeEndian.AppendUint64(nil, uint64(c.mu.offset.Microseconds())))
	return errors.Join(err, file.Close())
}

// env is what the environment of a server has besides.
func (c *Clock) env() []string {
	if c == nil {
		return nil
	}
	return []string{"LD_PRELOAD=" + c.library, "HEADGATE_CLOCK_FILE=" + c.file}
}

//go:embed testdata/clock.c
var clockSource []byte

// clockLibrary compiles what servers with a clock of their own are to preload, once a test process.
var clockLibrary = sync.OnceValues(func() (string, error) {
	if runtime.GOOS != "linux" {
		return "", errors.New("a redis-server with a clock of its own needs Linux")
	}
	dir, err := processDir()
	if err != nil {
		return "", err
	}
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return "", err
	}
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile the clock of redis (on Debian cc is in the package gcc): %w\n%s", err, out)
	}
	return library, nil
})

// everyClock is that of servers without one of their own; nil unless ClockVariable asks for it.
var everyClock = sync.OnceValues(func() (*Clock, error) {
	text := os.Getenv(ClockVariable)
	if text == "" {
		return nil, nil
	}
	by, after, steps := strings.Cut(text, "@")
	offset, err := time.ParseDuration(by)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ClockVariable, err)
	}
	dir, err := processDir()
	if err != nil {
		return nil, err
	}
	if !steps {
		return newClock(dir, offset)
	}
	wait, err := time.ParseDuration(after)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ClockVariable, err)
	}
	c, err := newClock(dir, 0)
	if err == nil {
		time.AfterFunc(wait, func() {
			if err := c.step(offset); err != nil {
				panic(err) // No test is to pass for a clock that did not step.
			}
		})
	}
	return c, err
})

// Steps reports whether clocks of servers step while tests run: what is to start at a time of Redis' then comes so much earlier or later.
func Steps() bool { return strings.Contains(os.Getenv(ClockVariable), "@") }

// Now returns the time of servers without a clock of their own: this machine's, or what ClockVariable makes of it.
func Now() time.Time {
	c, err := everyClock()
	if err != nil || c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.mu.offset)
}

// clockDir is a directory of the test process, which StopShared removes; empty until it is needed.
var clockDir string

var processDir = sync.OnceValues(func() (dir string, err error) {
	clockDir, err = os.MkdirTemp("", "headgate-clock-")
	return clockDir, err
})
