package second

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/redisconn"
)

// Redis is a second Redis. It may be used by several goroutines.
type Redis struct{ client any } // a redis.UniversalClient: see redisconn.Client

// Dial returns the second Redis at an address, nil for ""; settings are those of TLS, nil for what an address for TLS means by itself. It
// sends nothing yet.
func Dial(url string, settings *tls.Config) (*Redis, error) {
	if url == "" && settings == nil {
		return nil, nil //nolint:nilnil // no address, no second Redis
	}
	client, err := redisclient.Dial(url, settings)
	if err != nil {
		return nil, &admission.FieldError{
			Field: "URL of the second redis", Value: "(not shown, it may hold a password; it " + err.Error() + ")",
			Allowed: "redis://[user:password@]host:port[/db], rediss:// for TLS, host:port, unix://path, redis-sentinel:// or redis-cluster://",
		}
	}
	return &Redis{client}, nil
}

// Close ends the connections; nil has none.
func (r *Redis) Close() error {
	if r == nil {
		return nil
	}
	return clientOf(r).Close()
}

func clientOf(r *Redis) redis.UniversalClient {
	client, _ := r.client.(redis.UniversalClient) // Dial takes nothing else
	return client
}

// The keys of a partition in the second Redis: whose they are and the number of the mover, records by the names of copies, and payloads that
// are too large for a record.
func keysOf(p keyspace.Partition) []string {
	return []string{p.Base() + "second:of", p.Base() + "second:records", p.Base() + "second:payloads"}
}

// CopyName is the name of the copy of a job, by its key and number.
func CopyName(key string, seq uint64) string { return strconv.FormatUint(seq, 10) + " " + key }

// Words for what stands against moving, as they stand in the state of the first Redis.
const (
	wordAway    = "away"
	wordRefused = "refused"
	wordForeign = "foreign"
	wordLost    = "lost"
)

// troubleError is why the second Redis does not take part.
type troubleError struct {
	word string
	err  error
}

func (e *troubleError) Error() string { return "second redis: " + e.err.Error() }
func (e *troubleError) Unwrap() error { return e.err }

// troubled wraps an error of the second Redis: one that it answered, or its silence.
func troubled(err error) error {
	if err == nil {
		return nil
	}
	_, answered := errors.AsType[redis.Error](err)
	_, unfit := errors.AsType[*admission.FieldError](err)
	if unfit || answered && !redisconn.NotReady(err) {
		return &troubleError{wordRefused, err}
	}
	return &troubleError{wordAway, err}
}

// The scripts of the second Redis. KEYS are those of keysOf; ARGV begins with the name of the deployment and the mover's number.
var (
	// claim raises the number; ARGV[3] is how many bodies the first Redis counts here. What is there of another deployment stays.
	claim = redis.NewScript(`
local of = redis.call('HMGET', KEYS[1], 'deployment', 'number')
local held = redis.call('HLEN', KEYS[2])
if of[1] ~= ARGV[1] then
  if of[1] and held > 0 then return {'foreign', held} end
  if tonumber(ARGV[3]) > 0 then return {'lost', held} end
elseif tonumber(of[2]) > tonumber(ARGV[2]) then
  return {'stale', held}
end
redis.call('HSET', KEYS[1], 'deployment', ARGV[1], 'number', ARGV[2])
return {'claimed', held}`)
	// put writes copies: of each its name, record, and payload or "".
	put = redis.NewScript(ours + `
for i = 3, #ARGV, 3 do
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
  if ARGV[i + 2] ~= '' then redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 2]) end
end
return {'put'}`)
	// drop deletes copies by their names.
	drop = redis.NewScript(ours + `
for i = 3, #ARGV do
  redis.call('HDEL', KEYS[2], ARGV[i])
  redis.call('HDEL', KEYS[3], ARGV[i])
end
return {'dropped'}`)
)

// ours refuses whoever is not the last mover of the deployment.
const ours = `
local of = redis.call('HMGET', KEYS[1], 'deployment', 'number')
if of[1] ~= ARGV[1] or of[2] ~= ARGV[2] then return {'stale'} end`

// mandate is on whose behalf something is done in the second Redis.
type mandate struct{ deployment, number string }

// run calls a script and returns the word and the number of its answer.
func (r *Redis) run(ctx context.Context, script *redis.Script, p keyspace.Partition, of mandate, args ...any) (word string, n int64, err error) {
	reply, err := script.Run(ctx, clientOf(r), keysOf(p), append([]any{of.deployment, of.number}, args...)...).Slice()
	if err != nil {
		return "", 0, troubled(err)
	}
	if len(reply) > 0 {
		word, _ = reply[0].(string)
	}
	if len(reply) > 1 {
		n, _ = reply[1].(int64)
	}
	return word, n, nil
}

// errStale is the answer to a mover whose place somebody has taken.
var errStale = errors.New("somebody else moves spilled jobs by now")

// do is run for what answers with one word, or that it is stale.
func (r *Redis) do(ctx context.Context, script *redis.Script, p keyspace.Partition, of mandate, args ...any) error {
	word, _, err := r.run(ctx, script, p, of, args...)
	if err == nil && word == "stale" {
		return errStale
	}
	return err
}

// claim tells the second Redis of a mover's number. away is how many bodies the first Redis counts there.
func (r *Redis) claim(ctx context.Context, p keyspace.Partition, of mandate, away int64) error {
	word, held, err := r.run(ctx, claim, p, of, away)
	switch {
	case err != nil:
		return err
	case word == "stale":
		return errStale
	case word == wordForeign:
		return &troubleError{wordForeign, fmt.Errorf("it holds %d spilled jobs of another deployment under %s: give this one another redis, database or prefix", held, p.Base())}
	case word == wordLost:
		return &troubleError{wordLost, fmt.Errorf("it should hold the bodies of %d spilled jobs, and knows nothing of this deployment: bring its data back, or cancel these jobs", away)}
	}
	return nil
}

// read returns copies by their names: record and payload of each, "" where there is none.
func (r *Redis) read(ctx context.Context, p keyspace.Partition, names ...string) (records, payloads []any, err error) {
	keys := keysOf(p)
	pipe := clientOf(r).Pipeline()
	first, large := pipe.HMGet(ctx, keys[1], names...), pipe.HMGet(ctx, keys[2], names...)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, nil, troubled(err)
	}
	return first.Val(), large.Val(), nil
}

// Read returns a copy's record and payload.
func (r *Redis) Read(ctx context.Context, p keyspace.Partition, name string) (record, payload string, err error) {
	records, payloads, err := r.read(ctx, p, name)
	if err != nil {
		return "", "", err
	}
	return redisconn.TextAt(records, 0), redisconn.TextAt(payloads, 0), nil
}
