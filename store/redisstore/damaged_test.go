package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/policies"
)

// emptied answers every XREAD as no Redis does: with nothing, or with a stream of nothing.
type emptied []redis.XStream

func (emptied) DialHook(next redis.DialHook) redis.DialHook { return next }

func (emptied) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (e emptied) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		read, ok := cmd.(*redis.XStreamSliceCmd)
		if !ok {
			return next(ctx, cmd)
		}
		read.SetVal(e)
		read.SetErr(nil)
		return nil
	}
}

// TestAnswersWithoutEntriesAreErrors: a proxy that says nothing where Redis has to say something ends no process, and is no answer.
func TestAnswersWithoutEntriesAreErrors(t *testing.T) {
	t.Parallel()
	for _, streams := range []emptied{nil, {}, {{Stream: "x"}}} {
		client := redistest.Shared(t).Client(t)
		st, err := openOnly(t.Context(), client, Config{Prefix: redistest.Prefix(t)})
		if err != nil {
			t.Fatal(err)
		}
		client.AddHook(streams)
		reader := st.NewPolicyReader().(*policies.Reader)
		reader.Position = "0-0"
		before := reader.Position
		if err := reader.Await(t.Context(), client); !errors.Is(err, redisconn.ErrEmptyStream) || reader.Position != before {
			t.Errorf("the policy's reader: %v", err)
		}
		if last, err := st.ReadOne(t.Context(), "x", "0-0", time.Millisecond); !errors.Is(err, admission.ErrUnavailable) || last != "0-0" {
			t.Errorf("a wake: %s, %v", last, err)
		}
		if events, position, err := st.EventsOn(t.Context(), client, "0-0", time.Millisecond); !errors.Is(err, admission.ErrUnavailable) || position != "0-0" || events != nil {
			t.Errorf("events: %v %s %v", events, position, err)
		}
		if leases, err := st.Read(t.Context(), "w", "p", 1, -1, false); err != nil || len(leases) != 0 {
			t.Errorf("jobs: %v %v", leases, err)
		}
	}
}

func TestARefusedCredentialIsToldApart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	root := server.Client(t)
	if err := root.Do(t.Context(), "ACL", "SETUSER", "poor", "on", ">secret", "~*", "+@connection", "+time").Err(); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		user, password string
		denied         bool
	}{"wrong": {"poor", "other", true}, "nobody": {"nobody", "x", true}, "may not": {"poor", "secret", true}, "default": {"", "", false}} {
		options := server.Options()
		options.Username, options.Password = row.user, row.password
		client := redis.NewClient(options)
		err := client.HGet(t.Context(), "x", "y").Err()
		if store.IsDenied(err) != row.denied || store.IsDenied(fmt.Errorf("read: %w", err)) != row.denied {
			t.Errorf("%s: %v", name, err)
		}
		_ = client.Close()
	}
	if store.IsDenied(nil) || store.IsDenied(errors.New("WRONGPASS said somebody else")) {
		t.Error("what Redis did not say is no refusal of it")
	}
}
