package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// Share is how the partitions divide a bound among them.
type Share struct {
	// Bound is the gate of a queue's or a downstream's cap or of a downstream's rate, or "global" for the rate of the global limit.
	Bound GateName
	// Parts is the fraction of the bound that each partition has, in their order, 0 to 1. They add up to 1 at most.
	Parts []float64
}

// Shares returns how each bound is divided: the global limit first, whether there is one or not, then the gates by name. It is nil
// where there is but one partition.
func (s *Store) Shares(ctx context.Context) ([]Share, error) {
	if s.all == nil {
		return nil, nil
	}
	global, err := s.GlobalShares(ctx, 1)
	if err != nil {
		return nil, err
	}
	all, err := gather(s, func(part *Store) (map[string]string, error) {
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
				bounds[bound] = make([]float64, len(s.all))
			}
			bounds[bound][i] = part
		}
	}
	shares := []Share{{globalBound, global}}
	for _, bound := range slices.Sorted(maps.Keys(bounds)) {
		shares = append(shares, Share{GateName(bound), bounds[bound]})
	}
	return shares, nil
}

// GlobalShares returns what each partition has of so many tokens that the global limit brings, nil where there is but one.
func (s *Store) GlobalShares(ctx context.Context, tokens admission.Tokens) ([]float64, error) {
	if s.all == nil {
		return nil, nil
	}
	return gather(s, func(part *Store) (float64, error) {
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
		return multiple * float64(tokens) / float64(len(s.all)), nil
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

// SharesWords tells for people what the partitions have of something that all divide among them; nothing where shares is nil.
func SharesWords(shares []float64) string {
	if shares == nil {
		return ""
	}
	words := make([]string, len(shares))
	for i, share := range shares {
		words[i] = strconv.FormatFloat(share, 'g', 4, 64)
	}
	return "; the partitions have " + strings.Join(words, ", ") + " of that"
}
