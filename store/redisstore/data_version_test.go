package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

func TestOlderReleasesAreRefusedWithWords(t *testing.T) {
	t.Parallel()
	client, config := redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)}
	open := func() (*Partition, error) { return openOnly(t.Context(), client, config) }
	s, err := open()
	check(t, err)
	state := s.conn.Partition.State()
	if got := client.HGet(t.Context(), state, redisconn.DataField).Val(); got != strconv.Itoa(DataVersion) {
		t.Errorf("the first start wrote version %q", got)
	}
	_, err = open()
	check(t, err)
	check(t, client.HSet(t.Context(), state, redisconn.DataField, 0).Err())
	_, err = open()
	check(t, err)

	check(t, client.HSet(t.Context(), state, redisconn.DataField, DataVersion+1).Err())
	before := client.HGetAll(t.Context(), state).Val()
	_, err = open()
	if !errors.Is(err, admission.ErrNewerData) || !strings.Contains(err.Error(), "version 4, this one knows up to 3; run the newer release") {
		t.Errorf("%v", err)
	}
	if after := client.HGetAll(t.Context(), state).Val(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("a start that was refused left %v of %v", after, before)
	}
	check(t, client.HSet(t.Context(), state, redisconn.DataField, "new").Err())
	if _, err = open(); err == nil || !strings.Contains(err.Error(), `"new"`) {
		t.Errorf("%v", err)
	}
}

// TestAFullRedisOpens: a worker that starts on a Redis without memory is what makes room in it.
func TestAFullRedisOpens(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	check(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	if err := server.Client(t).HSet(t.Context(), "x", "y", 1).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Fatalf("it is not full: %v", err)
	}
	_, err := Open(t.Context(), server.Client(t), Config{})
	check(t, err)
}

// TestTwoReleasesSideBySide lets processes of two releases, whose scripts have other texts, admit, read and finish the same
// jobs at the same time: each job ends once, and law L4 holds.
func TestTwoReleasesSideBySide(t *testing.T) {
	t.Parallel()
	server, config := redistest.Start(t, redistest.Options{}), Config{}
	const jobs, processes = 1500, 4
	var running, serving sync.WaitGroup
	var mu sync.Mutex
	ended := map[string]int{}
	limits := &[admission.Levels]admission.Limit{}
	for process := range processes {
		preamble := ""
		if process%2 == 1 {
			preamble = "-- another release\n"
		}
		st, err := newStore(server.Client(t), config, preamble)
		check(t, err)
		worker := fmt.Sprintf("w%d", process)
		_, err = st.Register(t.Context(), worker, yardPool, 8, time.Minute)
		check(t, err)
		running.Go(func() {
			for n := range jobs {
				job := mail(fmt.Sprintf("t%d", n%7), fmt.Sprintf("j%d", n/2)) // Each is asked for twice or more, by both.
				if _, err := st.Admit(t.Context(), 0, []store.Candidate{{Job: &job, Class: 1, Limits: limits}}); err != nil {
					t.Error(err)
				}
			}
		})
		serving.Go(func() {
			for idle := 0; idle < 3; {
				leases, err := st.Read(t.Context(), worker, yardPool.ID(), 8, 100*time.Millisecond, false)
				if err != nil {
					t.Error(err)
					return
				}
				if len(leases) == 0 {
					if c, err := st.Census(t.Context()); err == nil && c.Live == 0 {
						idle++
					}
					continue
				}
				idle = 0
				finishes := make([]store.Finish, len(leases))
				for i, l := range leases {
					finishes[i] = store.Finish{Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Outcome: store.Complete}
				}
				ends, _, err := st.Finish(t.Context(), yardPool.ID(), worker, finishes)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i := range ends {
					ended[fmt.Sprint(finishes[i].Key)]++
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	serving.Wait()
	st, err := openOnly(t.Context(), server.Client(t), config)
	check(t, err)
	census, err := st.Census(t.Context())
	check(t, err)
	if !census.Conserved() || census.Live != 0 || census.Accepted != int64(len(ended)) || census.Left["completed"] != census.Accepted {
		t.Errorf("%+v, and %d jobs ended", census, len(ended))
	}
	for key, n := range ended {
		if n != 1 {
			t.Errorf("%s ended %d times", key, n)
		}
	}
	if st, err = newStore(server.Client(t), config, "-- another release\n"); err != nil || st.conn.Scripts["admit"]().Function == lua.Scripts("", lua.SingleLayout)["admit"]().Function {
		t.Errorf("both releases run the same script: %v", err)
	}
}
