package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestReadHandsOutWhatCannotBeRead: a job whose payload or record is gone must not keep a worker from its others.
func TestReadHandsOutWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s, err := openOnly(t.Context(), client, Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	limits := &[admission.Levels]admission.Limit{}
	var jobs []store.Candidate
	for id, payload := range map[string][]byte{"large": make([]byte, 1<<16), "small": []byte("x"), "broken": []byte("x")} {
		j := admission.NewJob("acme", "mail", "t", payload)
		j.ID = id
		jobs = append(jobs, store.Candidate{Job: &j, Class: 1, Limits: limits})
	}
	_, err = s.Admit(t.Context(), 0, jobs)
	check(t, err)
	check(t, client.Del(t.Context(), s.conn.Partition.Large("acme:large")).Err())
	check(t, client.HSet(t.Context(), s.conn.Partition.Jobs(), "acme:broken", "\x01short").Err())
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	_, err = s.Register(t.Context(), "w", pool, 5, time.Minute)
	check(t, err)
	for _, history := range []bool{false, true} {
		leases, err := s.Read(t.Context(), "w", pool.ID(), 5, -1, history)
		check(t, err)
		bad := map[string]string{}
		for _, l := range leases {
			if l.Err != nil {
				bad[l.Job.ID] = l.Err.Error()
			}
		}
		if len(leases) != 3 || len(bad) != 2 || !strings.Contains(bad["large"], "payload is gone") || !strings.Contains(bad["broken"], "record too short") {
			t.Errorf("history %t: %d leases, errors %v", history, len(leases), bad)
		}
	}
}
