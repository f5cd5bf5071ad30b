package jobs

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/store"
)

// Finish ends up to MaxBatchJobs held jobs of one pool in one round trip. more means that work is left for
// Promote. Sent again after a lost reply it answers EndedLost for what the first call ended.
func (s *Jobs) Finish(ctx context.Context, pool, worker string, jobs []store.Finish) (ends []store.Ended, more bool, err error) {
	reply, err := s.conn.Run(ctx, "finish", s.finishArgs(pool, worker, jobs)...)
	if err != nil {
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

// finishArgs hands over texts as appendPaths does.
func (s *Jobs) finishArgs(pool, worker string, jobs []store.Finish) []any {
	args := append(make([]any, 0, 3+7*len(jobs)), s.conn.Now, pool, worker)
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
	return args
}
