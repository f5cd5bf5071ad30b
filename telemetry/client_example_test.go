package telemetry_test

import (
	"context"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/telemetry"
)

type welcome struct{ To string }

func (welcome) Kind() string { return "welcome" }

// The metrics of a client are there for Prometheus: of what it enqueues, and of its workers, limiters and breakers.
func ExampleCollector() {
	ctx := context.Background()
	hg, err := headgate.Open(ctx, "memory:", headgate.Config{}) // yours: "redis://localhost:6379"
	if err != nil {
		log.Fatal(err)
	}
	defer hg.Close()
	registry := prometheus.NewRegistry()
	err = registry.Register(telemetry.Collector(hg)) // beside Open; yours: prometheus.Register
	if err != nil {
		log.Fatal(err)
	}
	if _, err := hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{To: "ada@example.com"}}); err != nil {
		log.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "throttle_requests_total" {
				fmt.Println(family.GetName(), metric.GetLabel()[0].GetValue(), metric.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// throttle_requests_total admitted 1
}
