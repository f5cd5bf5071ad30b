package asynqbridge_test

import (
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestBesideACluster runs gate, fair and breaker with Headgate on three masters, a partition each, and asynq on a Redis of its own.
func TestBesideACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartNodes(t, 3, false)
	for name, test := range map[string]func(*testing.T, siteOf){
		"a refund": refund, "a lost hand-over": handOverOnce, "a probe's end": resumeAfterProbe,
		"a worker's failures": failAtWorker, "asynq's failures": failAtAsynq, "one probe": probeOnce,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(t *testing.T, limit admission.Limit) *site {
				t.Helper()
				s := newAsynq(t)
				s.connect(cluster.Client(t), redisstore.Config{Partitions: 3, Prefix: redistest.Prefix(t)}, limit)
				return s
			})
		})
	}
}
