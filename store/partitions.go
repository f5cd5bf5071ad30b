package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
)

// MaxPartitions is the largest number of partitions of a deployment.
const MaxPartitions = 256

// Partitions returns the store of each partition, in order; a store of one partition is its own only one. Workers and
// schedulers work on these, since registrations, ready streams and timers are a partition's.
func (s *Store) Partitions() []*Store {
	if s.all == nil {
		return []*Store{s}
	}
	return slices.Clone(s.all)
}

// First reports whether this is the store of the first of several partitions, which has the policy that all follow.
func (s *Store) First() bool { return s.whole != nil && s.index == 0 }

// PartitionOf returns the index of a tenant's partition in Partitions.
func (s *Store) PartitionOf(tenant string) int { return keyspace.Of(tenant, max(1, len(s.all))) }

// of returns the store of a tenant's partition.
func (s *Store) of(tenant string) *Store {
	if s.all == nil {
		return s
	}
	return s.all[keyspace.Of(tenant, len(s.all))]
}

// split makes s the store of so many partitions; s itself goes on as that of the first, for what is kept there alone.
func (s *Store) split(partitions int) {
	if partitions == 1 {
		return
	}
	s.setLayout(strconv.Itoa(partitions))
	all := make([]*Store, partitions)
	for i := range all {
		one := *s
		one.partition, one.index, one.parts, one.whole = keyspace.New(s.config.Prefix, i), i, partitions, s
		all[i] = &one
	}
	s.all, s.parts = all, partitions
}

// agree settles how many partitions the deployment has: as many as its first start chose, one where it chose none. Each
// partition says it, so that a stray one is known.
const agree = `local n = redis.call('HGET', KEYS[1], ARGV[1])
if n then return n end
if redis.call('EXISTS', KEYS[1]) == 1 then return '1' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return ARGV[2]`

// checkPartitions reads how many partitions there are, or makes a new deployment one of Config.Partitions, and splits s.
func (s *Store) checkPartitions(ctx context.Context) error {
	wanted := s.config.Partitions
	if wanted <= 1 {
		text, err := connection(s).HGet(ctx, s.partition.State(), redisconn.LayoutField).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("read number of partitions: %w", redisconn.Unread(err))
		}
		if strings.Contains(text, ">") {
			return &redisconn.LayoutError{Stored: text}
		}
		stored := max(1, int(redisconn.Whole(text)))
		if err := checkNumber(wanted, stored); err != nil {
			return err
		}
		s.split(stored)
		return s.checkParts(ctx)
	}
	stored, err := s.agreeOn(ctx, wanted)
	if err != nil {
		return err
	}
	if err := checkNumber(wanted, stored); err != nil {
		return err
	}
	s.split(stored)
	return s.checkParts(ctx)
}

// checkParts looks at the partitions beside the first.
func (s *Store) checkParts(ctx context.Context) error {
	return s.Each(func(i int, part *Store) error {
		if i == 0 {
			return nil
		}
		stored, err := part.agreeOn(ctx, len(s.all))
		if err != nil {
			return err
		}
		if err := checkNumber(len(s.all), stored); err != nil {
			return fmt.Errorf("%s: %w", part.partition.State(), err)
		}
		return part.checkData(ctx)
	})
}

func (s *Store) agreeOn(ctx context.Context, partitions int) (int, error) {
	text, err := connection(s).Eval(ctx, s.preamble+agree, []string{s.partition.State()}, redisconn.LayoutField, partitions).Text()
	if err != nil {
		return 0, fmt.Errorf("agree on number of partitions: %w", redisconn.Unread(err))
	}
	if strings.Contains(text, ">") {
		return 0, &redisconn.LayoutError{Stored: text}
	}
	return strconv.Atoi(text)
}

func checkNumber(wanted, stored int) error {
	if wanted == 0 || wanted == stored {
		return nil
	}
	return errors.Join(ErrPartitions, &admission.FieldError{
		Field: "partitions", Value: strconv.Itoa(wanted), Allowed: fmt.Sprintf("%d, which this deployment began with, or 0 for whatever it has", stored),
	})
}

// Each calls do for all partitions side by side, once for a store of one, and joins the errors.
func (s *Store) Each(do func(i int, part *Store) error) error {
	if s.all == nil {
		return do(0, s)
	}
	errs := make([]error, len(s.all))
	var running sync.WaitGroup
	for i, part := range s.all {
		running.Go(func() { errs[i] = do(i, part) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// gather calls do for all partitions side by side and returns what each gave, in order.
func gather[T any](s *Store, do func(part *Store) (T, error)) ([]T, error) {
	found := make([]T, max(1, len(s.all)))
	err := s.Each(func(i int, part *Store) (err error) {
		found[i], err = do(part)
		return err
	})
	return found, err
}
