package laws_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// site is one partition under test: a store, and a client that looks at its keys.
type site struct {
	*testing.T
	server *redistest.Server
	client *redis.Client
	store  store.Deployment
	prefix string
	random *rand.Rand
	// version is that of the policy in force.
	version int64
	// jobs counts the ids given.
	jobs int
}

// newSite opens a store under a prefix of its own.
func newSite(t *testing.T, server *redistest.Server) *site {
	t.Helper()
	s := &site{T: t, server: server, client: server.Client(t), prefix: redistest.Prefix(t), random: newRandom(t)}
	s.store = s.open(s.client)
	return s
}

// open returns another store of the same partition.
func (s *site) open(client *redis.Client) store.Deployment {
	s.Helper()
	st, err := redisstore.Open(s.Context(), client, redisstore.Config{Prefix: s.prefix})
	s.check(err)
	return st
}

// newRandom returns a source whose seed a failing test prints.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("HEADGATE_SEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = given
	}
	t.Logf("HEADGATE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func (s *site) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// between returns a number from low to high, both included.
func (s *site) between(low, high int) int { return low + s.random.IntN(high-low+1) }

// chance is true with a probability of one in n.
func (s *site) chance(n int) bool { return s.random.IntN(n) == 0 }

func choose[E any](s *site, from ...E) E { return from[s.random.IntN(len(from))] }

// unlimited has no bucket at any level.
var unlimited = &[admission.Levels]admission.Limit{}

// job returns a candidate without limits, of cost 1, with an id of its own.
func (s *site) job(tenant, queue string, class int, classes []admission.Class) store.Candidate {
	s.jobs++
	return store.Candidate{
		Job: &admission.Job{
			ID: "j" + strconv.Itoa(s.jobs), Tenant: tenant, Queue: queue, Type: "t", Priority: classes[class].Name, Cost: 1,
		},
		Class: class, Limits: unlimited,
	}
}

// admit asks for jobs, by as many calls as it takes, and fails unless all enter.
func (s *site) admit(jobs ...store.Candidate) {
	s.Helper()
	for len(jobs) > 0 {
		n := min(len(jobs), store.MaxBatchJobs)
		verdicts, err := s.store.Partitions()[0].Admit(s.Context(), s.version, jobs[:n])
		s.check(err)
		for _, v := range verdicts {
			if v.Decision != admission.Admitted {
				s.Fatalf("admit: %+v", v)
			}
		}
		jobs = jobs[n:]
	}
}

// putPolicy stores the next version.
func (s *site) putPolicy(u store.PolicyUpdate) {
	s.Helper()
	u.Expected, u.Version = s.version, s.version+1
	if u.Text == nil {
		u.Text = []byte("{}")
	}
	if u.Window == 0 {
		u.Window = 30 * time.Second
	}
	s.check(s.store.PutPolicy(s.Context(), u))
	s.version++
}

func (s *site) register(worker string, pool store.Pool, slots int, lease time.Duration) {
	s.Helper()
	_, err := s.store.Partitions()[0].Register(s.Context(), worker, pool, slots, lease)
	s.check(err)
}

// read takes what is ready without waiting.
func (s *site) read(worker string, pool store.Pool, count int) []store.Lease {
	s.Helper()
	leases, err := s.store.Partitions()[0].Read(s.Context(), worker, pool.ID(), count, -1, false)
	s.check(err)
	return leases
}

// finish ends leased jobs, each as end says.
func (s *site) finish(pool store.Pool, leases []store.Lease, end func(store.Lease) store.Finish) {
	s.Helper()
	for len(leases) > 0 {
		n := min(len(leases), store.MaxBatchJobs)
		ends := make([]store.Finish, n)
		for i, l := range leases[:n] {
			ends[i] = end(l)
		}
		_, _, err := s.store.Partitions()[0].Finish(s.Context(), pool.ID(), "worker", ends)
		s.check(err)
		leases = leases[n:]
	}
}

// complete is the plainest end.
func complete(l store.Lease) store.Finish { return finishAs(l, store.Complete, 0) }

func finishAs(l store.Lease, outcome store.Outcome, delay time.Duration) store.Finish {
	f := l.Finish(outcome)
	f.Delay = delay
	return f
}

func (s *site) setGate(name store.GateName, limit int) (more bool) {
	s.Helper()
	_, more, err := s.store.SetGate(s.Context(), store.Gate{Name: name, Limit: limit, By: store.Intervention{Reason: s.Name()}})
	s.check(err)
	return more
}

func (s *site) promote() store.Promotion {
	s.Helper()
	p, err := s.store.Partitions()[0].Promote(s.Context(), "scheduler", time.Second)
	s.check(err)
	return p
}

// pause waits on the runtime's clock for a time that a reply asked for.
func (s *site) pause(d time.Duration) {
	s.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.Context().Done():
		s.Fatal(context.Cause(s.Context()))
	}
}

// census asserts law L4.
func (s *site) census() store.Census {
	s.Helper()
	c, err := s.store.Census(s.Context())
	s.check(err)
	if !c.Conserved() {
		s.Fatalf("law L4: %+v", c)
	}
	return c
}

// key names a key of the partition that keyspace has no function for.
func (s *site) key(name string) string { return redisstore.Keys(s.store).Base() + name }

// commands returns how many commands this server has done, those of scripts included. Only on a server of one's own.
func (s *site) commands() int64 {
	s.Helper()
	return redistest.CommandCalls(s.T, s.client, "info")
}

// dispatch is an entry of a ready stream.
type dispatch struct {
	token, tenant, id, downstream string
	class                         int
	cost                          int
	dated                         bool
}

// key is tenant:id.
func (d dispatch) key() string { return d.tenant + ":" + d.id }

// dispatchOf reads an entry. The layout of a record is drawn in lua/scripts/fragments/record.lua.
func dispatchOf(m redis.XMessage) (dispatch, error) {
	key, _ := m.Values["j"].(string)
	r, _ := m.Values["r"].(string)
	tenant, id, ok := strings.Cut(key, ":")
	if !ok || len(r) < 36 {
		return dispatch{}, fmt.Errorf("entry %s: job %q, record of %d bytes", m.ID, key, len(r))
	}
	at := 36 + int(r[34])
	return dispatch{
		token: m.ID, tenant: tenant, id: id, downstream: r[at : at+int(r[35])], class: int(r[2]),
		cost: int(binary.BigEndian.Uint32([]byte(r[30:34]))), dated: r[1]&1 == 1,
	}, nil
}

// messageOf makes an entry of its id and its fields, name and value in turns.
func messageOf(id string, fields []string) redis.XMessage {
	m := redis.XMessage{ID: id, Values: map[string]any{}}
	for i := 0; i+1 < len(fields); i += 2 {
		m.Values[fields[i]] = fields[i+1]
	}
	return m
}

// watcher sees the dispatches of a pool in their order.
type watcher struct {
	s      *site
	stream string
	last   string
}

func (s *site) watch(pool store.Pool) *watcher {
	return &watcher{s: s, stream: redisstore.Keys(s.store).Ready(pool.ID()), last: "-"}
}

// next returns what was dispatched since the last call and is still there: call it after each call of a script, before
// anybody finishes a job.
func (w *watcher) next() []dispatch {
	w.s.Helper()
	messages, err := w.s.client.XRange(w.s.Context(), w.stream, w.last, "+").Result()
	w.s.check(err)
	out := make([]dispatch, len(messages))
	for i, m := range messages {
		out[i], err = dispatchOf(m)
		w.s.check(err)
		w.last = "(" + m.ID
	}
	return out
}
