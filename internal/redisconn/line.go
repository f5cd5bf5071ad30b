package redisconn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// OwnLine is a connection on which one goroutine blocks. Where it may have one of its own, the end of ctx ends its
// wait; else the wait lasts.
type OwnLine struct {
	of   *Conn
	conn any // a *redis.Conn; see Client. Nil until it is needed
	id   int64
}

// NewLine returns a line of a partition's Redis. It connects when it is needed.
func NewLine(of *Conn) OwnLine { return OwnLine{of: of} }

// Close ends the connection, if there is one.
func (l *OwnLine) Close() error {
	conn, ok := l.conn.(*redis.Conn)
	l.conn, l.id = nil, 0
	if !ok {
		return nil
	}
	return conn.Close()
}

// Block calls read, which blocks for up to wait. After an error the next call takes another connection.
func (l *OwnLine) Block(ctx context.Context, wait time.Duration, read func(context.Context, redis.Cmdable) error) error {
	client, ok := Client(l.of).(*redis.Client)
	if !ok {
		return read(ctx, Client(l.of))
	}
	if l.conn == nil {
		l.conn = client.Conn()
	}
	conn, _ := l.conn.(*redis.Conn)
	if l.id == 0 {
		// A server that does not know the command, such as the embedded one, lets the wait last.
		l.id, _ = conn.ClientID(ctx).Result()
	}
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait+CheckTimeout)
	defer cancel()
	id := l.id // Close may come before the function has ended.
	defer context.AfterFunc(ctx, func() { unblock(reading, client, id) })()
	err := read(reading, conn)
	if err != nil {
		_ = l.Close() // It may be broken.
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
