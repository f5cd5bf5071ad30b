package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Shares implements Deployment.
func (d *many) Shares(ctx context.Context) ([]store.Share, error) {
	global, err := d.GlobalShares(ctx, 1)
	if err != nil {
		return nil, err
	}
	all, err := gather(d, func(part *Partition) (map[string]string, error) {
		stored, err := connection(part).HGetAll(ctx, part.partition.Base()+"shares").Result()
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
			part, ok, err := parseShare(text)
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
		text, err := connection(part).HGet(ctx, part.partition.State(), "gm").Result()
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

// parseShare reads whole|units|of|partitions (fragments/share.lua); ok is false for a bound that the policy has no more.
func parseShare(text string) (part float64, ok bool, err error) {
	whole, rest, _ := strings.Cut(text, "|")
	n, err := parseNumbers(strings.ReplaceAll(rest, "|", " "))
	if err != nil || len(n) != 3 || n[1] <= 0 {
		return 0, false, fmt.Errorf("%q: %w", text, redisconn.ErrUnknownReply)
	}
	return float64(n[0]) / float64(n[1]), whole != "", nil
}
