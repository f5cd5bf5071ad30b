package limits

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Acquire implements Partition.
func (s *Limits) Acquire(ctx context.Context, ask store.Acquire) (store.Permit, error) {
	if err := ask.Validate(); err != nil {
		return store.Permit{}, err
	}
	queue := 0
	if ask.Queue {
		queue = 1
	}
	args := []any{codec.Micros(ask.Lease), ask.Version, ask.Permits, ask.Max, queue}
	if ask.Record != 0 {
		if args = append(args, ask.Record); ask.Elsewhere {
			args = append(args, 1)
		}
	}
	n, err := s.semaphore(ctx, "acquire", ask.Name, ask.Token, args...)
	if err != nil {
		return store.Permit{}, err
	}
	return n.permit(), nil
}

// Extend implements Partition.
func (s *Limits) Extend(ctx context.Context, name, token string, lease time.Duration) (store.Permit, error) {
	if err := store.ValidateSemaphoreLease(lease); err != nil {
		return store.Permit{}, err
	}
	n, err := s.semaphore(ctx, "extend", name, token, codec.Micros(lease))
	if err != nil {
		return store.Permit{}, err
	}
	if n.word != string(store.SemaphoreGranted) {
		return store.Permit{}, store.ErrLeaseEnded
	}
	return n.permit(), nil
}

// Release implements Partition.
func (s *Limits) Release(ctx context.Context, name, token string) error {
	n, err := s.semaphore(ctx, "release", name, token)
	if err == nil && n.word != "back" {
		err = store.ErrLeaseEnded
	}
	return err
}

// Semaphore implements Partition.
func (s *Limits) Semaphore(ctx context.Context, name string) (store.SemaphoreState, error) {
	n, err := s.semaphore(ctx, "look", name, "")
	if err != nil {
		return store.SemaphoreState{}, err
	}
	return store.SemaphoreState{
		Name: name, Max: int(n.max), Held: int(n.held), Waiting: int(n.waiting), Oldest: time.Duration(n.oldest) * time.Microsecond,
	}, nil
}

// SemaphoreNames implements Partition.
func (s *Limits) SemaphoreNames(ctx context.Context) ([]string, error) {
	names, err := redisconn.Client(s.conn).ZRange(ctx, s.conn.Partition.Semaphores(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read semaphores: %w", redisconn.Unread(err))
	}
	slices.Sort(names)
	return names, nil
}

// semaphoreReply is what the script answers.
type semaphoreReply struct {
	word                                         string
	held, waiting, ahead, left, oldest, now, max int64
}

// semaphoreReplySize is that of four numbers of four bytes and three of eight, as the script packs them.
const semaphoreReplySize = 40

func (n semaphoreReply) permit() store.Permit {
	p := store.Permit{
		Answer: store.SemaphoreAnswer(n.word), Left: time.Duration(n.left) * time.Microsecond,
		Max: int(n.max), Held: int(n.held), Waiting: int(n.waiting), Ahead: int(n.ahead),
	}
	if p.Granted() {
		p.Expires = time.UnixMicro(n.now + n.left)
	}
	return p
}

func (s *Limits) semaphore(ctx context.Context, what, name, token string, args ...any) (semaphoreReply, error) {
	if err := store.ValidateSemaphore(name); err != nil {
		return semaphoreReply{}, err
	}
	reply, err := s.conn.Run(ctx, "semaphore", append([]any{s.conn.Now, what, name, token}, args...)...)
	if err != nil {
		return semaphoreReply{}, err
	}
	if err := codec.Stale(reply); err != nil {
		return semaphoreReply{}, err
	}
	n := semaphoreReply{word: reply[0]}
	if len(reply) == 1 {
		return n, nil
	}
	packed := []byte(reply[1])
	if len(packed) != semaphoreReplySize {
		return n, fmt.Errorf("semaphore: reply has %d bytes: %w", len(packed), redisconn.ErrUnknownReply)
	}
	for i, to := range []*int64{&n.held, &n.waiting, &n.ahead, &n.max} {
		*to = int64(binary.LittleEndian.Uint32(packed[4*i:]))
	}
	for i, to := range []*int64{&n.left, &n.oldest, &n.now} {
		*to = int64(math.Float64frombits(binary.LittleEndian.Uint64(packed[16+8*i:])))
	}
	return n, nil
}
