package crash_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// clusterCall bounds a call of a producer: its time-out, and what a machine may halt meanwhile.
const clusterCall = 2*time.Second + 15*time.Second

// settle lets no further job in, waits until what is left has run, and holds what is left against what was promised.
func (c *clusterTest) settle() {
	c.Helper()
	c.leaveAll(partsRole)
	var census store.Census
	c.await("what is left has run", func() bool {
		var err error
		census, err = c.store.Census(c.Context())
		return err == nil && census.Live == 0
	})
	c.leaveAll(workerRole)
	c.leaveAll(schedulerRole)
	c.follow()
	if !census.Conserved() {
		c.Errorf("law L4: %+v", census)
	}
	kept := map[string]bool{}
	for _, part := range c.store.Partitions() {
		ended, _, _ := outcomes(c.Context(), c.Fatal, c.client, store.Single(part, nil))
		maps.Copy(kept, ended)
	}
	c.auditJobs(kept)
	c.auditTokens(kept)
	c.auditFailures()
}

// auditJobs asserts that what a replica had has run.
func (c *clusterTest) auditJobs(kept map[string]bool) {
	c.Helper()
	entered, unsure, lost, again := 0, 0, 0, 0
	for key, j := range c.jobs {
		if j.runs > 1 {
			again++
		}
		if j.told == 0 {
			c.Errorf("%s ran and nobody was told that it is in", key)
			continue
		}
		entered++
		if j.unsure {
			unsure++
		}
		if kept[key] && j.runs > 0 {
			continue
		}
		lost++
		if !j.unsure {
			c.Errorf("law L4: a replica had %s; it ran %d times, Redis knows of its end: %t", key, j.runs, kept[key])
		}
	}
	if lost == 0 {
		c.Errorf("nothing was lost of what no replica had: the test sees nothing")
	}
	c.Logf("%d jobs were let in, %d of them without a replica's word, of which %d were lost; %d ran more than once; %d workers were killed",
		entered, unsure, lost, again, c.strikes)
}

// auditTokens asserts that each tenant's bucket holds its burst less the jobs that Redis has kept.
func (c *clusterTest) auditTokens(kept map[string]bool) {
	c.Helper()
	spent := map[string]int64{}
	for key := range kept {
		spent[tenantOf(key)]++
	}
	gained := int64(time.Since(c.began).Seconds()*1_000_000/86_400) + 1
	full := 0
	for tenant, cost := range spent {
		part := c.store.Partitions()[c.store.PartitionOf(tenant)]
		stored, err := c.client.HGet(c.Context(), redisstore.KeysOf(part).Buckets(tenant), "").Result()
		c.check(err)
		bucket, err := buckets.Parse(stored)
		c.check(err)
		level := int64(bucket.Level)
		if left := (tenantBurst - cost) * 1_000_000; level < left || level > left+gained {
			c.Errorf("law L1: %s had %d jobs of %d, and %d micro-tokens are left", tenant, cost, tenantBurst, level)
		}
		if cost == tenantBurst {
			full++
		}
	}
	c.Logf("%d tenants, %d of them at their limit", len(spent), full)
}

// auditFailures asserts that calls that let nothing in said why, and in time.
func (c *clusterTest) auditFailures() {
	c.Helper()
	kinds, longest := map[string]int{}, int64(0)
	for _, f := range c.failures {
		kinds[fmt.Sprint([]string{"mainland ", "island "}[f.side], f.kind)]++
		longest = max(longest, f.told-f.began)
		if f.kind != kindUnavailable && f.kind != kindUnknown {
			c.Errorf("a call failed with %s", f.kind)
		}
	}
	if time.Duration(longest) > clusterCall {
		c.Errorf("a call that failed took %s", round(longest))
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		c.Logf("%s: %d calls", kind, kinds[kind])
	}
	c.Logf("the longest call that failed took %s", round(longest))
}
