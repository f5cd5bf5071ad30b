package jobs

import (
	"time"

	"github.com/headgate/headgate/internal/redisconn"
)

// Replicas is how many replicas are to have a job before Admit answers, for how long that is waited for, and of which queues the jobs
// are; none for all. Without any count nothing is waited for.
type Replicas struct {
	Count   int
	Timeout time.Duration
	Queues  []string
}

// Jobs is the jobs of a partition.
type Jobs struct {
	conn     *redisconn.Conn
	replicas Replicas
	second   *Second
}

// New returns the Jobs of the partition behind a Conn; second may be nil.
func New(conn *redisconn.Conn, replicas Replicas, second *Second) *Jobs {
	return &Jobs{conn, replicas, second}
}
