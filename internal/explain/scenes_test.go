package explain_test

import "github.com/headgate/headgate/admission"

// queueScenes are those of TestEachReasonIsExplained that tell what a queue refuses, and when reservations expire.
var queueScenes = []scene{
	{"doomed", []string{"queue", "mail"}, func(s *stage) {
		s.put(`{"queues":{"mail":{"doomed_percent":150,"max_wait":"1h"}}}`, "no late letters")
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
