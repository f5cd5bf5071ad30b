package redisconn

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/keyspace"
)

// State is what was asked for of a partition's state.
type State struct {
	cmd    *redis.SliceCmd
	fields []string
}

// ReadState reads fields of a partition's state, packed or not, as HMGET does. In a pipeline the answer is there once it is executed.
func ReadState(ctx context.Context, from redis.Cmdable, p keyspace.Partition, fields ...string) State {
	asked := append([]string{keyspace.CoreField}, fields...)
	return State{cmd: from.HMGet(ctx, p.State(), asked...), fields: fields}
}

// Err returns why there is no answer, nil where there is one.
func (s State) Err() error { return s.cmd.Err() }

// Val returns the values in the order in which they were asked for: nil for a field that is not there, and for one that is packed and 0.
func (s State) Val() []any {
	values := s.cmd.Val()
	if len(values) == 0 {
		return nil
	}
	core, packed := values[0].(string)
	values = append([]any(nil), values[1:]...)
	for i, field := range s.fields {
		if text, ok := keyspace.CoreText(core, field); packed && ok {
			if values[i] = nil; text != "" {
				values[i] = text
			}
		}
	}
	return values
}

// Result returns both.
func (s State) Result() ([]any, error) { return s.Val(), s.Err() }
