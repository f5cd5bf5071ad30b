package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
)

// partitionFacts are what a partition adds to what is told of all.
type partitionFacts struct {
	layout      string
	version     int64
	live, bytes int64
	// recorded says that records of tenants name tiers, or say weights.
	recorded bool
}

// Examine is Run for partitions that may be of a deployment that redisstore.Open would refuse, one or more. The error is that of a Redis that
// does not answer; whatever else is wrong is in the Report. It reads only. Of several partitions, and of the masters that serve
// them, each line tells of the one that is worst.
func Examine[P Partition](ctx context.Context, parts []P) (Report, error) {
	var servers, states examined
	seen := map[redis.UniversalClient]*doctor{}
	var facts []partitionFacts
	for i, part := range parts {
		master := redisconn.Client(part.Conn())
		if seen[master] == nil {
			d := &doctor{client: master}
			if err := d.server(ctx); err != nil {
				return Report{}, err
			}
			seen[master] = d
			servers.add(addressOf(master), d.findings)
		}
		d := *seen[master]
		d.part, d.partition, d.findings = part, part.Keys(), nil
		inForce := int64(0)
		if i > 0 {
			inForce = facts[0].version
		}
		found, err := d.partitionState(ctx, inForce)
		if err != nil {
			return Report{}, err
		}
		facts = append(facts, found)
		holds, err := part.Holds(ctx)
		if err != nil {
			return Report{}, err
		}
		d.holds(holds)
		scales, err := part.Scales(ctx)
		if err != nil {
			return Report{}, err
		}
		d.scales(scales)
		spilled, err := part.SpillState(ctx)
		if err != nil {
			return Report{}, err
		}
		d.spill(spilled)
		states.add(fmt.Sprintf("partition %d", i), d.findings)
	}
	findings := append(servers.worst(), layoutFinding(parts, facts))
	rest := states.worst()
	findings = append(append(findings, rest[0], jobsFinding(facts)), rest[1:]...)
	recorded, err := recordsFindings(ctx, parts, facts)
	if err != nil {
		return Report{}, err
	}
	return reportOf(append(findings, recorded...)...), nil
}

// addressOf names a master.
func addressOf(client redis.UniversalClient) string {
	if single, ok := client.(*redis.Client); ok {
		return single.Options().Addr
	}
	return "a master"
}

// examined are the findings about several of a kind, the same lines of each.
type examined struct {
	names    []string
	findings [][]Finding
}

func (e *examined) add(name string, findings []Finding) {
	e.names, e.findings = append(e.names, name), append(e.findings, findings)
}

// worst returns of each line the worst, and where there are several of a kind whose it is, unless all is well.
func (e *examined) worst() []Finding {
	ranks := map[Health]int{HealthOK: 0, HealthWarn: 1, HealthFail: 2}
	worst := make([]Finding, len(e.findings[0]))
	for line := range worst {
		at := 0
		for i := range e.findings {
			if len(e.findings[i]) > line && ranks[e.findings[i][line].Health] > ranks[e.findings[at][line].Health] {
				at = i
			}
		}
		worst[line] = e.findings[at][line]
		if len(e.names) > 1 && worst[line].Health != HealthOK {
			worst[line].Text = e.names[at] + ": " + worst[line].Text
		}
	}
	return worst
}

// layoutFinding tells how many partitions there are, and whether all of them agree.
func layoutFinding[P Partition](parts []P, facts []partitionFacts) Finding {
	layout := facts[0].layout
	if strings.Contains(layout, ">") {
		return Finding{"partitions", HealthFail, (&redisconn.LayoutError{Stored: layout}).Error(), "headgate migrate, as before, ends a migration that was killed"}
	}
	for i, f := range facts {
		if f.layout != layout && f.layout != "" {
			return Finding{
				"partitions", HealthFail, fmt.Sprintf("partition %d is one of %q, the first of %q", i, f.layout, layout),
				"find out who has written " + parts[i].Keys().State(),
			}
		}
	}
	keys := parts[0].Keys().Base()
	if len(facts) > 1 {
		keys = strings.TrimSuffix(keys, "0}:")
	}
	return Finding{"partitions", HealthOK, fmt.Sprintf("%d, keys %s*", len(facts), keys), ""}
}

func jobsFinding(facts []partitionFacts) Finding {
	var live, bytes int64
	for _, f := range facts {
		live, bytes = live+f.live, bytes+f.bytes
	}
	text := fmt.Sprintf("%d jobs live", live)
	if bytes > 0 && live > 0 {
		text += fmt.Sprintf(", some %d bytes each with their payloads up to 4 KiB; lanes and larger payloads come on top", bytes/live)
	}
	return Finding{"jobs", HealthOK, text, ""}
}
