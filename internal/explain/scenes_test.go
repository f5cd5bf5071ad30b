package explain_test

import (
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// queueScenes are those of TestEachReasonIsExplained that tell what a queue refuses, what bounds depth, and when reservations expire.
var queueScenes = []scene{
	{"depth", []string{"scope", "acme:mail", "scope", "acme:mail:high", "tenant", "acme", "queue", "mail", "scope", "acme:other", "scope", "global"}, func(s *stage) {
		s.put(`{"tiers":{"standard":{"limit":{"enabled":false}}},"queues":{"mail":{"overflow":{"policy":"reject","max_jobs":2}}}}`, "small")
		s.enqueue("a")
		s.enqueue("b")
	}},
	{"depth with room", []string{"scope", "acme:mail", "tenant", "acme", "queue", "mail"}, func(s *stage) {
		s.put(`{"tiers":{"standard":{"limit":{"enabled":false},"overflow":{"policy":"reject","max_jobs":9,"max_bytes":4096}}},"queues":{"*":{"overflow":{"policy":"drop_oldest","max_jobs":2}}}}`, "small")
		s.enqueue("a")
	}},
	{"depth of a tenant", []string{"scope", "acme:mail", "tenant", "acme", "queue", "mail"}, func(s *stage) {
		s.put(`{"tiers":{"standard":{"limit":{"enabled":false}}},"overflows":{"acme:mail":{"policy":"drop_oldest","max_jobs":2},"acme":{"policy":"reject","max_jobs":2}}}`, "small")
		s.enqueue("a")
		s.enqueue("b")
	}},
	{"depth of a record", []string{"scope", "acme:mail", "tenant", "acme", "queue", "mail"}, func(s *stage) {
		s.put(`{"tenant_records":true,"tiers":{"standard":{"limit":{"enabled":false}}},"queues":{"mail":{"overflow":{"policy":"reject","max_jobs":1}}}}`, "small")
		s.record(policy.OwnLimits{}.WithOverflow("mail", policy.Overflow{Policy: policy.Spillover, MaxJobs: 2, MaxSpilled: 1}))
		for _, id := range []string{"a", "b", "c"} {
			s.enqueue(id)
		}
	}},
	{"depth kept aside", []string{"scope", "acme:mail", "tenant", "acme"}, func(s *stage) {
		s.put(`{"tiers":{"standard":{"limit":{"enabled":false},"queues":{"mail":{"overflow":{"policy":"spillover","max_jobs":1}}}}}}`, "small")
		s.enqueue("a")
		s.enqueue("b")
	}},
	{"doomed", []string{"queue", "mail"}, func(s *stage) {
		s.put(`{"queues":{"mail":{"doomed_percent":150,"max_wait":"1h"}}}`, "no late letters")
	}},
	{"doomed as every queue", []string{"queue", "mail", "job", "acme:a"}, func(s *stage) {
		s.put(`{"queues":{"*":{"doomed_percent":150,"max_wait":"1h"}}}`, "no late letters")
		s.enqueue("a")
	}},
	{"reservations", []string{"queue", "llm", "queue", "mail", "queue", "chat", "tenant", "acme"}, func(s *stage) {
		s.put(`{"queues":{"mail":{"max_running":4}}}`, "launch")
		s.put(`{"reservations":{"expire_after":"90s"},"queues":{"llm":{"reservations":{"expire_after":"10m"}},"*":{"reservations":{"expire_after":"2h"}},"mail":{"max_running":4}},"tenants":{"acme":{"limit":{"tokens":50,"per":"1h","burst":50}}}}`, "slow models")
		for _, queue := range []string{"llm", "mail", "chat"} {
			s.enqueue("in-"+queue, func(j *admission.Job) { j.Queue = queue })
		}
	}},
	{"reservations of a queue", []string{"tenant", "acme"}, func(s *stage) {
		s.put(`{"queues":{"llm":{"reservations":{"expire_after":"1h30m"}}}}`, "slow models")
	}},
}
