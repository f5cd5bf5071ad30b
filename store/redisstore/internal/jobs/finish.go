package jobs

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Finish ends up to MaxBatchJobs held jobs of one pool in one round trip. more means that work is left for
// Promote. Sent again after a lost reply it answers EndedLost for what the first call ended.
func (s *Jobs) Finish(ctx context.Context, pool, worker string, jobs []store.Finish) (ends []store.Ended, more bool, err error) {
	args, same := s.finishArgs(pool, worker, jobs)
	if !same {
		return nil, false, store.ErrStale
	}
	reply, err := s.conn.Run(ctx, "finish", args...)
	if err != nil {
		return nil, false, err
	}
	if err := codec.Stale(reply); err != nil {
		return nil, false, err
	}
	ends = make([]store.Ended, len(jobs))
	if len(reply) == 1 { // all as they should
		for i := range ends {
			ends[i] = store.EndedDone
		}
		return ends, reply[0] == "more", nil
	}
	if len(reply) != len(jobs)+1 {
		return nil, false, fmt.Errorf("finish %d jobs: reply has %d words", len(jobs), len(reply)-1)
	}
	for i := range ends {
		ends[i] = store.Ended(reply[i+1])
	}
	return ends, reply[0] == "more", nil
}

// finishArgs hands over texts as appendPaths does. same is false where jobs are spent by limits of two policies, one of which is stale.
func (s *Jobs) finishArgs(pool, worker string, jobs []store.Finish) (args []any, same bool) {
	const headBytes = 2 + 6
	heads := make([]byte, 2, 2+headBytes*len(jobs))
	args = append(make([]any, 0, 4+4+2*len(jobs)), s.conn.Now, pool, worker, nil)
	headsAt := len(args) - 1
	if args, same = s.appendSpent(args, jobs); !same {
		return nil, false
	}
	alike := make([]*store.Finish, 0, 4)
	for i := range jobs {
		f := &jobs[i]
		to := slices.IndexFunc(alike, func(known *store.Finish) bool { return endAlike(known, f) })
		if to < 0 {
			to, alike = len(alike), append(alike, f)
			args = appendEnd(args, f)
		}
		heads = binary.LittleEndian.AppendUint16(heads, uint16(to+1))
		heads = binary.LittleEndian.AppendUint64(heads, uint64(max(f.Ran.Microseconds(), 0)))
		heads = heads[:len(heads)-2]
	}
	binary.LittleEndian.PutUint16(heads, uint16(len(alike)))
	args[headsAt] = heads
	keys := make([]string, len(jobs))
	for i := range jobs {
		keys[i] = store.EncodeKey(jobs[i].Key)
		args = append(args, &jobs[i].Token, &keys[i])
	}
	return args, true
}

// endAlike reports whether appendEnd says the same of two jobs. Of those that do not complete it need not know.
func endAlike(a, b *store.Finish) bool {
	return plainEnd(a) && plainEnd(b) && a.Uncounted == b.Uncounted && a.Downstream == b.Downstream && a.Queue == b.Queue
}

// plainEnd reports whether a job leaves nothing but its record.
func plainEnd(f *store.Finish) bool {
	return f.Outcome == store.Complete && f.Plain && f.KeepResult <= 0
}

// appendEnd says what a job comes to.
func appendEnd(args []any, f *store.Finish) []any {
	switch {
	case plainEnd(f):
		return append(args, string(store.Complete), &f.Uncounted, &f.Downstream, &f.Queue)
	case f.Outcome == store.Complete:
		return append(args, "complete_full", f.KeepResult.Microseconds(), &f.Reason, f.Result)
	default:
		return append(args, (*string)(&f.Outcome), f.Delay.Microseconds(), &f.Reason, f.Text[:min(len(f.Text), store.MaxFinishText)])
	}
}

// appendSpent appends what jobs have cost, nothing where none says so.
func (s *Jobs) appendSpent(args []any, jobs []store.Finish) (_ []any, same bool) {
	var paths []codec.Path
	var first *store.Spent
	var costs []any
	for i := range jobs {
		f := &jobs[i]
		if f.Spent == nil {
			continue
		}
		if first == nil {
			first = f.Spent
		}
		if f.Spent.Version != first.Version {
			return nil, false
		}
		paths = append(paths, codec.Path{Tenant: f.Key.Tenant, Queue: f.Queue, Name: f.Spent.Class, Limits: f.Spent.Limits, Usage: f.Spent.Usage, Record: f.Spent.Record}.OfType(f.Spent.TypeLimit))
		costs = append(costs, i+1, int64(f.Spent.Cost))
	}
	if first == nil {
		return args, true
	}
	args = codec.AppendPaths(append(args, "spent", first.Version), s.conn, &first.Limits[admission.LevelGlobal], paths, true)
	return append(args, costs...), true
}
