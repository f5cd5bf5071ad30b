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
	ctx    context.Context
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
type reply struct {
	values []any
	err    string
}

// replied makes a reply of what a method returned, an error last.
func replied(all ...any) reply {
	r := reply{values: all[:len(all)-1]}
	if err, failed := all[len(all)-1].(error); failed {
		r.err = err.Error()
	}
	return r
}

// same does something to both, fails where they differ, and returns what the one in memory returned. It takes tokens of leases out of
// what do returns, which are never equal, and when entries of the audit and of streams were made.
func (p *pair) same(what string, do func(s store.Partition) any) any {
	p.tb.Helper()
	want, got := do(p.redis), do(p.memory)
	if a, b := scrubbed(want), scrubbed(got); !reflect.DeepEqual(a, b) {
		p.tb.Fatalf("%s:\nredis  %+v\nmemory %+v", what, a, b)
	}
	return got
}

// scrubbed returns a copy without what is random.
func scrubbed(value any) any {
	if value == nil {
		return nil
	}
	return scrub(reflect.ValueOf(value)).Interface()
}

var timeType = reflect.TypeFor[time.Time]()

func scrub(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() { //nolint:exhaustive // the others hold nothing
	case reflect.Interface:
		if !v.IsNil() {
			if err, ok := v.Interface().(error); ok {
				out.Set(reflect.ValueOf(failure(err.Error())))
				return out
			}
			out.Set(scrub(v.Elem()))
		}
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			return out
		}
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(scrub(v.Index(i)))
		}
	case reflect.Struct:
		scrubStruct(v, out)
	}
	return out
}

func scrubStruct(v, out reflect.Value) {
	if v.Type() == timeType {
		if at := v.Interface().(time.Time); !at.IsZero() {
			out.Set(reflect.ValueOf(at.UTC().Round(0)))
		}
		return
	}
	if v.Type() == reflect.TypeFor[reply]() {
		r := v.Interface().(reply)
		values, _ := scrub(reflect.ValueOf(r.values)).Interface().([]any)
		out.Set(reflect.ValueOf(reply{values, r.err}))
		return
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch {
		case !field.IsExported():
		case v.Type() == reflect.TypeFor[store.Lease]() && field.Name == "Token":
			out.Field(i).SetString("")
		default:
			out.Field(i).Set(scrub(v.Field(i)))
		}
	}
}

// failure is an error of which only the text counts.
type failure string

func (f failure) Error() string { return string(f) }

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
