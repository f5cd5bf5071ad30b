package account_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// checkRows are checks of a limiter that leases nothing.
func checkRows() []row {
	return []row{
		{"Limiter.Check, granted", "grant: begin, path", 1, func(s *site) func() func() {
			return s.checks(admission.Admitted)
		}},
		{"Limiter.Check, refused", "grant: path, refusal_of", 1, func(s *site) func() func() {
			return s.checks(admission.Refused)
		}},
		{"a check of a tenant and three dimensions", "check: path, dimension_enter", 1, func(s *site) func() func() { return s.besides() }},
		{"a reservation of a tenant, and its commit", "check, refund: path", 1, func(s *site) func() func() { return s.reserves(0) }},
		{"the same with three dimensions", "check, refund: path, dimension_taken", 1, func(s *site) func() func() { return s.reserves(3) }},
		{"64 checks that share a call", "grant: begin, path", store.MaxBatchJobs, func(s *site) func() func() { return s.grants(0) }},
		{"the same where tenants have records", "grant: begin, stale_reply, path", store.MaxBatchJobs, func(s *site) func() func() {
			s.records(0, tenants)
			known, err := s.store.Records(s.Context(), tenantName(0))
			s.check(err)
			return s.grants(known[0].Version)
		}},
		{"an edit of a tenant's record, beside 10", "tenant_record", 1, func(s *site) func() func() { return s.edits(10, `{"limit":{"tokens":%d}}`) }},
		{"an edit of a record, beside 10,000", "tenant_record", 1, func(s *site) func() func() { return s.edits(10_000, `{"limit":{"tokens":%d}}`) }},
		{"an edit of the tier of a record, beside 10", "tenant_record", 1, func(s *site) func() func() { return s.edits(10, tieredRecord) }},
		{"an edit of the tier of a record, beside 10,000", "tenant_record", 1, func(s *site) func() func() { return s.edits(10_000, tieredRecord) }},
		{"an edit of the cap of a record, beside 10", "tenant_record: gate_recapped", 1, func(s *site) func() func() { return s.edits(10, cappedRecord) }},
		{"an edit of the cap of a record, beside 10,000", "tenant_record: gate_recapped", 1, func(s *site) func() func() { return s.edits(10_000, cappedRecord) }},
		{"an edit of the cap of a record in a queue, beside 10", "tenant_record: record_queue_caps", 1, func(s *site) func() func() { return s.edits(10, queueCappedRecord) }},
		{"an edit of the cap of a record in a queue, beside 10,000", "tenant_record: record_queue_caps", 1, func(s *site) func() func() { return s.edits(10_000, queueCappedRecord) }},
		{"an edit of the dispatch of a record, beside 10", "tenant_record: record_rerated", 1, func(s *site) func() func() { return s.edits(10, ratedRecord) }},
		{"an edit of the dispatch of a record, beside 10,000", "tenant_record: record_rerated", 1, func(s *site) func() func() { return s.edits(10_000, ratedRecord) }},
		{"an edit of a limit by type of a record, beside 10", "tenant_record", 1, func(s *site) func() func() { return s.edits(10, typedRecord) }},
		{"the same beside 10,000", "tenant_record", 1, func(s *site) func() func() { return s.edits(10_000, typedRecord) }},
	}
}

// besides asks for tokens of a tenant's way and of three dimensions, all or none, of which each time's keys are known.
func (s *site) besides() func() func() {
	questions := waysOf(3, 1)
	return func() func() {
		return func() {
			granted, _, err := s.store.Check(s.Context(), 0, false, questions)
			s.check(err)
			if !granted {
				s.Error("not granted")
			}
		}
	}
}

// waysOf are the questions of a tenant's way and of so many dimensions.
func waysOf(dimensions int, cost admission.Tokens) []store.Question {
	questions := []store.Question{{Tenant: tenantName(0), Queue: queue, Class: admission.Medium, Cost: cost, Limits: [admission.Levels]admission.Limit{ample, ample, ample, ample}}}
	none := admission.Limit{Disabled: true}
	for _, owner := range []string{"+user", "+ip", "+route"}[:dimensions] {
		questions = append(questions, store.Question{Tenant: owner, Queue: "key", Cost: cost, MaxKeys: 100_000, Limits: [admission.Levels]admission.Limit{ample, ample, ample, none}})
	}
	return questions
}

// reserves takes tokens of a tenant's way and of so many dimensions, and tells that the work has cost half of them.
func (s *site) reserves(dimensions int) func() func() {
	questions, n := waysOf(dimensions, 4), 0
	return func() func() {
		n++
		return func() {
			verdict, taken, err := s.store.Take(s.Context(), 0, questions[0], questions[1:]...)
			s.check(err)
			if verdict.Decision != admission.Admitted {
				s.Error("not granted")
			}
			done, err := s.store.Commit(s.Context(), fmt.Sprint("r-", n), taken, 2)
			s.check(err)
			if done != store.Refunded {
				s.Error(done)
			}
		}
	}
}

// grants asks for tokens of many tenants in one call, by one version of their records.
func (s *site) grants(record int64) func() func() {
	g := store.Grant{Member: "limiter-1", Lease: time.Second, Questions: make([]store.Question, store.MaxBatchJobs)}
	for i := range g.Questions {
		g.Questions[i] = store.Question{
			Tenant: tenantName(i), Queue: queue, Class: admission.Medium, Cost: 1,
			Limits: [admission.Levels]admission.Limit{ample, ample, ample, ample}, Record: record,
		}
	}
	return func() func() {
		return func() {
			_, err := s.store.Partitions()[0].Grant(s.Context(), &g)
			s.check(err)
		}
	}
}

// records gives tenants from a number on a record each, all of one version.
func (s *site) records(from, n int) {
	fields := make([]any, 0, 2*n)
	for i := range n {
		fields = append(fields, fmt.Sprintf("tenant-%03d", from+i), `-+-+-+-{"limit":{"tokens":50,"per":"1s","burst":50}}`)
	}
	parts, _ := redisstore.PartsOf(s.store)
	s.check(s.aside.HSet(s.Context(), parts[0].Conn().Partition.Records(), fields...).Err())
}

// typedRecord is a record with a limit by type of job.
const typedRecord = `{"queues":{"mail":{"type_limits":{"report":{"tokens":%d,"per":"1s","burst":5}}}}}`

// tieredRecord is a record with a tier and a weight.
const tieredRecord = `{"tier":"tier-%d","priority_weights":{"medium":3}}`

// cappedRecord is a record with a cap.
const cappedRecord = `{"max_running":%d}`

// queueCappedRecord is a record with a cap in a queue.
const queueCappedRecord = `{"queues":{"mail":{"max_running":%d}}}`

// ratedRecord is a record with a rate of dispatches.
const ratedRecord = `{"dispatch":{"tokens":%d,"per":"1s","burst":5}}`

// edits changes the record of one tenant, whose bucket is there, beside those of others. Each is a number in text.
func (s *site) edits(others int, text string) func() func() {
	s.records(1000, others)
	n := 0
	return func() func() {
		n++
		return func() {
			_, err := s.store.PutRecord(s.Context(), store.RecordEdit{
				Tenant: tenantName(1), Text: fmt.Appendf(nil, text, n), Changes: []byte("[]"), LongestFill: time.Minute, By: store.Intervention{Author: "ada"},
			})
			s.check(err)
		}
	}
}

// checks asks for one tenant after the other: what a limiter knows to be refused it does not ask again.
func (s *site) checks(want admission.Decision) func() func() {
	s.Helper()
	p := limits()
	if want == admission.Refused {
		p.Tiers["standard"] = tierOf(admission.Limit{Tokens: 1, Per: time.Hour, Burst: 1})
	}
	l, err := limiter.New(s.store, limiter.Config{Policy: &p, Exact: true, Timeout: 10 * time.Second})
	s.check(err)
	next := -1
	ask := func() bool {
		v, err := l.Check(s.Context(), limiter.Request{Tenant: tenantName(next), Queue: queue, Class: admission.Medium})
		s.check(err)
		return v.Admitted
	}
	return func() func() {
		next++
		ask() // Whatever is made anew for a tenant is.
		return func() {
			if ask() != (want == admission.Admitted) {
				s.Fatalf("the check is not %v", want)
			}
		}
	}
}
