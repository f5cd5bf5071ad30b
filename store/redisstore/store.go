package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// Config is what a Store needs beside a client. The zero value works.
type Config struct {
	// Prefix begins every key; empty means "hg". 1-32 bytes of [A-Za-z0-9._-].
	Prefix string
	// EndedCap is the largest number of ended ids kept for dedup; zero means 4 million (some 80 bytes each).
	EndedCap int
	// BucketCap is the largest number of buckets of one tenant; zero means 4096.
	BucketCap int
	// Replicas is how many replicas are to have a job before Admit answers, so that a failover to one of them does not
	// lose it; 0 to 16, zero waits for none. A verdict says when so many did not answer in time: see
	// headgate.Verdict.Unreplicated.
	Replicas int
	// ReplicaTimeout bounds that wait, 1 to 400 ms; zero means 100 ms. While replicas are away each call of Admit takes it.
	ReplicaTimeout time.Duration
	// ReplicaQueues are the queues whose jobs are waited for; empty means all.
	ReplicaQueues []string
	// Partitions is into how many parts a new deployment is divided, 1 to MaxPartitions, each of which one master of a
	// cluster can serve; zero takes what the deployment has, one for a new one. It is chosen at the first start: another
	// number is admission.ErrPartitions then.
	Partitions int
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = keyspace.DefaultPrefix
	}
	if c.EndedCap == 0 {
		c.EndedCap = 4_000_000
	}
	if c.BucketCap == 0 {
		c.BucketCap = 4096
	}
	c.ReplicaTimeout = cmp.Or(c.ReplicaTimeout, defaultReplicaTimeout)
	return c
}

func (c Config) validate() error {
	var bad []error
	if err := admission.ValidateName("prefix", c.Prefix, true); err != nil || len(c.Prefix) > 32 {
		bad = append(bad, &admission.FieldError{Field: "prefix", Value: strconv.Quote(c.Prefix), Allowed: "1-32 bytes of [A-Za-z0-9._@/-]"})
	}
	if c.EndedCap < 1 {
		bad = append(bad, &admission.FieldError{Field: "ended cap", Value: strconv.Itoa(c.EndedCap), Allowed: "1 or more ids"})
	}
	if c.BucketCap < 4 {
		bad = append(bad, &admission.FieldError{Field: "bucket cap", Value: strconv.Itoa(c.BucketCap), Allowed: "4 or more buckets"})
	}
	if c.Partitions < 0 || c.Partitions > store.MaxPartitions {
		bad = append(bad, &admission.FieldError{Field: "partitions", Value: strconv.Itoa(c.Partitions), Allowed: "1 to 256, or 0 for what the deployment has"})
	}
	return errors.Join(append(bad, c.validateReplicas()...)...)
}

// Partition runs the scripts of one partition in Redis. It may be used by several goroutines. It never resends a command by itself.
type Partition struct {
	client any // a redis.UniversalClient; see connection
	// master returns that of a key's master in a cluster; nil elsewhere.
	master func(key string) any

	partition keyspace.Partition
	// index is the partition's place among all, parts how many there are, 0 for one.
	index, parts int
	config       Config
	preamble     string // "#!lua ..." in tests on a cluster
	scripts      lua.Library
	// now is what scripts take as the time in microseconds: empty for Redis TIME. Only tests set it.
	now string
}

// Connect returns the deployment at a URL, redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://, with the client
// settings of the house, after the checks of Open. Close ends its connections.
func Connect(ctx context.Context, url string, config Config) (store.Deployment, error) {
	client, err := redisclient.Dial(url)
	if err != nil {
		return nil, &admission.FieldError{
			Field: "redis URL", Value: "(not shown, it may hold a password; it " + err.Error() + ")",
			Allowed: "redis://[user:password@]host:port[/db], rediss:// for TLS, unix://path, redis-sentinel://host:port,host:port/db?master=NAME, " +
				"or redis-cluster://host:port,host:port",
		}
	}
	s, err := Open(ctx, client, config)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return s, nil
}

// Close ends the connections of the store's client.
func (s *Partition) Close() error { return connection(s).Close() }

// connection returns the client of the store's partition; see redisconn.Client.
func connection(s *Partition) redis.UniversalClient {
	return redisconn.Client(redisconn.New(s.client, s.master, s.partition))
}

// ReadTimeout returns how long the client of the store waits for an answer, 0 where that is not known.
func (s *Partition) ReadTimeout() time.Duration {
	if c, ok := s.client.(*redis.Client); ok {
		return c.Options().ReadTimeout
	}
	return 0
}

// Open returns the deployment behind client after the start-up checks: Redis answers within two seconds, or within the
// client's ReadTimeout where that is longer, is new enough, and does not evict live keys.
func Open(ctx context.Context, client redis.UniversalClient, config Config) (store.Deployment, error) {
	parts, err := open(ctx, client, config)
	if err != nil {
		return nil, err
	}
	return deploymentOf(parts), nil
}

// open returns the partitions of the deployment behind client.
func open(ctx context.Context, client redis.UniversalClient, config Config) ([]*Partition, error) {
	if c, ok := client.(*redis.Client); ok && c.Options().MaxRetries > 0 {
		return nil, &admission.FieldError{
			Field: "MaxRetries of the redis client", Value: strconv.Itoa(c.Options().MaxRetries),
			Allowed: "-1: what is in doubt is resent by the layer that knows for how long ids are remembered (or use Connect)",
		}
	}
	s, err := newStore(client, config, "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(checkTimeout, s.ReadTimeout()))
	defer cancel()
	if cluster, ok := client.(*redis.ClusterClient); ok {
		if s.master, err = redisconn.Masters(ctx, cluster, s.partition.State()); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	parts, err := s.check(ctx)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return parts, nil
}

func newStore(client redis.UniversalClient, config Config, preamble string) (*Partition, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Partition{client: client, config: config, preamble: preamble}
	s.setLayout(lua.SingleLayout)
	s.partition = keyspace.New(config.Prefix, 0)
	return s, nil
}

// setLayout gives s the scripts for deployments of a layout.
func (s *Partition) setLayout(layout string) {
	preamble := s.preamble
	if _, cluster := s.client.(*redis.ClusterClient); cluster && preamble == "" {
		preamble = movingPreamble
	}
	s.scripts = lua.Scripts(preamble, layout)
}

// movingPreamble begins scripts in a cluster. While a slot moves, each node has some of a partition's keys, and a script that
// does not find one on the old node is refused in the middle: so each begins by looking for a key that nobody has, and is
// refused before it has written anything.
const movingPreamble = "redis.call('EXISTS', KEYS[1] .. ':moving')\n"

// Config returns what the store was opened with, defaults filled in.
func (s *Partition) Config() Config { return s.config }

// Keys returns the names of the partition's keys.
func (s *Partition) Keys() keyspace.Partition { return s.partition }

// run calls a script, loads it where Redis does not know it, and returns its reply as strings.
func (s *Partition) run(ctx context.Context, name string, args ...any) ([]string, error) {
	return s.runBy(ctx, connection(s).Process, name, args)
}

// runBy is run by another way to send a command.
func (s *Partition) runBy(ctx context.Context, send func(context.Context, redis.Cmder) error, name string, args []any) ([]string, error) {
	sc := s.scripts[name]()
	all := make([]any, 0, 4+len(args))
	all = append(all, "evalsha", sc.SHA, 1, s.partition.State())
	all = append(all, args...)
	cmd := redis.NewStringSliceCmd(ctx, all...)
	err := send(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		all[0], all[1] = "eval", sc.Text
		cmd = redis.NewStringSliceCmd(ctx, all...)
		err = send(ctx, cmd)
	}
	if err != nil {
		return nil, &runError{script: name, err: classify(err)}
	}
	if len(cmd.Val()) == 0 {
		return nil, &runError{script: name, err: redisconn.ErrUnknownReply}
	}
	return cmd.Val(), nil
}

// runFor is run for a reply of so many words.
func (s *Partition) runFor(ctx context.Context, words int, name string, args ...any) ([]string, error) {
	reply, err := s.run(ctx, name, args...)
	if err == nil && len(reply) != words {
		err = &runError{script: name, err: fmt.Errorf("reply has %d words, not %d: %w", len(reply), words, redisconn.ErrUnknownReply)}
	}
	return reply, err
}

// runError is a script call that ended without a reply that could be read, or with an error of Redis.
type runError struct {
	script string
	err    error
}

func (e *runError) Error() string { return "run script " + e.script + ": " + e.err.Error() }

func (e *runError) Unwrap() error { return e.err }

// classify adds ErrUnavailable where the command was certainly not carried out: nothing was sent, or Redis was not ready.
func classify(err error) error {
	if other := redisconn.AsLayoutError(err); other != nil {
		return other
	}
	// A ctx that ends while a call waits for a connection comes back bare; once the command is on its way its end is a
	// time-out of the connection.
	waiting := err == context.Canceled || err == context.DeadlineExceeded //nolint:errorlint // bare on purpose
	if waiting || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || isDialError(err) || redisconn.NotReady(err) {
		return errors.Join(admission.ErrUnavailable, err)
	}
	return err
}

// InDoubt implements what store.InDoubt asks: a reply from Redis itself settles it, a lost connection or a time-out does not.
func (e *runError) InDoubt() bool {
	_, answered := errors.AsType[redis.Error](e.err)
	return !answered
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

func rate(l admission.Limit) string {
	return strconv.FormatFloat(float64(l.Rate()), 'g', 17, 64)
}

// microsPerToken is the number of micro-tokens in a token.
const microsPerToken = 1_000_000

func burst(l admission.Limit) int64 { return int64(l.Burst) * microsPerToken }
