package deliver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker"
)

// CommandConfig says which command runs a job. Only Args has no default.
type CommandConfig struct {
	// Args are the command and its arguments. No shell reads them.
	Args []string
	// Timeout ends a run, 1 ms to headgate.MaxTimeout; zero means DefaultCommandTimeout. A job whose own Timeout is
	// shorter gets that.
	Timeout time.Duration
	// Warn is told what a command says of its cost that is none; nil leaves it unsaid.
	Warn func(error)
}

// DefaultCommandTimeout is that of any handler.
const DefaultCommandTimeout = 5 * time.Minute

func (c CommandConfig) withDefaults() CommandConfig {
	c.Timeout = cmp.Or(c.Timeout, DefaultCommandTimeout)
	if c.Warn == nil {
		c.Warn = func(error) {}
	}
	return c
}

const (
	// killGrace is how long a command may take to end after SIGTERM. It is below the time that a worker waits for
	// handlers whose ctx has ended (2 s) and the margin before the end of a lease (1.5 s): a job that is handed
	// back is then no longer running here.
	killGrace = time.Second
	// tempfailSnooze is for how long a job goes back whose command says EX_TEMPFAIL.
	tempfailSnooze = 10 * time.Second
	// maxTail is how much of standard error is kept, its end. A dead letter holds 1 KiB of text in all.
	maxTail = 960
)

// The exit codes of sysexits.h that mean something here.
const (
	exitDataErr  = 65
	exitTempFail = 75
)

// Command runs a command for each job. Its methods may be called from several goroutines.
type Command struct {
	config CommandConfig
	path   string
	// environment is this process's, without what is its own: there may be a secret in it.
	environment []string
}

// NewCommand finds the command. It runs nothing yet.
func NewCommand(config CommandConfig) (*Command, error) {
	config = config.withDefaults()
	if len(config.Args) == 0 {
		return nil, &admission.FieldError{Field: "--exec", Value: "nothing", Allowed: "a command and its arguments, at the end of the line"}
	}
	if err := validateTimeout(config.Timeout); err != nil {
		return nil, err
	}
	path, err := exec.LookPath(config.Args[0])
	if err != nil {
		return nil, fmt.Errorf("find command: %w", err)
	}
	own := func(variable string) bool { return strings.HasPrefix(variable, variablePrefix) }
	return &Command{config: config, path: path, environment: slices.DeleteFunc(os.Environ(), own)}, nil
}

// String names the command without its arguments, which may hold secrets.
func (c *Command) String() string { return c.path }

// Handle runs the command on a job and waits for its end. It is a worker.Handler. When ctx ends first, the command and
// all of its process group get SIGTERM, and after a grace SIGKILL. What a command leaves running in its group when it
// ends is killed as well.
func (c *Command) Handle(ctx context.Context, job worker.Job[[]byte]) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Timeout, errTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, c.path, c.config.Args[1:]...)
	command.Args[0] = c.config.Args[0]
	command.Stdin = bytes.NewReader(job.Payload)
	said := tail{most: maxTail}
	command.Stderr = &said
	command.Env = slices.Concat(c.environment, variables(&job))
	command.SysProcAttr = ownGroup()
	var ended atomic.Bool // by this process
	command.Cancel = func() error {
		ended.Store(true)
		return terminateGroup(command.Process)
	}
	command.WaitDelay = killGrace
	cost, err := newCostPipe()
	if err != nil {
		return &FailureError{brief: err.Error(), cause: err}
	}
	command.ExtraFiles = cost.files()
	// On Linux a command dies with the thread that started it, which is to be when this process does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = command.Start()
	cost.begin()
	if err == nil {
		err = command.Wait()
		killGroup(command.Process)
	}
	tellCost(ctx, &job, costFile, cost.end(), c.config.Warn)
	if ended.Load() {
		// Whatever it exited with: a command that ends well because it was told to stop has not done its job.
		cause := context.Cause(ctx)
		return &FailureError{brief: "ended by SIGTERM or SIGKILL: " + cause.Error(), said: said.text(), cause: cause}
	}
	return outcome(command.ProcessState, err, &said)
}

// outcome turns the end of a command into the answer of a handler; the package comment has the table.
func outcome(state *os.ProcessState, err error, said *tail) error {
	if state == nil {
		if wrapped, ok := errors.AsType[*exec.Error](err); ok {
			err = wrapped.Err
		}
		return &FailureError{brief: "start command: " + err.Error(), cause: err}
	}
	failure := &FailureError{brief: state.String(), said: said.text()}
	switch state.ExitCode() {
	case 0:
		return nil
	case exitTempFail:
		return worker.Snooze(tempfailSnooze)
	case exitDataErr:
		return worker.Discard(failure)
	}
	return failure
}

// tail keeps the end of what is written. It is for one goroutine.
type tail struct {
	most int
	kept []byte
}

// Write keeps the last bytes and never fails.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) >= t.most {
		p, t.kept = p[len(p)-t.most:], t.kept[:0]
	} else if over := len(t.kept) + len(p) - t.most; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	t.kept = append(t.kept, p...)
	return n, nil
}

func (t *tail) text() string { return textOf(t.kept) }
