package limits

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Shadow asks up to MaxBatchJobs questions of a candidate, and counts its answers. Its buckets are its own: nobody else is
// charged. version is that of the policy that has the candidate; where another is in force nothing is done and the error
// is ErrStale. It is not to be sent again after an error: it would count twice.
func (s *Limits) Shadow(ctx context.Context, version int64, id string, questions []store.Question) error {
	args := append(make([]any, 0, 9+codec.PathSize*len(questions)), s.conn.Now, version, id, codec.PackQuestions(questions, 0))
	reply, err := s.conn.Run(ctx, "shadow", codec.AppendQuestions(args, s.conn, questions)...)
	if err != nil {
		return err
	}
	return codec.Stale(reply)
}

// ShadowCounts returns what was counted for the last candidate in shadow.
func (s *Limits) ShadowCounts(ctx context.Context) (store.ShadowCounts, error) {
	fields, err := redisconn.Client(s.conn).HGetAll(ctx, s.conn.Partition.Shadow()).Result()
	if err != nil {
		return store.ShadowCounts{}, fmt.Errorf("read shadow: %w", redisconn.Unread(err))
	}
	counts := store.ShadowCounts{ID: fields["id"], Allowed: redisconn.Whole(fields["allowed"])}
	if counts.ID != "" {
		counts.Since = time.UnixMicro(redisconn.Whole(fields["since"]))
	}
	for level := range counts.Refused {
		counts.Refused[level] = redisconn.Whole(fields["refused:"+strconv.Itoa(level)])
	}
	return counts, nil
}
