package store

import "github.com/headgate/headgate/internal/redisconn"

// The ways in which a caller and a deployment differ.
var (
	// ErrPartitions means that a deployment has another number of partitions than Config.Partitions, or than it had when the
	// Store was opened. Nothing was touched: open another Store.
	ErrPartitions = redisconn.ErrPartitions
	// ErrMigrating means that a deployment is being migrated, and comes with headgate.ErrUnavailable. Nothing was touched.
	ErrMigrating = redisconn.ErrMigrating
	// ErrMoved means that a deployment has moved to another Redis. Nothing was touched.
	ErrMoved = redisconn.ErrMoved
)
