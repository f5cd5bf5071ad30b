package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// short is a row of the README's table: what a target is about in the words of who does not know its name. Formats are of the target's figures, ours and what
// stands beside it, and then of further ones.
type short struct {
	words, measure string
	ours, beside   string
	further        []figure
	bound          string // where that of the target is not plain enough
}

var shorts = []short{
	{words: "exact checks of four limits, 64 callers", measure: "exact 4-level checks/s, 64 goroutines ÷ redis_rate's one level", ours: "%s/s", beside: "redis_rate, one limit: %s/s"},
	{words: "the same, one caller, p50", measure: "the same of 1 goroutine, p50 ms", ours: "%s ms", beside: "%s ms"},
	{words: "checks of one process, most of them leased", measure: "checks/s of one process, 16 callers, 10,000 tenants, 1M scopes, Zipf", ours: "%s/s, p99 %s µs", further: []figure{{"Zipf/callers=16", "p99-us"}}, bound: "≥ 1,000,000/s, ≤ 1 ms"},
	{words: "Enqueue through four limits, 64 producers", measure: "Enqueue, 64 producers, jobs/s ÷ asynq's", ours: "%s jobs/s", beside: "asynq, which checks none: %s"},
	{words: "the same, one producer", measure: "Enqueue, 1 producer, jobs/s ÷ asynq's", ours: "%s jobs/s", beside: "%s"},
	{words: "EnqueueBatch of 64, one producer", measure: "EnqueueBatch(64), 1 producer, jobs/s ÷ asynq's 1 producer", ours: "%s jobs/s", beside: "%s"},
	{words: "drain, 1,000 tenants in three classes", measure: "drain, 1,000 tenants × 3 classes, jobs/s ÷ asynq's one queue", ours: "%s jobs/s", beside: "asynq, one queue: %s"},
	{words: "drain of 10,000 tenants; of 10", measure: "drain rate with 10,000 tenants ÷ with 10", ours: "%s jobs/s", beside: "%s"},
	{words: "asynq, a queue a tenant, of 1,000; of 10", measure: "asynq, a queue a tenant: with 1,000 ÷ with 10", ours: "%s jobs/s", beside: "%s"},
	{words: "Enqueue to handler at 200 jobs/s, p50", measure: "Enqueue to handler, 200 jobs/s, p50 ms", ours: "%s ms", beside: "asynq: %s ms"},
	{words: "Redis' time for a million jobs, all in, then all out", measure: "a job's whole way, s of Redis' processor a million ÷ a bare stream's", ours: "%s s", beside: "a bare stream: %s s; asynq: %s s", further: []figure{{"WholeWay/asynq", "redis-s/1M"}}},
	{words: "the same where workers keep up", measure: "a job's whole way where workers keep up, s of Redis' processor a million ÷ a bare stream's", ours: "%s s", beside: "a bare stream: %s s"},
	{words: "memory of a bucket, B", measure: "a bucket, B", ours: "%s", beside: "redis_rate: %s"},
}

// writeShort prints the README's table.
func writeShort(to io.Writer, found measured) error {
	var text strings.Builder
	text.WriteString("| | Headgate | beside it | ratio, target |\n| --- | --- | --- | --- |\n")
	rows := judge(targets, found)
	for _, s := range shorts {
		at := slices.IndexFunc(rows, func(r row) bool { return r.Measure == s.measure })
		if at < 0 || rows[at].Ours == nil {
			return fmt.Errorf("%q was not measured", s.measure)
		}
		figures := []any{thousands(rows[at].Ours)}
		if rows[at].Peer != nil {
			figures = append(figures, thousands(rows[at].Peer))
		}
		for _, f := range s.further {
			figures = append(figures, thousands(spreadOf(found[f])))
		}
		n := strings.Count(s.ours, "%s")
		ours, beside := fmt.Sprintf(s.ours, figures[:n]...), fmt.Sprintf(s.beside, figures[n:]...)
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", s.words, ours, beside, rows[at].short(s.bound))
	}
	_, err := io.WriteString(to, text.String())
	return err
}

// short returns the ratio and a bound, the target's where none is given, bold where that is missed.
func (r row) short(bound string) string {
	var parts []string
	bound = cmp.Or(bound, r.Bound)
	missed := r.Reached != nil && !*r.Reached
	if r.Ratio != nil {
		ratio := r.Ratio.text
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

// thousands is the median with commas.
func thousands(s *spread) string {
	if s == nil {
		return "-"
	}
	text := s.text
	for at := len(text) - 3; s.Median >= 1000 && at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
