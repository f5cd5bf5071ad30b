package redistest

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/keyspace"
)

const setState = `local core, at = redis.call('HGET', KEYS[1], ARGV[1]), 8 * ARGV[3]
if not core or at < 0 then return redis.call('HSET', KEYS[1], ARGV[2], ARGV[4]) end
return redis.call('HSET', KEYS[1], ARGV[1], string.sub(core, 1, at) .. struct.pack('<d', ARGV[4]) .. string.sub(core, at + 9))`

// SetState gives a field of a state hash another number, where it is packed and where it is not. With a pipeline it is done when that is.
func SetState(tb testing.TB, client redis.Cmdable, state, field string, value int64) {
	tb.Helper()
	err := client.Eval(tb.Context(), setState, []string{state}, keyspace.CoreField, field, slices.Index(keyspace.Core, field), value).Err()
	if err != nil {
		tb.Fatal(err)
	}
}

// State returns the fields of a state hash, none of them packed.
func State(tb testing.TB, client redis.Cmdable, state string) map[string]string {
	tb.Helper()
	fields, err := client.HGetAll(tb.Context(), state).Result()
	if err != nil {
		tb.Fatal(err)
	}
	return keyspace.Unpacked(fields)
}
