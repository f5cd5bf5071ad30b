package examples_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/telemetry"
)

// show gives a client's metrics to a registry.
func show(registry prometheus.Registerer, hg *headgate.Client) error {
	//snippet:begin collector
	return registry.Register(telemetry.Collector(hg)) // beside Open; registry is prometheus.DefaultRegisterer, or yours
	//snippet:end
}

func TestAClientShowsItsMetrics(t *testing.T) {
	t.Parallel()
	hg, registry := open(t), prometheus.NewPedanticRegistry()
	check(t, show(registry, hg))
	_, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: "acme", Queue: "mail", Args: Welcome{To: "ada"}})
	check(t, err)
	if n, err := testutil.GatherAndCount(registry, "throttle_requests_total"); err != nil || n != 1 {
		t.Errorf("%d series of what became of one job: %v", n, err)
	}
}
