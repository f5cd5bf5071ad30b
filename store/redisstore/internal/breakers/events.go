package breakers

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// BreakerEvents waits up to wait for transitions after a position, and returns them, up to 100, and the position after
// them. Redis keeps about the last 1000. An empty position is now: nothing is waited for, and the position says from
// where on to ask. An entry that cannot be read is an error of its own, and the position is behind it.
func (s *Fleet) BreakerEvents(ctx context.Context, after string, wait time.Duration) (events []store.BreakerEvent, position string, err error) {
	return s.EventsOn(ctx, redisconn.Client(s.conn), after, wait)
}

// EventsOn is BreakerEvents on some connection.
func (s *Fleet) EventsOn(ctx context.Context, on redis.Cmdable, after string, wait time.Duration) (events []store.BreakerEvent, position string, err error) {
	if after == "" {
		return s.lastEvent(ctx)
	}
	streams, err := on.XRead(ctx, &redis.XReadArgs{Streams: []string{s.conn.Partition.Events(), after}, Count: eventsPortion, Block: wait}).Result()
	if redisconn.IsNil(err) {
		return nil, after, nil
	}
	if err != nil {
		return nil, after, fmt.Errorf("read events: %w", redisconn.Unread(err))
	}
	messages, err := redisconn.MessagesOf(streams)
	if err != nil {
		return nil, after, fmt.Errorf("read events: %w", redisconn.Unread(err))
	}
	for _, m := range messages {
		e, err := parseEvent(m)
		if err != nil && len(events) > 0 {
			break // The next call says so.
		}
		if err != nil {
			return nil, m.ID, fmt.Errorf("read event %s: %w", m.ID, err)
		}
		events, position = append(events, e), m.ID
	}
	return events, position, nil
}

// TransitionsAfter returns transitions after a position, the earliest first, as store.Following says. One that cannot be read is left out.
func (s *Fleet) TransitionsAfter(ctx context.Context, after string, count int) (of store.Stretch[store.BreakerEvent], err error) {
	pipe := redisconn.Client(s.conn).TxPipeline()
	there := pipe.Exists(ctx, s.conn.Partition.Events())
	all := pipe.XInfoStream(ctx, s.conn.Partition.Events())
	found := pipe.XRangeN(ctx, s.conn.Partition.Events(), redisconn.Behind(after), "+", int64(count))
	of.Position = after
	if _, err := pipe.Exec(ctx); there.Err() == nil && found.Err() == nil && there.Val() == 0 {
		return of, nil // There is no stream of which to tell something.
	} else if err != nil {
		return of, fmt.Errorf("read events: %w", redisconn.Unread(err))
	}
	of.Gone, of.Kept = all.Val().EntriesAdded-all.Val().Length, all.Val().Length
	for _, m := range found.Val() {
		of.Position = m.ID
		if e, err := parseEvent(m); err == nil {
			of.Entries = append(of.Entries, e)
		}
	}
	return of, nil
}

const eventsPortion = 100

func (s *Fleet) lastEvent(ctx context.Context) ([]store.BreakerEvent, string, error) {
	last, err := redisconn.Client(s.conn).XRevRangeN(ctx, s.conn.Partition.Events(), "+", "-", 1).Result()
	if err != nil {
		return nil, "", fmt.Errorf("read events: %w", redisconn.Unread(err))
	}
	if len(last) == 0 {
		return nil, "0-0", nil
	}
	return nil, last[0].ID, nil
}

// EventsFollowed returns the position up to which a follower has told transitions; empty when it has not begun.
func (s *Fleet) EventsFollowed(ctx context.Context, follower string) (position string, err error) {
	position, err = redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.Followers(), follower).Result()
	if err != nil && !redisconn.IsNil(err) {
		return "", fmt.Errorf("read place of follower %s: %w", follower, redisconn.Unread(err))
	}
	return position, nil
}

// NoteEventsFollowed notes that position.
func (s *Fleet) NoteEventsFollowed(ctx context.Context, follower, position string) error {
	if err := redisconn.Client(s.conn).HSet(ctx, s.conn.Partition.Followers(), follower, position).Err(); err != nil {
		return fmt.Errorf("note place of follower %s: %w", follower, redisconn.Unread(err))
	}
	return nil
}

// eventReader is BreakerEvents for one goroutine that follows them: where it may have a connection of its own, the end
// of ctx ends its wait.
type eventReader struct {
	store *Fleet
	line  redisconn.OwnLine
}

// NewEventReader returns an EventReader, which is to be closed. It sends nothing yet.
func (s *Fleet) NewEventReader() store.EventReader { return s.newEventReader() }

func (s *Fleet) newEventReader() *eventReader {
	return &eventReader{store: s, line: redisconn.NewLine(s.conn)}
}

// Close ends its connection.
func (r *eventReader) Close() error { return r.line.Close() }

// Read is BreakerEvents. When ctx ends meanwhile it returns no events and no error.
func (r *eventReader) Read(ctx context.Context, after string, wait time.Duration) (events []store.BreakerEvent, position string, err error) {
	if after == "" {
		return r.store.lastEvent(ctx)
	}
	err = r.line.Block(ctx, wait, func(ctx context.Context, on redis.Cmdable) error {
		events, position, err = r.store.EventsOn(ctx, on, after, wait)
		return err
	})
	return events, position, err
}

func parseEvent(m redis.XMessage) (store.BreakerEvent, error) {
	text := func(field string) string { value, _ := m.Values[field].(string); return value }
	number := func(field string) int64 { n, _ := strconv.ParseInt(text(field), 10, 64); return n }
	from, err := parseState(text("from"))
	if err != nil {
		return store.BreakerEvent{}, err
	}
	to, err := parseState(text("to"))
	if err != nil {
		return store.BreakerEvent{}, err
	}
	e := store.BreakerEvent{
		ID: m.ID, Downstream: text("downstream"), From: from, To: to, Period: uint64(number("period")), Cause: text("cause"), Reason: text("reason"),
		Workers: int(number("workers")), Callers: int(number("callers")), At: time.UnixMicro(number("at")), For: -1,
	}
	if until := number("until"); until > 0 {
		e.Until = time.UnixMicro(until)
		e.For = max(0, e.Until.Sub(e.At))
	}
	return e, nil
}
