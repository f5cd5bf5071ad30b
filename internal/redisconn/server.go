package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
)

// The oldest Redis that is taken.
const (
	MinMajor = 7
	MinMinor = 0
)

// CheckTimeout bounds the start-up checks.
const CheckTimeout = 2 * time.Second

// CheckRedis refuses a Redis that could not keep the laws.
func CheckRedis(ctx context.Context, client redis.UniversalClient) error {
	info, err := client.Info(ctx).Result()
	if err != nil {
		return errors.Join(admission.ErrUnavailable, fmt.Errorf("redis does not answer INFO: %w", err))
	}
	fields := ParseInfo(info)
	version := fields["redis_version"]
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("redis version %q: %w", version, err)
	}
	if major < MinMajor || major == MinMajor && minor < MinMinor {
		return &admission.FieldError{Field: "redis version", Value: version, Allowed: strconv.Itoa(MinMajor) + "." + strconv.Itoa(MinMinor) + " or newer"}
	}
	if policy := fields["maxmemory_policy"]; strings.HasPrefix(policy, "allkeys-") {
		return &admission.FieldError{Field: "redis maxmemory-policy", Value: policy, Allowed: "noeviction: an evicted key is a lost job (CONFIG SET maxmemory-policy noeviction)"}
	}
	return nil
}
