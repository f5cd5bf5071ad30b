package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/cmd/headgate/internal/deliver"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/worker"
)

const workerHelp = `Runs jobs by handing each to a program of yours: to an HTTP server, one POST a job, or to a
command, one process a job. Jobs of any type are taken, or of those that --types names.

--deliver URL posts the payload, with what else there is about the job in headers
(Headgate-Id, Headgate-Tenant, Headgate-Attempt, ...; the job's own as Headgate-Header-NAME),
or a CloudEvent with --cloudevents. The answer decides:

  2xx                                   done
  429 or 503 with Retry-After           back after that time (1 s to 1 h), no attempt burnt
  other 4xx                             a dead letter at once (408, 425 and 429 are retried)
  5xx, redirect, no answer, time-out    failed: retried after a backoff

A secret in --secret-file or HEADGATE_SECRET signs requests as Standard Webhooks says
(webhook-id, webhook-timestamp, webhook-signature); several, one a line, sign several times.
Only addresses of the public internet are connected to, unless --allow-private is given.

--exec runs the command that ends the line, without a shell. It reads the payload from its
standard input and the rest from variables (HEADGATE_ID, HEADGATE_TENANT, HEADGATE_ATTEMPT,
...; the job's headers as HEADGATE_HEADER_NAME). Its exit code decides: 0 done, 75
(EX_TEMPFAIL) back after 10 s, 65 (EX_DATAERR) a dead letter, any other failed; the end of its
standard error goes to the dead letter. What it leaves running in its process group is killed.

A job may come more than once. SIGTERM drains: no more jobs are taken, those that run get
--drain-timeout and then go back unharmed. The log is JSON on standard error, without payloads.`

// The variable that holds a secret, and the name that the file of one has instead.
const secretVariable = "HEADGATE_SECRET"

// workerFlags are the flags of worker.
type workerFlags struct {
	site

	url          string
	cloudEvents  bool
	secretFile   string
	allowPrivate bool
	exec         bool

	queues       []string
	strict       bool
	concurrency  int
	types        []string
	timeout      time.Duration
	drainTimeout time.Duration
	log          string
}

func newWorker() *cobra.Command {
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
	f.add(flags)
	flags.StringVar(&f.url, "deliver", "", "`URL` that takes the jobs, http or https")
	flags.BoolVar(&f.cloudEvents, "cloudevents", false, "send each job as a CloudEvent 1.0 in structured mode")
	flags.StringVar(&f.secretFile, "secret-file", "", "`FILE` of the secrets that sign requests, one a line; by default "+secretVariable)
	flags.BoolVar(&f.allowPrivate, "allow-private", false, "also deliver to loopback, private, link-local and other special addresses")
	flags.BoolVar(&f.exec, "exec", false, "run the command that ends the line; all other flags come before it")
	flags.StringSliceVar(&f.queues, "queue", nil, "`QUEUES` to serve and their weights, mail=3,hook=1; a weight is 1 unless given (required)")
	flags.BoolVar(&f.strict, "strict", false, "serve a queue only while those before it have nothing that may run")
	flags.IntVar(&f.concurrency, "concurrency", 10, "`N` jobs at a time, 1 to 10000")
	flags.StringSliceVar(&f.types, "types", nil, "`TYPES` to take, a,b; others go back to the queue. By default all are taken")
	flags.DurationVar(&f.timeout, "timeout", 0, "longest `TIME` of a run, 1ms to 24h; a shorter time-out of the job's own wins (default 5s with --deliver, 5m with --exec)")
	flags.DurationVar(&f.drainTimeout, "drain-timeout", 30*time.Second, "`TIME` that running jobs get when the worker is told to stop, up to 1h")
	flags.StringVar(&f.log, "log", "info", "`LEVEL` of the log on standard error: "+strings.Join(logLevels, ", "))
	return c
}

// handler is what a worker hands jobs to.
type handler interface {
	fmt.Stringer
	Handle(ctx context.Context, job worker.Job[[]byte]) error
}

func (f *workerFlags) run(c *cobra.Command, args []string) error {
	logger, err := newLogger(c.ErrOrStderr(), f.log)
	if err != nil {
		return err
	}
	config, err := f.config(c)
	if err != nil {
		return err
	}
	to, err := f.handler(c.Context(), args, logger)
	if err != nil {
		return err
	}
	journal := newJournal(logger)
	config.Logger, config.Observer = logger, worker.Observer{Finished: journal.finished}
	return f.with(c.Context(), c.ErrOrStderr(), func(ctx context.Context, store *lua.Store) error {
		w, err := worker.New(store, config)
		if err != nil {
			return usage(err)
		}
		if len(f.types) == 0 {
			worker.RegisterAny(w, to.Handle)
		}
		for _, name := range f.types {
			worker.Register(w, name, to.Handle)
		}
		warnOf(ctx, store, logger)
		logger.Info().Stringer("to", to).Strs("queues", f.queues).Strs("types", f.types).Int("concurrency", config.Concurrency).Msg("worker starts")
		err = w.Run(ctx)
		journal.summary()
		return err
	})
}

// warnOf logs what is not well with the Redis that the worker starts on, such as what a crash of it would lose.
func warnOf(ctx context.Context, store *lua.Store, logger zerolog.Logger) {
	found, err := store.Doctor(ctx)
	if err != nil {
		logger.Warn().Err(err).Msg("redis not examined")
		return
	}
	for _, f := range found.Findings {
		if f.Health != lua.HealthOK {
			logger.Warn().Str("check", f.Name).Str("health", string(f.Health)).Str("do", f.Do).Msg(f.Text)
		}
	}
}

// config returns the worker's part of the flags, and every bad one at once.
func (f *workerFlags) config(c *cobra.Command) (worker.Config, error) {
	queues, err := parseQueues(f.queues)
	bad := []error{f.validate(), err}
	field := func(ok bool, flag, value, allowed string) {
		if !ok {
			bad = append(bad, &headgate.FieldError{Field: flag, Value: value, Allowed: allowed})
		}
	}
	if f.exec == (f.url != "") {
		bad = append(bad, errors.New("say what runs the jobs, by one of --deliver URL and --exec COMMAND"))
	}
	field(f.concurrency >= 1 && f.concurrency <= 10_000, "--concurrency", strconv.Itoa(f.concurrency), "1 to 10000")
	field(f.drainTimeout > 0 && f.drainTimeout <= time.Hour, "--drain-timeout", f.drainTimeout.String(), "above 0, up to 1h")
	field(f.timeout != 0 || !c.Flags().Changed("timeout"), "--timeout", "0", "1ms to 24h") // A Config would take it for not given.
	seen := map[string]bool{}
	for _, name := range f.types {
		if headgate.ValidateName("--types", name, false) != nil || seen[name] {
			field(false, "--types", strconv.Quote(name), "names of types, each once")
		}
		seen[name] = true
	}
	return worker.Config{
		Queues: queues, Strict: f.strict, Concurrency: f.concurrency, DrainTimeout: f.drainTimeout,
		// The handlers keep --timeout; this one would cut a longer one off.
		DefaultTimeout: cmp.Or(f.timeout, deliver.DefaultCommandTimeout),
	}, usage(errors.Join(bad...))
}

// parseQueues reads NAME and NAME=WEIGHT.
func parseQueues(texts []string) ([]lua.QueueWeight, error) {
	const allowed = "1 to 64 queues, each once: NAME, or NAME=WEIGHT with a weight of 1 to 1000"
	if len(texts) < 1 || len(texts) > 64 {
		return nil, &headgate.FieldError{Field: "--queue", Value: strconv.Quote(strings.Join(texts, ",")), Allowed: allowed}
	}
	var queues []lua.QueueWeight
	var bad []error
	seen := map[string]bool{}
	for _, text := range texts {
		name, number, given := strings.Cut(text, "=")
		weight := 1
		var err error
		if given {
			weight, err = strconv.Atoi(number)
		}
		if err != nil || weight < 1 || weight > 1000 || seen[name] || headgate.ValidateName("queue", name, true) != nil {
			bad = append(bad, &headgate.FieldError{Field: "--queue", Value: strconv.Quote(text), Allowed: allowed})
		}
		seen[name] = true
		queues = append(queues, lua.QueueWeight{Queue: name, Weight: weight})
	}
	return queues, errors.Join(bad...)
}

// handler makes what jobs are handed to.
func (f *workerFlags) handler(ctx context.Context, args []string, logger zerolog.Logger) (handler, error) {
	if f.exec {
		if f.cloudEvents || f.secretFile != "" || f.allowPrivate {
			return nil, usage(errors.New("--cloudevents, --secret-file and --allow-private are for --deliver"))
		}
		command, err := deliver.NewCommand(deliver.CommandConfig{Args: args, Timeout: f.timeout})
		return command, usage(err)
	}
	if len(args) > 0 {
		return nil, usage(fmt.Errorf("with --deliver there is no argument, got %q", args[0]))
	}
	secrets, err := f.secrets()
	if err != nil {
		return nil, usage(err)
	}
	hook, err := deliver.NewWebhook(deliver.WebhookConfig{
		URL: f.url, CloudEvents: f.cloudEvents, Secrets: secrets, AllowPrivate: f.allowPrivate, Timeout: f.timeout, Concurrency: f.concurrency,
	})
	if err != nil {
		return nil, usage(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = hook.Check(ctx)
	if refused, ok := errors.AsType[*deliver.RefusedAddressError](err); ok {
		return nil, usage(fmt.Errorf("--deliver %s: %w", hook, refused))
	}
	if err != nil && ctx.Err() == nil {
		logger.Warn().Err(err).Msg("deliveries fail until this passes")
	}
	return hook, nil
}

// maxSecretFile is far above what any number of secrets in use takes.
const maxSecretFile = 64 << 10

// secrets reads the secrets of --secret-file, or else of the environment. None is no error.
func (f *workerFlags) secrets() ([]deliver.Secret, error) {
	text, given := os.LookupEnv(secretVariable)
	if f.secretFile != "" {
		file, err := os.Open(f.secretFile)
		if err != nil {
			return nil, fmt.Errorf("read secret: %w", err)
		}
		defer func() { _ = file.Close() }()
		bytes, err := io.ReadAll(io.LimitReader(file, maxSecretFile))
		if err != nil {
			return nil, fmt.Errorf("read secret: %w", err)
		}
		text, given = string(bytes), true
	}
	if !given {
		return nil, nil
	}
	return deliver.ParseSecrets(text)
}
