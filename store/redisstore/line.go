package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// ownLine is a connection on which one goroutine blocks. Where it may have one of its own, the end of ctx ends its
// wait; else the wait lasts.
type ownLine struct {
	store *Partition
	conn  any // a *redis.Conn; see connection. Nil until it is needed
	id    int64
}

func (l *ownLine) close() error {
	conn, ok := l.conn.(*redis.Conn)
	l.conn, l.id = nil, 0
	if !ok {
		return nil
	}
	return conn.Close()
}

// block calls read, which blocks for up to wait. After an error the next call takes another connection.
func (l *ownLine) block(ctx context.Context, wait time.Duration, read func(context.Context, redis.Cmdable) error) error {
	client, ok := connection(l.store).(*redis.Client)
	if !ok {
		return read(ctx, connection(l.store))
	}
	if l.conn == nil {
		l.conn = client.Conn()
	}
	conn, _ := l.conn.(*redis.Conn)
	if l.id == 0 {
		// A server that does not know the command, such as the embedded one, lets the wait last.
		l.id, _ = conn.ClientID(ctx).Result()
	}
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait+checkTimeout)
	defer cancel()
	id := l.id // close may come before the function has ended.
	defer context.AfterFunc(ctx, func() { unblock(reading, client, id) })()
	err := read(reading, conn)
	if err != nil {
		_ = l.close() // It may be broken.
	}
	return err
}

// unblock ends the wait of a connection, which may not have begun yet, unless ctx ends first: then it is over.
func unblock(ctx context.Context, client *redis.Client, id int64) {
	pause := time.NewTicker(unblockEvery)
	defer pause.Stop()
	for ctx.Err() == nil && client.ClientUnblock(ctx, id).Val() == 0 {
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

const unblockEvery = 10 * time.Millisecond
