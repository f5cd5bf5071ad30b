package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// split returns the stores of so many partitions, s itself where it is one.
func (s *Partition) split(partitions int) []*Partition {
	if partitions == 1 {
		return []*Partition{s}
	}
	s.conn.SetLayout(strconv.Itoa(partitions))
	parts := make([]*Partition, partitions)
	for i := range parts {
		one := s.conn.At(keyspace.New(s.config.Prefix, i))
		one.Index, one.Parts = i, partitions
		parts[i] = partitionOf(one, s.config, s.second)
	}
	return parts
}

// deploymentOf returns the deployment of what split returned.
func deploymentOf(parts []*Partition) store.Deployment {
	if len(parts) == 1 {
		return store.Single(parts[0], parts[0])
	}
	return &many{parts: parts}
}

// agree settles how many partitions the deployment has: as many as its first start chose, one where it chose none. Each
// partition says it, so that a stray one is known.
const agree = `local n = redis.call('HGET', KEYS[1], ARGV[1])
if n then return n end
if redis.call('EXISTS', KEYS[1]) == 1 then return '1' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return ARGV[2]`

// checkPartitions reads how many partitions there are, or makes a new deployment one of Config.Partitions, and returns their stores.
func (s *Partition) checkPartitions(ctx context.Context) ([]*Partition, error) {
	wanted := s.config.Partitions
	if wanted <= 1 {
		text, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.State(), redisconn.LayoutField).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read number of partitions: %w", redisconn.Unread(err))
		}
		if strings.Contains(text, ">") {
			return nil, &redisconn.LayoutError{Stored: text}
		}
		stored := max(1, int(redisconn.Whole(text)))
		if err := checkNumber(wanted, stored); err != nil {
			return nil, err
		}
		return s.checkedParts(ctx, stored)
	}
	stored, err := s.agreeOn(ctx, wanted)
	if err != nil {
		return nil, err
	}
	if err := checkNumber(wanted, stored); err != nil {
		return nil, err
	}
	return s.checkedParts(ctx, stored)
}

// checkedParts splits s and looks at each partition.
func (s *Partition) checkedParts(ctx context.Context, partitions int) ([]*Partition, error) {
	parts := s.split(partitions)
	return parts, each(parts, func(i int, part *Partition) error {
		if i > 0 {
			stored, err := part.agreeOn(ctx, partitions)
			if err != nil {
				return err
			}
			if err := checkNumber(partitions, stored); err != nil {
				return fmt.Errorf("%s: %w", part.conn.Partition.State(), err)
			}
		}
		return part.checkData(ctx)
	})
}

func (s *Partition) agreeOn(ctx context.Context, partitions int) (int, error) {
	text, err := redisconn.Client(s.conn).Eval(ctx, s.conn.Preamble+agree, []string{s.conn.Partition.State()}, redisconn.LayoutField, partitions).Text()
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
	return errors.Join(admission.ErrPartitions, &admission.FieldError{
		Field: "partitions", Value: strconv.Itoa(wanted), Allowed: fmt.Sprintf("%d, which this deployment began with, or 0 for whatever it has", stored),
	})
}
