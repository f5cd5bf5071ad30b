package calls

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/headgate/headgate/admin/access"
)

// Server is a headgate serve.
type Server struct {
	// Address is its URL, without a path.
	Address string
	// Key is an API key of an operator of the whole deployment; Others are those of the others that were asked for, in their order.
	Key    string
	Others []string

	stop func() error // nil for somebody else's
}

// Close ends a server that was started.
func (s Server) Close() error {
	if s.stop == nil {
		return nil
	}
	return s.stop()
}

// stopTimeout is how long a server has to end.
const stopTimeout = 20 * time.Second

// errNoAddress is a server that ended before it listened. What it had to say went to its log.
var errNoAddress = errors.New("headgate serve ended before it listened")

// Start starts a server on a Redis as a process of its own, of the binary of that name or, without one, of one that is built
// from the sources at hand. Its log goes to the notes until it listens. Others get keys beside the operator of the deployment.
func Start(ctx context.Context, binary, redis string, notes io.Writer, others ...access.Principal) (server Server, err error) {
	dir, err := os.MkdirTemp("", "headgate-loadtest-")
	if err != nil {
		return server, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if binary == "" {
		binary = filepath.Join(dir, "headgate")
		args := append(builtWith(), "-o", binary, "github.com/headgate/headgate/cmd/headgate")
		build := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...) //nolint:gosec // The names are ours.
		if out, err := build.CombinedOutput(); err != nil {
			return server, fmt.Errorf("build headgate: %w; give the binary with -headgate, or a server with -serve\n%s", err, out)
		}
	}
	key, line, err := access.NewKey(access.Principal{Name: "loadtest", Role: access.Operator})
	if err != nil {
		return server, err
	}
	keys, text := filepath.Join(dir, "keys"), line+"\n"
	var theirs []string
	for _, who := range others {
		other, line, err := access.NewKey(who)
		if err != nil {
			return server, err
		}
		theirs, text = append(theirs, other), text+line+"\n"
	}
	if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
		return server, err
	}
	process := exec.CommandContext(context.WithoutCancel(ctx), binary, "serve", "--address", "127.0.0.1:0", "--keys-file", keys, "--redis", redis) //nolint:gosec // The user says which.
	log, err := process.StderrPipe()
	if err != nil {
		return server, err
	}
	if err := process.Start(); err != nil {
		return server, fmt.Errorf("start headgate serve: %w", err)
	}
	server = Server{Address: listening(log, notes), Key: key, Others: theirs}
	server.stop = func() error {
		_ = process.Process.Signal(syscall.SIGTERM)
		cut := time.AfterFunc(stopTimeout, func() { _ = process.Process.Kill() })
		defer cut.Stop()
		return errors.Join(process.Wait(), os.RemoveAll(dir))
	}
	if server.Address == "" {
		return Server{}, errors.Join(errNoAddress, process.Wait())
	}
	return server, nil
}

// builtWith returns the flags of this program's own build that have the compiler make something else: with others all that the server is
// made of is compiled again, which takes a minute of CPU time.
func builtWith() (flags []string) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if slices.Contains([]string{"-gcflags", "-race", "-trimpath", "-tags"}, setting.Key) {
				flags = append(flags, setting.Key+"="+setting.Value)
			}
		}
	}
	return flags
}

// listening reads a log until it names an address, and lets the rest of it go.
func listening(log io.Reader, notes io.Writer) string {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var event struct{ Address string }
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Address != "" {
			go func() { _, _ = io.Copy(io.Discard, log) }() // It ends with the process.
			return event.Address
		}
		fmt.Fprintln(notes, lines.Text())
	}
	return ""
}
