package memory_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// pair is a partition in Redis and one in memory, which do the same at the same time.
type pair struct {
	tb     testing.TB
	ctx    context.Context //nolint:containedctx // the test's own, for every step
	redis  *redisstore.Partition
	memory *memory.Partition
	// now is the time of both. It begins an hour ahead, as Redis drops by its own clock what is over.
	now time.Time
	// version is that of the policy in force.
	version int64
}

func newPair(tb testing.TB) *pair {
	tb.Helper()
	d, err := redisstore.Open(tb.Context(), redistest.Shared(tb).Client(tb), redisstore.Config{Prefix: redistest.Prefix(tb)})
	check(tb, err)
	parts, _ := redisstore.PartsOf(d)
	s := parts[0]
	p := &pair{tb: tb, ctx: tb.Context(), redis: s, now: time.Now().Add(time.Hour).Truncate(time.Microsecond)}
	p.memory = memory.New(memory.Config{Now: func() time.Time { return p.now }, KeepEnded: true})
	p.move(0)
	return p
}

// move lets so much time pass for both.
func (p *pair) move(by time.Duration) {
	p.now = p.now.Add(by)
	p.redis.SetTime(p.now)
}

// reply is what a method returned. same compares errors by their text.
type reply = redistest.Reply

var replied = redistest.Replied

// same does something to both, fails where they differ, and returns what the one in memory returned. It takes tokens of leases out of
// what do returns, which are never equal, and when entries of the audit and of streams were made.
func (p *pair) same(what string, do func(s store.Partition) any) any {
	p.tb.Helper()
	want, got := do(p.redis), do(p.memory)
	if a, b := redistest.Scrubbed(want), redistest.Scrubbed(got); !reflect.DeepEqual(a, b) {
		p.tb.Fatalf("%s:\nredis  %+v\nmemory %+v", what, a, b)
	}
	return got
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// mail is a job of the queue mail.
func mail(tenant, id string) admission.Job {
	j := admission.NewJob(tenant, "mail", "welcome", []byte("hello"))
	j.ID = id
	return j
}

// free are limits that limit nothing.
var free = &[admission.Levels]admission.Limit{{Disabled: true}, {Disabled: true}, {Disabled: true}, {Disabled: true}}

// candidates offers jobs in the class medium under limits; nil limits nothing.
func candidates(limits *[admission.Levels]admission.Limit, jobs ...admission.Job) []store.Candidate {
	if limits == nil {
		limits = free
	}
	all := make([]store.Candidate, len(jobs))
	for i := range jobs {
		all[i] = store.Candidate{Job: &jobs[i], Class: 1, Limits: limits}
	}
	return all
}
