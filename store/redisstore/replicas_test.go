package redisstore

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// offer admits a job by a client of its own and returns the verdict.
func offer(ctx context.Context, t *testing.T, server *redistest.Server, config Config, job admission.Job) (admission.Verdict, error) {
	t.Helper()
	config.ReplicaTimeout = maxReplicaTimeout
	st, err := newStore(server.Client(t), config, "")
	check(t, err)
	verdicts, err := st.Admit(ctx, 0, []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
	if err != nil {
		return admission.Verdict{}, err
	}
	return verdicts[0], nil
}

func TestAVerdictSaysWhetherReplicasHaveTheJob(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, redistest.Options{Args: []string{"--repl-diskless-sync-delay", "0"}})
	host, port, err := net.SplitHostPort(master.Addr())
	check(t, err)
	replica := redistest.Start(t, redistest.Options{Args: []string{"--replicaof", host + " " + port}})
	one := Config{Replicas: 1}
	// A replica that copies the data or is short of a processor confirms late: a verdict may say so, but not each.
	confirmed := func(name string, decision admission.Decision, id func(int) string) {
		t.Helper()
		for i, end := 0, time.Now().Add(time.Minute); ; i++ {
			verdict, err := offer(t.Context(), t, master, one, mail("acme", id(i)))
			check(t, err)
			if verdict.Decision != decision || time.Now().After(end) {
				t.Fatalf("%s: %+v", name, verdict)
			}
			if !verdict.Unreplicated {
				return
			}
		}
	}
	want := func(name string, config Config, job admission.Job, decision admission.Decision, unreplicated bool) {
		t.Helper()
		verdict, err := offer(t.Context(), t, master, config, job)
		check(t, err)
		if verdict.Decision != decision || verdict.Unreplicated != unreplicated {
			t.Errorf("%s: %+v", name, verdict)
		}
	}
	confirmed("with a replica", admission.Admitted, func(i int) string { return "a" + strconv.Itoa(i) })
	want("with one of two", Config{Replicas: 2}, mail("acme", "b"), admission.Admitted, true)
	replica.Pause(t)
	want("without", one, mail("acme", "c"), admission.Admitted, true)
	want("a duplicate, by another connection", one, mail("acme", "c"), admission.Duplicate, true)
	want("of a queue that is not waited for", Config{Replicas: 1, ReplicaQueues: []string{"pay"}}, mail("acme", "d"), admission.Admitted, false)
	want("of one that is", Config{Replicas: 1, ReplicaQueues: []string{"pay", "mail"}}, mail("acme", "e"), admission.Admitted, true)
	want("of a st that waits for none", Config{}, mail("acme", "f"), admission.Admitted, false)
	replica.Resume(t)
	confirmed("a duplicate, once it follows again", admission.Duplicate, func(int) string { return "c" })
}

// TestARedisWithTooFewReplicasIsAway: min-replicas-to-write keeps a master that was cut off from taking jobs which are lost
// when it comes back as a replica.
func TestARedisWithTooFewReplicasIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Args: []string{"--min-replicas-to-write", "1"}})
	for _, config := range []Config{{}, {Replicas: 1}} {
		if _, err := offer(t.Context(), t, server, config, mail("acme", "a")); !errors.Is(err, admission.ErrUnavailable) || store.InDoubt(err) {
			t.Errorf("%v", err)
		}
	}
	if n := server.Client(t).DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}

func TestWaitingForReplicasTellsDoubtFromAbsence(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	server.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := offer(ctx, t, server, Config{Replicas: 1}, mail("acme", "a")); !store.InDoubt(err) {
		t.Errorf("a Redis that does not answer: %v", err)
	}
	server.Kill(t)
	if _, err := offer(t.Context(), t, server, Config{Replicas: 1}, mail("acme", "a")); !errors.Is(err, admission.ErrUnavailable) || store.InDoubt(err) {
		t.Errorf("a Redis that is gone: %v", err)
	}
}
