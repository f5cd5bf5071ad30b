package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/lua"
)

// The field LayoutField of each partition's state says how the deployment is laid out: "4" is of so many partitions,
// absent is one, "1>4" is being migrated from one to four, ">redis://host:6379" has moved there. Every script that reads the
// state compares it with the layout that its caller knows, in a read that it makes anyway, so whoever missed a migration
// changes nothing.

// layoutMark begins what fragments/state.lua refuses another layout with; the stored one follows.
var layoutMark = regexp.MustCompile(`LAYOUT (\S+)`)

// LayoutError is a deployment whose stored layout is not that of the caller.
type LayoutError struct {
	Stored string
	cause  error // a reply of Redis, nil where the layout was read
}

func (e *LayoutError) Error() string {
	from, to, migrating := strings.Cut(e.Stored, ">")
	switch {
	case migrating && from == "":
		return admission.ErrMoved.Error() + ": " + to + " (use that address)"
	case migrating:
		return fmt.Sprintf("%s from %s to %s partitions: try again when headgate migrate has ended", admission.ErrMigrating, from, to)
	}
	return fmt.Sprintf("%s than when this process began, %s now: start it anew", admission.ErrPartitions, e.Stored)
}

func (e *LayoutError) Unwrap() []error {
	var all []error
	switch from, _, migrating := strings.Cut(e.Stored, ">"); {
	case migrating && from == "":
		all = append(all, admission.ErrMoved)
	case migrating:
		all = append(all, admission.ErrMigrating, admission.ErrUnavailable)
	default:
		all = append(all, admission.ErrPartitions)
	}
	if e.cause != nil {
		all = append(all, e.cause)
	}
	return all
}

// AsLayoutError returns the error of a script that found another layout, nil for any other.
func AsLayoutError(err error) error {
	found := layoutMark.FindStringSubmatch(err.Error())
	if found == nil {
		return nil
	}
	return &LayoutError{Stored: found[1], cause: err}
}

// LayoutField is the field of the state that holds how many partitions a deployment has; absent means one.
const LayoutField = "partitions"

// CheckLayout compares the layout that the partition says with the one that scripts are sent for: a *LayoutError where it is another.
func (c *Conn) CheckLayout(ctx context.Context) error {
	stored, err := Client(c).HGet(ctx, c.Partition.State(), LayoutField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read number of partitions: %w", Unread(err))
	}
	if stored = cmp.Or(stored, lua.SingleLayout); stored != c.layout {
		return &LayoutError{Stored: stored}
	}
	return nil
}
