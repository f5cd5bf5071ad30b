package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/api"
	"github.com/headgate/headgate/admin/internal/gauge"
	"github.com/headgate/headgate/admin/internal/openapi"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/internal/doctor"
	"github.com/headgate/headgate/internal/guard"
)

// Server answers the API. Its methods may be called from several goroutines.
type Server struct {
	config      Config
	handler     http.Handler
	api         *api.API
	credentials atomic.Pointer[access.Credentials]
	allow       atomic.Pointer[[]netip.Prefix]
	// callers bounds the calls of a credential, failures the wrong ones of an address, traffic and volume the calls and the KiB of a
	// tenant's data, readers the readers of the description, lookers those of health, refusals those that are answered at once.
	callers, failures, traffic, volume, readers, lookers, refusals *throttle
	// reading has room for the large bodies that are read at a time.
	reading chan struct{}
	// turns are the calls under way, kept those of whoever looks after the server; held is how many refusals wait.
	turns, kept *turns
	held        atomic.Int64
	// machine is the guard of the process, nil for none; door is that of Serve, and so is migrated.
	machine  *guard.Guard
	door     atomic.Pointer[door]
	migrated atomic.Pointer[error] // why nothing is shown, nil while the deployment is where it was
	journal  journal
	requests *gauge.Requests
	stats    *gauge.Stats
	scans    *scans
	origins  *http.CrossOriginProtection
}

// New returns a Server, or every fault of the config at once. It sends nothing yet.
func New(config Config) (*Server, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	document, err := openapi.Load()
	if err != nil {
		return nil, err
	}
	requests, err := gauge.Register(config.Registry, config.Store)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s := &Server{config: config, requests: requests, origins: http.NewCrossOriginProtection(), journal: journal{to: config.Logger}, scans: newScans()}
	s.bound()
	s.stats = gauge.NewStats(gauge.StatsConfig{
		Logger: config.Logger, Version: config.Version, Sampler: config.sampler, Guarded: config.Guard.On(), UnderWay: s.turns.underWay, Connections: s.connections,
	}, time.Now())
	if err = s.watch(); err != nil {
		return nil, err
	}
	s.SetCredentials(config.Credentials)
	s.allow.Store(&config.Allow)
	handlers := api.New(api.Config{
		Store: config.Store, Enqueuer: config.Enqueuer, Limiter: config.Limiter, Description: document.JSON(), OldHeaders: config.OldHeaders,
		Breaker: config.Breaker, Breakers: config.Breakers, Version: config.Version,
		Stats:   func() any { return s.stats.View(time.Now()) },
		Doctor:  func(ctx context.Context) (any, error) { return doctor.Run(ctx, config.Store) },
		Decided: requests.Decided, Took: requests.Took, Signalled: requests.Signalled, Acquired: requests.Acquired,
		Refused: func(r api.Refusal) {
			config.Logger.Info().Str("scope", string(r.Scope)).Str("reason", string(r.Reason)).Str("by", string(r.By)).Int64("tokens", int64(r.Tokens)).
				Dur("retry_after_ms", r.Wait).Int64("refused", r.Count).Msg("check refused")
		},
		Missed:  func(what string, err error) { config.Logger.Warn().Err(err).Msg(what) },
		Metrics: promhttp.HandlerFor(config.Registry, promhttp.HandlerOpts{Timeout: config.Timeout, MaxRequestsInFlight: 2}),
	})
	s.api = handlers
	mux, err := s.mux(document, handlers.Routes())
	if err != nil {
		return nil, err
	}
	s.handler = s.outside(mux)
	return s, nil
}

// SetCredentials replaces the credentials that are taken, from the next call on.
func (s *Server) SetCredentials(c access.Credentials) { s.credentials.Store(&c) }

// SetAllow replaces the networks that may call, from the next call on; none means all. More than 1000 are refused.
func (s *Server) SetAllow(networks []netip.Prefix) error {
	if err := validateAllow(networks); err != nil {
		return err
	}
	s.allow.Store(&networks)
	return nil
}

// Handler answers calls, for a server of the program's own, which bounds its connections itself.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers calls on a listener until ctx ends. Then it takes no more, waits up to 15 s for those under way, and
// returns nil. Meanwhile it follows the policy. Once headgate migrate has given the deployment another number of partitions, or has moved it, it ends
// in the same way, with an error: open the deployment anew.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	door := s.newDoor(listener)
	s.door.Store(door)
	listener = door
	if s.config.TLS != nil {
		settings := s.config.TLS.Clone()
		settings.MinVersion = max(settings.MinVersion, minimumTLS)
		settings.NextProtos = []string{"h2", "http/1.1"}
		if settings.ClientCAs != nil {
			settings.ClientAuth = tls.RequireAndVerifyClientCert
		}
		listener = tls.NewListener(listener, settings)
	}
	server := &http.Server{
		Handler: s.handler, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		ReadTimeout: readHeaderTimeout + s.config.Timeout, WriteTimeout: readHeaderTimeout + 2*s.config.Timeout,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) }, // Calls under way are finished.
		ErrorLog:    newErrorLog(&s.journal), ConnState: door.changed, ConnContext: withGuest,
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var ending sync.WaitGroup
	var ended, outdated error
	ending.Go(func() {
		defer stop()
		outdated = s.watchLayout(ctx)
	})
	ending.Go(func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := server.Shutdown(end); err != nil { // The time is over: what is still under way is cut off.
			ended = errors.Join(fmt.Errorf("shut down: %w", err), server.Close())
		}
	})
	ending.Go(func() {
		s.api.Follow(ctx, func(version int64) {
			s.config.Logger.Info().Int64("version", version).Msg("policy read")
		}, func(err error) {
			s.config.Logger.Warn().Err(err).Msg("policy is not followed; decisions notice a new one all the same")
		})
	})
	ending.Go(func() { s.machine.Run(ctx) })
	ending.Go(func() { s.stats.Run(ctx) })
	ending.Go(func() {
		s.scans.run(ctx, s.config.Store, func(err error) { s.config.Logger.Warn().Err(err).Msg("a scan is not told of") })
	})
	counts, stopCounting := context.WithCancel(context.WithoutCancel(ctx)) // To the end of the last call.
	defer stopCounting()
	var counting sync.WaitGroup
	counting.Go(func() { s.api.Count(counts) })
	err := server.Serve(listener) // It returns as the end begins, or where the listener fails.
	stop()
	ending.Wait()
	stopCounting()
	counting.Wait()
	if outdated != nil {
		outdated = fmt.Errorf("serve: %w", outdated)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("serve: %w", err), outdated, ended)
	}
	return errors.Join(outdated, ended)
}

// mux returns the routes, each behind its guard, and answers for all other paths and methods.
func (s *Server) mux(document *openapi.Document, routes []route.Route) (http.Handler, error) {
	mux := http.NewServeMux()
	allowed := map[string]string{}
	described := map[string]bool{}
	var bad []error
	for _, r := range routes {
		operation, ok := document.Operation(r.Pattern())
		switch {
		case r.Validate() != nil:
			bad = append(bad, r.Validate())
			continue
		case !ok:
			bad = append(bad, fmt.Errorf("route %s is not described in openapi.yaml", r.Pattern()))
			continue
		case operation.Role != r.Role.String() || operation.Reach != r.Reach.String() || operation.Load != r.Load.String():
			bad = append(bad, fmt.Errorf("route %s is for %s of %s with load %q, and openapi.yaml says %s of %s with load %q",
				r.Pattern(), r.Role, r.Reach, r.Load, operation.Role, operation.Reach, operation.Load))
			continue
		}
		described[r.Pattern()] = true
		mux.Handle(r.Pattern(), s.guard(r, operation))
		allowed[r.Path] = joined(allowed[r.Path], r.Method)
	}
	for _, pattern := range document.Patterns() {
		if !described[pattern] {
			bad = append(bad, fmt.Errorf("openapi.yaml has %s, and no route is like that", pattern))
		}
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	for path, methods := range allowed {
		mux.Handle(path, s.wrongMethod(methods))
	}
	mux.Handle("/", http.HandlerFunc(s.noPath))
	return mux, nil
}

func joined(methods, method string) string {
	if method == http.MethodGet {
		method = "GET, HEAD"
	}
	if methods == "" {
		return method
	}
	return methods + ", " + method
}
