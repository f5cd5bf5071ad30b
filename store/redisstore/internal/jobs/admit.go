package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Admit decides on up to MaxBatchJobs jobs in one round trip and returns a verdict for each, in order. version
// is that of the policy which the limits come from; where another is in force nothing is done and the error is
// ErrStale. With an error InDoubt tells whether the jobs may have entered: sending the same ids again is safe
// within the dedup window.
func (s *Jobs) Admit(ctx context.Context, version int64, jobs []store.Candidate) ([]admission.Verdict, error) {
	args, payloads := s.admitArgs(version, jobs)
	wait := s.wantsReplicas(jobs)
	reply, replicated, err := s.runWith(ctx, "admit", args, payloads, wait)
	if err != nil {
		return nil, err
	}
	if wait && replicated && slices.Contains(reply, "duplicate") {
		replicated = s.haveAll(ctx)
	}
	if err := codec.Stale(reply); err != nil {
		s.dropUploads(ctx, payloads)
		return nil, err
	}
	pressures, err := pressuresOf(jobs, reply)
	if err != nil {
		return nil, err
	}
	if pressures == nil && len(reply) != len(jobs)+1 {
		return nil, fmt.Errorf("admit %d jobs: reply has %d lines", len(jobs), len(reply)-1)
	}
	verdicts := make([]admission.Verdict, len(jobs))
	for i := range jobs {
		v, err := codec.ParseVerdict(reply[i+1], jobs[i].Job)
		if err != nil {
			return nil, err
		}
		if pressures != nil {
			v.Pressure = pressures[i]
		}
		if v.Reason == admission.ReasonShed {
			v.Detail, v.RetryAfter = jobs[i].Tier, v.Pressure.RetryAfter
		}
		v.Unreplicated = !replicated && v.Decision != admission.Refused && s.wantsReplicas(jobs[i:i+1])
		verdicts[i] = v
	}
	return verdicts, nil
}

// admitArgs returns the arguments, and the large payloads that they name.
func (s *Jobs) admitArgs(version int64, jobs []store.Candidate) (args []any, payloads []upload) {
	const headBytes = 2 + lua.AtCost
	heads := make([]byte, 0, headBytes*len(jobs))
	args = append(make([]any, 0, 8+(codec.PathSize+3)*len(jobs)), s.conn.Now, version, s.conn.EndedCap, nil)
	headsAt := len(args) - 1
	paths, of := jobPaths(jobs)
	args = codec.AppendPaths(args, s.conn, &jobs[0].Limits[admission.LevelGlobal], paths, true)
	ids := make([]string, len(jobs)) // as pointers, like the texts of paths
	for i := range jobs {
		c := &jobs[i]
		record, large := codec.EncodeRecord(c.Stored(), c.Class)
		path := of[i]
		if c.Redrive > 0 {
			path = -path
			binary.BigEndian.PutUint64(record[lua.AtSeq:], c.Redrive)
		}
		ids[i] = store.EncodeID(c.Job.ID)
		heads = append(binary.BigEndian.AppendUint16(heads, uint16(path)), record[:lua.AtCost]...) //nolint:gosec // a negative number wraps
		args = append(args, &ids[i], record[lua.AtCost:])
		if c.Redrive > 0 {
			args = append(args, redriveText(c))
		}
		if large != nil && c.Redrive == 0 {
			p := upload{name: rand.Text(), payload: large}
			payloads = append(payloads, p)
			args = append(args, p.name)
		}
		if record[1]&codec.FlagDelayed != 0 {
			args = append(args, startArg(c.Job))
		}
		if u := c.Job.Unique; u.Key != "" {
			args = append(args, u.Key, codec.Micros(cmp.Or(u.For, admission.DefaultUniqueFor)))
		}
	}
	args[headsAt] = heads
	return args, payloads
}

// redriveText says who redrives a letter.
func redriveText(c *store.Candidate) string {
	if c.Free {
		return codec.InterventionText(c.By, store.AuditRedriveFree)
	}
	return codec.InterventionText(c.By, store.AuditRedrive)
}

// pathKey names a path. With a limit of its type queue is "QUEUE:TYPE".
type pathKey struct {
	tenant, queue string
	class         int
}

// knownPaths are maps that were used to tell paths apart.
var knownPaths = sync.Pool{New: func() any { return map[pathKey]int{} }}

// jobPaths returns the distinct paths of jobs, and the number of each job's, from 1.
func jobPaths(jobs []store.Candidate) (paths []codec.Path, of []int) {
	known := knownPaths.Get().(map[pathKey]int) //nolint:forcetypeassert // It has no others.
	defer func() {
		clear(known)
		knownPaths.Put(known)
	}()
	paths, of = make([]codec.Path, 0, len(jobs)), make([]int, len(jobs))
	for i := range jobs {
		c := &jobs[i]
		k := pathKey{c.Job.Tenant, c.Job.Queue, c.Class}
		if c.TypeLimit != nil {
			k.queue += ":" + c.Job.Type
		}
		if known[k] == 0 {
			path := codec.Path{Tenant: c.Job.Tenant, Queue: c.Job.Queue, Class: c.Class, Name: c.Job.Priority, Limits: c.Limits, From: byte(c.ShedFrom), Usage: c.Usage, Doomed: c.Doomed, Record: c.Record}.OfType(store.TypeLimitOf(c.Job.Type, c.TypeLimit)) //nolint:gosec // a few levels
			if c.ShedOverFrom < c.ShedFrom {
				path.Over = byte(c.ShedOverFrom) //nolint:gosec // as above
			}
			paths = append(paths, path)
			known[k] = len(paths)
		}
		of[i] = known[k]
	}
	return paths, of
}

// pressuresOf returns how much the queue of each job is pressed, by what follows the answers of a reply; nil where none is measured.
func pressuresOf(jobs []store.Candidate, reply []string) ([]admission.Pressure, error) {
	if !slices.ContainsFunc(jobs, func(c store.Candidate) bool { return c.ShedFrom > 0 }) {
		return nil, nil
	}
	paths, of := jobPaths(jobs)
	told, next := make([]admission.Pressure, len(paths)), len(jobs)+1
	for i := range paths {
		if paths[i].From == 0 {
			continue
		}
		if next >= len(reply) {
			return nil, fmt.Errorf("admit %d jobs: %w", len(jobs), redisconn.ErrUnknownReply)
		}
		var err error
		if told[i], err = codec.ParsePressure(reply[next]); err != nil {
			return nil, err
		}
		next++
	}
	if next != len(reply) {
		return nil, fmt.Errorf("admit %d jobs: %w", len(jobs), redisconn.ErrUnknownReply)
	}
	each := make([]admission.Pressure, len(jobs))
	for i := range jobs {
		each[i] = told[of[i]-1]
	}
	return each, nil
}

// startArg is when a job starts: microseconds since 1970, or from now if negative.
func startArg(j *admission.Job) int64 {
	if j.Delay > 0 {
		return -j.Delay.Microseconds()
	}
	return j.RunAt.UnixMicro()
}
