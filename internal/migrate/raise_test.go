package migrate

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestTheDataOfADeploymentIsRaised: where nothing is to move a migration lets scripts pack, once nobody works.
func TestTheDataOfADeploymentIsRaised(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix(t)
	config := redisstore.Config{Prefix: prefix, Partitions: 2}
	for i := range config.Partitions { // An older release has begun it.
		check(t, client.HSet(t.Context(), keyspace.New(prefix, i).State(), redisconn.LayoutField, config.Partitions, redisconn.DataField, redisconn.TextData).Err())
	}
	s, err := redisstore.Open(t.Context(), client, config)
	check(t, err)
	parts := inRedis(s)
	for _, part := range parts {
		_, err = part.Register(t.Context(), "w", crowdQueues, 1, time.Minute)
		check(t, err)
	}
	packed := func() (n int) {
		for _, part := range parts {
			if client.HExists(t.Context(), part.Keys().State(), keyspace.CoreField).Val() {
				n++
			}
		}
		return n
	}
	run := func() error {
		m, err := Open(t.Context(), client, client, Config{Prefix: prefix, Partitions: config.Partitions, Update: renewed})
		check(t, err)
		_, err = m.Run(t.Context())
		return err
	}
	if err := run(); !errors.Is(err, ErrBusy) {
		t.Errorf("with a worker: %v", err)
	}
	leave := func() {
		for _, part := range parts {
			_, err := part.Reclaim(t.Context(), "w")
			check(t, err)
		}
	}
	leave()
	if n := packed(); n != 0 {
		t.Errorf("%d partitions are packed before they may be", n)
	}
	check(t, run())
	for _, part := range parts {
		_, err = part.Register(t.Context(), "w", crowdQueues, 1, time.Minute)
		check(t, err)
	}
	if n := packed(); n != config.Partitions {
		t.Errorf("%d partitions are packed", n)
	}
	leave()
	check(t, run())
}
