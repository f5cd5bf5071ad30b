package looking

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Remaining counts what is left of a queue, for whoever drains it. Jobs that move meanwhile may make a number above 0
// wrong; a Total of 0 is true for a queue into which no jobs enter: the jobs that wait for a time, of whichever queue, are all
// read for it, some at a time, between two looks at the queue that show that no job of it moved. Above 5,000 of these, Later is a
// lower bound as long as the Total is above 0.
func (s *Looking) Remaining(ctx context.Context, queue string) (store.Remaining, error) {
	q := store.QueueState{Name: queue}
	at := map[string]*store.QueueState{queue: &q}
	for _, part := range []func(context.Context, map[string]*store.QueueState) error{s.readDynamics, s.countReady, s.countLater, s.countSpilled} {
		if err := part(ctx, at); err != nil {
			return store.Remaining{}, err
		}
	}
	left := store.Remaining{Waiting: q.Waiting(), Ready: q.Ready, Running: q.Running, Later: q.Later, Spilled: q.Spilled}
	if left.Total() > 0 {
		return left, nil
	}
	return s.RemainingAtOnce(ctx, queue)
}

// RemainingAtOnce counts until nothing has moved meanwhile.
func (s *Looking) RemainingAtOnce(ctx context.Context, queue string) (store.Remaining, error) {
	for {
		text, left, err := s.standing(ctx, queue)
		if err != nil || left.Total() > 0 {
			return left, err
		}
		if left.Later, err = s.someLater(ctx, queue); err != nil || left.Later > 0 {
			return left, err
		}
		// A job that left later, or came to it, was counted as waiting or was dispatched, and either is in the text.
		again, left, err := s.standing(ctx, queue)
		if err != nil || left.Total() > 0 || again == text {
			return left, err
		}
	}
}

// standing counts what waits and what is in streams, read or not, at one instant. The text changes when a job comes, goes to a worker
// or ends where it waited.
func (s *Looking) standing(ctx context.Context, queue string) (text string, left store.Remaining, err error) {
	state := s.conn.Partition.State()
	for {
		ids, err := redisconn.Client(s.conn).HGet(ctx, state, "pools").Result()
		if err != nil && !redisconn.IsNil(err) {
			return "", store.Remaining{}, fmt.Errorf("read pools: %w", redisconn.Unread(err))
		}
		pipe := redisconn.Client(s.conn).TxPipeline()
		now := pipe.HMGet(ctx, state, "pools", "cfg:"+queue, "q:"+queue, "cfg:*")
		var streams []*redis.XMessageSliceCmd
		for id := range strings.FieldsSeq(ids) {
			streams = append(streams, pipe.XRange(ctx, s.conn.Partition.Ready(id), "-", "+"))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return "", store.Remaining{}, fmt.Errorf("count jobs of %s: %w", queue, redisconn.Unread(err))
		}
		if redisconn.TextAt(now.Val(), 0) != ids {
			continue // A pool has come or gone.
		}
		q := store.QueueState{Name: queue}
		for _, class := range parseQueueConfig(redisconn.TextAt(now.Val(), 1), redisconn.TextAt(now.Val(), 3)).classes {
			q.Classes = append(q.Classes, store.ClassState{Class: class})
		}
		text = redisconn.TextAt(now.Val(), 2)
		readQueueText(&q, text)
		for _, stream := range streams {
			for _, m := range stream.Val() {
				raw, _ := m.Values["j"].(string)
				rec, _ := m.Values["r"].(string)
				if row := listedOf(raw, rec); row.Record.Job.Queue == queue {
					q.Ready++
				}
			}
		}
		return text, store.Remaining{Waiting: q.Waiting(), Ready: q.Ready}, nil
	}
}

// someLater reads the jobs that wait for a time until it meets some of the queue, and returns how many it met.
func (s *Looking) someLater(ctx context.Context, queue string) (int64, error) {
	q := store.QueueState{Name: queue}
	for mark := (store.SetMark{}); ; {
		members, err := s.after(ctx, s.conn.Partition.Later(), mark, store.ListPortion)
		if err != nil {
			return 0, err
		}
		if err := s.countQueues(ctx, members, map[string]*store.QueueState{queue: &q}); err != nil {
			return 0, err
		}
		if q.Later > 0 || len(members) < store.ListPortion {
			return q.Later, nil
		}
		last := members[len(members)-1]
		mark = store.SetMark{At: last.at, Key: []byte(last.name)}
	}
}
