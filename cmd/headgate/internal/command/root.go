package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9/logging"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/internal/embedded"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitRefused = 3
)

// usageError is a command line that is wrong.
type usageError struct{ cause error }

func (e *usageError) Error() string { return e.cause.Error() }
func (e *usageError) Unwrap() error { return e.cause }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{cause: err}
}

// Run runs headgate with the given arguments and returns its exit code. When ctx ends, commands drain and report what
// they have.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return runWith(ctx, args, os.Stdin, stdout, stderr)
}

// runWith is Run with another standard input.
func runWith(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	logging.Disable() // go-redis writes a line of its own for each failed dial; the errors say what matters.
	stderr = shared(stderr)
	root := newRoot(stdout, stderr) //nolint:contextcheck // Cobra hands ctx to the commands.
	root.SetIn(stdin)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(stderr, "headgate: %s\n", strings.TrimRight(line, "\n"))
	}
	if _, wrong := errors.AsType[*usageError](err); wrong {
		fmt.Fprintf(stderr, "headgate: %s --help tells what it takes\n", c.CommandPath())
		return exitUsage
	}
	if advice := embedded.Advice(err); advice != "" && !strings.Contains(err.Error(), advice) {
		fmt.Fprintf(stderr, "headgate: about redis: %s\n", advice)
	}
	return failureCode(err)
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "An admission layer for job queues on Redis",
		Long: `Headgate stands in front of a job queue on Redis. It decides which jobs enter (token
buckets for everybody, a tenant, a queue and a priority), in what order they run (classes of
urgency, fair shares of tenants, deadlines), and which may run now (circuit breakers).

Exit codes: 0 done, also where a list is empty; 1 a failure; 2 a wrong command line; 3 all works and
the answer is no: what was named is not there, or something was refused. Commands say where theirs
mean more.`,
		Example: `  headgate demo                                    the whole story in 20 seconds; needs nothing
  headgate replay requests.csv --speed 10000       do again what a trace recorded
  headgate policy get --redis localhost:6379       which limits are in force
  headgate enqueue --help                          jobs from a shell, or as JSON lines
  headgate worker --help                           jobs to an HTTP server or a command
  headgate config reference                        what can be told by a file, and by which variables
  headgate serve --help                            the admin API over HTTP`,
		Args:          noArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(flagError(err)) })
	root.AddCommand(newDemo(), newReplay(), newPolicy(), newEnqueue(), newWorker(), newVersion())
	root.AddCommand(newConfig())
	root.AddCommand(newJob(), newQueue(), newDead(), newRedrive(), newPause(), newResume(), newHolds(), newDrain(), newDoctor(), newMigrate())
	root.AddCommand(newServe(), newKey(), newBreaker(), newAudit(), newExplain(), newLimit(), newTenant(), newTier(), newDownstream())
	return root
}

// lockedWriter takes writes from several goroutines, the log's and those of progress.
type lockedWriter struct {
	mu struct {
		sync.Mutex

		to io.Writer
	}
}

// shared returns a writer that several goroutines may use. Files are such; a terminal must remain one.
func shared(to io.Writer) io.Writer {
	if _, ok := to.(*os.File); ok {
		return to
	}
	w := &lockedWriter{}
	w.mu.to = to
	return w
}

// Write writes what it is given in one piece.
func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.to.Write(p)
}

// flagError says what is allowed for a flag whose value cannot be read.
func flagError(err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	_, allowed := pflag.UnquoteUsage(bad.GetFlag())
	return &admission.FieldError{Field: "--" + bad.GetFlag().Name, Value: strconv.Quote(bad.GetValue()), Allowed: allowed}
}

// noArgs and oneArg are cobra's validators with errors that say what to do.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasSubCommands() {
		return usage(fmt.Errorf("there is no command %q", args[0]))
	}
	return usage(fmt.Errorf("%s takes no argument, got %q", c.CommandPath(), args[0]))
}

func oneArg(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return usage(fmt.Errorf("%s takes one argument, %s, got %d", c.CommandPath(), what, len(args)))
	}
}

// common are the flags of commands that run jobs.
type common struct {
	redis string
	json  bool
	keep  bool
	log   string
}

func (f *common) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.redis, "redis", "", "`URL` of the Redis to use, redis://host:6379 or host:port; by default a private one is started")
	flags.BoolVar(&f.json, "json", false, "end with one JSON object on standard output; everything else goes to standard error")
	flags.BoolVar(&f.keep, "keep", false, "leave the keys of the run in the Redis of --redis, to look at")
	flags.StringVar(&f.log, "log", "error", "`LEVEL` of the log on standard error: "+strings.Join(logs.Levels, ", "))
}

// logger returns the logger of --log.
func (f *common) logger(to io.Writer) (zerolog.Logger, error) { return newLogger(to, f.log) }

// newLogger returns a logger of one of logs.Levels.
func newLogger(to io.Writer, name string) (zerolog.Logger, error) {
	if !slices.Contains(logs.Levels, name) {
		return zerolog.Nop(), usage(&admission.FieldError{Field: "--log", Value: fmt.Sprintf("%q", name), Allowed: "one of " + strings.Join(logs.Levels, ", ")})
	}
	if name == logs.Levels[0] {
		return zerolog.Nop(), nil
	}
	level, err := zerolog.ParseLevel(name)
	return zerolog.New(to).Level(level).With().Timestamp().Logger(), err
}

// errNotConserved and errInterrupted are failures that come after the report.
var (
	errNotConserved = errors.New("the books do not balance: Redis does not account for every job that was admitted")
	errInterrupted  = errors.New("interrupted: the report is of what was done until then")
)
