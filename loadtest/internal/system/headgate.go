package system

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/loadtest/internal/drive"
	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
	"github.com/headgate/headgate/loadtest/internal/redisrun"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

type headgateSystem struct {
	name     string
	config   drive.SystemConfig
	redis    *redisrun.Store
	client   *redis.Client
	prefix   string
	store    store.Deployment
	patient  store.Deployment // for what is not measured
	producer *producer.Producer
	worker   *worker.Worker
	handle   drive.Handler
	text     []byte
}

// OpenUnshed opens Headgate without what the plan's policy has against overload, OpenCapped with a limit of what can be served in its place.
func OpenUnshed(ctx context.Context, config drive.SystemConfig) (drive.System, error) {
	return openWith(ctx, "unshed", config.Plan.Unshed, config)
}

// OpenCapped is described with OpenUnshed.
func OpenCapped(ctx context.Context, config drive.SystemConfig) (drive.System, error) {
	return openWith(ctx, "capped", config.Plan.Capped, config)
}

func openWith(ctx context.Context, name string, other *policy.Policy, config drive.SystemConfig) (drive.System, error) {
	plan := *config.Plan
	if other != nil {
		plan.Policy = *other
	}
	config.Plan = &plan
	opened, err := OpenHeadgate(ctx, config)
	if s, ok := opened.(*headgateSystem); ok {
		s.name = name
	}
	return opened, err
}

// OpenHeadgate opens Headgate with every law on: limits, dedup, fairness, breakers, leases.
func OpenHeadgate(ctx context.Context, config drive.SystemConfig) (drive.System, error) {
	opened, err := redisrun.Open(ctx, config.Redis, config.Plan.Restarts, config.Notes)
	if err != nil {
		return nil, err
	}
	s := &headgateSystem{
		name: "headgate", config: config, redis: opened, client: opened.NewClient(), text: payloadText(config.Plan),
		prefix: "hg-load-" + strings.ToLower(rand.Text()[:8]),
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *headgateSystem) prepare(ctx context.Context) (err error) {
	plan := s.config.Plan
	if s.store, err = redisstore.Open(ctx, s.client, redisstore.Config{Prefix: s.prefix}); err != nil {
		return err
	}
	if s.patient, err = redisstore.Open(ctx, s.redis.NewPatientClient(), redisstore.Config{Prefix: s.prefix}); err != nil {
		return err
	}
	document := plan.Policy
	document.Version = 0
	stored, err := rollout.Put(ctx, s.patient, document, rollout.Edit{Author: "loadtest", Expected: rollout.AnyVersion})
	if err != nil {
		return err
	}
	document.Version = stored.To
	if s.producer, err = producer.New(s.store, producer.Config{Policy: &document, Timeout: load.Timeout}); err != nil {
		return err
	}
	for queue, units := range plan.Caps {
		if _, _, err := s.patient.SetGate(ctx, store.Gate{Name: store.QueueGate(queue), Limit: units}); err != nil {
			return fmt.Errorf("cap queue %s: %w", queue, err)
		}
	}
	var queues []store.QueueWeight
	for _, queue := range plan.Queues {
		queues = append(queues, store.QueueWeight{Queue: queue})
	}
	s.worker, err = worker.New(s.store, worker.Config{
		Queues: queues, Concurrency: plan.Slots, DefaultTimeout: admission.MaxTimeout, Breaker: plan.Breaker,
		Backoff: worker.ExponentialBackoff(plan.BackoffBase, plan.BackoffMost), Observer: worker.Observer{Finished: s.finished},
	})
	if err != nil {
		return err
	}
	worker.Register(s.worker, jobType, func(ctx context.Context, job worker.Job[[]byte]) error {
		number, err := numberOf(job.ID, plan)
		if err != nil {
			return worker.Discard(err)
		}
		return s.handle(ctx, number, job.Admitted)
	})
	return nil
}

// payloadText returns what payloads are cut from.
func payloadText(plan *load.Plan) []byte {
	longest := 0
	for i := range plan.Arrivals {
		longest = max(longest, plan.Arrivals[i].Bytes)
	}
	return slices.Repeat([]byte("x"), longest)
}

func (s *headgateSystem) finished(e worker.Event) {
	if number, err := numberOf(e.Key.ID, s.config.Plan); err == nil && e.Outcome == worker.Dead {
		s.config.Book().Bury(number)
	}
}

func (s *headgateSystem) Name() string { return s.name }

func (s *headgateSystem) Enqueue(ctx context.Context, number int) record.Answer {
	plan := s.config.Plan
	a := &plan.Arrivals[number]
	job := admission.Job{
		ID: idOf(number), Tenant: plan.Tenants[a.Tenant], Queue: plan.Queues[a.Queue], Type: jobType, Priority: plan.Classes[a.Class].Name,
		Cost: a.Cost, MaxAttempts: plan.MaxAttempts, Payload: s.text[:a.Bytes],
	}
	if a.Downstream != load.None {
		job.Downstream = plan.Downstreams[a.Downstream]
	}
	verdict, err := s.producer.Enqueue(ctx, job)
	switch {
	case err == nil:
		return record.Answer{Outcome: record.Admitted}
	case errors.Is(err, admission.ErrRefused):
		return record.Answer{Outcome: record.Refused, Reason: verdict.Reason}
	case errors.Is(err, admission.ErrUnavailable):
		return record.Answer{Outcome: record.Unavailable}
	}
	return record.Answer{Outcome: record.Unknown}
}

// readyEvery is how often Work looks whether the worker is registered.
const readyEvery = 2 * time.Millisecond

func (s *headgateSystem) Work(ctx context.Context, ready func(), handle drive.Handler) error {
	s.handle = handle
	ended := make(chan error, 1)
	go func() { ended <- s.worker.Run(ctx) }() // It ends with ctx.
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		workers, err := s.patient.Workers(ctx)
		if err == nil && len(workers) > 0 {
			ready()
			return <-ended
		}
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
	}
}

func (s *headgateSystem) Breakers() map[string]string {
	states := map[string]string{}
	for _, b := range s.worker.Breakers() {
		states[b.Downstream] = b.State.String()
	}
	return states
}

func (s *headgateSystem) Account(ctx context.Context) (figures.Account, error) {
	census, err := s.patient.Census(ctx)
	if err != nil {
		return figures.Account{}, fmt.Errorf("count what Redis holds: %w", err)
	}
	gates, err := s.patient.Gates(ctx)
	if err != nil {
		return figures.Account{}, fmt.Errorf("read the gates: %w", err)
	}
	breakers, err := s.patient.Breakers(ctx)
	if err != nil {
		return figures.Account{}, fmt.Errorf("read the breakers: %w", err)
	}
	a := figures.Account{Held: int(census.Live - census.Dead), Census: &census}
	for i := range gates {
		a.Gated = a.Gated || gates[i].Shut()
	}
	for i := range breakers {
		// The cooldown of one may have ended since the worker did: it then lets a probe through, and nobody is there to take it.
		a.Gated = a.Gated || breakers[i].Limit != store.Unlimited
	}
	return a, nil
}

func (s *headgateSystem) Redis() drive.Redis { return s.redis }

func (s *headgateSystem) Close(ctx context.Context) error {
	bad := s.client.Close()
	if s.patient != nil {
		bad = errors.Join(bad, s.patient.Close())
	}
	return errors.Join(bad, s.redis.Close(ctx, s.prefix+"{*"))
}
