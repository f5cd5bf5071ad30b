package migrate

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestBodiesInASecondRedisAreBroughtBackFirst: a migration changes nothing while the second Redis has some, and says what to do.
func TestBodiesInASecondRedisAreBroughtBackFirst(t *testing.T) {
	t.Parallel()
	second := redistest.Start(t, redistest.Options{})
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Second: second.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	put := func(version int64, moved int) {
		t.Helper()
		err := s.PutPolicy(t.Context(), store.PolicyUpdate{
			Expected: version - 1, Version: version, Text: []byte("{}"), Window: time.Minute, Overflows: []store.TenantOverflow{{
				Tenant: "acme", Queue: "mail", Overflow: store.Overflow{Policy: store.Spillover, MaxJobs: 1, MaxSpilled: 4, MaxMoved: moved, LowWater: 50},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(1, 10)
	part := s.Partitions()[0]
	for n := range 5 {
		job := admission.NewJob("acme", "mail", "t", []byte("x"))
		job.ID = strconv.Itoa(n)
		if _, err := part.Admit(t.Context(), 1, []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{}}}); err != nil {
			t.Fatal(err)
		}
	}
	mover := part.NewMover("m")
	move := func() {
		t.Helper()
		for range 4 {
			if m, err := mover.Move(t.Context()); err != nil || m.Trouble != nil {
				t.Fatal(err, m.Trouble)
			}
		}
	}
	run := func() error {
		t.Helper()
		m, err := Open(t.Context(), client, client, Config{Prefix: prefix, Partitions: 2, Update: renewed})
		if err == nil {
			_, err = m.Run(t.Context())
		}
		return err
	}
	move()
	if err := run(); err == nil || !strings.Contains(err.Error(), "2 bodies of spilled jobs are in the second redis: take spill_to out") {
		t.Fatalf("with bodies there: %v", err)
	}
	put(2, 0)
	move()
	if err := run(); err != nil {
		t.Fatalf("with all of them here: %v", err)
	}
	moved, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := moved.Census(t.Context()); err != nil || !c.Conserved() || c.Live != 5 || c.Spilled != 4 {
		t.Errorf("%+v, %v", c, err)
	}
}
