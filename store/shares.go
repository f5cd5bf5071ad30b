package store

import (
	"context"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// Share is how the partitions divide a bound among them.
type Share struct {
	// Bound is the gate of a queue's or a downstream's cap or of a downstream's rate, or "global" for the rate of the global limit.
	Bound GateName
	// Parts is the fraction of the bound that each partition has, in their order, 0 to 1. They add up to 1 at most.
	Parts []float64
}

// SharesOf returns what each of several partitions has of the tokens of the global limit, nil where there is but one. Of windows all
// have the same.
func SharesOf(ctx context.Context, d Deployment, global *admission.Limit) ([]float64, error) {
	shares, err := d.GlobalShares(ctx, global.Tokens)
	if !global.Window.IsZero() {
		for i := range shares {
			shares[i] = float64(global.Tokens / admission.Tokens(len(shares)))
		}
	}
	return shares, err
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

// GlobalBound names the rate of the global limit among what partitions divide; all else is named by its gate.
const GlobalBound = "global"

// MaxPartitions is the largest number of partitions of a deployment.
const MaxPartitions = 256
