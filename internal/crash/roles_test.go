package crash_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// The roles that this binary plays as a process of its own, and what it is told.
const (
	roleVariable   = "HEADGATE_CRASH_ROLE"
	addrVariable   = "HEADGATE_CRASH_ADDR"
	bookVariable   = "HEADGATE_CRASH_BOOK"
	numberVariable = "HEADGATE_CRASH_NUMBER"
	prefixVariable = "HEADGATE_CRASH_PREFIX"
	fromVariable   = "HEADGATE_CRASH_FROM"

	producerRole  = "producer"
	schedulerRole = "scheduler"
	workerRole    = "worker"
	steadyRole    = "steady-worker"
	stubbornRole  = "stubborn"
	scriptRole    = "script-producer"
	workingRole   = "script-worker"
	asynqRole     = "asynq"

	replicatedRole = "replicated"
	partsRole      = "producer-of-parts"

	downstreamRole = "downstream"
	callerRole     = "caller"
	offererRole    = "offerer"
)

const (
	// stormLease is short, so that a process that is stopped outlasts it.
	stormLease = 1500 * time.Millisecond
	// steadyLease is long, so that a machine that halts does not end it.
	steadyLease = 30 * time.Second
	stormSlots  = 12
	// stormCallers times stormPace is the load of a producer.
	stormCallers = 6
	stormPace    = 50 * time.Millisecond
	// resendFor is well within the dedup window of stormPolicy.
	resendFor = 10 * time.Minute
)

// player is a process that plays a role until its stdin ends.
type player struct {
	store  store.Deployment
	book   *book
	number int
	addr   string
}

// playRole returns the exit code.
func playRole(role string) int {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // This is the main of a process.
	defer cancel()
	commands := &stdin{ended: cancel, lines: make(chan struct{}, 16)}
	go commands.read()
	logging.Disable()
	p := &player{}
	opening := ctx
	if role == producerRole { // It decides what its predecessor has left, also where it is told to leave at once.
		opening = context.WithoutCancel(ctx)
	}
	err := p.open(opening)
	if err == nil {
		switch role {
		case producerRole:
			err = p.produce(ctx)
		case schedulerRole:
			err = p.schedule(ctx)
		case workerRole:
			err = p.work(ctx, stormLease)
		case steadyRole:
			err = p.work(ctx, steadyLease)
		case stubbornRole:
			err = p.insist(ctx, commands.lines)
		case scriptRole:
			err = p.playScript(ctx)
		case workingRole:
			err = p.workScript(ctx)
		case replicatedRole:
			err = p.produceReplicated(ctx)
		case partsRole:
			err = p.produceInParts(ctx)
		case asynqRole:
			err = p.workAsynq(ctx)
		case downstreamRole:
			err = p.serve(ctx)
		case callerRole:
			err = p.answerCalls(ctx, commands.lines)
		case moverRole:
			err = p.moveSpilled(ctx)
		case offererRole:
			err = p.offer(ctx)
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "%s %d: %v\n", role, p.number, err)
		return 1
	}
	return 0
}

// stdin says when a line comes, and when there are no more: the parent closes it, or ends itself.
type stdin struct {
	ended func()
	lines chan struct{}
}

func (s *stdin) read() {
	defer s.ended()
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(os.Stdin, one); err != nil {
			return
		}
		s.lines <- struct{}{}
	}
}

// open waits for Redis: it may be away just now.
func (p *player) open(ctx context.Context) (err error) {
	if p.number, err = strconv.Atoi(os.Getenv(numberVariable)); err != nil {
		return err
	}
	if p.book, err = openBook(os.Getenv(bookVariable)); err != nil {
		return err
	}
	p.addr = os.Getenv(addrVariable)
	address := p.addr
	if !strings.Contains(address, "://") {
		address = "redis://" + address
	}
	client, err := dial(address, os.Getenv(fromVariable))
	if err != nil {
		return err
	}
	config := redisstore.Config{Prefix: os.Getenv(prefixVariable), Second: os.Getenv(secondVariable)}
	if role := os.Getenv(roleVariable); role == replicatedRole || role == partsRole {
		config.Replicas = 1
	}
	for {
		if p.store, err = redisstore.Open(ctx, client, config); err == nil || ctx.Err() != nil || errors.Is(err, admission.ErrNewerData) {
			return err
		}
		if err := wait(ctx, 30*time.Millisecond); err != nil {
			return err
		}
	}
}

// dial returns a client of the Redis at an address; one of a cluster may be at a host of its own.
func dial(address, host string) (redis.UniversalClient, error) {
	if host == "" {
		return redisclient.Dial(address, nil)
	}
	options, addrs, err := redisclient.ParseCluster(address)
	if err != nil {
		return nil, err
	}
	options.Dialer = redistest.DialFrom(host)
	return redisclient.NewCluster(options, addrs), nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *player) schedule(ctx context.Context) error {
	s, err := scheduler.New(p.store, scheduler.Config{TimerLease: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// produce first asks again for what its predecessor in the role was killed over, then for new jobs until ctx ends, and
// leaves no job undecided.
func (p *player) produce(ctx context.Context) error {
	sdk, err := producer.New(p.store, producer.Config{InFlight: 2})
	if err != nil {
		return err
	}
	var next atomic.Int64
	open := map[int]bool{}
	err = readBook(os.Getenv(bookVariable), func(words []string) {
		n, err := strconv.Atoi(words[1])
		if err != nil {
			return
		}
		if words[0] == "S" {
			open[n] = true
			next.Store(max(next.Load(), int64(n)+1))
		} else {
			delete(open, n)
		}
	})
	if err != nil {
		return err
	}
	for n := range open {
		p.decide(ctx, sdk, n, true)
	}
	var running sync.WaitGroup
	for range stormCallers {
		running.Go(func() {
			for wait(ctx, stormPace) == nil {
				n := int(next.Add(1) - 1)
				p.book.note("S", n)
				p.decide(ctx, sdk, n, false)
			}
		})
	}
	running.Wait()
	return nil
}

// lateCall is how long the call of a process that was killed may be in a buffer once its successor is answered.
const lateCall = 50 * time.Millisecond

// decide asks for a job until it knows what became of it, by the same id within the dedup window. Where another process has asked, a refusal
// is certain when it comes twice.
func (p *player) decide(ctx context.Context, sdk *producer.Producer, number int, another bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resendFor) // A job that was sent is decided.
	defer cancel()
	for ctx.Err() == nil {
		_, err := sdk.Enqueue(ctx, stormJob(p.number, number))
		var refused *admission.RefusedError
		switch {
		case err == nil:
			p.book.note("A", number)
			return
		case errors.As(err, &refused) && another:
			another = false
			_ = wait(ctx, lateCall)
			continue
		case errors.As(err, &refused):
			p.book.note("R", number, refused.Verdict.Reason)
			return
		}
		// In doubt, or Redis is away, or still loads what it has kept.
		_ = wait(ctx, 20*time.Millisecond)
	}
	p.book.note("X", number)
}

var errPlanned = errors.New("fails as it was planned")

// work runs jobs as their payloads say.
func (p *player) work(ctx context.Context, lease time.Duration) error {
	w, err := worker.New(p.store, worker.Config{
		Queues: stormQueues, Concurrency: stormSlots, Lease: lease, NoScheduler: true, DrainTimeout: 2 * time.Second,
		Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * 20 * time.Millisecond },
		Observer: worker.Observer{
			Started:  func(e worker.Event) { p.book.note("T", nanos(), e.Key, e.Token) },
			Finished: func(e worker.Event) { p.book.note("F", nanos(), e.Key, e.Outcome, e.Reason, e.Token) },
		},
	})
	if err != nil {
		return err
	}
	worker.Register(w, "work", func(ctx context.Context, job worker.Job[[]byte]) error {
		key := admission.Key{Tenant: job.Tenant, ID: job.ID}
		p.book.note("B", nanos(), key, job.Attempt, job.Suspect)
		defer func() { p.book.note("E", nanos(), key) }()
		fails, millis, fate := 0, 0, ""
		if _, err := fmt.Sscan(string(job.Args), &fails, &millis, &fate); err != nil {
			return worker.Discard(err)
		}
		if err := wait(ctx, time.Duration(millis)*time.Millisecond); err != nil {
			return err
		}
		if actual, told := job.Headers[actualHeader]; told {
			cost, err := strconv.Atoi(actual)
			if err == nil {
				err = worker.SetCost(ctx, admission.Tokens(cost))
			}
			if err != nil {
				return worker.Discard(err)
			}
		}
		switch {
		case job.Attempt <= fails:
			return errPlanned
		case fate == "discard":
			return worker.Discard(errPlanned)
		}
		return nil
	})
	p.book.note("up", nanos(), "work")
	return w.Run(ctx)
}
