package crash_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// cast is the processes of a test or a benchmark. Only one goroutine uses it.
type cast struct {
	testing.TB
	server *redistest.Server
	// ways are the addresses of roles that do not go straight to the server.
	ways map[string]string
	// prefix is that of the partition in which they play; empty means the usual one.
	prefix string
	// second is the address of a second Redis; empty means none.
	second string
	dir    string
	actors []*actor
	// known are the bytes that rest has read of each book.
	known map[string]int64
}

// actor is a role, and the process that plays it now.
type actor struct {
	role   string
	number int
	// host is the address that it connects from, in a network that has several; empty means any.
	host string
	// binary is of another release; empty means this one.
	binary  string
	command *exec.Cmd
	input   io.WriteCloser
}

func newCast(tb testing.TB, server *redistest.Server) *cast {
	tb.Helper()
	c := &cast{TB: tb, server: server, ways: map[string]string{}, dir: tb.TempDir(), known: map[string]int64{}}
	tb.Cleanup(func() {
		for _, a := range c.actors {
			if a.command != nil {
				_ = a.command.Process.Kill()
				_ = a.command.Wait()
			}
		}
	})
	return c
}

// book names the book of a role; whoever takes the role over goes on with it.
func (c *cast) book(role string, number int) string {
	return filepath.Join(c.dir, role+"-"+strconv.Itoa(number))
}

// enter makes a role and starts its process.
func (c *cast) enter(role string, number int) *actor {
	c.Helper()
	return c.enterAt("", role, number)
}

// enterAt is enter at a host of a redistest.Network.
func (c *cast) enterAt(host, role string, number int) *actor {
	c.Helper()
	a := &actor{role: role, number: number, host: host}
	c.actors = append(c.actors, a)
	c.start(a)
	return a
}

// start runs this binary again in a role, or that of another release.
func (c *cast) start(a *actor) {
	c.Helper()
	own, err := os.Executable()
	c.check(err)
	addr := c.ways[a.role]
	if addr == "" {
		addr = c.server.Addr()
	}
	a.command = exec.CommandContext(c.Context(), cmp.Or(a.binary, own)) //nolint:gosec // It is this binary, or was made for it.
	a.command.Env = append(os.Environ(), roleVariable+"="+a.role, numberVariable+"="+strconv.Itoa(a.number),
		bookVariable+"="+c.book(a.role, a.number), addrVariable+"="+addr, prefixVariable+"="+c.prefix, secondVariable+"="+c.second, fromVariable+"="+a.host, "GOMAXPROCS=2")
	a.command.SysProcAttr = dieWithParent()
	a.command.Stderr = os.Stderr
	a.input, err = a.command.StdinPipe()
	c.check(err)
	c.check(a.command.Start())
}

// kill ends a process as a crash would, stopped or not.
func (c *cast) kill(a *actor) {
	c.Helper()
	if err := a.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.Fatal(err)
	}
	_ = a.command.Wait() // "signal: killed"
	_ = a.input.Close()
	a.command = nil
}

func (c *cast) signal(a *actor, sig syscall.Signal) {
	c.Helper()
	c.check(a.command.Process.Signal(sig))
}

// leave lets a process end by itself, and waits for it.
func (c *cast) leave(a *actor) {
	c.Helper()
	_ = a.input.Close()
	if err := a.command.Wait(); err != nil {
		c.Errorf("%s %d: %v", a.role, a.number, err)
	}
	a.command = nil
}

// leaveAll lets all of a role end.
func (c *cast) leaveAll(role string) {
	c.Helper()
	for _, a := range c.actors {
		if a.role == role && a.command != nil {
			_ = a.input.Close()
		}
	}
	for _, a := range c.actors {
		if a.role == role && a.command != nil {
			c.leave(a)
		}
	}
}

// read reads all books of a role.
func (c *cast) read(role string, each func(number int, words []string)) {
	c.Helper()
	for _, a := range c.actors {
		if a.role == role {
			c.check(readBook(c.book(role, a.number), func(words []string) { each(a.number, words) }))
		}
	}
}

// rest reads the whole lines of a book that were not read yet.
func (c *cast) rest(path string) string {
	c.Helper()
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	c.check(err)
	defer file.Close()
	_, err = file.Seek(c.known[path], io.SeekStart)
	c.check(err)
	text, err := io.ReadAll(file)
	c.check(err)
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	c.known[path] += int64(len(text))
	return string(text)
}

func (c *cast) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(fmt.Errorf("%s: %w", c.Name(), err))
	}
}
