package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/deliver"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/internal/doctor"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

const workerHelp = `Runs jobs by handing each to a program of yours: to an HTTP server, one POST a job, or to a
command, one process a job. Jobs of any type are taken, or of those that --types names.

--deliver URL posts the payload, with what else there is about the job in headers
(Headgate-Id, Headgate-Tenant, Headgate-Attempt, ...; the job's own as Headgate-Header-NAME,
and traceparent and tracestate under their own names), or a CloudEvent with --cloudevents.
The answer decides:

  2xx                                   done
  429 or 503 with Retry-After           back after that time (1 s to 1 h), no attempt burnt
  other 4xx                             a dead letter at once (408, 425 and 429 are retried)
  5xx, redirect, no answer, time-out    failed: retried after a backoff

Its header Headgate-Cost tells what the job has cost in truth, in tokens of its limits.

A secret in --secret-file or HEADGATE_SECRET signs requests as Standard Webhooks says
(webhook-id, webhook-timestamp, webhook-signature); several, one a line, sign several times.
Only addresses of the public internet are connected to, unless --allow-private is given.

--exec runs the command that ends the line, without a shell. What follows it belongs to the command,
flags too; of one that the worker has as well it warns, unless -- stands before the command, as in
--exec -- python3 report.py --timeout 5. The command reads the payload from its standard input and the
rest from variables (HEADGATE_ID, HEADGATE_TENANT, HEADGATE_ATTEMPT, ...; the job's headers as
HEADGATE_HEADER_NAME). Its exit code decides: 0 done, 75 (EX_TEMPFAIL) back after 10 s, 65
(EX_DATAERR) a dead letter, any other failed; the end of its standard error goes to the dead letter,
its standard output nowhere. A number that it writes to file descriptor 3 (echo 55 >&3) tells what the
job has cost in truth, as Headgate-Cost does. What it leaves running in its process group is killed;
what leaves the group is reaped also where headgate is the first process of a container.

--notify URL posts a CloudEvent for each transition of a circuit breaker, for each rate that is not
usual where the policy has anomalies, and for each trigger that begins or ends, signed by the secrets in --notify-secret-file. One of the workers that have it tells, until a 2xx takes note of it.

The options guard.* (by --set, a variable or a file) limit memory, processors, goroutines and jobs a
minute: at a limit the worker takes no more jobs and others get them; what runs goes on.

A job may come more than once. SIGTERM drains: no more jobs are taken, those that run get
--drain-timeout and then go back unharmed. The log is JSON on standard error, without payloads.

Each flag is an option of the configuration, which has more of them: headgate config reference.
With a file of it, SIGHUP and a change of the file put in force what can change while jobs run.`

// workerFlags are the flags of worker. Most are options of the configuration, which has their values.
type workerFlags struct {
	cli.Target

	exec bool
}

// NewCommand returns the command headgate worker.
func NewCommand() *cobra.Command {
	f := &workerFlags{}
	c := &cobra.Command{
		Use:   "worker {--deliver URL | --exec COMMAND [ARGUMENT...]}",
		Short: "Run jobs by HTTP or by a command", Long: workerHelp,
		Example: `  headgate worker --redis localhost:6379 --queue mail=3,hook=1 --deliver https://app.example.com/jobs
  HEADGATE_SECRET=whsec_... headgate worker --redis localhost:6379 --queue mail --deliver https://app.example.com/jobs --cloudevents
  headgate worker --redis localhost:6379 --queue mail --deliver http://localhost:8080/ --allow-private
  headgate worker --redis localhost:6379 --queue report --concurrency 4 --timeout 10m --exec python3 report.py --fast`,
		Args: cobra.ArbitraryArgs,
		RunE: f.run,
	}
	flags := c.Flags()
	flags.SetInterspersed(false) // What follows the command is the command's.
	f.Add(flags)
	f.Paths = config.Paths(config.WorkerSections)
	flags.String("deliver", "", "`URL` that takes the jobs, http or https")
	flags.Bool("cloudevents", false, "send each job as a CloudEvent 1.0 in structured mode")
	flags.String("secret-file", "", "`FILE` of the secrets that sign requests, one a line; by default HEADGATE_SECRET")
	flags.Bool("allow-private", false, "also deliver to loopback, private, link-local and other special addresses")
	flags.String("notify", "", "`URL` that is told of each transition of a circuit breaker, of rates that are not usual and of triggers, http or https")
	flags.String("notify-secret-file", "", "`FILE` of the secrets that sign these requests, one a line")
	flags.Bool("notify-allow-private", false, "also tell loopback, private, link-local and other special addresses")
	flags.BoolVar(&f.exec, "exec", false, "run the command that ends the line; all other flags come before it, and -- before the command says that its flags are its own")
	flags.StringSlice("queue", nil, "`QUEUES` to serve and their weights, mail=3,hook=1; a weight is 1 unless given (required)")
	flags.Bool("strict", false, "serve a queue only while those before it have nothing that may run")
	flags.Int("concurrency", 10, "`N` jobs at a time, 1 to 10000")
	flags.StringSlice("types", nil, "`TYPES` to take, a,b; others go back to the queue. By default all are taken")
	flags.Duration("timeout", 0, "longest `TIME` of a run, 1ms to 24h; a shorter time-out of the job's own wins (default 5s with --deliver, 5m with --exec)")
	flags.Duration("drain-timeout", 30*time.Second, "`TIME` that running jobs get when the worker is told to stop, 1ns to 1h")
	flags.String("metrics", "", "`HOST:PORT` at which to serve the worker's own metrics, /metrics, to whoever reaches it")
	flags.String("log", "info", "`LEVEL` of the log on standard error: "+strings.Join(logs.Levels, ", "))
	return c
}

// handler is what a worker hands jobs to.
type handler interface {
	fmt.Stringer
	Handle(ctx context.Context, job worker.Job[[]byte]) error
}

func (f *workerFlags) run(c *cobra.Command, args []string) error {
	if f.exec {
		f.Extra = map[string]any{config.PathCommand: args}
		warnOfFlags(c, args)
	}
	loaded, err := f.prepare(args)
	if err != nil {
		return err
	}
	log := logs.New(c.ErrOrStderr(), loaded.Logs())
	logger := log.Logger(logs.Worker)
	to, err := newHandler(c.Context(), loaded, logger)
	if err != nil {
		return cli.Usage(err)
	}
	options := Options(loaded, log)
	if err := notify(c.Context(), loaded, &options.Scheduler, log.Logger(logs.Scheduler)); err != nil {
		return cli.Usage(err)
	}
	serving := &relay{}
	serving.handler.Store(&to)
	journal := newJournal(logger, log)
	exporter, err := f.Traces(logger)
	if err != nil {
		return err
	}
	defer exporter.Close(c.Context())
	meter, err := newMeter(c.Context(), loaded.Config.Metrics.Address, exporter.Provider(), log)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	options.Observer = meter.Worker(worker.Observer{Finished: journal.finished})
	return f.With(c.Context(), c.ErrOrStderr(), func(ctx context.Context, s store.Deployment) error {
		w, err := worker.New(s, options)
		if err != nil {
			return cli.Usage(err)
		}
		types := loaded.Config.Worker.Types
		if len(types) == 0 {
			worker.RegisterAny(w, serving.Handle)
		}
		for _, name := range types {
			worker.Register(w, name, serving.Handle)
		}
		warnOf(ctx, s, logger)
		logger.Info().Stringer("to", to).Strs("queues", queueNames(options.Queues)).Strs("types", types).Int("concurrency", options.Concurrency).
			Msg("worker starts")
		follow := newFollower(f, loaded, log, serving)
		stop, unmeter := follow.Start(ctx), meter.server.Start(ctx)
		err = w.Run(ctx)
		unmeter()
		stop()
		journal.summary(w.SchedulerStats())
		return err
	})
}

// warnOfFlags tells of flags of the command that are the worker's too, and may be meant for it. -- before the command says that they are not.
func warnOfFlags(c *cobra.Command, command []string) {
	if c.ArgsLenAtDash() == 0 {
		return
	}
	var named []string
	for _, word := range command {
		if word == "--" {
			break // What follows is for neither.
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if flag := "--" + name; strings.HasPrefix(word, "--") && name != "help" && c.Flags().Lookup(name) != nil && !slices.Contains(named, flag) {
			named = append(named, flag)
		}
	}
	if len(named) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "headgate: warning: after --exec all belongs to the command, %s too: flags of the worker come before --exec; where the command has such a flag, --exec -- COMMAND says so\n",
			strings.Join(named, ", "))
	}
}

// prepare returns the configuration, and everything at once that keeps it from being a worker's.
func (f *workerFlags) prepare(args []string) (*config.Loaded, error) {
	bad := []error{f.Validate()}
	loaded, err := f.Load()
	if err == nil {
		bad = append(bad, complete(loaded), loaded.GuardHere())
	}
	if !f.exec && len(args) > 0 {
		bad = append(bad, cli.Usage(fmt.Errorf("with --deliver there is no argument, got %q", args[0])))
	}
	return loaded, errors.Join(bad...)
}

// complete reports what a worker needs and nobody said.
func complete(loaded *config.Loaded) error {
	var bad []error
	if len(loaded.Config.Worker.Queues) == 0 {
		bad = append(bad, cli.FieldError("queue", `""`, "1 to 64 queues, each once: NAME, or NAME=WEIGHT with a weight of 1 to 1000"))
	}
	if loaded.Config.Worker.Deliver.URL == "" && !loaded.Given(config.PathCommand) {
		bad = append(bad, cli.Usage(errors.New("say what runs the jobs, by one of --deliver URL and --exec COMMAND")))
	}
	return errors.Join(bad...)
}

// queueNames writes queues as --queue takes them.
func queueNames(queues []store.QueueWeight) (names []string) {
	for _, q := range queues {
		names = append(names, q.Queue+"="+strconv.Itoa(q.Weight))
	}
	return names
}

// warnOf logs what is not well with the Redis that the worker starts on, such as what a crash of it would lose. That nobody
// works is about to be mended.
func warnOf(ctx context.Context, s store.Deployment, logger zerolog.Logger) {
	found, err := doctor.Run(ctx, s)
	if err != nil {
		logger.Warn().Err(err).Msg("redis not examined")
		return
	}
	for _, f := range found.Findings {
		if f.Health != doctor.HealthOK && f.Name != "workers" {
			logger.Warn().Str("check", f.Name).Str("health", string(f.Health)).Str("do", f.Do).Msg(f.Text)
		}
	}
}

// newHandler makes what jobs are handed to.
func newHandler(ctx context.Context, loaded *config.Loaded, logger zerolog.Logger) (handler, error) {
	warn := func(err error) { logger.Warn().Err(err).Msg("a receiver or a command tells a cost that is none") }
	if loaded.Given(config.PathCommand) {
		return newCommand(loaded, warn)
	}
	hook, err := newWebhook(loaded, warn)
	if err != nil {
		return nil, err
	}
	if err := checkReceiver(ctx, "--deliver", hook, logger); err != nil {
		return nil, err
	}
	return hook, nil
}

// notify has a scheduler tell of the transitions of circuit breakers, of rates that are not usual and of triggers, if anybody is to be told.
func notify(ctx context.Context, loaded *config.Loaded, tells *scheduler.Config, logger zerolog.Logger) error {
	if loaded.Config.Scheduler.Notify.URL == "" {
		return nil
	}
	to, err := newNotes(loaded)
	if err != nil {
		return err
	}
	tells.OnBreaker, tells.OnAnomaly, tells.OnTrigger = to.Notify, to.NotifyAnomaly, to.NotifyTrigger
	return checkReceiver(ctx, "--notify", to, logger)
}

// checked is what can be posted to.
type checked interface {
	fmt.Stringer
	Check(ctx context.Context) error
}

// checkReceiver returns an error if nothing can ever be posted to a receiver, and logs what may pass.
func checkReceiver(ctx context.Context, flag string, to checked, logger zerolog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := to.Check(ctx)
	if refused, ok := errors.AsType[*deliver.RefusedAddressError](err); ok {
		return fmt.Errorf("%s %s: %w", flag, to, refused)
	}
	if err != nil && ctx.Err() == nil {
		logger.Warn().Err(err).Stringer("to", to).Msg("deliveries fail until this passes")
	}
	return nil
}

// relay hands jobs to a handler that may be replaced while they run: each ends with the one it began with.
type relay struct{ handler atomic.Pointer[handler] }

// Handle hands one job over. It is a worker.Handler.
func (r *relay) Handle(ctx context.Context, job worker.Job[[]byte]) error {
	return (*r.handler.Load()).Handle(ctx, job)
}

// newFollower returns the follower of a worker.
func newFollower(f *workerFlags, loaded *config.Loaded, log *logs.Logs, serving *relay) *cli.Follower {
	logger := log.Logger(logs.Worker)
	apply := func(ctx context.Context, next *config.Loaded) error {
		if err := errors.Join(Check(next), complete(next)); err != nil {
			return err
		}
		to, err := newHandler(ctx, next.Keeping(loaded), logger)
		if err != nil {
			return err
		}
		serving.handler.Store(&to)
		return nil
	}
	return &cli.Follower{Target: &f.Target, Logs: log, Logger: logger, Sections: config.WorkerSections, Apply: apply, Started: loaded, Last: loaded}
}
