package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// DataVersion is the newest version of the layout of data that this release knows. It is raised when an older release could no
// longer work on the same data. Scripts have no version of their own: Redis knows each by its text, so two releases side by side
// run theirs.
const DataVersion = 2

// The versions that this release writes: firstData at the first start, migratedData when a deployment is migrated, because releases
// that do not know it do not compare layouts.
const (
	firstData    = 1
	migratedData = 2
)

// dataField is the field of the state that holds the DataVersion of the deployment, from its first start on.
const dataField = "data"

// ErrNewerData means that a newer release has put the data into a form that this one does not know. Nothing was touched.
var ErrNewerData = errors.New("the data is of a newer release of headgate")

// checkData refuses a deployment whose data this release does not know, and marks a new one.
func (s *Store) checkData(ctx context.Context) error {
	key := s.partition.State()
	text, err := connection(s).HGet(ctx, key, dataField).Result()
	if errors.Is(err, redis.Nil) {
		// A Redis that is full or a replica does not take it: the next start writes it, and until then its absence says the same.
		_ = connection(s).HSetNX(ctx, key, dataField, firstData).Err()
		return nil
	}
	if err != nil {
		return fmt.Errorf("read version of the data: %w", unread(err))
	}
	stored, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("version of the data is %q in %s: %w", text, key, err)
	}
	return newerData(stored)
}

func newerData(stored int) error {
	if stored <= DataVersion {
		return nil
	}
	return fmt.Errorf("%w: version %d, this one knows up to %d; run the newer release here, or give this one another prefix", ErrNewerData, stored, DataVersion)
}
