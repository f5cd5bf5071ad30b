package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/telemetry"
)

// Run answers calls until ctx ends, and returns nil when those under way are answered. At each signal of reload it reads
// keys, tokens' keys and the certificate again; what cannot be read is logged, and what was in force stays so. producers is the
// log of what is enqueued over HTTP.
func Run(ctx context.Context, store *lua.Store, logger, producers zerolog.Logger, config Config, reload <-chan os.Signal) error {
	if err := config.Validate(); err != nil {
		return err
	}
	config = config.withDefaults()
	shown := &certificate{config: config}
	settings, tlsErr := shown.settings()
	credentials, keysErr := config.credentials()
	registry := prometheus.NewRegistry()
	observed, err := telemetry.New(telemetry.Config{Registerer: registry})
	if err != nil {
		return err
	}
	enqueuer, producerErr := producer.New(store, producer.Config{Logger: producers, Observer: observed.Producer()})
	allow, allowErr := config.prefixes()
	if err := errors.Join(tlsErr, keysErr, producerErr, allowErr); err != nil {
		return err
	}
	server, err := admin.New(admin.Config{ //nolint:contextcheck // Handlers have the ctx of their request.
		Logger: logger, Store: store, Enqueuer: enqueuer, Credentials: credentials, Open: config.NoAuth, TLS: settings, Allow: allow,
		Registry: registry, MaxBody: config.MaxBody, Timeout: config.Timeout, OldHeaders: config.OldHeaders,
		AdminLimit: headgate.PerSecond(headgate.Tokens(config.Rate), headgate.Tokens(config.Burst)),
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", config.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	scheme := "https"
	if settings == nil {
		scheme = "http"
	}
	logger.Info().Str("address", scheme+"://"+listener.Addr().String()).Stringer("credentials", credentials).Msg("admin API listens")
	if config.NoAuth {
		logger.Warn().Msg("everybody on this machine is an admin: --insecure-no-auth")
	} else if settings == nil && !loopback(config.Address) {
		logger.Warn().Msg("credentials cross the network in the clear: give --tls-cert and --tls-key, or let a proxy speak TLS")
	}
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { follow(ctx, logger, config, server, shown, reload) })
	var followed error
	following.Go(func() { followed = enqueuer.Run(ctx) })
	err = server.Serve(ctx, listener)
	stop()
	following.Wait()
	return errors.Join(err, followed)
}

// follow reads the files again whenever it is told to.
func follow(ctx context.Context, logger zerolog.Logger, config Config, server *admin.Server, shown *certificate, reload <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
		}
		credentials, err := config.credentials()
		if err == nil && credentials.None() && !config.NoAuth {
			err = errors.New("no key and no token would be taken")
		}
		if err == nil && config.CertFile != "" {
			err = shown.load()
		}
		if err != nil {
			logger.Error().Err(err).Msg("not read again; what was in force stays")
			continue
		}
		server.SetCredentials(credentials)
		logger.Info().Stringer("credentials", credentials).Msg("read again")
	}
}
