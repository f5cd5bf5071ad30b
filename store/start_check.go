package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// checkTimeout bounds the start-up checks.
const checkTimeout = 2 * time.Second

// The oldest Redis that is taken.
const (
	minMajor = 7
	minMinor = 0
)

// check refuses a Redis that could not keep the laws, and a deployment that this process cannot work on.
func (s *Store) check(ctx context.Context) error {
	if err := s.checkRedis(ctx); err != nil {
		return err
	}
	if err := s.checkPartitions(ctx); err != nil {
		return err
	}
	return s.checkData(ctx)
}

// checkRedis looks at the Redis alone.
func (s *Store) checkRedis(ctx context.Context) error {
	info, err := connection(s).Info(ctx).Result()
	if err != nil {
		return errors.Join(admission.ErrUnavailable, fmt.Errorf("redis does not answer INFO: %w", err))
	}
	fields := parseInfo(info)
	version, embedded := fields["redis_version"], fields["redis_mode"] == ""
	if embedded {
		return nil // the in-process store answers INFO without a server section
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("redis version %q: %w", version, err)
	}
	if major < minMajor || major == minMajor && minor < minMinor {
		return &admission.FieldError{Field: "redis version", Value: version, Allowed: strconv.Itoa(minMajor) + "." + strconv.Itoa(minMinor) + " or newer"}
	}
	if policy := fields["maxmemory_policy"]; strings.HasPrefix(policy, "allkeys-") {
		return &admission.FieldError{Field: "redis maxmemory-policy", Value: policy, Allowed: "noeviction: an evicted key is a lost job (CONFIG SET maxmemory-policy noeviction)"}
	}
	return nil
}

func parseInfo(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
