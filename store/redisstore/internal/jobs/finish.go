package jobs

import (
	"context"
	"fmt"

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
	if len(reply) != len(jobs)+1 {
		return nil, false, fmt.Errorf("finish %d jobs: reply has %d words", len(jobs), len(reply)-1)
	}
	ends = make([]store.Ended, len(jobs))
	for i := range ends {
		ends[i] = store.Ended(reply[i+1])
	}
	return ends, reply[0] == "more", nil
}

// finishArgs hands over texts as appendPaths does. same is false where jobs are spent by limits of two policies, one of which is stale.
func (s *Jobs) finishArgs(pool, worker string, jobs []store.Finish) (args []any, same bool) {
	args = append(make([]any, 0, 3+7*len(jobs)), s.conn.Now, pool, worker)
	if args, same = s.appendSpent(args, jobs); !same {
		return nil, false
	}
	keys := make([]string, len(jobs))
	for i := range jobs {
		f := &jobs[i]
		keys[i] = store.EncodeKey(f.Key)
		args = append(args, &f.Token, &keys[i])
		switch {
		case f.Outcome == store.Complete && f.Plain && f.KeepResult <= 0:
			args = append(args, string(store.Complete), &f.Uncounted, &f.Downstream, &f.Queue)
		case f.Outcome == store.Complete:
			args = append(args, "complete_full", f.KeepResult.Microseconds(), &f.Reason, f.Result)
		default:
			args = append(args, (*string)(&f.Outcome), f.Delay.Microseconds(), &f.Reason, f.Text[:min(len(f.Text), store.MaxFinishText)])
		}
		args = append(args, f.Ran.Microseconds())
	}
	return args, true
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
