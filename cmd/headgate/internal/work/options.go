package work

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/deliver"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/worker"
)

// Check reports everything that would keep a worker from starting: files that cannot be read, addresses and secrets that are none.
// Whether somebody answers is another matter.
func Check(l *config.Loaded) error {
	var bad []error
	if l.Config.Redis.URL != "" {
		store, err := l.Store(io.Discard)
		if err == nil {
			err = store.Validate()
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", l.Field(config.PathURL), err))
		}
	}
	if l.Config.Worker.Deliver.URL != "" {
		_, err := newWebhook(l, nil)
		bad = append(bad, err)
	}
	if l.Config.Scheduler.Notify.URL != "" {
		_, err := newNotes(l)
		bad = append(bad, err)
	}
	return errors.Join(bad...)
}

// Options returns the configuration of a worker, without an observer and hooks.
func Options(l *config.Loaded, to *logs.Logs) worker.Config {
	c := &l.Config.Worker
	rules, breakers := l.BreakerRules()
	timeouts := map[string]time.Duration{}
	for name, own := range c.Breakers {
		if own.CallTimeout > 0 {
			timeouts[name] = own.CallTimeout
		}
	}
	return worker.Config{
		Logger: to.Logger(logs.Worker), SchedulerLogger: new(to.Logger(logs.Scheduler)), BreakerLogger: new(to.Logger(logs.Breaker)),
		Queues: c.Queues, Strict: c.Strict, Concurrency: c.Concurrency, Lease: c.Lease, DrainTimeout: c.DrainTimeout,
		// The handlers keep the time-out; this one would cut a longer one off.
		DefaultTimeout: cmp.Or(c.Timeout, deliver.DefaultCommandTimeout),
		CallTimeout:    c.Breaker.CallTimeout, CallTimeouts: timeouts,
		Guard: l.Guard(), Breaker: rules, Breakers: breakers, ReportEvery: c.ReportEvery, ReportAfter: c.ReportAfter,
		NoScheduler: !l.Config.Scheduler.Enabled, Scheduler: scheduler.Config{TimerLease: l.Config.Scheduler.TimerLease, OnBreakerRetry: l.Config.Scheduler.Notify.RetryFor},
	}
}

// newWebhook returns what delivers jobs by HTTP; it reads the file of the secrets. warn is told of answers that make no sense.
func newWebhook(l *config.Loaded, warn func(error)) (*deliver.Webhook, error) {
	options, err := WebhookConfig(l)
	options.Warn = warn
	hook, bad := deliver.NewWebhook(options)
	if field, ok := errors.AsType[*admission.FieldError](bad); ok {
		bad = &admission.FieldError{Field: l.Field(config.PathDeliver), Value: field.Value, Allowed: field.Allowed}
	}
	return hook, errors.Join(bad, err)
}

// WebhookConfig returns what deliveries by HTTP are told.
func WebhookConfig(l *config.Loaded) (deliver.WebhookConfig, error) {
	c := &l.Config.Worker
	secrets, err := signers(l.DeliverSecret())
	return deliver.WebhookConfig{
		URL: c.Deliver.URL, CloudEvents: c.Deliver.CloudEvents, Secrets: secrets, AllowPrivate: c.Deliver.AllowPrivate, Timeout: c.Timeout,
		Concurrency: c.Concurrency,
	}, err
}

// newNotes returns what posts transitions of circuit breakers; it reads the file of the secrets.
func newNotes(l *config.Loaded) (*deliver.Notifier, error) {
	options, err := NotifierConfig(l)
	to, bad := deliver.NewNotifier(options)
	if field, ok := errors.AsType[*admission.FieldError](bad); ok {
		bad = &admission.FieldError{Field: l.Field(config.PathNotify), Value: field.Value, Allowed: field.Allowed}
	}
	return to, errors.Join(bad, err)
}

// NotifierConfig returns what notes of transitions are told.
func NotifierConfig(l *config.Loaded) (deliver.NotifierConfig, error) {
	c := &l.Config.Scheduler.Notify
	secrets, err := signers(l.NotifySecret())
	return deliver.NotifierConfig{URL: c.URL, Secrets: secrets, AllowPrivate: c.AllowPrivate, Deployment: l.Config.Redis.Store.Prefix}, err
}

// newCommand returns what runs jobs by a command.
func newCommand(l *config.Loaded, warn func(error)) (*deliver.Command, error) {
	c := &l.Config.Worker
	if c.Deliver.CloudEvents || c.Deliver.SecretFile != "" || c.Deliver.AllowPrivate {
		return nil, errors.New("--cloudevents, --secret-file and --allow-private are for --deliver")
	}
	options := CommandConfig(l)
	options.Warn = warn
	return deliver.NewCommand(options)
}

// CommandConfig returns what runs of a command are told.
func CommandConfig(l *config.Loaded) deliver.CommandConfig {
	return deliver.CommandConfig{Args: l.Config.Worker.Command, Timeout: l.Config.Worker.Timeout}
}

// signers reads secrets, if they are given and could be read.
func signers(secrets config.Secret, err error) ([]deliver.Secret, error) {
	if err != nil || !secrets.Given {
		return nil, err
	}
	return deliver.ParseSecrets(secrets.Name, secrets.Text)
}
