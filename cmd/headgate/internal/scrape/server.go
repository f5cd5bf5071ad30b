package scrape

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/cmd/headgate/internal/logs"
)

// Server serves metrics, from Start on. A nil one serves none.
type Server struct {
	registry *prometheus.Registry
	listener net.Listener
	logger   zerolog.Logger
}

// Listen takes an address, host:port, and adds the metrics of the process and of its log to the registry. Without an address it returns nil.
func Listen(ctx context.Context, address string, registry *prometheus.Registry, log *logs.Logs, of logs.Component) (*Server, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // A nil server serves none.
	}
	dropped := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "headgate_log_lines_dropped_total", Help: "Lines that were left out of the log because it was hot.",
	}, func() float64 { return float64(log.Dropped()) })
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), process, dropped} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &Server{registry: registry, listener: listener, logger: log.Logger(of)}, nil
}

// Start serves until stop is called, which waits for the scrape under way.
func (s *Server) Start(ctx context.Context) (stop func()) {
	if s == nil {
		return func() {}
	}
	const patience = 10 * time.Second
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Timeout: patience, MaxRequestsInFlight: 2}))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: 2 * patience, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	s.logger.Info().Str("address", "http://"+s.listener.Addr().String()+"/metrics").Msg("metrics are served")
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.logger.Error().Err(err).Msg("metrics are served no more")
		}
	})
	return func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			_ = server.Close() // The time is over: what is still under way is cut off.
		}
		serving.Wait()
	}
}
