package relay

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/cmd/headgate/internal/scrape"
	"github.com/headgate/headgate/store"
)

// addMetered adds the flags of a command that goes on until it is told to stop, and serves the metrics of what it does.
func addMetered(c *cobra.Command, f *cli.Target, of string) {
	f.Add(c.Flags())
	c.Flags().String("metrics", "", "`HOST:PORT` at which to serve the "+of+"'s own metrics, /metrics, to whoever reaches it")
	f.Paths = append(slices.Clone(f.Paths), config.PathMetrics)
}

// serving is what such a command does its work with.
type serving struct {
	store    store.Deployment
	logger   zerolog.Logger
	registry *prometheus.Registry
	metrics  *scrape.Server
}

// metered does a command's work on a deployment.
func metered(c *cobra.Command, f *cli.Target, do func(ctx context.Context, s *serving) error) error {
	log := logs.New(c.ErrOrStderr(), f.Loaded.Logs())
	s := &serving{logger: log.Logger(logs.Producer), registry: prometheus.NewRegistry()}
	var err error
	if s.metrics, err = scrape.Listen(c.Context(), f.Loaded.Config.Metrics.Address, s.registry, log, logs.Producer); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return f.With(c.Context(), c.ErrOrStderr(), func(ctx context.Context, d store.Deployment) error {
		s.store = d
		return do(ctx, s)
	})
}

// run does what runs until it is told to stop, while its metrics are served.
func (s *serving) run(ctx context.Context, collector prometheus.Collector, run func(context.Context) error) error {
	if err := s.registry.Register(collector); err != nil {
		return err
	}
	defer s.metrics.Start(ctx)()
	return run(ctx)
}
