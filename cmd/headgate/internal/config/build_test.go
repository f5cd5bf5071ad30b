package config_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/cmd/headgate/internal/serve"
	"github.com/headgate/headgate/cmd/headgate/internal/work"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// The tests of package config look at what is made of a configuration, by packages that import it.
//
//nolint:gochecknoinits // It comes before each test of the package, whose own files cannot import those.
func init() {
	config.Built, config.Check, config.Refuses = built, check, refuses
}

func check(l *config.Loaded) error {
	_, noServer := serve.ConfigOf(l)
	_, noTraces := l.Traces()
	return errors.Join(work.Check(l), noServer, noTraces)
}

// built is everything that a configuration makes, as text.
func built(l *config.Loaded) (string, error) {
	store, err := l.Store(io.Discard)
	if err != nil {
		return "", err
	}
	authorities := [][]byte(nil)
	if store.TLS != nil && store.TLS.RootCAs != nil {
		authorities = store.TLS.RootCAs.Subjects() //nolint:staticcheck // They are not the system's, of which Subjects says nothing.
	}
	certificates := []tls.Certificate(nil)
	if store.TLS != nil {
		certificates = store.TLS.Certificates
	}
	secure := ""
	if store.TLS != nil {
		secure = fmt.Sprint(store.TLS.MinVersion, store.TLS.ServerName, authorities, len(certificates))
	}
	store.TLS = nil
	hook, err := work.WebhookConfig(l)
	if err != nil {
		return "", err
	}
	notifier, err := work.NotifierConfig(l)
	if err != nil {
		return "", err
	}
	server, err := serve.ConfigOf(l)
	if err != nil {
		return "", err
	}
	// Tokens say nothing of their leeway; that it reaches them shows in its bounds.
	served := fmt.Sprint(server.Credentials, server.Certificate != nil, server.ClientCAs != nil, l.Config.Serve.Credentials.Leeway, l.Config.Serve.Credentials.MaxLife)
	server.Credentials, server.Certificate, server.ClientCAs = access.Credentials{}, nil, nil
	traces, err := l.Traces()
	if err != nil {
		return "", err
	}
	options := work.Options(l, logs.New(io.Discard, l.Logs()))
	options.Logger, options.SchedulerLogger, options.BreakerLogger = zerolog.Nop(), nil, nil
	return fmt.Sprintf("%+v\n%+v\n%+v\n%+v\n%+v\n%+v\n%+v\n%+v\n%v\n%v\n%+v\n%v\n%+v\n%v", store, secure, l.Config.Redis.Store, options, hook, notifier, work.CommandConfig(l), l.Logs(), l.Config.Worker.Types, l.Config.Metrics, server, served, traces, l.Config.Tracing.Insecure), nil
}

func refuses(c config.Config, section string) bool {
	c.Worker.Queues = []store.QueueWeight{{Queue: "q"}}
	l := &config.Loaded{Config: c}
	if section != "serve" {
		_, err := worker.New(store.Single(memory.New(memory.Config{}), nil), work.Options(l, logs.New(io.Discard, logs.Config{})))
		return err != nil
	}
	options, noCredentials := serve.ConfigOf(l)
	options.NoAuth = true
	_, noServer := serve.New(store.Single(memory.New(memory.Config{}), nil), zerolog.Nop(), zerolog.Nop(), options)
	return errors.Join(noCredentials, noServer) != nil
}

const downstream = "api.example.com:443"

// TestServersJudgeCallsAsWorkersDo: the calls of workers in other languages have the rules of those in Go.
func TestServersJudgeCallsAsWorkersDo(t *testing.T) {
	t.Parallel()
	l, err := config.Load(config.Sources{Set: []string{"worker.breaker.slow_call_duration=2s", "worker.breakers." + downstream + ".slow_call_duration=1m"}})
	if err != nil {
		t.Fatal(err)
	}
	server, err := serve.ConfigOf(l)
	if err != nil {
		t.Fatal(err)
	}
	own := work.Options(l, logs.New(io.Discard, l.Logs()))
	if !reflect.DeepEqual(server.Breaker, own.Breaker) || !reflect.DeepEqual(server.Breakers, own.Breakers) {
		t.Errorf("%+v and %+v, a worker has %+v and %+v", server.Breaker, server.Breakers, own.Breaker, own.Breakers)
	}
	if general, particular := server.Breaker.SlowCallDuration, server.Breakers[downstream].SlowCallDuration; general != 2*time.Second || particular != time.Minute {
		t.Errorf("slow from %s on, calls of %s from %s", general, downstream, particular)
	}
}

// TestTheDefaultsOfAServerAreThoseOfThePackage: what is told about a default is what package admin takes for one.
func TestTheDefaultsOfAServerAreThoseOfThePackage(t *testing.T) {
	t.Parallel()
	l, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	got := l.Config.Serve
	want := config.Serve{
		MaxBody: admin.DefaultMaxBody, Timeout: admin.DefaultTimeout, Rate: admin.DefaultAdminRate, Burst: admin.DefaultAdminBurst,
		Bounds: config.Bounds{
			Connections: admin.DefaultMaxConnections, PerAddress: admin.DefaultMaxConnectionsPerAddress, Calls: admin.DefaultMaxCalls,
			Bytes: admin.DefaultMaxBytes, TenantRate: admin.DefaultTenantRate, TenantBytes: admin.DefaultTenantBytes,
		},
	}
	if got.MaxBody != want.MaxBody || got.Timeout != want.Timeout || got.Rate != want.Rate || got.Burst != want.Burst || got.Bounds != want.Bounds {
		t.Errorf("%+v, want %+v", got, want)
	}
}
