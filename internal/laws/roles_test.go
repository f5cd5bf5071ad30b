package laws_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// The roles that this binary plays as a process of its own, and what it is told.
const (
	roleVariable   = "HEADGATE_LAWS_ROLE"
	addrVariable   = "HEADGATE_LAWS_ADDR"
	prefixVariable = "HEADGATE_LAWS_PREFIX"
	nameVariable   = "HEADGATE_LAWS_NAME"

	schedulerRole = "scheduler"
	workerRole    = "worker"
)

const (
	// roleLease is short, so that what a killed worker held comes back soon.
	roleLease = 400 * time.Millisecond
	// roleSlots times three workers is the room of the pool.
	roleSlots = 8
	// roleTimerLease is short, so that all schedulers get their turns.
	roleTimerLease = 3 * time.Millisecond
	roleBlock      = 20 * time.Millisecond
)

// player is a process that plays a role until its stdin ends.
type player struct {
	store store.Deployment
	name  string
	// lives counts the registrations: a worker that lost its lease takes a new name.
	lives int
	out   *bufio.Writer
}

// playRole returns the exit code.
func playRole(role string) int {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // This is the main of a process.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // It ends when the parent closes it, or ends itself.
		cancel()
	}()
	options := &redis.Options{Addr: os.Getenv(addrVariable), ReadTimeout: 20 * time.Second, WriteTimeout: 20 * time.Second}
	redisclient.Settings(options)
	client := redis.NewClient(options)
	defer client.Close()
	s, err := redisstore.Open(ctx, client, redisstore.Config{Prefix: os.Getenv(prefixVariable)})
	p := &player{store: s, name: os.Getenv(nameVariable), out: bufio.NewWriter(os.Stdout)}
	if err == nil {
		err = map[string]func(context.Context) error{
			schedulerRole: p.schedule, workerRole: p.work, producerRole: p.produce, idleRole: p.stay,
		}[role](ctx)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", role, p.name, err)
		return 1
	}
	return 0
}

// schedule runs what is due, over and over.
func (p *player) schedule(ctx context.Context) error {
	last := ""
	for ctx.Err() == nil {
		done, err := p.store.Partitions()[0].Promote(ctx, p.name, roleTimerLease)
		if err != nil {
			return err
		}
		if done.More {
			continue
		}
		wait := roleBlock
		if done.Next >= 0 {
			wait = max(time.Millisecond, min(wait, done.Next))
		}
		if last, err = p.store.Partitions()[0].WaitWake(ctx, last, wait); err != nil {
			return err
		}
	}
	return nil
}

// work registers, reads, reports, finishes and sends heartbeats. It prints "TOKEN CLASS" of each job before it ends it.
func (p *player) work(ctx context.Context) error {
	worker := p.name
	if _, err := p.store.Partitions()[0].Register(ctx, worker, mailPool, roleSlots, roleLease); err != nil {
		return err
	}
	beat := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		if time.Since(beat) > roleLease/4 {
			_, err := p.store.Partitions()[0].Heartbeat(ctx, worker, roleLease, "")
			if errors.Is(err, admission.ErrLeaseLost) { // A busy machine; what it held is another's.
				p.lives++
				worker = fmt.Sprintf("%s-%d", p.name, p.lives)
				_, err = p.store.Partitions()[0].Register(ctx, worker, mailPool, roleSlots, roleLease)
			}
			if err != nil {
				return err
			}
			beat = time.Now()
		}
		leases, err := p.store.Partitions()[0].Read(ctx, worker, mailPool.ID(), roleSlots, roleBlock, false)
		if errors.Is(err, store.ErrPoolGone) {
			beat = time.Time{} // All workers had lost their leases.
			continue
		}
		if err != nil {
			return err
		}
		if err := p.end(ctx, leases, n); err != nil {
			return err
		}
	}
	return nil
}

// end completes most jobs, and hands back or retries some, at once or a little later.
func (p *player) end(ctx context.Context, leases []store.Lease, n int) error {
	if len(leases) == 0 {
		return nil
	}
	ends := make([]store.Finish, len(leases))
	for i, l := range leases {
		fmt.Fprintf(p.out, "%s %d\n", l.Token, l.Class)
		delay := time.Duration((n+i)%7) * time.Millisecond
		switch (n*roleSlots + i) % 19 {
		case 3:
			ends[i] = finishAs(l, store.Release, 0)
		case 7:
			ends[i] = finishAs(l, store.Release, delay+1)
		case 11:
			ends[i] = finishAs(l, store.Retry, delay)
		default:
			ends[i] = complete(l)
		}
	}
	if err := p.out.Flush(); err != nil {
		return err
	}
	_, more, err := p.store.Partitions()[0].Finish(ctx, mailPool.ID(), "worker", ends)
	if err == nil && more {
		_, err = p.store.Partitions()[0].Promote(ctx, p.name, roleTimerLease)
	}
	return err
}
