package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/gateway"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/telemetry"
)

// Server is the admin API and what runs beside it. Apply may be called from several goroutines, Run once.
type Server struct {
	config      Config
	logger      zerolog.Logger
	admin       *admin.Server
	producer    *producer.Producer
	limiter     *limiter.Limiter // nil where Redis is asked for each check
	gateways    *gateway.Gateways
	certificate atomic.Pointer[tls.Certificate]
}

// New returns a server, or every fault of the config at once. producers is the log of what is enqueued over HTTP.
func New(store store.Deployment, logger, producers zerolog.Logger, config Config) (*Server, error) {
	s := &Server{config: config, logger: logger}
	registry := prometheus.NewRegistry()
	if err := registerProcess(registry, config.Version); err != nil {
		return nil, err
	}
	observed, err := telemetry.New(telemetry.Config{Registerer: registry, Tracer: config.Tracer})
	if err != nil {
		return nil, err
	}
	if s.producer, err = producer.New(store, producer.Config{Logger: producers, Observer: observed.Producer()}); err != nil {
		return nil, err
	}
	if err = s.decide(store, registry); err != nil {
		return nil, err
	}
	s.certificate.Store(config.Certificate)
	if s.gateways, err = gateway.New(s.limiter, logger, s.tls(), registry, config.Authz, config.RLS, config.Mapping); err != nil {
		return nil, err
	}
	own := admin.Config{
		Logger: logger, Store: store, Enqueuer: s.producer, Credentials: config.Credentials, Open: config.NoAuth, TLS: s.tls(), Allow: config.Allow,
		Registry: registry, MaxBody: config.MaxBody, Timeout: config.Timeout, OldHeaders: config.OldHeaders, AdminLimit: config.AdminLimit,
		Breaker: config.Breaker, Breakers: config.Breakers, Bounds: config.Bounds, Version: config.Version,
		Guard: config.Guard, Guarded: observed.Guarded(),
	}
	if s.limiter != nil && !config.Limiter.Exact {
		own.Limiter = s.limiter
	}
	s.admin, err = admin.New(own)
	return s, err
}

// decide makes the limiter, if there is to be one, and registers what it counts.
func (s *Server) decide(store store.Deployment, registry prometheus.Registerer) (err error) {
	if s.config.Limiter == nil {
		return nil
	}
	own := *s.config.Limiter
	own.Logger = s.logger
	if s.limiter, err = limiter.New(store, own); err != nil {
		return err
	}
	return registry.Register(telemetry.Limiter(s.limiter))
}

// giveBack returns what the limiter has on lease.
func (s *Server) giveBack(ctx context.Context) {
	if s.limiter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if err := s.limiter.Close(ctx); err != nil { // The leases end by themselves, and what they held is lost to their scopes.
		s.logger.Warn().Err(err).Msg("tokens on lease were not given back")
	}
}

const giveBackTimeout = 2 * time.Second

// registerProcess registers what the runtime and the machine know of the process, and which build it is.
func registerProcess(to prometheus.Registerer, version string) error {
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_build_info", Help: "1, with the build in its labels.", ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	return errors.Join(to.Register(build), to.Register(collectors.NewGoCollector()), to.Register(process))
}

// tls returns the settings for TLS; nil without a certificate.
func (s *Server) tls() *tls.Config {
	if s.config.Certificate == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: s.config.MinTLS, ClientCAs: s.config.ClientCAs,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate.Load(), nil },
	}
}

// errScheme is a change that Apply refuses.
var errScheme = errors.New("a server cannot go from http to https or back while it runs: restart it")

// Apply puts other credentials, another certificate and other networks in force for the calls and connections that begin from
// now on. No credentials at all mean that nobody may call: it is how the last key is taken away. If it returns an error, what was in
// force stays so.
func (s *Server) Apply(next Live) error {
	if (next.Certificate == nil) != (s.config.Certificate == nil) {
		return errScheme
	}
	if err := s.admin.SetAllow(next.Allow); err != nil {
		return err
	}
	if next.Credentials.None() && !s.config.NoAuth {
		s.logger.Warn().Msg("no key and no token is taken any more: nobody may call")
	}
	s.admin.SetCredentials(next.Credentials)
	s.certificate.Store(next.Certificate)
	s.gateways.SetMapping(next.Mapping)
	return nil
}

// Run answers calls until ctx ends, and returns nil when those under way are answered.
func (s *Server) Run(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.config.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	scheme := "https"
	if s.config.Certificate == nil {
		scheme = "http"
	}
	s.logger.Info().Str("address", scheme+"://"+listener.Addr().String()).Stringer("credentials", s.config.Credentials).Msg("admin API listens")
	if s.config.NoAuth {
		s.logger.Warn().Msg("everybody on this machine is an admin: --insecure-no-auth")
	} else if s.config.Certificate == nil && !config.Loopback(s.config.Address) {
		s.logger.Warn().Msg("credentials cross the network in the clear: give --tls-cert and --tls-key, or let a proxy speak TLS")
	}
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	var followed error
	following.Go(func() { followed = s.producer.Run(ctx) })
	var served error
	following.Go(func() {
		defer stop() // One that cannot listen ends the server.
		served = s.gateways.Run(ctx)
	})
	err = s.admin.Serve(ctx, listener)
	stop()
	following.Wait()
	s.giveBack(ctx)
	return errors.Join(err, served, followed)
}
