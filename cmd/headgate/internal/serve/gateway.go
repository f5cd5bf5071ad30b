package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/httplimit"
)

// gateway is a listener of its own beside the API, for proxies that ask about requests. Who reaches it is believed: it is on loopback, or asks for a
// certificate.
type gateway struct {
	name, address string
	handler       http.Handler
}

// The bounds of a gateway's listener.
const (
	gatewayConnections = 1024
	gatewayHeaderBytes = 16 << 10
	gatewayRead        = 5 * time.Second
	gatewayIdle        = 5 * time.Minute
	gatewayShutdown    = 5 * time.Second
)

// answerGateways makes what answers them.
func (s *Server) answerGateways() error {
	c := &s.config.Authz
	if c.Listen == "" {
		return nil
	}
	if s.limiter == nil {
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
	filter, err := httplimit.New(s.limiter, limits)
	if err != nil {
		return err
	}
	const prefix, nginx = "/authz", "/authz/nginx"
	mux := http.NewServeMux()
	mux.Handle(nginx, filter.Authz(nginx, http.StatusForbidden))
	mux.Handle(prefix, filter.Authz(prefix, 0))
	mux.Handle(prefix+"/", filter.Authz(prefix, 0))
	s.gateways = append(s.gateways, gateway{"gateways are answered", c.Listen, mux})
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

// serveGateways answers gateways until ctx ends.
func (s *Server) serveGateways(ctx context.Context) error {
	ended := make(chan error, len(s.gateways))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, g := range s.gateways {
		go func() {
			defer stop()
			ended <- s.serveGateway(ctx, g)
		}()
	}
	<-ctx.Done()
	var bad []error
	for range s.gateways {
		bad = append(bad, <-ended)
	}
	return errors.Join(bad...)
}

func (s *Server) serveGateway(ctx context.Context, g gateway) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", g.address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.logger.Info().Str("address", listener.Addr().String()).Msg(g.name)
	listener = netutil.LimitListener(listener, gatewayConnections)
	server := &http.Server{
		Handler: g.handler, MaxHeaderBytes: gatewayHeaderBytes, ReadHeaderTimeout: gatewayRead, ReadTimeout: gatewayRead,
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
	if settings := s.tls(); settings != nil && settings.ClientCAs != nil {
		settings.ClientAuth = tls.RequireAndVerifyClientCert
		server.TLSConfig = settings
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		_ = listener.Close()
		return fmt.Errorf("serve: %w", err)
	}
	return <-ended
}
