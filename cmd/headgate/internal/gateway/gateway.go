package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/net/netutil"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/rls"
)

// Authz is how gateways are answered that ask over HTTP; without Listen none is.
type Authz struct {
	Listen string
	// Tenant are keys as of the option serve.authz.tenant, and Routes patterns of http.ServeMux.
	Tenant, Routes []string
	Trusted        []netip.Prefix
}

// Mapping is that of package rls.
type Mapping = rls.Mapping

// ReadMapping reads one from a file; the zero Mapping where name is empty.
func ReadMapping(name string) (Mapping, error) {
	if name == "" {
		return Mapping{}, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return Mapping{}, fmt.Errorf("serve.rls.mapping_file: %w", err)
	}
	mapping, err := rls.ReadMapping(text)
	if err != nil {
		return Mapping{}, fmt.Errorf("serve.rls.mapping_file: %w", err)
	}
	return *mapping, nil
}

// RLS is how Envoy's rate limit service is answered; without Listen it is not.
type RLS struct{ Listen string }

// Gateways are listeners of their own beside the API, for proxies that ask about requests. Who reaches them is believed: they are on loopback, or ask
// for a certificate. SetMapping may be called from several goroutines, Run once.
type Gateways struct {
	limits *limiter.Limiter
	logger zerolog.Logger
	tls    *tls.Config
	rls    *rls.Service
	all    []gateway
}

type gateway struct {
	name, address string
	serve         func(ctx context.Context, listener net.Listener) error
}

// New returns the gateways that there are to be. With clients in its authorities settings are those of TLS, else it is not spoken.
func New(limits *limiter.Limiter, logger zerolog.Logger, settings *tls.Config, registry prometheus.Registerer, authz Authz, service RLS, mapping rls.Mapping) (*Gateways, error) {
	g := &Gateways{limits: limits, logger: logger}
	if settings != nil && settings.ClientCAs != nil {
		g.tls = settings
	}
	return g, errors.Join(g.answerAuthz(&authz), g.answerEnvoy(service, mapping, registry))
}

// SetMapping puts another mapping of Envoy's descriptors in force.
func (g *Gateways) SetMapping(mapping rls.Mapping) {
	if g.rls != nil {
		g.rls.SetMapping(&mapping)
	}
}

// answerEnvoy makes the rate limit service, and registers what it counts.
func (g *Gateways) answerEnvoy(c RLS, mapping rls.Mapping, registry prometheus.Registerer) error {
	if c.Listen == "" {
		return nil
	}
	if g.limits == nil || len(mapping.Domains) == 0 {
		return &admission.FieldError{Field: "rls listen", Value: c.Listen, Allowed: "none without serve.rls.mapping_file"}
	}
	g.rls = rls.New(g.limits, &mapping)
	g.all = append(g.all, gateway{"the rate limit service listens", c.Listen, func(ctx context.Context, listener net.Listener) error { return g.rls.Serve(ctx, listener, g.panicked) }})
	var bad []error
	for _, counted := range []struct {
		name, help string
		of         func(rls.Stats) uint64
	}{
		{"headgate_rls_calls_total", "Calls of Envoy's rate limit service that were answered OK or OVER_LIMIT.", func(s rls.Stats) uint64 { return s.Calls }},
		{"headgate_rls_refused_total", "Those that were answered OVER_LIMIT.", func(s rls.Stats) uint64 { return s.Refused }},
		{"headgate_rls_shadowed_descriptors_total", "Descriptors in shadow that would have been refused.", func(s rls.Stats) uint64 { return s.Shadowed }},
		{"headgate_rls_unknown_descriptors_total", "Descriptors that no rule of the mapping is for.", func(s rls.Stats) uint64 { return s.Unknown }},
		{"headgate_rls_failed_total", "Calls that were answered by an error.", func(s rls.Stats) uint64 { return s.Failed }},
	} {
		bad = append(bad, registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: counted.name, Help: counted.help,
		}, func() float64 { return float64(counted.of(g.rls.Stats())) })))
	}
	return errors.Join(bad...)
}

// The bounds of a gateway's listener.
const (
	gatewayConnections = 1024
	gatewayHeaderBytes = 16 << 10
	gatewayRead        = 5 * time.Second
	gatewayIdle        = 5 * time.Minute
	gatewayShutdown    = 5 * time.Second
)

// answerAuthz makes what answers over HTTP.
func (g *Gateways) answerAuthz(c *Authz) error {
	if c.Listen == "" {
		return nil
	}
	if g.limits == nil {
		return &admission.FieldError{Field: "authz listen", Value: c.Listen, Allowed: "none without a limiter"}
	}
	limits := httplimit.Config{Tenant: authzKey(c)}
	if len(c.Routes) > 0 {
		routes, err := authzRoutes(c.Routes)
		if err != nil {
			return err
		}
		limits.Queue = httplimit.FromRoute(routes)
	}
	filter, err := httplimit.New(g.limits, limits)
	if err != nil {
		return err
	}
	const prefix, nginx = "/authz", "/authz/nginx"
	byStatus, for403 := filter.Authz(prefix, 0), filter.Authz(nginx, http.StatusForbidden)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; { // A ServeMux would redirect a path such as //a, and the gateway its client.
		case path == nginx:
			for403.ServeHTTP(w, r)
		case path == prefix || strings.HasPrefix(path, prefix+"/"):
			byStatus.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
	g.all = append(g.all, gateway{"gateways are answered", c.Listen, func(ctx context.Context, listener net.Listener) error { return serveHTTP(ctx, listener, handler) }})
	return nil
}

func authzKey(c *Authz) httplimit.KeyFunc {
	var keys []httplimit.KeyFunc
	for _, key := range c.Tenant {
		if name, ok := strings.CutPrefix(key, config.AuthzHeader); ok {
			keys = append(keys, httplimit.FromHeader(name))
		} else if name, ok := strings.CutPrefix(key, config.AuthzFixed); ok {
			keys = append(keys, httplimit.Fixed(name))
		} else if key == config.AuthzForwarded {
			keys = append(keys, httplimit.FromForwarded(c.Trusted))
		} else {
			keys = append(keys, httplimit.FromIP(c.Trusted))
		}
	}
	return httplimit.First(keys...)
}

// authzRoutes is a mux of the patterns; those that conflict are an error.
func authzRoutes(patterns []string) (mux *http.ServeMux, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("serve.authz.routes: %v", problem)
		}
	}()
	mux = http.NewServeMux()
	for _, pattern := range patterns {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	return mux, nil
}

// Run answers until ctx ends, or until one of them cannot listen.
func (g *Gateways) Run(ctx context.Context) error {
	ended := make(chan error, len(g.all))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, one := range g.all {
		go func() {
			defer stop()
			ended <- g.serve(ctx, one)
		}()
	}
	<-ctx.Done()
	var bad []error
	for range g.all {
		bad = append(bad, <-ended)
	}
	return errors.Join(bad...)
}

func (g *Gateways) serve(ctx context.Context, one gateway) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", one.address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	g.logger.Info().Str("address", listener.Addr().String()).Msg(one.name)
	listener = netutil.LimitListener(listener, gatewayConnections)
	if g.tls != nil {
		settings := g.tls.Clone()
		settings.ClientAuth, settings.NextProtos = tls.RequireAndVerifyClientCert, []string{"h2", "http/1.1"}
		listener = tls.NewListener(listener, settings)
	}
	return one.serve(ctx, listener)
}

// panicked logs a fault of this program that one call has met.
func (g *Gateways) panicked(problem any, stack []byte) {
	g.logger.Error().Any("panic", problem).Bytes("stack", stack).Msg("a call of the rate limit service has panicked")
}

// serveHTTP answers by a handler until ctx ends, and then those calls that have begun.
func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: gatewayHeaderBytes, ReadHeaderTimeout: gatewayRead, ReadTimeout: gatewayRead,
		WriteTimeout: 2 * gatewayRead, IdleTimeout: gatewayIdle, Protocols: &http.Protocols{},
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), gatewayShutdown)
		defer cancel()
		ended <- server.Shutdown(end)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		_ = listener.Close()
		return fmt.Errorf("serve: %w", err)
	}
	return <-ended
}
