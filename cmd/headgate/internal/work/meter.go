package work

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/cmd/headgate/internal/scrape"
	"github.com/headgate/headgate/telemetry"
)

// meter makes the traces of a worker and serves its metrics, to everybody who reaches its address. That without an address
// serves none.
type meter struct {
	*telemetry.Telemetry

	server *scrape.Server
}

func newMeter(ctx context.Context, address string, tracer trace.TracerProvider, log *logs.Logs) (*meter, error) {
	registry := prometheus.NewRegistry()
	config := telemetry.Config{Tracer: tracer}
	if address != "" {
		config.Registerer = registry
	}
	shown, err := telemetry.New(config)
	if err != nil {
		return nil, err
	}
	server, err := scrape.Listen(ctx, address, registry, log, logs.Worker)
	return &meter{Telemetry: shown, server: server}, err
}
