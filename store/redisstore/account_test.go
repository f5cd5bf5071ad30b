package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// accountYard is a yard whose policy has bounds of each account of shopify.
func accountYard(t *testing.T, options redistest.Options, caps ...store.Cap) *yard {
	t.Helper()
	client := redistest.Start(t, options).Client(t)
	s, err := openOnly(t.Context(), client, Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	y := &yard{tb: t, store: s, client: client, tokens: map[string]string{}}
	y.policy(1, caps...)
	return y
}

func (y *yard) policy(version int64, caps ...store.Cap) {
	y.tb.Helper()
	check(y.tb, y.store.PutPolicy(y.tb.Context(), store.PolicyUpdate{
		Expected: version - 1, Version: version, Text: []byte("{}"), Window: 30 * time.Second, Edit: fmt.Sprint("edit-", version), Caps: caps,
	}))
}

// call admits a job of a tenant of its own that calls a downstream.
func (y *yard) call(id, downstream string) {
	y.tb.Helper()
	j := mail("of-"+id, id)
	j.Downstream = downstream
	y.admitAt(1, j)
}

// drain reads and completes all that is ready.
func (y *yard) drain() {
	y.tb.Helper()
	for n := y.ready(); n > 0; n = y.ready() {
		leases, err := y.store.Read(y.tb.Context(), "w1", yardPool.ID(), n, -1, false)
		check(y.tb, err)
		ends := make([]store.Finish, len(leases))
		for i, l := range leases {
			ends[i] = l.Finish(store.Complete)
		}
		_, _, err = y.store.Finish(y.tb.Context(), yardPool.ID(), "w1", ends)
		check(y.tb, err)
	}
}

// TestAnIdleAccountCostsNothing: 500 accounts that called have a key each while their rates are not full, and nothing in any other key; a minute
// after these are full Redis has of them not a byte.
func TestAnIdleAccountCostsNothing(t *testing.T) {
	t.Parallel()
	const accounts = 500
	clock := redistest.NewClock(t, 0)
	y := accountYard(t, redistest.Options{Clock: clock},
		store.Cap{Gate: "d:shopify+*", Limit: 4}, store.Cap{Gate: "s:shopify+*", Rate: admission.PerSecond(2).WithBurst(40)})
	y.register(accounts)
	for i := range accounts {
		y.call(fmt.Sprint("job-", i), fmt.Sprintf("shopify+shop-%d", i))
	}
	if n := y.ready(); n != accounts {
		t.Fatalf("%d jobs are ready, want %d", n, accounts)
	}
	y.drain()
	own, bytes := 0, int64(0)
	for _, key := range y.withAccounts() {
		if !strings.Contains(key, "account:shopify+shop-") {
			t.Errorf("%s tells of accounts that have nothing to do", key)
			continue
		}
		own++
		n, err := y.client.MemoryUsage(t.Context(), key).Result()
		check(t, err)
		bytes += n
		ttl, err := y.client.PTTL(t.Context(), key).Result()
		check(t, err)
		if ttl <= 0 || ttl > time.Minute+time.Second {
			t.Errorf("%s stays for %s", key, ttl)
		}
	}
	if own != accounts {
		t.Errorf("%d accounts have a key, want %d", own, accounts)
	}
	if per := bytes / accounts; per > 200 {
		t.Errorf("an account that has just called takes %d bytes, want 200 at most", per)
	}
	before, err := y.store.Time(t.Context())
	check(t, err)
	clock.Step(t, 2*time.Minute)
	for now := before; now.Before(before.Add(2 * time.Minute)); { // Valkey 9 reads the time of day once a millisecond, and adds its monotonic clock's.
		now, err = y.store.Time(t.Context())
		check(t, err)
	}
	if left := y.withAccounts(); len(left) > 0 {
		t.Errorf("%d keys tell of idle accounts, such as %s", len(left), left[0])
	}
}

// withAccounts returns the keys whose name or content tells of an account of shopify other than the one of each, but for the policy's audit.
func (y *yard) withAccounts() (found []string) {
	y.tb.Helper()
	const look = `local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local text, kind = '', redis.call('TYPE', key).ok
  if kind == 'hash' then text = table.concat(redis.call('HGETALL', key), ' ') end
  if kind == 'zset' then text = table.concat(redis.call('ZRANGE', key, 0, -1), ' ') end
  if kind == 'set' then text = table.concat(redis.call('SMEMBERS', key), ' ') end
  if kind == 'list' then text = table.concat(redis.call('LRANGE', key, 0, -1), ' ') end
  if kind == 'stream' then text = cjson.encode(redis.call('XRANGE', key, '-', '+')) end
  if kind ~= 'none' and string.find(key .. text, 'shopify+shop', 1, true) then found[#found + 1] = key end
end
return found`
	found, err := redis.NewScript(look).Run(y.tb.Context(), y.client, nil, y.store.conn.Partition.Base()).StringSlice()
	check(y.tb, err)
	return found
}

// TestAccountsAreHeldEachByItself: a cap and a rate of each account hold back the jobs of an account that has them used up, and of no other; the
// service's own hold back all together; one account that has its own is held by that.
func TestAccountsAreHeldEachByItself(t *testing.T) {
	t.Parallel()
	each, service := store.GateName("d:shopify+*"), store.DownstreamGate("shopify")
	for name, c := range map[string]struct {
		caps []store.Cap
		want int // of three jobs for each of three accounts
	}{
		"nothing said":         {nil, 9},
		"a cap of each":        {[]store.Cap{{Gate: each, Limit: 2}}, 6},
		"a cap of the service": {[]store.Cap{{Gate: service, Limit: 5}}, 5},
		"both":                 {[]store.Cap{{Gate: each, Limit: 2}, {Gate: service, Limit: 5}}, 5},
		"one has its own":      {[]store.Cap{{Gate: each, Limit: 2}, {Gate: "d:shopify+shop-1", Limit: 1}}, 5},
		"a rate of each":       {[]store.Cap{{Gate: "s:shopify+*", Rate: admission.PerHour(1).WithBurst(1)}}, 3},
		"one has its own rate": {[]store.Cap{
			{Gate: "s:shopify+*", Rate: admission.PerHour(1).WithBurst(1)}, {Gate: "s:shopify+shop-1", Rate: admission.PerHour(1).WithBurst(3)},
		}, 5},
		"a rate of the service":             {[]store.Cap{{Gate: "s:shopify", Rate: admission.PerHour(1).WithBurst(4)}}, 4},
		"the cap of all counts the service": {[]store.Cap{{Gate: store.DownstreamGate(store.Every), Limit: 7}}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.policy(1, c.caps...)
			y.register(20)
			for i := range 9 {
				y.call(fmt.Sprint("job-", i), fmt.Sprintf("shopify+shop-%d", i%3))
			}
			if n := y.ready(); n != c.want {
				t.Errorf("%d jobs are ready, want %d", n, c.want)
			}
		})
	}
}

// TestARaisedRateOfEachAccountIsInForceAtOnce: accounts that wait an hour for a token of the old rate do not by the new one.
func TestARaisedRateOfEachAccountIsInForceAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.policy(1, store.Cap{Gate: "s:shopify+*", Rate: admission.PerHour(1).WithBurst(1)})
	y.register(20)
	for i := range 6 {
		y.call(fmt.Sprint("job-", i), fmt.Sprintf("shopify+shop-%d", i%3))
	}
	if n := y.ready(); n != 3 {
		t.Fatalf("%d jobs are ready, want 3", n)
	}
	y.policy(2)
	_, err := y.store.Promote(t.Context(), "s", time.Minute)
	check(t, err)
	if n := y.ready(); n != 6 {
		t.Errorf("%d jobs are ready without a rate, want 6", n)
	}
}

// TestAnAccountsPauseIsItsOwn: it ends by itself, and leaves what each account has.
func TestAnAccountsPauseIsItsOwn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.policy(1, store.Cap{Gate: "d:shopify+*", Limit: 2})
	y.register(20)
	gate := store.DownstreamGate("shopify+shop-1")
	did, err := y.store.PauseAtLeast(t.Context(), gate, time.Hour, store.RetryAfterBy(time.Hour))
	if check(t, err); !did {
		t.Fatal("it is not paused")
	}
	for i := range 9 {
		y.call(fmt.Sprint("job-", i), fmt.Sprintf("shopify+shop-%d", i%3))
	}
	if n := y.ready(); n != 4 {
		t.Errorf("%d jobs are ready, want 4 of the two others", n)
	}
	_, err = y.store.Unpause(t.Context(), gate, store.Intervention{Author: "ada"})
	check(t, err)
	if n := y.ready(); n != 6 {
		t.Errorf("%d jobs are ready after it, want 6", n)
	}
	y.drain()
	gates, err := y.store.Gates(t.Context())
	check(t, err)
	for _, g := range gates {
		if g.Name != "d:shopify+*" {
			t.Errorf("a gate is left: %+v", g)
		}
	}
}

// TestAnAccountsCapIsWholeInEachPartition: a cap of one of each account is no bound that three partitions cannot divide, and an account that one
// tenant calls for has all of it.
func TestAnAccountsCapIsWholeInEachPartition(t *testing.T) {
	t.Parallel()
	s, err := openMany(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t), Partitions: 3})
	check(t, err)
	u := store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: 30 * time.Second, Edit: "edit-1",
		Caps: []store.Cap{{Gate: "d:shopify+*", Limit: 1}, {Gate: "s:shopify+*", Rate: admission.PerHour(1).WithBurst(1)}, {Gate: "d:shopify", Limit: 30}},
	}
	check(t, s.CheckPolicy(t.Context(), u))
	check(t, s.PutPolicy(t.Context(), u))
	part := s.parts[s.PartitionOf("acme")]
	_, err = part.Register(t.Context(), "w", yardPool, 9, time.Hour)
	check(t, err)
	var jobs []store.Candidate
	for i := range 6 {
		j := mail("acme", fmt.Sprint("job-", i))
		j.Downstream = fmt.Sprint("shopify+shop-", i%3)
		jobs = append(jobs, store.Candidate{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}})
	}
	_, err = part.Admit(t.Context(), 1, jobs)
	check(t, err)
	if census, err := part.Census(t.Context()); err != nil || census.Ready != 3 {
		t.Errorf("%d jobs are ready, want one of each account; %v", census.Ready, err)
	}
	gates, err := s.Gates(t.Context())
	check(t, err)
	for _, g := range gates {
		if g.Name == "d:shopify+*" && g.Limit != 1 {
			t.Errorf("all partitions together show %+v", g)
		}
	}
}
