package redisstore

import (
	"cmp"
	"crypto/tls"
	"errors"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
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
	// Second is the address of a second Redis, as Connect takes one, for spilled jobs of bounds with SpillTo; empty is none. Whoever runs a
	// scheduler with it moves them. The store closes its connections.
	Second string
	// SecondTLS is how TLS is spoken with a Second at rediss://, rediss-sentinel:// or rediss-cluster://; without a ServerName it is the
	// host's. Nil goes by the authorities of the machine.
	SecondTLS *tls.Config
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

// Bounds of the wait for replicas. The time-out stays below the client's for a read, so that a wait in vain is an answer.
const (
	maxReplicas           = 16
	defaultReplicaTimeout = 100 * time.Millisecond
	maxReplicaTimeout     = 400 * time.Millisecond
)

func (c Config) validateReplicas() (bad []error) {
	if c.Replicas < 0 || c.Replicas > maxReplicas {
		bad = append(bad, &admission.FieldError{Field: "replicas", Value: strconv.Itoa(c.Replicas), Allowed: "0 to 16"})
	}
	if c.ReplicaTimeout < time.Millisecond || c.ReplicaTimeout > maxReplicaTimeout {
		bad = append(bad, &admission.FieldError{Field: "replica timeout", Value: c.ReplicaTimeout.String(), Allowed: "1ms to 400ms"})
	}
	for _, queue := range c.ReplicaQueues {
		bad = append(bad, admission.ValidateName("queue", queue, true))
	}
	return bad
}
