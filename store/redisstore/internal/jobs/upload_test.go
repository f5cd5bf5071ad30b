package jobs

import (
	"errors"
	"slices"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestAnUploadWithoutItsScriptGoes: what a caller left that died between the two goes by itself, and a script that finds no payload lets
// no job in.
func TestAnUploadWithoutItsScriptGoes(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Options{}).Client(t)
	conn := redisconn.New(client, keyspace.New(keyspace.DefaultPrefix, 0), "")
	conn.EndedCap, conn.BucketCap = 1000, 1000
	s := New(conn, Replicas{}, nil)
	j := admission.NewJob("acme", "mail", "t", make([]byte, store.LargePayload+1))
	j.ID = "a"
	args, payloads := s.admitArgs(0, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
	pipe := client.Pipeline()
	s.sendUploads(t.Context(), pipe, payloads)
	_, err := pipe.Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := conn.Partition.Upload(payloads[0].name)
	if ttl, err := client.TTL(t.Context(), key).Result(); err != nil || ttl <= 0 || ttl > uploadedFor {
		t.Errorf("what is left goes in %v, %v", ttl, err)
	}
	if err := client.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	reply, err := conn.Run(t.Context(), "admit", args...)
	if err != nil || !slices.Equal(reply, []string{"decided", "memory"}) {
		t.Errorf("a job whose payload is gone: %v, %v", reply, err)
	}
	if _, err := s.Payload(t.Context(), admission.Key{Tenant: "acme", ID: "a"}); !errors.Is(err, admission.ErrUnknownJob) {
		t.Errorf("its payload: %v", err)
	}
}
