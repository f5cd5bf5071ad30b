package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/deliver"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// Check reports everything that would keep a process from starting: files that cannot be read, addresses and secrets
// that are none. Whether somebody answers is another matter.
func (l *Loaded) Check() error {
	_, err := l.Serve()
	_, noTraces := l.Traces()
	return errors.Join(l.CheckWorker(), err, noTraces)
}

// CheckWorker is Check for what a worker needs. What another process on the same configuration needs may be elsewhere.
func (l *Loaded) CheckWorker() error {
	var bad []error
	if l.Config.Redis.URL != "" {
		store, err := l.Store(io.Discard)
		if err == nil {
			err = store.Validate()
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", l.field(PathURL), err))
		}
	}
	if l.Config.Worker.Deliver.URL != "" {
		_, err := l.Webhook()
		bad = append(bad, err)
	}
	if l.Config.Scheduler.Notify.URL != "" {
		_, err := l.Notifier()
		bad = append(bad, err)
	}
	return errors.Join(bad...)
}

// Store returns what opens the Redis; it reads the files of its password and of TLS. The notes are the store's own.
func (l *Loaded) Store(notes io.Writer) (embedded.Config, error) {
	c := &l.Config.Redis
	config := embedded.Config{Addr: c.URL, Username: c.Username, PoolSize: c.PoolSize, Log: notes}
	var err, bad error
	config.Password, _, err = l.secretOf(pathPassword, c.Password, c.PasswordFile)
	if target, no := url.Parse(c.URL); no == nil && l.source(PathURL) > max(l.source(pathPassword), l.source(pathPassword+fileSuffix)) {
		if _, own := target.User.Password(); own {
			config.Username, config.Password = "", ""
		}
	}
	if isTLS(c.URL) {
		config.TLS, bad = c.TLS.config()
	}
	return config, errors.Join(err, bad)
}

// tlsVersions are the words of redis.tls.min_version.
var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tlsVersions[t.MinVersion], ServerName: t.ServerName}
	var bad []error
	if t.CAFile != "" {
		var err error
		config.RootCAs, err = readAuthorities("redis.tls.ca_file", t.CAFile)
		bad = append(bad, err)
	}
	if t.CertFile != "" && t.KeyFile != "" {
		pair, err := readPair("redis.tls", t.CertFile, t.KeyFile)
		if err == nil {
			config.Certificates = []tls.Certificate{*pair}
		}
		bad = append(bad, err)
	}
	return config, errors.Join(bad...)
}

// Keys returns what the store keeps under which names.
func (l *Loaded) Keys() redisstore.Config { return l.Config.Redis.Store }

// Logs returns the configuration of the log.
func (l *Loaded) Logs() logs.Config {
	c := l.Config.Log
	own := map[logs.Component]string{}
	for i, component := range logs.Components {
		own[component] = c.Levels[i]
	}
	return logs.Config{Level: c.Level, Own: own, Format: c.Format, Burst: c.Burst, Thereafter: c.Thereafter}
}

// Worker returns the configuration of a worker, without an observer and hooks.
func (l *Loaded) Worker(to *logs.Logs) worker.Config {
	c := &l.Config.Worker
	rules, breakers := l.breakers()
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
		Breaker: rules, Breakers: breakers, ReportEvery: c.ReportEvery, ReportAfter: c.ReportAfter,
		NoScheduler: !l.Config.Scheduler.Enabled, Scheduler: scheduler.Config{TimerLease: l.Config.Scheduler.TimerLease, OnBreakerRetry: l.Config.Scheduler.Notify.RetryFor},
	}
}

// breakers returns the rules of circuit breakers, and those of single downstreams.
func (l *Loaded) breakers() (rules breaker.Config, own map[string]breaker.Config) {
	own = make(map[string]breaker.Config, len(l.Config.Worker.Breakers))
	for name, b := range l.Config.Worker.Breakers {
		own[name] = b.Config
	}
	return l.Config.Worker.Breaker.Config, own
}

// Webhook returns what delivers jobs by HTTP; it reads the file of the secrets.
func (l *Loaded) Webhook() (*deliver.Webhook, error) {
	config, err := l.webhook()
	hook, bad := deliver.NewWebhook(config)
	if field, ok := errors.AsType[*admission.FieldError](bad); ok {
		bad = &admission.FieldError{Field: l.field(pathDeliver), Value: field.Value, Allowed: field.Allowed}
	}
	return hook, errors.Join(bad, err)
}

func (l *Loaded) webhook() (deliver.WebhookConfig, error) {
	c := &l.Config.Worker
	secrets, err := l.signers(pathSecret, c.Deliver.Secret, c.Deliver.SecretFile)
	return deliver.WebhookConfig{
		URL: c.Deliver.URL, CloudEvents: c.Deliver.CloudEvents, Secrets: secrets, AllowPrivate: c.Deliver.AllowPrivate, Timeout: c.Timeout,
		Concurrency: c.Concurrency,
	}, err
}

// Notifier returns what posts transitions of circuit breakers; it reads the file of the secrets.
func (l *Loaded) Notifier() (*deliver.Notifier, error) {
	config, err := l.notifier()
	to, bad := deliver.NewNotifier(config)
	if field, ok := errors.AsType[*admission.FieldError](bad); ok {
		bad = &admission.FieldError{Field: l.field(pathNotify), Value: field.Value, Allowed: field.Allowed}
	}
	return to, errors.Join(bad, err)
}

func (l *Loaded) notifier() (deliver.NotifierConfig, error) {
	c := &l.Config.Scheduler.Notify
	secrets, err := l.signers(pathNotifyKey, c.Secret, c.SecretFile)
	if err != nil {
		err = fmt.Errorf("%s: %w", pathNotifyKey, err)
	}
	return deliver.NotifierConfig{URL: c.URL, Secrets: secrets, AllowPrivate: c.AllowPrivate, Deployment: l.Keys().Prefix}, err
}

// signers returns the secrets of an option, or of its file.
func (l *Loaded) signers(path, text, file string) ([]deliver.Secret, error) {
	text, given, err := l.secretOf(path, text, file)
	if err != nil || !given {
		return nil, err
	}
	return deliver.ParseSecrets(text)
}

// Command returns what runs jobs by a command.
func (l *Loaded) Command() (*deliver.Command, error) {
	c := &l.Config.Worker
	if c.Deliver.CloudEvents || c.Deliver.SecretFile != "" || c.Deliver.AllowPrivate {
		return nil, errors.New("--cloudevents, --secret-file and --allow-private are for --deliver")
	}
	return deliver.NewCommand(l.command())
}

func (l *Loaded) command() deliver.CommandConfig {
	return deliver.CommandConfig{Args: l.Config.Worker.Command, Timeout: l.Config.Worker.Timeout}
}
