package config

import (
	"crypto/tls"
	"net/netip"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/store"
)

// Config is a configuration. What the options mean is in the tables beside it and in docs/CONFIG.md.
type Config struct {
	Redis     Redis
	Worker    Worker
	Scheduler Scheduler
	Serve     Serve
	Guard     Guard
	Metrics   Metrics
	Tracing   Tracing
	Log       Log
}

// Redis is where the deployment is, and how to get in.
type Redis struct {
	URL          string
	Username     string
	Password     string
	PasswordFile string
	PoolSize     int
	TLS          TLS
	Store        Store
}

// Store is what a deployment in Redis is told; its fields are those of redisstore.Config.
type Store struct {
	Prefix         string
	EndedCap       int
	BucketCap      int
	Replicas       int
	ReplicaTimeout time.Duration
	ReplicaQueues  []string
	Partitions     int
	Second         string
	SecondTLS      *tls.Config
}

// TLS is for a Redis at rediss://.
type TLS struct {
	CAFile     string
	CertFile   string
	KeyFile    string
	MinVersion string
	ServerName string
}

// Worker is what headgate worker does.
type Worker struct {
	Queues       []store.QueueWeight
	Strict       bool
	Concurrency  int
	Types        []string
	Lease        time.Duration
	Timeout      time.Duration // zero for the default of whatever runs the jobs
	DrainTimeout time.Duration
	ReportEvery  time.Duration
	ReportAfter  int
	Breaker      Breaker
	Breakers     map[string]*Breaker // by downstream; each is whole
	Deliver      Deliver
	Command      []string
}

// Breaker is what there is about calls of a downstream.
type Breaker struct {
	breaker.Config

	CallTimeout time.Duration // zero for that of the worker
}

// Deliver hands jobs to an HTTP server.
type Deliver struct {
	URL          string
	CloudEvents  bool
	Secret       string
	SecretFile   string
	AllowPrivate bool
}

// Scheduler is what runs beside a worker and does what time makes due.
type Scheduler struct {
	Enabled    bool
	TimerLease time.Duration
	Notify     Notify
}

// Notify posts transitions of circuit breakers to an HTTP server.
type Notify struct {
	URL          string
	Secret       string
	SecretFile   string
	AllowPrivate bool
	RetryFor     time.Duration
}

// Serve is what headgate serve does.
type Serve struct {
	Address     string
	TLS         ServeTLS
	Allow       []netip.Prefix
	MaxBody     int
	Timeout     time.Duration
	OldHeaders  bool
	Rate, Burst int
	Bounds      Bounds
	Limiter     ServeLimiter
	Authz       Authz
	RLS         RLS
	Credentials Credentials
}

// RLS answers Envoy as its rate limit service.
type RLS struct {
	Listen      string
	MappingFile string
}

// Authz answers gateways that ask over HTTP before they pass a request on.
type Authz struct {
	Listen  string
	Tenant  []string
	Routes  []string
	Trusted []netip.Prefix
}

// ServeLimiter is how a server decides checks by itself.
type ServeLimiter struct {
	Mode     string
	Outage   string
	OutageAt []OutageAt
	Timeout  time.Duration
}

// OutageAt is what becomes of a scope's checks while Redis is away.
type OutageAt struct {
	Scope  admission.Scope
	Outage string
}

// Bounds are how much a server takes at a time.
type Bounds struct {
	Connections, PerAddress, Calls, Bytes int
	TenantRate, TenantBytes               int
}

// ServeTLS makes the server speak https.
type ServeTLS struct {
	CertFile     string
	KeyFile      string
	ClientCAFile string
	MinVersion   string
}

// Credentials say who may call.
type Credentials struct {
	Keys     string
	KeysFile string
	JWKS     string
	JWKSFile string
	Issuer   string
	Audience string
	Leeway   time.Duration
	MaxLife  time.Duration
	NoAuth   bool
}

// Guard is what a worker or a server may use of its machine before it takes no new work; its fields are those of guard.Config.
type Guard struct {
	Memory            int
	CgroupMemory      float64
	CPU, CgroupCPU    float64
	Goroutines        int
	SchedLatency      time.Duration
	RequestsPerMinute int
	Interval          time.Duration
	WarnAt            float64
	Delays            guard.Delays
}

// Metrics is where a worker or a relay shows its own.
type Metrics struct {
	Address string
}

// Tracing sends traces to a collector.
type Tracing struct {
	Endpoint    string
	Headers     string
	HeadersFile string
	Insecure    bool
	SampleRatio float64
	Service     string
}

// Log is what is logged, and how.
type Log struct {
	Level      string
	Levels     [len(logs.Components)]string // in their order; empty for Level
	Format     string
	Burst      int
	Thereafter int
}
