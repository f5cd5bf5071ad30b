package mirror

import (
	"errors"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/sqldb"
	"github.com/headgate/headgate/outbox"
)

// Config is what a Mirror is told. Its zero value is a mirror in a PostgreSQL of the deployment with the prefix "".
type Config struct {
	// Dialect is the SQL of the database; zero means PostgreSQL.
	Dialect outbox.Dialect
	// Prefix is that of the deployment's keys: a database has the mirror of one deployment.
	Prefix string
	// Poll is the time between two looks at what is new, 10 ms to 1 min; zero means 1 s.
	Poll time.Duration
	// Usage is the time between two looks at the usage of today and yesterday, 10 ms to 1 h; zero means 10 s. Earlier days are looked at each hour.
	Usage time.Duration
	// OnError hears when the database or Redis goes away, OnOver when all works again, OnGap of what Redis had kept no more when it was to be
	// copied. They must not block. Nil hears nothing.
	OnError func(err error)
	OnOver  func()
	OnGap   func(gap Gap)
}

// Gap is what had gone from Redis before it was copied.
type Gap struct {
	// Source is one of Sources, Part the partition of a stream.
	Source string
	Part   int
	// After is the position behind which it was, Lost how many it were.
	After string
	Lost  int64
	// Reason is GapBefore, GapTrimmed or GapBack.
	Reason string
}

// The reasons of a Gap.
const (
	// GapBefore is of what had gone before the mirror looked for the first time.
	GapBefore = "before the mirror"
	// GapTrimmed is of what has gone since.
	GapTrimmed = "trimmed"
	// GapBack is of versions of the policy that Redis has lost: it was restored or emptied. They stay until there are others of their numbers.
	GapBack = "went back"
)

// The sources of rows.
const (
	Audit       = "audit"
	Policies    = "policies"
	Usage       = "usage"
	Transitions = "transitions"
	Anomalies   = "anomalies"
)

// Sources are all of them, in the order in which they are copied.
var Sources = []string{Audit, Policies, Transitions, Anomalies, Usage}

func (c Config) withDefaults() Config {
	if c.Poll == 0 {
		c.Poll = time.Second
	}
	if c.Usage == 0 {
		c.Usage = 10 * time.Second
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	if c.OnOver == nil {
		c.OnOver = func() {}
	}
	if c.OnGap == nil {
		c.OnGap = func(Gap) {}
	}
	return c
}

func (c Config) validate() error {
	var bad []error
	if err := sqldb.Dialect(c.Dialect).Validate(); err != nil {
		bad = append(bad, err)
	}
	if c.Poll < 10*time.Millisecond || c.Poll > time.Minute {
		bad = append(bad, &admission.FieldError{Field: "Poll", Value: c.Poll.String(), Allowed: "10ms to 1m"})
	}
	if c.Usage < 10*time.Millisecond || c.Usage > time.Hour {
		bad = append(bad, &admission.FieldError{Field: "Usage", Value: c.Usage.String(), Allowed: "10ms to 1h"})
	}
	return errors.Join(bad...)
}
