package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// BenchmarkScripts reports what the scripts cost: jobs a second of one client, µs of Redis time and bytes on the network a
// job; for check, a check of a limiter is a job.
func BenchmarkScripts(b *testing.B) {
	limits := &[admission.Levels]admission.Limit{}
	for level := range limits {
		limits[level] = admission.PerSecond(100_000_000)
	}
	for _, batch := range []int{1, 64} {
		b.Run(fmt.Sprintf("admit/batch=%d", batch), func(b *testing.B) {
			s := benchStore(b)
			n := 0
			stats := usageOf(b, s)
			for b.Loop() {
				benchAdmit(b, s, 0, limits, batch, n)
				n += batch
			}
			report(b, s, n, stats)
		})
		b.Run(fmt.Sprintf("drain/batch=%d", batch), func(b *testing.B) {
			s := benchStore(b)
			for n := 0; n < b.N*batch+64; n += 64 {
				benchAdmit(b, s, 0, limits, 64, n)
			}
			pool := store.Pool{Queues: []store.QueueWeight{{Queue: "q", Weight: 1}}}
			_, err := s.Register(b.Context(), "w", pool, batch, time.Hour)
			check(b, err)
			stats := usageOf(b, s)
			b.ResetTimer()
			for range b.N {
				benchDrain(b, s, pool, batch)
			}
			report(b, s, b.N*batch, stats)
		})
	}
	for _, batch := range []int{1, 64} {
		b.Run(fmt.Sprintf("check/batch=%d", batch), func(b *testing.B) {
			s := benchStore(b)
			g := store.Grant{Member: "one", Lease: time.Second, Questions: make([]store.Question, batch)}
			n := 0
			stats := usageOf(b, s)
			for b.Loop() {
				for i := range g.Questions {
					g.Questions[i] = store.Question{Tenant: fmt.Sprintf("tenant-%d", n%1000), Queue: "q", Class: admission.High, Cost: 1, Limits: *limits}
					n++
				}
				_, err := s.Grant(b.Context(), &g)
				check(b, err)
			}
			report(b, s, n, stats)
		})
	}
	for _, batch := range []int{1, 64} {
		b.Run(fmt.Sprintf("pass/batch=%d", batch), func(b *testing.B) {
			s := benchStore(b)
			pool := store.Pool{Queues: []store.QueueWeight{{Queue: "q", Weight: 1}}}
			_, err := s.Register(b.Context(), "w", pool, 2*batch, time.Hour)
			check(b, err)
			stats := usageOf(b, s)
			n := 0
			for b.Loop() {
				benchAdmit(b, s, 0, limits, batch, n)
				n += batch
				benchDrain(b, s, pool, batch)
			}
			report(b, s, n, stats)
		})
	}
}

// BenchmarkPressed reports what pressure and shedding cost an admission: the same policy without, and with them while nobody is refused.
func BenchmarkPressed(b *testing.B) {
	limits := &[admission.Levels]admission.Limit{}
	for level := range limits {
		limits[level] = admission.PerSecond(100_000_000)
	}
	for _, batch := range []int{1, 64} {
		for _, pressed := range []bool{false, true} {
			b.Run(fmt.Sprintf("batch=%d/pressed=%t", batch, pressed), func(b *testing.B) {
				s := benchStore(b)
				of := store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute}
				var change []func(*store.Candidate)
				if pressed {
					of.Pressured = []string{"q"}
					change = append(change, func(c *store.Candidate) {
						c.Tier, c.ShedFrom, c.ShedOverFrom = "basic", admission.PressureCritical, admission.PressureHigh
					})
				}
				check(b, s.PutPolicy(b.Context(), of))
				_, err := s.Promote(b.Context(), "s1", time.Minute)
				check(b, err)
				if pressed {
					_, err = s.Press(b.Context(), store.Press{
						Owner: "s1", Version: 1, Queue: "q", Pressure: admission.Pressure{Level: admission.PressureMedium, Score: 0.75}, Life: time.Hour,
					})
					check(b, err)
				}
				n := 0
				stats := usageOf(b, s)
				for b.Loop() {
					benchAdmit(b, s, 1, limits, batch, n, change...)
					n += batch
				}
				report(b, s, n, stats)
			})
		}
	}
}

func benchStore(b *testing.B) *Partition {
	b.Helper()
	server := redistest.Start(b, redistest.Options{})
	s, err := newStore(server.Client(b), Config{}, "")
	check(b, err)
	return s
}

func benchAdmit(b *testing.B, s *Partition, version int64, limits *[admission.Levels]admission.Limit, batch, n int, change ...func(*store.Candidate)) {
	b.Helper()
	classes := admission.DefaultClasses()
	jobs := make([]store.Candidate, batch)
	for i := range jobs {
		k := n + i
		j := admission.NewJob(fmt.Sprintf("tenant-%d", k%1000), "q", "t", benchPayload)
		class := k / 1000 % 3
		j.ID, j.Priority = fmt.Sprintf("job-%d", k), classes[class].Name
		jobs[i] = store.Candidate{Job: &j, Class: class, Limits: limits}
		for _, f := range change {
			f(&jobs[i])
		}
	}
	verdicts, err := s.Admit(b.Context(), version, jobs)
	check(b, err)
	for _, v := range verdicts {
		check(b, v.Err())
	}
}

var benchPayload = []byte(strings.Repeat("x", 256))

func benchDrain(b *testing.B, s *Partition, pool store.Pool, batch int) {
	b.Helper()
	leases, err := s.Read(b.Context(), "w", pool.ID(), batch, time.Second, false)
	check(b, err)
	ends := make([]store.Finish, len(leases))
	for i, l := range leases {
		ends[i] = l.Finish(store.Complete)
	}
	_, _, err = s.Finish(b.Context(), pool.ID(), "w", ends)
	check(b, err)
}

// usage is what Redis has spent: µs in scripts and reads, and bytes on the network.
type usage struct{ us, in, out float64 }

func usageOf(b *testing.B, s *Partition) (u usage) {
	b.Helper()
	client := redisconn.Client(s.conn)
	stats := redistest.CommandStats(b, client)
	for _, name := range []string{"fcall", "eval", "evalsha", "xreadgroup"} {
		u.us += stats[name].Micros
	}
	info, err := client.Info(b.Context(), "stats").Result()
	check(b, err)
	for line := range strings.Lines(info) {
		_, _ = fmt.Sscanf(line, "total_net_input_bytes:%f", &u.in)
		_, _ = fmt.Sscanf(line, "total_net_output_bytes:%f", &u.out)
	}
	return u
}

func report(b *testing.B, s *Partition, jobs int, before usage) {
	b.Helper()
	after := usageOf(b, s)
	b.ReportMetric(float64(jobs)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric((after.us-before.us)/float64(jobs), "redis-µs/job")
	b.ReportMetric((after.in-before.in)/float64(jobs), "in-B/job")
	b.ReportMetric((after.out-before.out)/float64(jobs), "out-B/job")
}
