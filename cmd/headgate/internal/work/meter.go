package work

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
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/telemetry"
)

// meter makes the traces of a worker and serves its metrics, to everybody who reaches its address. That without an address
// serves none.
type meter struct {
	*telemetry.Telemetry

	registry *prometheus.Registry
	listener net.Listener // nil for none
	logger   zerolog.Logger
}

func newMeter(ctx context.Context, address string, tracer trace.TracerProvider, log *logs.Logs) (*meter, error) {
	m := &meter{logger: log.Logger(logs.Worker), registry: prometheus.NewRegistry()}
	config := telemetry.Config{Tracer: tracer}
	if address != "" {
		config.Registerer = m.registry
	}
	shown, err := telemetry.New(config)
	if err != nil || address == "" {
		m.Telemetry = shown
		return m, err
	}
	m.Telemetry = shown
	dropped := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "headgate_log_lines_dropped_total", Help: "Lines that were left out of the log because it was hot.",
	}, func() float64 { return float64(log.Dropped()) })
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), process, dropped} {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	m.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	return m, err
}

// start serves until stop is called, which waits for the scrape under way.
func (m *meter) start(ctx context.Context) (stop func()) {
	if m.listener == nil {
		return func() {}
	}
	const patience = 10 * time.Second
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Timeout: patience, MaxRequestsInFlight: 2}))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: 2 * patience, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	m.logger.Info().Str("address", "http://"+m.listener.Addr().String()+"/metrics").Msg("metrics are served")
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(m.listener); !errors.Is(err, http.ErrServerClosed) {
			m.logger.Error().Err(err).Msg("metrics are served no more")
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
