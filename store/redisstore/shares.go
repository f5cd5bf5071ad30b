package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/gates"
)

// Shares implements Deployment.
func (d *many) Shares(ctx context.Context) ([]store.Share, error) {
	global, err := d.GlobalShares(ctx, 1)
	if err != nil {
		return nil, err
	}
	all, err := gather(d, func(part *Partition) (map[string]string, error) {
		stored, err := redisconn.Client(part.conn).HGetAll(ctx, part.conn.Partition.Base()+"shares").Result()
		if err != nil {
			return nil, fmt.Errorf("read shares: %w", redisconn.Unread(err))
		}
		return stored, nil
	})
	if err != nil {
		return nil, err
	}
	bounds := map[string][]float64{}
	for i, stored := range all {
		for bound, text := range stored {
			part, ok, err := gates.ParseShare(text)
			if err != nil {
				return nil, fmt.Errorf("read share of %s: %w", bound, err)
			}
			if !ok {
				continue
			}
			if bounds[bound] == nil {
				bounds[bound] = make([]float64, len(d.parts))
			}
			bounds[bound][i] = part
		}
	}
	shares := []store.Share{{Bound: store.GlobalBound, Parts: global}}
	for _, bound := range slices.Sorted(maps.Keys(bounds)) {
		shares = append(shares, store.Share{Bound: store.GateName(bound), Parts: bounds[bound]})
	}
	return shares, nil
}

// GlobalShares implements Deployment.
func (d *many) GlobalShares(ctx context.Context, tokens admission.Tokens) ([]float64, error) {
	return gather(d, func(part *Partition) (float64, error) {
		text, err := redisconn.Client(part.conn).HGet(ctx, part.conn.Partition.State(), "gm").Result()
		if err != nil && !redisconn.IsNil(err) {
			return 0, fmt.Errorf("read share of the global limit: %w", redisconn.Unread(err))
		}
		multiple := 1.0 // of the even part
		if text != "" {
			if multiple, err = strconv.ParseFloat(text, 64); err != nil {
				return 0, fmt.Errorf("read share of the global limit: %w", err)
			}
		}
		return multiple * float64(tokens) / float64(len(d.parts)), nil
	})
}
