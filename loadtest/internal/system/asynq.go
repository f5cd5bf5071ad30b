package system

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/loadtest/internal/drive"
	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
	"github.com/headgate/headgate/loadtest/internal/redisrun"
)

var (
	errLate    = errors.New("the job is late")
	errLimited = errors.New("the worker runs as much as it may")
)

// Limiter bounds what a worker runs at a time. Acquire reports whether a job may run; release ends one, and says whether how long it took counts.
type Limiter interface {
	Acquire() (release func(counts bool), ok bool)
}

type asynqSystem struct {
	name   string
	limits Limiter
	config drive.SystemConfig
	redis  *redisrun.Store
	client *redis.Client
	asynq  *asynq.Client
	text   []byte
}

// OpenAsynq opens asynq on a private Redis, as its documentation sets it up.
func OpenAsynq(ctx context.Context, config drive.SystemConfig) (drive.System, error) {
	opened, err := redisrun.Open(ctx, "", config.Plan.Restarts, config.Notes)
	if err != nil {
		return nil, err
	}
	// The settings of the house are Headgate's; asynq has go-redis's own, but for the size of the pool.
	client := redis.NewClient(&redis.Options{Addr: opened.Addr(), PoolSize: redisrun.PoolSize})
	return &asynqSystem{
		name: "asynq", config: config, redis: opened, client: client, asynq: asynq.NewClientFromRedisClient(client), text: payloadText(config.Plan),
	}, nil
}

// OpenLimited returns what opens asynq with a limiter in its worker, which is given the worker's slots. A job that it refuses waits for
// a retry that does not count, as asynq's documentation does it where a rate is limited.
func OpenLimited(name string, limits func(slots int) Limiter) drive.Open {
	return func(ctx context.Context, config drive.SystemConfig) (drive.System, error) {
		opened, err := OpenAsynq(ctx, config)
		if s, ok := opened.(*asynqSystem); ok {
			s.name, s.limits = name, limits(config.Plan.Slots)
		}
		return opened, err
	}
}

func (s *asynqSystem) Name() string { return s.name }

// queueOf names the queue of a job: asynq has priorities between queues only.
func (s *asynqSystem) queueOf(queue, class int) string {
	return s.config.Plan.Queues[queue] + "." + string(s.config.Plan.Classes[class].Name)
}

func (s *asynqSystem) queues() map[string]int {
	all := map[string]int{}
	for queue := range s.config.Plan.Queues {
		for class := range s.config.Plan.Classes {
			all[s.queueOf(queue, class)] = s.config.Plan.Classes[class].Weight
		}
	}
	return all
}

func (s *asynqSystem) Enqueue(ctx context.Context, number int) record.Answer {
	a := &s.config.Plan.Arrivals[number]
	ctx, cancel := context.WithTimeout(ctx, load.Timeout)
	defer cancel()
	retries := s.config.Plan.MaxAttempts - 1
	if s.limits != nil {
		retries++ // asynq lets go of what has none left, before it looks whether one counts.
	}
	_, err := s.asynq.EnqueueContext(ctx, asynq.NewTask(jobType, s.text[:a.Bytes]), asynq.TaskID(idOf(number)),
		asynq.Queue(s.queueOf(a.Queue, a.Class)), asynq.MaxRetry(retries), asynq.Timeout(a.Work+maxWork))
	switch {
	case err == nil, errors.Is(err, asynq.ErrTaskIDConflict):
		return record.Answer{Outcome: record.Admitted}
	case errors.Is(err, redis.ErrPoolTimeout):
		return record.Answer{Outcome: record.Unavailable}
	}
	return record.Answer{Outcome: record.Unknown}
}

func (s *asynqSystem) Work(ctx context.Context, ready func(), handle drive.Handler) error {
	plan := s.config.Plan
	server := asynq.NewServerFromRedisClient(s.client, asynq.Config{
		Concurrency: plan.Slots, Queues: s.queues(), LogLevel: asynq.FatalLevel, TaskCheckInterval: s.config.AsynqPoll,
		// Its default waits up to 5 s for a retry; Headgate's timers are exact.
		DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: func(n int, _ error, _ *asynq.Task) time.Duration {
			most := min(plan.BackoffMost, plan.BackoffBase<<min(n, 20))
			return time.Duration(rand.Int64N(int64(max(1, most)))) //nolint:gosec // Jitter.
		},
		IsFailure: func(err error) bool { return !errors.Is(err, errLimited) },
	})
	run := func(ctx context.Context, _ *asynq.Task) (err error) {
		id, _ := asynq.GetTaskID(ctx)
		number, err := numberOf(id, plan)
		if err != nil {
			return errors.Join(err, asynq.SkipRetry)
		}
		// Its own deadlines are in whole seconds, so the handler looks, as its users' do.
		if o := plan.Overload; o != nil && s.config.Book().Now() > plan.Arrivals[number].At+o.MaxWait {
			s.config.Book().Bury(number)
			return errors.Join(errLate, asynq.SkipRetry)
		}
		if s.limits != nil {
			release, ok := s.limits.Acquire()
			if !ok {
				return errLimited
			}
			defer func() { release(err == nil) }()
		}
		err = handle(ctx, number, time.Time{})
		if retried, _ := asynq.GetRetryCount(ctx); err != nil && retried+1 >= plan.MaxAttempts {
			s.config.Book().Bury(number)
			err = errors.Join(err, asynq.SkipRetry)
		}
		return err
	}
	if err := server.Start(asynq.HandlerFunc(run)); err != nil {
		return fmt.Errorf("start asynq: %w", err)
	}
	ready()
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func (s *asynqSystem) Breakers() map[string]string { return nil }

func (s *asynqSystem) Account(context.Context) (figures.Account, error) {
	inspector := asynq.NewInspectorFromRedisClient(s.client)
	queues, err := inspector.Queues()
	if err != nil {
		return figures.Account{}, fmt.Errorf("list the queues of asynq: %w", err)
	}
	var a figures.Account
	for _, queue := range queues {
		info, err := inspector.GetQueueInfo(queue)
		if err != nil {
			return figures.Account{}, fmt.Errorf("count the tasks of asynq: %w", err)
		}
		a.Held += info.Pending + info.Active + info.Scheduled + info.Retry
	}
	return a, nil
}

func (s *asynqSystem) Redis() drive.Redis { return s.redis }

func (s *asynqSystem) Close(ctx context.Context) error {
	return errors.Join(s.client.Close(), s.redis.Close(ctx, ""))
}
