package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

func TestConnect(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s, err := Connect(t.Context(), "redis://"+server.Addr(), Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	_, err = s.Time(t.Context())
	check(t, errors.Join(err, s.Close()))

	for name, c := range map[string]struct {
		open func() error
		want string
	}{
		"a URL that is none, which may hold a password": {
			func() error { _, err := Connect(t.Context(), "http://user:hunter2@host", Config{}); return err },
			"invalid redis URL (not shown, it may hold a password; it has a scheme, a database or a parameter that is unknown or out of range): allowed is " +
				"redis://[user:password@]host:port[/db], rediss:// for TLS, host:port, unix://path, redis-sentinel://host:port,host:port/db?master=NAME, or redis-cluster://host:port,host:port",
		},
		"replicas without bounds": {
			func() error {
				_, err := Open(t.Context(), server.Client(t), Config{Replicas: -1, ReplicaTimeout: time.Minute, ReplicaQueues: []string{"a b"}})
				return err
			},
			"invalid replicas -1: allowed is 0 to 16\ninvalid replica timeout 1m0s: allowed is 1ms to 400ms\n" +
				`invalid queue "a b": allowed is 1-128 bytes of [A-Za-z0-9._@/-]`,
		},
		"a prefix that would move the hash tag": {
			func() error { _, err := Open(t.Context(), server.Client(t), Config{Prefix: "a{b}"}); return err },
			`invalid prefix "a{b}": allowed is 1-32 bytes of [A-Za-z0-9._@/-]`,
		},
		"a client that resends by itself": {
			func() error {
				client := redis.NewClient(&redis.Options{Addr: server.Addr()})
				defer func() { _ = client.Close() }()
				_, err := Open(t.Context(), client, Config{})
				return err
			},
			"invalid MaxRetries of the redis client 3: allowed is -1: what is in doubt is resent by the layer that knows for how long ids are remembered (or use Connect)",
		},
	} {
		if err := c.open(); !errors.Is(err, admission.ErrInvalid) || err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConnectFailsFast(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	_, err := Connect(t.Context(), "redis://127.0.0.1:1", Config{})
	if !errors.Is(err, admission.ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	if passed := time.Since(begin); passed > redisconn.CheckTimeout+time.Second {
		t.Errorf("it took %s", passed)
	}
}

// TestScriptsAreLoadedAgain: a Redis that restarted, or whose operator flushed its scripts, does not know them.
func TestScriptsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	s, err := openOnly(t.Context(), client, Config{})
	check(t, err)
	limits := &[admission.Levels]admission.Limit{}
	for i := range 3 {
		j := admission.NewJob("acme", "mail", "t", nil)
		j.ID = strings.Repeat("j", i+1)
		verdicts, err := s.Admit(t.Context(), 0, []store.Candidate{{Job: &j, Class: 1, Limits: limits}})
		check(t, err)
		check(t, verdicts[0].Err())
		check(t, client.ScriptFlush(t.Context()).Err())
	}
	census, err := s.Census(t.Context())
	check(t, err)
	if census.Accepted != 3 || !census.Conserved() {
		t.Errorf("%+v", census)
	}
}
