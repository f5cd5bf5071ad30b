package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/store"
)

// The paths that code names.
const (
	PathURL          = "redis.url"
	pathUsername     = "redis.username"
	pathPassword     = "redis.password"
	pathConcurrency  = "worker.concurrency"
	pathTimeout      = "worker.timeout"
	PathDeliver      = "worker.deliver.url"
	pathSecret       = "worker.deliver.secret"
	PathNotify       = "scheduler.notify.url"
	PathNotifySecret = "scheduler.notify.secret"
	pathAddress      = "serve.address"
	pathAuthz        = "serve.authz.listen"
	pathRLS          = "serve.rls.listen"
	pathMapping      = "serve.rls.mapping_file"
	pathServeCert    = "serve.tls.cert_file"
	pathServeKey     = "serve.tls.key_file"
	pathClientCA     = "serve.tls.client_ca_file"
	pathKeys         = "serve.keys"
	pathJWKS         = "serve.tokens.jwks"
	pathIssuer       = "serve.tokens.issuer"
	pathAudience     = "serve.tokens.audience"
	pathNoAuth       = "serve.insecure_no_auth"
	pathCgroupMemory = "guard.max_cgroup_memory"
	pathCgroupCPU    = "guard.max_cgroup_cpu"
	// PathCommand is the command that runs jobs. Its flag is one of a kind: the command ends the line.
	PathCommand = "worker.exec.command"
	// PathProducerLevel says whether somebody wants to read of a producer.
	PathProducerLevel = "log.levels.producer"
	PathLogLevel      = "log.level"
	// fileSuffix makes the path of a secret that of its file.
	fileSuffix = "_file"
)

// KeysPaths are the options that commands on keys have flags for.
var KeysPaths = []string{pathKeys + fileSuffix}

// SitePaths are the options that every command on a deployment has flags for.
var SitePaths = []string{PathURL, "redis.prefix"}

func redisOptions() []Option {
	tls := func(c *Config) *TLS { return &c.Redis.TLS }
	return []Option{
		{
			Path: PathURL, Flag: "redis", Variable: variablePrefix + "REDIS", Unset: "a command that needs one says so", mask: maskURL,
			Doc:   "Address of the Redis. A password is better kept in `redis.password_file`; special characters of one in the URL are percent-encoded.",
			value: text("redis://user:password@host:port/db, rediss:// for TLS, host:port, redis-sentinel://host:port,host:port/db?master=NAME, or redis-cluster://host:port,host:port (rediss-sentinel:// and rediss-cluster:// for TLS)", nil, func(c *Config) *string { return &c.Redis.URL }),
		},
		{
			Path: "redis.prefix", Flag: "prefix", Default: "hg", Doc: "First part of every key: one deployment, one prefix.",
			value: text("1-32 bytes of [A-Za-z0-9._@/-]", func(s string) bool {
				return admission.ValidateName("prefix", s, true) == nil && len(s) <= 32
			}, func(c *Config) *string { return &c.Redis.Store.Prefix }),
		},
		{
			Path: pathUsername, Unset: "that of the URL", Doc: "User of Redis's ACL.",
			value: text("any text", nil, func(c *Config) *string { return &c.Redis.Username }),
		},
		{
			Path: pathPassword, Unset: "that of the URL", secret: true, Doc: "Password of Redis. It wins over one in a URL that comes from the same source or a weaker one.",
			value: text("any text", nil, func(c *Config) *string { return &c.Redis.Password }),
		},
		{
			Path: pathPassword + fileSuffix, Unset: "none", Doc: "File with the password, its last line break left out. Of a password and a file the one from the stronger source counts.",
			value: text("the name of a file", nil, func(c *Config) *string { return &c.Redis.PasswordFile }),
		},
		{
			Path: "redis.pool_size", Default: "64", Doc: "Largest number of connections of the process.",
			value: count(1, 10_000, func(c *Config) *int { return &c.Redis.PoolSize }),
		},
		{
			Path: "redis.partitions", Default: "0", Doc: "Into how many parts a new deployment is divided, each of which one master of a cluster can serve; 0 takes what it has, 1 if it is new. headgate migrate changes it.",
			value: count(0, store.MaxPartitions, func(c *Config) *int { return &c.Redis.Store.Partitions }),
		},
		{
			Path: "redis.replicas", Default: "0", Doc: "Replicas that are to have a job before a producer hears that it is in. With fewer its verdict says so.",
			value: count(0, 16, func(c *Config) *int { return &c.Redis.Store.Replicas }),
		},
		{
			Path: "redis.replica_timeout", Default: "100ms", Doc: "How long a call waits for them.",
			value: duration(time.Millisecond, 400*time.Millisecond, func(c *Config) *time.Duration { return &c.Redis.Store.ReplicaTimeout }),
		},
		{
			Path: "redis.replica_queues", Unset: "all", Doc: "Queues whose jobs wait for replicas.",
			value: list[string]{
				allowed: "names of queues, each once", example: `["mail","hook"]`, most: 10_000, at: func(c *Config) *[]string { return &c.Redis.Store.ReplicaQueues },
				parse: func(s string) (string, bool) { return s, admission.ValidateName("queue", s, true) == nil },
				text:  func(s string) string { return s }, id: func(s string) string { return s },
			},
		},
		{
			Path: "redis.spill_url", Unset: "none", mask: maskURL,
			Doc:   "Address of a second Redis, as in `redis.url`, for spilled jobs of bounds whose `spill_to` says `second`. Every `worker` that has it moves them there and back, one at a time.",
			value: text("an address as in `redis.url`", nil, func(c *Config) *string { return &c.Redis.Store.Second }),
		},
		{
			Path: "redis.tls.ca_file", Unset: "the authorities that the machine trusts", Doc: "PEM file of the authorities that may have signed Redis's certificate. This and what follows is for rediss://, rediss-sentinel:// and rediss-cluster://, of `redis.url` and of `redis.spill_url`.",
			value: text("the name of a file", nil, func(c *Config) *string { return &tls(c).CAFile }),
		},
		{
			Path: "redis.tls.cert_file", Unset: "no certificate is shown", Doc: "PEM file of the certificate that is shown to Redis; with `redis.tls.key_file`.",
			value: text("the name of a file", nil, func(c *Config) *string { return &tls(c).CertFile }),
		},
		{
			Path: "redis.tls.key_file", Unset: "none", Doc: "PEM file of that certificate's key.",
			value: text("the name of a file", nil, func(c *Config) *string { return &tls(c).KeyFile }),
		},
		{
			Path: "redis.tls.min_version", Default: "1.2", Doc: "Oldest version of TLS that is spoken with Redis.",
			value: word([]string{"1.2", "1.3"}, func(c *Config) *string { return &tls(c).MinVersion }),
		},
		{
			Path: "redis.tls.server_name", Unset: "the host of the URL", Doc: "Name that Redis's certificate must have. That of the second Redis has the host of its own address.",
			value: text("the name of a host", nil, func(c *Config) *string { return &tls(c).ServerName }),
		},
		{
			Path: "retention.ended_ids", Default: "4000000", Doc: "Most ids of ended jobs that are remembered, so that a job is let in once; some 80 bytes each. For how long is the policy's `dedup_window`, and dead letters are kept by its `keep_dead` and `max_dead`.",
			value: count(1, 1_000_000_000, func(c *Config) *int { return &c.Redis.Store.EndedCap }),
		},
		{
			Path: "retention.buckets", Default: "4096", Doc: "Most buckets of one tenant.",
			value: count(4, 1_000_000_000, func(c *Config) *int { return &c.Redis.Store.BucketCap }),
		},
	}
}

func workerOptions() []Option {
	return []Option{
		{
			Path: "worker.queues", Flag: "queue", Unset: "a worker says that it needs some", Doc: "Queues to serve and their weights, which are 1 unless given.",
			value: list[store.QueueWeight]{
				allowed: "1 to 64 queues, each once: NAME, or NAME=WEIGHT with a weight of 1 to 1000", example: `["mail=3","hook=1"]`, most: 64,
				at: func(c *Config) *[]store.QueueWeight { return &c.Worker.Queues }, parse: parseQueue, id: func(q store.QueueWeight) string { return q.Queue },
				text: func(q store.QueueWeight) string { return q.Queue + "=" + strconv.Itoa(q.Weight) },
			},
		},
		{
			Path: "worker.strict", Flag: "strict", Default: "false", Doc: "Serve a queue only while those before it have nothing that may run.",
			value: boolean(func(c *Config) *bool { return &c.Worker.Strict }),
		},
		{
			Path: pathConcurrency, Flag: "concurrency", Default: "10", Doc: "Jobs at a time.",
			value: count(1, 10_000, func(c *Config) *int { return &c.Worker.Concurrency }),
		},
		{
			Path: "worker.types", Flag: "types", Unset: "all are taken", Doc: "Types of jobs to take; others go back to the queue.",
			value: list[string]{
				allowed: "names of types, each once", example: `["report","invoice"]`, most: 10_000, at: func(c *Config) *[]string { return &c.Worker.Types },
				parse: func(s string) (string, bool) { return s, admission.ValidateName("type", s, false) == nil },
				text:  func(s string) string { return s }, id: func(s string) string { return s },
			},
		},
		{
			Path: "worker.lease", Default: "15s", Doc: "For how long Redis leaves the jobs to a worker that is not heard of.",
			value: duration(200*time.Millisecond, 10*time.Minute, func(c *Config) *time.Duration { return &c.Worker.Lease }),
		},
		{
			Path: pathTimeout, Flag: "timeout", Unset: "5s for deliveries, 5m for commands", Doc: "Longest time of a run; a shorter time-out of the job's own wins.",
			value: duration(time.Millisecond, admission.MaxTimeout, func(c *Config) *time.Duration { return &c.Worker.Timeout }),
		},
		{
			Path: "worker.drain_timeout", Flag: "drain-timeout", Default: "30s", Doc: "Time that running jobs get when the worker is told to stop.",
			value: duration(1, time.Hour, func(c *Config) *time.Duration { return &c.Worker.DrainTimeout }),
		},
		{
			Path: "worker.report_every", Default: "100ms", Doc: "How long outcomes of calls wait to be reported to the breakers of the whole fleet.",
			value: duration(time.Millisecond, time.Second, func(c *Config) *time.Duration { return &c.Worker.ReportEvery }),
		},
		{
			Path: "worker.report_after", Default: "100", Doc: "Outcomes of calls of one downstream that wait no longer.",
			value: count(1, 10_000, func(c *Config) *int { return &c.Worker.ReportAfter }),
		},
	}
}

// parseQueue reads NAME and NAME=WEIGHT.
func parseQueue(text string) (store.QueueWeight, bool) {
	name, number, given := strings.Cut(text, "=")
	weight := 1
	var err error
	if given {
		weight, err = strconv.Atoi(number)
	}
	ok := err == nil && weight >= 1 && weight <= 1000 && admission.ValidateName("queue", name, true) == nil
	return store.QueueWeight{Queue: name, Weight: weight}, ok
}

func deliveryOptions() []Option {
	deliver := func(c *Config) *Deliver { return &c.Worker.Deliver }
	return []Option{
		{
			Path: PathDeliver, Flag: "deliver", Unset: "`worker.exec.command` runs the jobs", Live: true, mask: maskTarget, Doc: "URL that takes the jobs.",
			value: text("http://host/path or https://host/path", nil, func(c *Config) *string { return &deliver(c).URL }),
		},
		{
			Path: "worker.deliver.cloudevents", Flag: "cloudevents", Default: "false", Live: true, Doc: "Send each job as a CloudEvent 1.0 in structured mode.",
			value: boolean(func(c *Config) *bool { return &deliver(c).CloudEvents }),
		},
		{
			Path: pathSecret, Variable: variablePrefix + "SECRET", Unset: "requests are not signed", Live: true, secret: true,
			Doc:   "Secrets that sign requests as Standard Webhooks says, one a line; several sign several times.",
			value: text("24 to 64 random bytes, as they are or as whsec_BASE64", nil, func(c *Config) *string { return &deliver(c).Secret }),
		},
		{
			Path: pathSecret + fileSuffix, Flag: "secret-file", Unset: "none", Live: true, Doc: "File of the secrets. Of secrets and a file those from the stronger source count.",
			value: text("the name of a file", nil, func(c *Config) *string { return &deliver(c).SecretFile }),
		},
		{
			Path: "worker.deliver.allow_private", Flag: "allow-private", Default: "false", Live: true, Doc: "Also deliver to loopback, private, link-local and other special addresses.",
			value: boolean(func(c *Config) *bool { return &deliver(c).AllowPrivate }),
		},
		{
			Path: PathCommand, Flag: "exec", Unset: "`worker.deliver.url` takes the jobs", Live: true, mask: maskArguments, Doc: "Command that runs a job, and its arguments, without a shell; the flag stands before the command, which ends the line.",
			value: list[string]{
				allowed: "a command and its arguments", example: `["python3","report.py"]`, most: 1000, array: true, at: func(c *Config) *[]string { return &c.Worker.Command },
				parse: func(s string) (string, bool) { return s, !strings.Contains(s, "\x00") }, text: func(s string) string { return s },
			},
		},
	}
}

func schedulerOptions() []Option {
	notify := func(c *Config) *Notify { return &c.Scheduler.Notify }
	return []Option{
		{
			Path: "scheduler.enabled", Default: "true", Doc: "Run a scheduler beside the worker. Without any, workers do what is due with their heartbeats.",
			value: boolean(func(c *Config) *bool { return &c.Scheduler.Enabled }),
		},
		{
			Path: "scheduler.timer_lease", Default: "1s", Doc: "How long one scheduler keeps the others from working, and how late timers may be when it dies.",
			value: duration(100*time.Millisecond, time.Minute, func(c *Config) *time.Duration { return &c.Scheduler.TimerLease }),
		},
		{
			Path: PathNotify, Flag: "notify", Unset: "nobody is told", mask: maskTarget,
			Doc:   "URL that is told of each transition of a circuit breaker, and of rates that are not usual, by a CloudEvent. Give it to all workers: one of them tells.",
			value: text("http://host/path or https://host/path", nil, func(c *Config) *string { return &notify(c).URL }),
		},
		{
			Path: PathNotifySecret, Unset: "requests are not signed", secret: true, Doc: "Secrets that sign these requests, as in `worker.deliver.secret`.",
			value: text("24 to 64 random bytes, as they are or as whsec_BASE64", nil, func(c *Config) *string { return &notify(c).Secret }),
		},
		{
			Path: PathNotifySecret + fileSuffix, Flag: "notify-secret-file", Unset: "none", Doc: "File of the secrets. Of secrets and a file those from the stronger source count.",
			value: text("the name of a file", nil, func(c *Config) *string { return &notify(c).SecretFile }),
		},
		{
			Path: "scheduler.notify.allow_private", Flag: "notify-allow-private", Default: "false", Doc: "Also tell loopback, private, link-local and other special addresses.",
			value: boolean(func(c *Config) *bool { return &notify(c).AllowPrivate }),
		},
		{
			Path: "scheduler.notify.retry_for", Default: "1h0m0s", Doc: "How long a transition that was not taken note of is told again, before it is given up.",
			value: duration(time.Second, 24*time.Hour, func(c *Config) *time.Duration { return &notify(c).RetryFor }),
		},
	}
}

func logOptions() []Option {
	all := []Option{
		{
			Path: PathLogLevel, Flag: "log", Default: "info", Live: true, Doc: "Level of the log on standard error.",
			value: word(logs.Levels, func(c *Config) *string { return &c.Log.Level }),
		},
		{
			Path: "log.format", Default: logs.FormatJSON, Doc: "JSON, one object a line, or lines for people.",
			value: word([]string{logs.FormatJSON, logs.FormatConsole}, func(c *Config) *string { return &c.Log.Format }),
		},
		{
			Path: "log.sampling.burst", Default: "1000", Live: true, Doc: "Lines of one component and level that are written each second before they are sampled; 0 writes all. Errors are always written.",
			value: count(0, 1_000_000, func(c *Config) *int { return &c.Log.Burst }),
		},
		{
			Path: "log.sampling.thereafter", Default: "100", Live: true, Doc: "Of the lines beyond the burst each so-many-th is written; 0 writes none.",
			value: count(0, 1_000_000, func(c *Config) *int { return &c.Log.Thereafter }),
		},
	}
	for i, component := range logs.Components {
		all = append(all, Option{
			Path: "log.levels." + string(component), Unset: "`log.level`", Live: true, Doc: "Level of " + components[component] + ".",
			value: word(logs.Levels, func(c *Config) *string { return &c.Log.Levels[i] }),
		})
	}
	return all
}

// components says what the components are.
var components = map[logs.Component]string{
	logs.Worker: "workers", logs.Scheduler: "schedulers", logs.Producer: "producers", logs.Admin: "the admin API", logs.Breaker: "circuit breakers",
}

// PathMetrics names the option of where a process serves its own metrics.
const PathMetrics = "metrics.address"

func metricsOptions() []Option {
	return []Option{
		{
			Path: PathMetrics, Flag: "metrics", Unset: "none are served",
			Doc:   "Where a worker, `headgate outbox` or `headgate mirror` serves its own metrics, at /metrics, to whoever reaches that address. Those of the whole deployment are `headgate serve`'s.",
			value: address(func(c *Config) *string { return &c.Metrics.Address }),
		},
	}
}
