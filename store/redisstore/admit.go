package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// Admit decides on up to MaxBatchJobs jobs in one round trip and returns a verdict for each, in order. version
// is that of the policy which the limits come from; where another is in force nothing is done and the error is
// ErrStale. With an error InDoubt tells whether the jobs may have entered: sending the same ids again is safe
// within the dedup window.
func (s *Partition) Admit(ctx context.Context, version int64, jobs []store.Candidate) ([]admission.Verdict, error) {
	args, payloads := s.admitArgs(version, jobs)
	reply, replicated, err := s.runWith(ctx, "admit", args, payloads, s.wantsReplicas(jobs))
	if err != nil {
		return nil, err
	}
	if len(reply) > 0 && reply[0] == "stale" {
		s.dropUploads(ctx, payloads)
		return nil, store.ErrStale
	}
	if len(reply) != len(jobs)+1 {
		return nil, fmt.Errorf("admit %d jobs: reply has %d lines", len(jobs), len(reply)-1)
	}
	verdicts := make([]admission.Verdict, len(jobs))
	for i := range jobs {
		v, err := parseVerdict(reply[i+1], jobs[i].Job)
		if err != nil {
			return nil, err
		}
		v.Unreplicated = !replicated && v.Decision != admission.Refused && s.wantsReplicas(jobs[i:i+1])
		verdicts[i] = v
	}
	return verdicts, nil
}

// admitArgs returns the arguments, and the large payloads that they name.
func (s *Partition) admitArgs(version int64, jobs []store.Candidate) (args []any, payloads []upload) {
	args = append(make([]any, 0, 10+limitsSize+(pathSize+4)*len(jobs)), s.now, version, s.config.EndedCap, s.config.BucketCap)
	args = s.appendGlobal(args, &jobs[0].Limits[admission.LevelGlobal])
	paths, of := jobPaths(jobs)
	args = appendPaths(append(args, len(paths)), paths)
	ids := make([]string, len(jobs)) // as pointers, like the texts of paths
	for i := range jobs {
		c := &jobs[i]
		record, large := encodeRecord(c.Job, c.Class)
		path := of[i]
		if c.Redrive > 0 {
			path = -path
			binary.BigEndian.PutUint64(record[lua.AtSeq:], c.Redrive)
		}
		ids[i] = store.EncodeID(c.Job.ID)
		args = append(args, path, &ids[i], record)
		if c.Redrive > 0 {
			args = append(args, redriveText(c))
		}
		if large != nil && c.Redrive == 0 {
			p := upload{name: rand.Text(), payload: large}
			payloads = append(payloads, p)
			args = append(args, p.name)
		}
		if record[1]&flagDelayed != 0 {
			args = append(args, startArg(c.Job))
		}
		if u := c.Job.Unique; u.Key != "" {
			args = append(args, u.Key, micros(cmp.Or(u.For, admission.DefaultUniqueFor)))
		}
	}
	return args, payloads
}

// redriveText says who redrives a letter.
func redriveText(c *store.Candidate) string {
	if c.Free {
		return interventionText(c.By, store.AuditRedriveFree)
	}
	return interventionText(c.By, store.AuditRedrive)
}

// jobPaths returns the distinct paths of jobs, and the number of each job's, from 1.
func jobPaths(jobs []store.Candidate) (paths []path, of []int) {
	type key struct {
		tenant, queue string
		class         int
	}
	known := make(map[key]int, len(jobs))
	of = make([]int, len(jobs))
	for i := range jobs {
		c := &jobs[i]
		k := key{c.Job.Tenant, c.Job.Queue, c.Class}
		if known[k] == 0 {
			paths = append(paths, path{c.Job.Tenant, c.Job.Queue, c.Class, c.Job.Priority, c.Limits})
			known[k] = len(paths)
		}
		of[i] = known[k]
	}
	return paths, of
}

// startArg is when a job starts: microseconds since 1970, or from now if negative.
func startArg(j *admission.Job) int64 {
	if j.Delay > 0 {
		return -j.Delay.Microseconds()
	}
	return j.RunAt.UnixMicro()
}

func appendLimit(args []any, l *admission.Limit) []any {
	if l.Disabled || l.Tokens == 0 {
		return append(args, "", "")
	}
	return append(args, rate(*l), burst(*l))
}

func parseVerdict(line string, j *admission.Job) (admission.Verdict, error) {
	v := admission.Verdict{ID: j.ID}
	if rest, ok := strings.CutPrefix(line, "dropped "); ok {
		count, rest, _ := strings.Cut(rest, " ")
		dropped, err := strconv.Atoi(count)
		if err != nil {
			return v, fmt.Errorf("read verdict %q: %w", line, err)
		}
		v.Dropped, line = dropped, rest
	}
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "straight":
		v.Decision, v.Place = admission.Admitted, admission.PlaceReady
		return v, nil
	case "duplicate":
		v.Decision = admission.Duplicate
		return v, nil
	case "dedup":
		v.Reason, v.RetryAfter = admission.ReasonDedup, store.RefusedRetry
		return v, nil
	case "queues":
		v.Reason, v.RetryAfter = admission.ReasonQueues, store.RefusedRetry
		if rest != "" {
			v.Detail = rest + " queues"
		}
		return v, nil
	case "deadline":
		v.Reason = admission.ReasonDeadline
		return v, nil
	case "memory":
		v.Reason, v.RetryAfter = admission.ReasonMemory, store.RefusedRetry
		return v, nil
	case "gone":
		v.Reason = admission.ReasonGone
		return v, nil
	case "paused", "unique", "parked":
		return v, parseHeld(&v, word, rest)
	}
	var room [4]int64
	numbers, err := appendNumbers(room[:0], rest)
	if err != nil {
		return v, fmt.Errorf("read verdict %q: %w", line, err)
	}
	scope := func() admission.Scope {
		return admission.ScopeAt(admission.Level(numbers[0]), j.Tenant, j.Queue, j.Priority)
	}
	switch {
	case word == "later" && len(numbers) == 1:
		v.Decision, v.Place = admission.Admitted, admission.PlaceLater
		v.EstimatedWait = time.Duration(numbers[0]) * time.Microsecond
	case word == "admitted" && len(numbers) == 2:
		v.Decision, v.Place, v.Position = admission.Admitted, admission.PlaceWaiting, int(numbers[0])
		v.EstimatedWait = time.Duration(numbers[1]) * time.Microsecond
	case word == "spilled" && len(numbers) == 1:
		v.Decision, v.Place, v.Position, v.EstimatedWait = admission.Admitted, admission.PlaceSpilled, int(numbers[0]), -1
	case word == "overflow" && len(numbers) == 2:
		v.Reason, v.RetryAfter = admission.ReasonOverflow, store.RefusedRetry
		v.Detail = fmt.Sprintf("%d jobs of %d bytes", numbers[0], numbers[1])
	case (word == "full" || word == "share") && len(numbers) == 2:
		v.Reason, v.Scope, v.RetryAfter = admission.ReasonOverflow, admission.ScopeAt(admission.LevelTenant, j.Tenant, "", ""), store.RefusedRetry
		if word == "share" {
			v.Reason = admission.ReasonMemory
		}
		v.Detail = fmt.Sprintf("%d jobs of %d bytes", numbers[0], numbers[1])
	case word == "uniques" && len(numbers) == 1:
		v.Reason, v.Scope, v.RetryAfter = admission.ReasonOverflow, admission.ScopeAt(admission.LevelTenant, j.Tenant, "", ""), store.UniquesRetry
		v.Detail = fmt.Sprintf("%d unique keys that stay", numbers[0])
	case word == "lanes" && len(numbers) == 1:
		v.Reason, v.RetryAfter, v.Detail = admission.ReasonLanes, store.RefusedRetry, fmt.Sprintf("%d lanes", numbers[0])
	case word == "huge" && len(numbers) == 1:
		v.Reason, v.Detail = admission.ReasonTooLarge, fmt.Sprintf("%d bytes", numbers[0])
	case word == "limited" && len(numbers) == 4:
		v.Reason, v.Scope = admission.ReasonLimited, scope()
		v.TokensLeft = admission.Tokens(numbers[1] / microsPerToken)
		v.RetryAfter = time.Duration(numbers[2]) * time.Microsecond
		v.Burst = admission.Tokens(numbers[3] / microsPerToken)
	case word == "costly" && len(numbers) == 2:
		v.Reason, v.Scope, v.Burst = admission.ReasonTooCostly, scope(), admission.Tokens(numbers[1]/microsPerToken)
	case word == "buckets" && len(numbers) == 1:
		v.Reason, v.Scope, v.RetryAfter = admission.ReasonBuckets, scope(), store.RefusedRetry
	default:
		return v, fmt.Errorf("read verdict %q: %w", line, redisconn.ErrUnknownReply)
	}
	return v, nil
}

// parseHeld reads the refusals that name who stands in the way.
func parseHeld(v *admission.Verdict, word, rest string) error {
	wait, text, _ := strings.Cut(rest, " ")
	us, err := strconv.ParseInt(wait, 10, 64)
	if err != nil {
		return fmt.Errorf("read verdict %q: %w", word+" "+rest, err)
	}
	v.RetryAfter = store.RefusedRetry
	if us >= 0 {
		v.RetryAfter = time.Duration(us) * time.Microsecond
	}
	switch word {
	case "paused":
		v.Reason, v.Detail = admission.ReasonPaused, text
		return nil
	case "parked":
		_, downstream, _ := strings.Cut(text, " ")
		v.Reason, v.Detail = admission.ReasonBreaker, "downstream "+downstream // How many jobs of others wait is theirs.
		return nil
	}
	holder, err := store.DecodeKey(text)
	v.Reason, v.Detail = admission.ReasonUnique, holder.ID
	return err
}

func parseNumbers(text string) ([]int64, error) { return appendNumbers(nil, text) }

func appendNumbers(numbers []int64, text string) ([]int64, error) {
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
