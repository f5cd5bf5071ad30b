package migrate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/lua"
)

// migratePage is about how many jobs are read at a time; a call takes migrateCall of them, fewer where
// their records have more than migrateBytes.
const (
	migratePage  = 256
	migrateCall  = 16
	migrateBytes = 256 << 10
)

// storedJob is a job as the jobs hash has it.
type storedJob struct{ key, record string }

// eachJob calls do for all jobs of the partition, a page at a time. Some may come twice.
func (p *partition) eachJob(ctx context.Context, do func(page []storedJob) error) error {
	for cursor := uint64(0); ; {
		fields, next, err := redisconn.Client(p.conn).HScan(ctx, p.conn.Partition.Jobs(), cursor, "", migratePage).Result()
		if err != nil {
			return fmt.Errorf("read jobs: %w", redisconn.Unread(err))
		}
		page := make([]storedJob, 0, len(fields)/2)
		for i := 0; i+1 < len(fields); i += 2 {
			if len(fields[i+1]) < lua.HeaderSize {
				return fmt.Errorf("job %q has a record of %d bytes, which is none", fields[i], len(fields[i+1]))
			}
			page = append(page, storedJob{fields[i], fields[i+1]})
		}
		if err := do(page); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// copyJobs copies the jobs that move, those of a page side by side into their partitions.
func (m *Migration) copyJobs(ctx context.Context) error {
	done := int64(0)
	for i, part := range m.from {
		spills, err := redisconn.Client(part.conn).SMembers(ctx, part.conn.Partition.Base()+"spills").Result()
		if err != nil {
			return fmt.Errorf("read spills: %w", redisconn.Unread(err))
		}
		spilled := make(map[string]bool, len(spills))
		for _, name := range spills {
			spilled[name] = true
		}
		err = part.eachJob(ctx, func(page []storedJob) error {
			n, err := m.spreadJobs(i, page, func(to *partition, some []storedJob) error {
				args, err := part.places(ctx, some, spilled)
				if err != nil {
					return err
				}
				_, err = to.conn.Run(ctx, "arrive", append([]any{to.conn.Now}, args...)...)
				return err
			})
			done += int64(n)
			m.observe("copy jobs", done, m.jobs)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// spreadJobs calls do for those jobs of a page that move, in portions that one call takes, the partitions side by side. It returns
// how many they are.
func (m *Migration) spreadJobs(from int, page []storedJob, do func(to *partition, some []storedJob) error) (n int, err error) {
	of := map[*partition][]storedJob{}
	for _, job := range page {
		if m.moves(from, job.key) {
			home := m.home(job.key)
			of[home] = append(of[home], job)
			n++
		}
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	for to, jobs := range of {
		running.Go(func() {
			for len(jobs) > 0 {
				some := oneCall(jobs)
				jobs = jobs[len(some):]
				if failed := do(to, some); failed != nil {
					mu.Lock()
					defer mu.Unlock()
					err = failed
					return
				}
			}
		})
	}
	running.Wait()
	return n, err
}

// oneCall returns as many jobs as a call takes.
func oneCall(jobs []storedJob) []storedJob {
	bytes := 0
	for i, job := range jobs {
		if bytes += len(job.record); i > 0 && bytes > migrateBytes || i == migrateCall {
			return jobs[:i]
		}
	}
	return jobs
}

// places returns of each job what arrive takes: key, record, place, time, why it died and the unique key that it holds.
func (p *partition) places(ctx context.Context, jobs []storedJob, spilled map[string]bool) ([]any, error) {
	keys := make([]string, len(jobs))
	for i, job := range jobs {
		keys[i] = job.key
	}
	base := p.conn.Partition.Base()
	pipe := redisconn.Client(p.conn).Pipeline()
	later, dead := pipe.ZMScore(ctx, p.conn.Partition.Later(), keys...), pipe.ZMScore(ctx, p.conn.Partition.Dead(), keys...)
	why, unique := pipe.HMGet(ctx, p.conn.Partition.Why(), keys...), pipe.HMGet(ctx, base+"ukeys", keys...)
	starts := pipe.HMGet(ctx, base+"starts", keys...)
	spills := make([]*redis.FloatCmd, len(jobs))
	for i, job := range jobs {
		tenant, _, _ := strings.Cut(job.key, ":")
		queue := job.record[lua.HeaderSize : lua.HeaderSize+int(job.record[lua.AtQueueLen])]
		if name := tenant + ":" + queue; spilled[name] {
			spills[i] = pipe.ZScore(ctx, base+"spill:"+name, job.key)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return nil, fmt.Errorf("read places of jobs: %w", redisconn.Unread(err))
	}
	args := make([]any, 0, 6*len(jobs))
	for i, job := range jobs {
		place, at := "lane", "0"
		switch {
		case later.Val()[i] > 0:
			place, at = "later", strconv.FormatFloat(later.Val()[i], 'f', 0, 64)
		case dead.Val()[i] > 0:
			place, at = "dead", strconv.FormatFloat(dead.Val()[i], 'f', 0, 64)
		case spills[i] != nil && spills[i].Err() == nil:
			place, at = "spill", redisconn.TextAt(starts.Val(), i)
		}
		args = append(args, job.key, job.record, place, at, redisconn.TextAt(why.Val(), i), redisconn.TextAt(unique.Val(), i))
	}
	return args, nil
}

// verify compares every job that moves with what is where it is to be. Nothing has been taken away before.
func (m *Migration) verify(ctx context.Context) error {
	for i, part := range m.from {
		err := part.eachJob(ctx, func(page []storedJob) error {
			_, err := m.spreadJobs(i, page, func(to *partition, some []storedJob) error {
				keys := make([]string, len(some))
				for k, job := range some {
					keys[k] = job.key
				}
				there, err := redisconn.Client(to.conn).HMGet(ctx, to.conn.Partition.Jobs(), keys...).Result()
				if err != nil {
					return fmt.Errorf("read copied jobs: %w", redisconn.Unread(err))
				}
				for k, job := range some {
					if record := redisconn.TextAt(there, k); len(record) != len(job.record) || record[lua.AtSeq:lua.AtScore] != job.record[lua.AtSeq:lua.AtScore] {
						return fmt.Errorf("job %q was copied and is not there: what runs on the target beside the migration?", job.key)
					}
				}
				return nil
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeJobs takes the jobs that have moved out of a partition that stays in use.
func (m *Migration) removeJobs(ctx context.Context, from int) error {
	part, done := m.from[from], int64(0)
	return part.eachJob(ctx, func(page []storedJob) error {
		var gone []storedJob
		for _, job := range page {
			if m.moves(from, job.key) {
				gone = append(gone, job)
			}
		}
		for len(gone) > 0 {
			some := oneCall(gone)
			gone = gone[len(some):]
			args := []any{part.conn.Now}
			for _, job := range some {
				args = append(args, job.key)
			}
			if _, err := part.conn.Run(ctx, "depart", args...); err != nil {
				return err
			}
			done += int64(len(some))
			m.observe("remove jobs", done, m.jobs)
		}
		return nil
	})
}
