package redisclient

import (
	"cmp"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The time-outs of the house. A Redis that is away must be known in a fraction of a second; a caller that wants
// less gives its ctx a deadline.
const (
	// DefaultDialTimeout bounds the making of a connection.
	DefaultDialTimeout = time.Second
	// DefaultTimeout bounds one read and one write. A blocking read is bounded by its BLOCK + 10 s instead, so
	// whoever blocks gives its ctx a deadline of BLOCK + DefaultTimeout.
	DefaultTimeout = 500 * time.Millisecond
	// DefaultPoolTimeout bounds the wait for a connection while all are in use.
	DefaultPoolTimeout = 250 * time.Millisecond
	// DefaultPoolSize is the largest number of connections of one client. They are made when needed.
	DefaultPoolSize = 64
	// idleTimeout ends connections that a burst has left over.
	idleTimeout = 5 * time.Minute
)

// Settings gives a client of Redis the settings of the house. It keeps time-outs, pool sizes and credentials
// that are set already, and overrules the rest:
//
//   - MaxRetries is -1. By default go-redis sends a command again when it does not know what became of it. Scripts
//     are made to be sent again, but by the layer that knows their ids and for how long they are remembered.
//   - DialerRetries is 1: the default dials five times, 100 ms apart, before a caller hears that Redis is away.
//   - Protocol is 2. On RESP3 every command first looks for pushed messages, which nobody here listens to; one call
//     at a time took 10-30 % longer, sixteen at once the same.
//   - PipelinePoolSize is -1: one pool, one bound on connections.
//   - Connections announce nothing (CLIENT SETINFO, maintenance notifications): two round trips less, and no
//     errors in the log of a Redis that does not know them.
//   - The pool is LIFO, which costs less than FIFO and leaves surplus connections idle, to be closed.
//
// A ctx's deadline counts for the whole call. Its cancellation does not: go-redis returns from a read only when it
// is answered or the deadline passes. After a deadline the connection is closed, and what Redis was about to answer
// is lost; entries it has delivered stay pending.
//
// After PoolSize failed dials in a row the client dials once a second in the background and fails calls at once,
// so it finds a Redis that came back within a second.
func Settings(options *redis.Options) {
	options.DialTimeout = cmp.Or(options.DialTimeout, DefaultDialTimeout)
	options.ReadTimeout = cmp.Or(options.ReadTimeout, DefaultTimeout)
	options.WriteTimeout = cmp.Or(options.WriteTimeout, DefaultTimeout)
	options.PoolTimeout = cmp.Or(options.PoolTimeout, DefaultPoolTimeout)
	options.PoolSize = cmp.Or(options.PoolSize, DefaultPoolSize)
	options.ConnMaxIdleTime = cmp.Or(options.ConnMaxIdleTime, idleTimeout)

	options.MaxRetries = -1
	options.DialerRetries = 1
	options.ContextTimeoutEnabled = true
	options.Protocol = 2
	options.PipelinePoolSize = -1
	options.PoolFIFO = false
	options.DisableIdentity = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
