package crash_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// findings are what the books of the processes and Redis say when all is over.
type findings struct {
	census store.Census
	// admitted are the jobs that a producer was told are in, by key; turnedAway are the reasons of the others, and refused counts by reason.
	admitted   map[string]admission.Job
	turnedAway map[string]string
	refused    map[string]int
	// lost were admitted and are neither dead letters nor among the ids that ended; unrun were admitted, are no dead
	// letters, and no handler has begun them.
	lost, unrun []string
	deaths      map[string]int
	runs        int
	// again counts the runs of an attempt beyond its first, unexplained those of jobs of which no delivery was lost or handed back
	// by a drain. A worker that wakes up may begin a job after the one that has it by then, so the order of the runs does not matter.
	again, unexplained int
	// suspects counts the jobs of which a handler was told that they had been lost with a worker.
	suspects int
	// charges are what buckets say that differs from what was admitted.
	charges                []string
	undecided, refusedEnds int
}

// run is one start of a handler.
type run struct {
	at      int64
	attempt int
	suspect bool
}

// audit reads everything.
func (s *storm) audit() *findings {
	s.Helper()
	census, err := s.store.Census(s.Context())
	s.check(err)
	f := &findings{census: census, refused: map[string]int{}, turnedAway: map[string]string{}, admitted: map[string]admission.Job{}}
	s.read(producerRole, func(of int, words []string) {
		n, err := strconv.Atoi(words[1])
		s.check(err)
		switch words[0] {
		case "A":
			j := stormJob(of, n)
			f.admitted[j.Tenant+":"+j.ID] = j
		case "R":
			j := stormJob(of, n)
			f.turnedAway[j.Tenant+":"+j.ID] = words[2]
			f.refused[words[2]]++
		case "X":
			f.undecided++
		}
	})
	f.runsOf(s)
	ended, dead, deaths := outcomes(s.Context(), s.Fatal, s.client, s.store)
	f.deaths = deaths
	for key := range f.admitted {
		if !ended[key] && !dead[key] {
			f.lost = append(f.lost, key)
		}
	}
	slices.Sort(f.lost)
	f.charges = s.charges(f.admitted, s.poisoned(dead))
	return f
}

// runsOf reads the workers' books.
func (f *findings) runsOf(s *storm) {
	s.Helper()
	runs, handedBack := map[string][]run{}, map[string]bool{}
	s.read(workerRole, func(_ int, words []string) {
		switch words[0] {
		case "B":
			at, err := strconv.ParseInt(words[1], 10, 64)
			s.check(err)
			attempt, err := strconv.Atoi(words[3])
			s.check(err)
			suspect, err := strconv.ParseBool(words[4])
			s.check(err)
			runs[words[2]] = append(runs[words[2]], run{at, attempt, suspect})
		case "F":
			switch {
			case words[3] == "lost":
				f.refusedEnds++
			case words[3] == string(worker.Released) && words[4] == worker.ReasonShutdown:
				handedBack[words[2]] = true
			}
		}
	})
	for key, all := range runs {
		slices.SortFunc(all, func(a, b run) int { return int(a.at - b.at) })
		f.runs += len(all)
		suspect := slices.ContainsFunc(all, func(r run) bool { return r.suspect })
		seen := map[int]bool{}
		for _, r := range all {
			if seen[r.attempt] {
				f.again++
				if !suspect && !handedBack[key] {
					f.unexplained++
					s.Logf("job %s ran again, and no delivery of it was lost or handed back by a drain: %+v", key, all)
				}
			}
			seen[r.attempt] = true
		}
		if suspect {
			f.suspects++
		}
		if _, ok := f.admitted[key]; !ok {
			s.Errorf("job %s ran, and no producer was told that it is in: what it was told is %q", key, f.turnedAway[key])
		}
	}
	dead, err := s.client.ZRange(s.Context(), redisstore.Keys(s.store).Dead(), 0, -1).Result()
	s.check(err)
	for key := range f.admitted {
		if runs[key] == nil && !slices.Contains(dead, key) {
			f.unrun = append(f.unrun, key)
		}
	}
}

// outcomes returns the keys of the jobs that ended and of the dead letters, and counts these by reason. The dedup window
// must not have passed.
func outcomes(ctx context.Context, fail func(...any), client redis.UniversalClient, store store.Deployment) (ended, dead map[string]bool, deaths map[string]int) {
	ended, dead, deaths = map[string]bool{}, map[string]bool{}, map[string]int{}
	why, err := client.HGetAll(ctx, redisstore.Keys(store).Why()).Result()
	if err != nil {
		fail(err)
	}
	letters, err := client.ZRange(ctx, redisstore.Keys(store).Dead(), 0, -1).Result()
	if err != nil {
		fail(err)
	}
	for _, key := range letters {
		dead[key] = true
		reason, _, _ := strings.Cut(why[key], "|")
		deaths[reason]++
	}
	for generation := range 2 {
		members, err := client.SMembers(ctx, redisstore.Keys(store).Base()+"ended:"+strconv.Itoa(generation)).Result()
		if err != nil {
			fail(err)
		}
		for _, key := range members {
			ended[key] = true
		}
	}
	return ended, dead, deaths
}

// poisoned returns the dead letters that no handler has brought to an end, so that nobody has told what they cost.
func (s *storm) poisoned(dead map[string]bool) map[string]bool {
	s.Helper()
	found := map[string]bool{}
	for key := range dead {
		why, err := s.client.HGet(s.Context(), redisstore.Keys(s.store).Why(), key).Result()
		s.check(err)
		found[key] = strings.HasPrefix(why, "poison|")
	}
	return found
}

// committed is between what jobs have cost at least and at most: the same, but where workers of a release took part that tells no costs.
type committed struct {
	least, most    int64
	jobs, reserved int64
}

func (c *committed) add(j admission.Job, silent bool) {
	actual, _ := strconv.ParseInt(j.Headers[actualHeader], 10, 64)
	least, most := actual, actual
	switch {
	case silent:
		least, most = int64(j.Cost), int64(j.Cost)
	case os.Getenv(otherVariable) != "":
		least, most = min(actual, int64(j.Cost)), max(actual, int64(j.Cost))
	}
	c.least, c.most = c.least+least, c.most+most
	c.jobs, c.reserved = c.jobs+1, c.reserved+int64(j.Cost)
}

// charges compares each bucket with what the jobs have cost: it holds its burst less that, to the micro-token, and what it has gained since.
// Those in silent keep what they had reserved.
func (s *storm) charges(admitted map[string]admission.Job, silent map[string]bool) (wrong []string) {
	s.Helper()
	spent, all := map[string]*committed{}, &committed{}
	for key, j := range admitted {
		if spent[j.Tenant] == nil {
			spent[j.Tenant] = &committed{}
		}
		spent[j.Tenant].add(j, silent[key])
		all.add(j, silent[key])
	}
	compare := func(scope, stored string, burst, perDay int64, cost *committed) {
		bucket, err := buckets.Parse(stored)
		s.check(err)
		level := int64(bucket.Level)
		gained := int64(time.Since(s.began).Seconds()*float64(perDay)*1_000_000/86_400) + 1
		if level < (burst-cost.most)*1_000_000 || level > (burst-cost.least)*1_000_000+gained {
			wrong = append(wrong, fmt.Sprintf("%s: %+v tokens committed of %d, %d micro-tokens left", scope, *cost, burst, level))
		}
	}
	for tenant, cost := range spent {
		stored, err := s.client.HGet(s.Context(), redisstore.Keys(s.store).Buckets(tenant), "").Result()
		s.check(err)
		compare(tenant, stored, tenantBurst, 1, cost)
	}
	stored, err := s.client.HGet(s.Context(), redisstore.Keys(s.store).State(), "gb").Result()
	s.check(err)
	compare("global", stored, globalBurst, globalPerDay, all)
	return append(wrong, s.billed(spent)...)
}

// billed compares the usage that is kept of each tenant with what its jobs reserved and have cost.
func (s *storm) billed(spent map[string]*committed) (wrong []string) {
	s.Helper()
	used := map[string]*store.Used{}
	for at := s.began.Add(-time.Minute); at.Before(time.Now().Add(24 * time.Hour)); at = at.Add(24 * time.Hour) {
		lines, err := s.store.Usage(s.Context(), store.UsageQuery{Day: at})
		s.check(err)
		for i := range lines {
			if used[lines[i].Tenant] == nil {
				used[lines[i].Tenant] = &store.Used{}
			}
			used[lines[i].Tenant].Add(&lines[i].Used)
		}
	}
	if os.Getenv(otherVariable) != "" { // That release knows of no usage.
		return nil
	}
	for tenant, cost := range spent {
		u := used[tenant]
		if u == nil || u.Jobs != cost.jobs || int64(u.Reserved) != cost.reserved || int64(u.Committed()) != cost.most {
			wrong = append(wrong, fmt.Sprintf("%s: usage is %+v, and %+v was committed", tenant, u, *cost))
		}
	}
	if len(used) != len(spent) {
		wrong = append(wrong, fmt.Sprintf("usage is kept of %d tenants, and %d have jobs", len(used), len(spent)))
	}
	return wrong
}

// print reports.
func (f *findings) print(s *storm) {
	s.Helper()
	s.Logf("storm of %s: %s", time.Since(s.began).Round(time.Second), s.strikesText())
	s.Logf("acknowledged %d, refused %v, undecided %d", len(f.admitted), f.refused, f.undecided)
	s.Logf("accepted %d, left %v, dead letters %v", f.census.Accepted, f.census.Left, f.deaths)
	s.Logf("lost %d, never run %d, charged wrongly %d", len(f.lost), len(f.unrun), len(f.charges))
	s.Logf("runs %d, beyond one an attempt %d (of jobs with no delivery lost: %d), jobs lost with a worker %d, ends refused %d",
		f.runs, f.again, f.unexplained, f.suspects, f.refusedEnds)
}

// assert fails unless the laws held.
func (f *findings) assert(s *storm) {
	s.Helper()
	if c := f.census; !c.Conserved() || c.Live != c.Dead || c.Accepted != int64(len(f.admitted)) {
		s.Errorf("law L4: %d jobs were acknowledged, and Redis has %+v", len(f.admitted), c)
	}
	for reason := range maps.Keys(f.census.Left) {
		if reason != "completed" {
			s.Errorf("law L9: jobs left as %s, which nobody asked for", reason)
		}
	}
	if len(f.lost) > 0 || len(f.unrun) > 0 {
		s.Errorf("law L4: lost %v, never run %v", f.lost, f.unrun)
	}
	if len(f.charges) > 0 {
		s.Errorf("law L3: %v", f.charges)
	}
	if f.unexplained > 0 {
		s.Errorf("law L5: %d runs beyond one of jobs that no worker lost", f.unexplained)
	}
	if f.undecided > 0 {
		s.Errorf("%d jobs were never decided", f.undecided)
	}
}
