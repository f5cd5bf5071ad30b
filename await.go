package headgate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/store"
)

// ErrNoResult means that a job has ended without leaving a result, or that the result was kept for too short a time.
var ErrNoResult = errors.New("the job has ended and left no result")

// DeadError is a job that became a dead letter while somebody waited for its result.
type DeadError struct {
	Key Key
	// Reason is why, as in "max_attempts", Text what its handler said last.
	Reason, Text string
}

// Error names the job, the reason and the last error.
func (e *DeadError) Error() string {
	return fmt.Sprintf("job %s is a dead letter (%s): %s", e.Key, e.Reason, e.Text)
}

// Pauses of Await between two looks: each is half as long again as the one before.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = time.Second
)

// Await waits until a job has ended, and returns what its handler left with Run.SetResult, decoded into R. It asks Redis, at first
// often and then once a second. The error is a *DeadError for a dead letter, matches ErrNoResult where the job left nothing, or
// ErrUnknownJob where nobody knows it, or is that of ctx.
func Await[R any](ctx context.Context, c *Client, key Key) (result R, err error) {
	for pause := firstLook; ; pause = min(pause*3/2, lastLook) {
		data, over, err := c.look(ctx, key)
		if err != nil {
			return result, fmt.Errorf("await: %w", store.EndOf(ctx, err))
		}
		if over {
			if err := json.Unmarshal(data, &result); err != nil {
				return result, fmt.Errorf("read result of job %s: %w", key, err)
			}
			return result, nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return result, fmt.Errorf("await job %s: %w", key, context.Cause(ctx))
		}
	}
}

// look returns the result of a job that is over. The place is read first: what has ended by then has left what it leaves.
func (c *Client) look(ctx context.Context, key Key) (data []byte, over bool, err error) {
	sight, err := c.store.Look(ctx, key)
	switch {
	case errors.Is(err, ErrUnknownJob) || err == nil && sight.Place == store.PlaceEnded:
		data, none := c.producer.Result(ctx, key.Tenant, key.ID)
		if errors.Is(none, ErrUnknownJob) && err == nil {
			return nil, false, ErrNoResult
		}
		return data, true, none
	case err != nil:
		return nil, false, err
	case sight.Place == PlaceDead:
		return nil, false, &DeadError{Key: key, Reason: sight.Reason, Text: sight.Text}
	}
	return nil, false, nil
}
