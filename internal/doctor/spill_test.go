package doctor

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestDoctorComparesBothRedises: none in use, one that is well, one that nobody moves to, one that has lost a body or has one of nobody, one that
// is away.
func TestDoctorComparesBothRedises(t *testing.T) {
	t.Parallel()
	second := redistest.Start(t, redistest.Options{})
	there := second.Client(t)
	client, config := redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Second: second.Addr()}
	s, err := redisstore.Open(t.Context(), client, config)
	check(t, err)
	expect(t, s, "spill", HealthOK, "no spilled job")
	check(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Overflows: []store.TenantOverflow{{
		Tenant: "acme", Queue: "mail", Overflow: store.Overflow{Policy: store.Spillover, MaxJobs: 1, MaxSpilled: 4, MaxMoved: 10},
	}}}))
	part := s.Partitions()[0]
	for n := range 5 {
		job := admission.NewJob("acme", "mail", "t", []byte("x"))
		job.ID = strconv.Itoa(n)
		verdicts, err := part.Admit(t.Context(), 1, []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
		check(t, err)
		check(t, verdicts[0].Err())
	}
	mover := part.NewMover("m")
	move := func() (m store.Moves) {
		for range 3 {
			m, err = mover.Move(t.Context())
			check(t, err)
		}
		return m
	}
	move()
	expect(t, s, "spill", HealthOK, "2 spilled jobs have their bodies in the second Redis")
	records := redisstore.Keys(s).Base() + "second:records"
	check(t, there.HSet(t.Context(), records, "9 acme:nobody", "x").Err())
	expect(t, s, "spill", HealthWarn, "which holds 3 and 0 that are to be dropped")
	check(t, there.HDel(t.Context(), records, "9 acme:nobody").Err())
	check(t, client.HSet(t.Context(), redisstore.Keys(s).State(), "mok", time.Now().Add(-time.Hour).UnixMicro()).Err())
	expect(t, s, "spill", HealthFail, "nobody has moved any for 1h0m")
	second.Kill(t)
	if move().Trouble == nil {
		t.Error("no trouble without the second Redis")
	}
	expect(t, s, "spill", HealthFail, "none is moved: that Redis is away")
	second.Restart(t) // Empty: it keeps nothing.
	expect(t, s, "spill", HealthFail, "which holds 0")
}
