package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// short is a row of the README's table: figures by words, and the target that the last of its cells judges.
type short struct {
	words        string
	ours, beside string   // formats of one figure each, but for what has none
	of           []figure // those of ours, then those of beside
	target       string   // the measure of the target, "" for one that is said in words
	bound        string
}

var shorts = []short{
	{"exact checks of four limits, 64 callers", "%s/s", "redis_rate, one limit: %s/s", []figure{{"Check/callers=64/headgate", "checks/s"}, {"Check/callers=64/redis_rate", "checks/s"}}, "exact 4-level checks/s, 64 goroutines ÷ redis_rate's one level", "≥ 1.8"},
	{"the same, one caller, p50", "%s ms", "%s ms", []figure{{"Check/callers=1/headgate", "p50-ms"}, {"Check/callers=1/redis_rate", "p50-ms"}}, "the same of 1 goroutine, p50 ms", "≤ 1.2"},
	{"checks of one process, most of them leased", "%s/s, p99 %s µs", "", []figure{{"Zipf/callers=16", "checks/s"}, {"Zipf/callers=16", "p99-us"}}, "", "≥ 1,000,000/s, ≤ 1 ms"},
	{"Enqueue through four limits, 64 producers", "%s jobs/s", "asynq, which checks none: %s", []figure{{"Enqueue/producers=64/headgate", "jobs/s"}, {"Enqueue/producers=64/asynq", "jobs/s"}}, "Enqueue, 64 producers, jobs/s ÷ asynq's", "≥ 1"},
	{"the same, one producer", "%s jobs/s", "%s", []figure{{"Enqueue/producers=1/headgate", "jobs/s"}, {"Enqueue/producers=1/asynq", "jobs/s"}}, "Enqueue, 1 producer, jobs/s ÷ asynq's", "≥ 0.8"},
	{"EnqueueBatch of 64, one producer", "%s jobs/s", "%s", []figure{{"EnqueueBatch/headgate", "jobs/s"}, {"Enqueue/producers=1/asynq", "jobs/s"}}, "EnqueueBatch(64), 1 producer, jobs/s ÷ asynq's 1 producer", "≥ 5"},
	{"drain, 1,000 tenants in three classes", "%s jobs/s", "asynq, one queue: %s", []figure{{"Drain/headgate", "jobs/s"}, {"Drain/asynq", "jobs/s"}}, "drain, 1,000 tenants × 3 classes, jobs/s ÷ asynq's one queue", "≥ 4.5"},
	{"drain of 10,000 tenants; of 10", "%s jobs/s", "%s", []figure{{"DrainByTenants/tenants=10000/headgate", "jobs/s"}, {"DrainByTenants/tenants=10/headgate", "jobs/s"}}, "drain rate with 10,000 tenants ÷ with 10", "≥ 0.85"},
	{"asynq, a queue a tenant, of 1,000; of 10", "%s jobs/s", "%s", []figure{{"DrainByTenants/tenants=1000/asynq-queues", "jobs/s"}, {"DrainByTenants/tenants=10/asynq-queues", "jobs/s"}}, "asynq, a queue a tenant: with 1,000 ÷ with 10", ""},
	{"Enqueue to handler at 200 jobs/s, p50", "%s ms", "asynq: %s ms", []figure{{"EnqueueToHandler/rate=200/headgate", "p50-ms"}, {"EnqueueToHandler/rate=200/asynq", "p50-ms"}}, "Enqueue to handler, 200 jobs/s, p50 ms", "≤ 0.45 ms"},
	{"Redis' time for a million jobs, all in, then all out", "%s s", "asynq: %s s; a bare stream: %s s", []figure{{"WholeWay/headgate", "redis-s/1M"}, {"WholeWay/asynq", "redis-s/1M"}, {"WholeWay/stream", "redis-s/1M"}}, "a job's whole way, s of Redis' processor a million ÷ a bare stream's", "≤ 3"},
	{"the same where workers keep up", "%s s", "a bare stream: %s s", []figure{{"KeptUp/headgate", "redis-s/1M"}, {"KeptUp/stream", "redis-s/1M"}}, "a job's whole way where workers keep up, s of Redis' processor a million ÷ a bare stream's", "≤ 3"},
	{"memory of a bucket", "%s B", "redis_rate: %s B", []figure{{"BucketMemory/headgate", "B/bucket"}, {"BucketMemory/redis_rate", "B/bucket"}}, "a bucket, B", "≤ 48 B"},
}

// writeShort prints the README's table.
func writeShort(to io.Writer, found measured) error {
	var text strings.Builder
	text.WriteString("| | Headgate | beside it | ratio, target |\n| --- | --- | --- | --- |\n")
	rows := judge(targets, found)
	for _, s := range shorts {
		figures := make([]any, len(s.of))
		for i, f := range s.of {
			if len(found[f]) == 0 {
				return fmt.Errorf("%s of %s was not measured", f.unit, f.benchmark)
			}
			figures[i] = thousands(spreadOf(found[f]).Median)
		}
		n := strings.Count(s.ours, "%s")
		ours, beside := fmt.Sprintf(s.ours, figures[:n]...), fmt.Sprintf(s.beside, figures[n:]...)
		last := s.bound
		if i := slices.IndexFunc(rows, func(r row) bool { return r.Measure == s.target }); i >= 0 {
			last = rows[i].short(s.bound)
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", s.words, ours, beside, last)
	}
	_, err := io.WriteString(to, text.String())
	return err
}

// short returns the ratio and the bound, bold where that is missed.
func (r row) short(bound string) string {
	var parts []string
	missed := r.Reached != nil && !*r.Reached
	if r.Ratio != nil {
		ratio := number(r.Ratio.Median)
		if missed {
			ratio = "**" + ratio + "**"
		}
		parts = append(parts, ratio)
	}
	if bound != "" {
		if missed && r.Ratio == nil {
			bound = "**" + bound + "**"
		}
		parts = append(parts, bound)
	}
	return strings.Join(parts, ", ")
}

// thousands is number with commas.
func thousands(x float64) string {
	text := number(x)
	for at := len(text) - 3; x >= 1000 && at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
