package asynqbridge

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ownerMark begins the value of a pause of this package. asynq's own is the time of the pause, in seconds.
const ownerMark = "headgate:"

// pauser sets asynq:{QUEUE}:paused, the key by whose presence asynq's servers leave a queue alone, with a TTL. A pause is
// the breaker's of its downstream, whichever process sets it.
type pauser struct {
	client redis.UniversalClient
}

func owner(downstream string) string { return ownerMark + downstream }

func pausedKey(queue string) string { return "asynq:{" + queue + "}:paused" }

// An operator's pause is left as it is; one of another breaker is taken over if this one is longer.
var pauseScript = redis.NewScript(`
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return 'operator' end
if held and redis.call('PTTL', KEYS[1]) >= tonumber(ARGV[3]) then return 'paused' end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 'set'
`)

var resumeScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
`)

// pause keeps a queue paused for d at least, unless an operator has paused it.
func (p pauser) pause(ctx context.Context, queue, downstream string, d time.Duration) error {
	millis := max(1, int64((d+time.Millisecond-1)/time.Millisecond))
	if err := pauseScript.Run(ctx, p.client, []string{pausedKey(queue)}, ownerMark, owner(downstream), millis).Err(); err != nil {
		return fmt.Errorf("pause asynq queue %s: %w", queue, err)
	}
	return nil
}

// resume ends a pause of the downstream's breaker, and nobody else's.
func (p pauser) resume(ctx context.Context, queue, downstream string) error {
	if err := resumeScript.Run(ctx, p.client, []string{pausedKey(queue)}, owner(downstream)).Err(); err != nil {
		return fmt.Errorf("resume asynq queue %s: %w", queue, err)
	}
	return nil
}
