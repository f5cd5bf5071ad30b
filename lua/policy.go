package lua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
)

// QueueSettings are what dispatch must know of a queue.
type QueueSettings struct {
	Queue   string
	Classes []headgate.Class
	// Horizon is the deadline, counted from arrival, by which jobs without one are ordered.
	Horizon time.Duration
	// MaxWait expires a job that has not started this long after it could first; zero means never.
	MaxWait time.Duration
	// PoisonLimit is the number of deliveries lost that make a job a dead letter; zero means DefaultPoisonLimit.
	PoisonLimit int
	// KeepDead is how long dead letters are kept, zero for no bound; MaxDead how many, zero for DefaultMaxDead.
	KeepDead time.Duration
	MaxDead  int
	// DropExpired drops and counts jobs past their deadline; otherwise they become dead letters.
	DropExpired bool
}

// Defaults of a queue that nobody configured.
const (
	DefaultPoisonLimit = 3
	DefaultMaxDead     = 100_000
)

// TenantWeight is a tenant's weight in a class of every queue; an empty tenant is everybody else.
type TenantWeight struct {
	Class  headgate.Priority
	Tenant string
	Weight headgate.Weight
}

// PolicyUpdate is a new version of the policy.
type PolicyUpdate struct {
	Expected, Version int64
	Text              []byte
	Window            time.Duration
	// LongestFill is how long the slowest bucket of this version takes to fill; zero means headgate.MaxRefill. For as
	// long, buckets that an earlier version left behind are kept: their full time was counted at a rate that may
	// have been faster.
	LongestFill time.Duration
	Queues      []QueueSettings
	Weights     []TenantWeight
}

// The ways in which a new policy is refused.
var (
	// ErrConflict means that another version than the expected one is in force.
	ErrConflict = errors.New("policy conflict")
	// ErrClassInUse means that jobs wait in a class that the new policy does not have in that place.
	ErrClassInUse = errors.New("class in use")
)

// PutPolicy stores a new version of the policy, if the expected one is in force. After an error InDoubt, the same call
// again is safe, and finishes what the first one began.
func (s *Store) PutPolicy(ctx context.Context, u PolicyUpdate) error {
	args := make([]any, 0, 6+2*len(u.Queues)+2*len(u.Weights))
	args = append(args, s.now, u.Expected, u.Version, u.Text, micros(u.Window), len(u.Queues))
	for _, q := range u.Queues {
		args = append(args, q.Queue, settingsText(q))
	}
	for _, w := range u.Weights {
		args = append(args, string(w.Class)+":"+w.Tenant, int64(w.Weight))
	}
	reply, err := s.run(ctx, "policy", args...)
	if err != nil {
		return err
	}
	switch reply[0] {
	case "stored":
		return s.keepBuckets(ctx, cmp.Or(u.LongestFill, headgate.MaxRefill))
	case "conflict":
		return fmt.Errorf("%w: version %s is in force, %d was expected", ErrConflict, reply[1], u.Expected)
	default:
		return fmt.Errorf("%w: queue %s", ErrClassInUse, reply[1])
	}
}

// keepBuckets puts the end of every bucket that is stored off until it is full by the policy now in force. From the
// store of a version on none is written under an older one; each outlasts its full time by a slack (admit's
// TTL_SLACK), so one that ends before this comes to it was full when the policy changed.
func (s *Store) keepBuckets(ctx context.Context, fill time.Duration) error {
	node := redis.Cmdable(connection(s))
	if cluster, ok := connection(s).(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, s.partition.State())
		if err != nil {
			return fmt.Errorf("keep buckets: %w", unread(err))
		}
		node = master
	}
	const page = 1000
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, s.partition.Buckets("*"), page).Result()
		if err != nil {
			return fmt.Errorf("keep buckets: %w", unread(err))
		}
		if len(keys) > 0 {
			pipe := node.Pipeline()
			for _, key := range keys {
				pipe.Do(ctx, "pexpire", key, fill.Milliseconds(), "gt")
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return fmt.Errorf("keep buckets: %w", unread(err))
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func settingsText(q QueueSettings) string {
	parts := make([]string, len(q.Classes))
	for i, c := range q.Classes {
		parts[i] = string(c.Name) + "=" + strconv.Itoa(c.Weight)
	}
	expired := "dead"
	if q.DropExpired {
		expired = "drop"
	}
	return strings.Join(parts, ",") + "|" + strings.Join([]string{
		micros(q.Horizon), expired, micros(q.MaxWait), strconv.Itoa(cmp.Or(q.PoisonLimit, DefaultPoisonLimit)),
		micros(q.KeepDead), strconv.Itoa(cmp.Or(q.MaxDead, DefaultMaxDead)),
	}, "|")
}

// Policy returns the text of the policy in force; nil when none was stored.
func (s *Store) Policy(ctx context.Context) ([]byte, error) {
	text, err := connection(s).Get(ctx, s.partition.Policy()).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", unread(err))
	}
	return text, nil
}
