package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/demo"
	"github.com/headgate/headgate/cmd/headgate/internal/jobs"
	"github.com/headgate/headgate/cmd/headgate/internal/ops"
	"github.com/headgate/headgate/cmd/headgate/internal/policies"
	"github.com/headgate/headgate/cmd/headgate/internal/relay"
	"github.com/headgate/headgate/cmd/headgate/internal/replay"
	"github.com/headgate/headgate/cmd/headgate/internal/serve"
	"github.com/headgate/headgate/cmd/headgate/internal/setup"
	"github.com/headgate/headgate/cmd/headgate/internal/work"
)

// execute runs headgate with the given arguments and returns its exit code. When ctx ends, commands drain and report what they have.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	logging.Disable() // go-redis writes a line of its own for each failed dial; the errors say what matters.
	stderr, end := shared(stderr)
	defer end()
	root := newRoot(stdout, stderr) //nolint:contextcheck // Cobra hands ctx to the commands.
	root.SetIn(stdin)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitOK
	}
	return cli.Fail(stderr, c, err)
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "An admission layer for job queues on Redis",
		Long: `Headgate stands in front of a job queue on Redis. It decides which jobs enter (token
buckets for everybody, a tenant, a queue and a priority), in what order they run (classes of
urgency, fair shares of tenants, deadlines), and which may run now (circuit breakers).

Exit codes: 0 done, also where a list is empty; 1 a failure, as a file that is wrong; 2 a wrong command
line; 3 all works and the answer is no: what was named is not there, or something was refused. Commands
say where theirs mean more.`,
		Example: `  headgate demo                                    the whole story in 20 seconds; needs nothing
  headgate replay requests.csv --speed 10000       do again what a trace recorded
  headgate policy get --redis localhost:6379       which limits are in force
  headgate enqueue --help                          jobs from a shell, or as JSON lines
  headgate worker --help                           jobs to an HTTP server or a command
  headgate config reference                        what can be told by a file, and by which variables
  headgate serve --help                            the admin API over HTTP`,
		Args:          cli.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(cli.FlagError(err)) })
	root.AddCommand(demo.NewCommand(), replay.NewCommand(), policies.NewPolicy(), jobs.NewEnqueue(), work.NewCommand(), relay.NewCommand(), relay.NewMirror(), newVersion())
	root.AddCommand(setup.NewConfig(check))
	root.AddCommand(jobs.NewJob(), ops.NewQueue(policies.QueueEdits), jobs.NewDead(), jobs.NewRedrive(), ops.NewPause(), ops.NewResume(), ops.NewHolds(), ops.NewDrain(), ops.NewAdaptive(), ops.NewLoad(), ops.NewAnomaly(replay.NewAnomalies()), ops.NewForecast(), ops.NewStats(), ops.NewSemaphore(), ops.NewUsage(), ops.NewDoctor(), ops.NewMigrate())
	root.AddCommand(serve.NewCommand(), setup.NewKey(), ops.NewBreaker(), ops.NewAudit(), ops.NewExplain(), policies.NewLimit(), policies.NewRecord(), policies.NewTenant(), policies.NewTier(), policies.NewDownstream(), policies.NewTrigger())
	return root
}

// check reports everything that would keep a process from starting with a configuration: files that cannot be read, addresses and
// secrets that are none. Whether somebody answers is another matter.
func check(l *config.Loaded) error {
	_, noServer := serve.ConfigOf(l)
	_, noTraces := l.Traces()
	return errors.Join(work.Check(l), noServer, noTraces)
}

// lockedWriter takes writes from several goroutines, the log's and those of progress.
type lockedWriter struct {
	mu struct {
		sync.Mutex

		to io.Writer // Nothing is written once it is nil.
	}
}

// Write writes what it is given in one piece.
func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.to == nil {
		return len(p), nil
	}
	return w.mu.to.Write(p)
}

// end ends what is written: what goes on in the background of a command that has returned, as an exporter of traces that nobody
// takes, must not write where its caller reads.
func (w *lockedWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.to = nil
}

// shared returns a writer that several goroutines may use until it is ended. Files are such; a terminal must remain one.
func shared(to io.Writer) (w io.Writer, end func()) {
	if _, ok := to.(*os.File); ok {
		return to, func() {}
	}
	locked := &lockedWriter{}
	locked.mu.to = to
	return locked, locked.end
}
