package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

// mostTiers is of how many tiers a line tells.
const mostTiers = 10

// recordsFindings tells of tiers that records of tenants name and the policy does not have; nothing where there are none.
func recordsFindings[P Partition](ctx context.Context, parts []P, facts []partitionFacts) ([]Finding, error) {
	named := map[string]int64{}
	for i, part := range parts {
		if !facts[i].recorded {
			continue
		}
		tiers, err := part.RecordTiers(ctx)
		if err != nil {
			return nil, err
		}
		for tier, n := range tiers {
			named[tier] += n
		}
	}
	if len(named) == 0 {
		return nil, nil
	}
	text, err := parts[0].Policy(ctx)
	if err != nil {
		return nil, err
	}
	var compiled *policy.Compiled
	document, err := policy.Stored(text)
	if err == nil {
		compiled, err = document.Prepare()
	}
	if err != nil {
		return []Finding{{"records", HealthWarn, "the policy cannot be read, so nothing is known of the tiers that records of tenants name: " + err.Error(), "run the release that stored it, or headgate policy set FILE"}}, nil //nolint:nilerr // That is the finding.
	}
	maps.DeleteFunc(named, func(tier string, _ int64) bool { return compiled.HasTier(tier) })
	if len(named) == 0 {
		return nil, nil
	}
	tiers := slices.Sorted(maps.Keys(named))
	var told []string
	for _, tier := range tiers[:min(len(tiers), mostTiers)] {
		told = append(told, fmt.Sprintf("%s, by the records of %d tenants", tier, named[tier]))
	}
	return []Finding{{
		"records", HealthWarn, "records of tenants name tiers that the policy does not have, so that standard counts for them: " + strings.Join(told, "; "),
		fmt.Sprintf("headgate tenant list --tier %s names the tenants: headgate record set TENANT --tier NAME gives one another, headgate tier set %s makes the tier", tiers[0], tiers[0]),
	}}, nil
}
