package main

import (
	"fmt"
	"math"
	"strings"
)

// load is one to be borne.
type load struct {
	name string
	// perSecond is how many jobs or checks there are, each of which takes so many µs of Redis and bytes on the network.
	perSecond, us, net float64
	// stored is bytes in Redis, copies on replicas not counted.
	stored float64
}

func loads(c costs) []load {
	kept := func(perSecond float64) float64 {
		return perSecond * (c.backlog*c.waiting + c.window*c.ended)
	}
	const million = 1_000_000
	return []load{
		{"10,000 jobs/s in batches of 64", 10_000, c.job, c.jobNet, kept(10_000)},
		{"100,000 jobs/s in batches of 64", 100_000, c.job, c.jobNet, kept(100_000)},
		{"1,000,000 jobs/s in batches of 64", million, c.job, c.jobNet, kept(million)},
		{"1,000,000 jobs/s, each alone", million, c.alone, c.aloneNet, kept(million)},
		{"1,000,000 exact checks/s of four limits, in batches of 64", million, c.check, c.checkNet, 0},
		{"1,000,000 scopes, none of them full", 0, 0, 0, million * c.bucket},
	}
}

// table says what each load takes.
func table(c costs) string {
	var text strings.Builder
	text.WriteString("| load | cores of Redis | shards | memory, all and a shard | network, all and a shard |\n| --- | --- | --- | --- | --- |\n")
	for _, l := range loads(c) {
		cores := l.perSecond * l.us / 1e6
		shards := max(1, math.Ceil(cores/c.busy))
		memory := l.stored * (1 + c.replicas)
		network := l.perSecond * l.net
		fmt.Fprintf(&text, "| %s | %.3g | %.0f | %s | %s |\n", l.name, cores, shards,
			pair(memory, l.stored/shards, "GB"), pair(network*8, network*8/shards, "Gbit/s"))
	}
	return text.String()
}

func pair(all, shard float64, unit string) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g and %.2g %s", all/1e9, shard/1e9, unit)
}
