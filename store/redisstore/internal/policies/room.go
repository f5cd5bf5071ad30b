package policies

import "github.com/headgate/headgate/internal/redisconn"

// Policies is the policies and the audit of a partition.
type Policies struct{ conn *redisconn.Conn }

// New returns the Policies of the partition behind a Conn.
func New(conn *redisconn.Conn) *Policies { return &Policies{conn: conn} }
