package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
)

// Plan is what a Migration has to do, and in the end did.
type Plan struct {
	// From and To are the numbers of partitions.
	From, To int
	// InPlace says that it stays on its Redis.
	InPlace bool
	// Resumed says that an earlier run has begun it, Done that there is nothing to do but perhaps to tidy up.
	Resumed, Done bool
	// Jobs is how many there are, Moving how many of them move, dead letters included.
	Jobs, Moving int64
	// Version is that of the policy when all is done, 0 for none.
	Version int64
	// Busy names the workers, schedulers and limiters that live.
	Busy []string
}

// Plan counts what there is to do. It reads only.
func (m *Migration) Plan(ctx context.Context) (Plan, error) {
	p := Plan{From: m.before, To: m.config.Partitions, InPlace: m.inPlace, Resumed: m.fenced, Done: m.done}
	if m.policy != nil {
		p.Version = m.policy.Version
	}
	for i, part := range m.from {
		err := part.eachJob(ctx, func(page []storedJob) error {
			p.Jobs += int64(len(page))
			for _, job := range page {
				if m.moves(i, job.key) {
					p.Moving++
				}
			}
			return nil
		})
		if err != nil {
			return p, err
		}
	}
	m.jobs = p.Moving
	if m.fenced || m.done {
		return p, nil
	}
	var err error
	p.Busy, err = m.busy(ctx)
	return p, err
}

// Run migrates. It ends with ErrBusy while workers, schedulers or limiters live longer than it is to wait for them; whatever
// else ends it, the same call again goes on from there. Meanwhile every script is refused with ErrMigrating.
func (m *Migration) Run(ctx context.Context) (Plan, error) {
	plan, err := m.Plan(ctx)
	if err != nil {
		return plan, err
	}
	if m.done {
		if err := m.raise(ctx); err != nil {
			return plan, err
		}
		return plan, m.tidy(ctx)
	}
	if !m.fenced {
		for _, ready := range []func(context.Context) error{m.whole, m.quiet, m.whole} {
			if err := ready(ctx); err != nil {
				return plan, err
			}
		}
	}
	steps := []func(context.Context) error{m.fence, m.copyPartitions, m.storePolicy, m.copyKeys, m.copyJobs, m.copyRest, m.verify, m.remove, m.commit, m.tidy}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return plan, fmt.Errorf("%w; nothing is lost, and what is refused now is admitted once the same has been run to its end", err)
		}
	}
	return plan, nil
}

// whole refuses a deployment that has bodies of jobs elsewhere: they would be found nowhere after it.
func (m *Migration) whole(ctx context.Context) error {
	for _, part := range m.from {
		s, err := part.SpillState(ctx)
		if err != nil {
			return err
		}
		if n := s.Away + s.Copies; n > 0 {
			return fmt.Errorf("%d bodies of spilled jobs are in the second redis: take spill_to out of the policy, and run a worker that has redis.spill_url until they are back", n)
		}
	}
	return nil
}

// raise lets scripts write data in the newest layout, in partitions that stay as they are. An older release would go on with the old one:
// its workers, schedulers and limiters must have ended, and what else of it runs on is refused by what scripts leave there (state.lua).
func (m *Migration) raise(ctx context.Context) error {
	if !m.inPlace {
		return nil
	}
	for i, part := range m.to {
		text, err := redisconn.Client(part.conn).HGet(ctx, part.conn.Partition.State(), redisconn.DataField).Result()
		if err != nil && !redisconn.IsNil(err) {
			return fmt.Errorf("read version of the data of partition %d: %w", i, redisconn.Unread(err))
		}
		if redisconn.Whole(text) >= redisconn.DataVersion {
			continue
		}
		if err := m.quiet(ctx); err != nil {
			return err
		}
		err = redisconn.Client(part.conn).HSet(ctx, part.conn.Partition.State(), redisconn.DataField, redisconn.DataVersion).Err()
		if err != nil {
			return fmt.Errorf("write version of the data of partition %d: %w", i, redisconn.Unread(err))
		}
	}
	return nil
}

func (m *Migration) observe(step string, done, total int64) {
	if m.config.Observe != nil {
		m.config.Observe(Progress{Step: step, Done: done, Total: total})
	}
}

// moves reports whether a job or another thing of a tenant, by a key that begins with its name, is to leave a partition of from.
func (m *Migration) moves(from int, key string) bool {
	return !m.inPlace || m.home(key) != m.from[from]
}

// home returns the partition of to in which a tenant is to be.
func (m *Migration) home(key string) *partition {
	tenant, _, _ := strings.Cut(key, ":")
	return m.to[m.target.PartitionOf(tenant)]
}

// ErrBusy means that processes live that would have to be told of a migration: workers, schedulers or limiters.
var ErrBusy = errors.New("processes of the deployment are running")

// quietEvery is how often a migration looks whether they have gone.
const quietEvery = 100 * time.Millisecond

// fence lets nobody in any more, on either side.
func (m *Migration) fence(ctx context.Context) error {
	if m.emptied {
		if err := m.unlinkStrays(ctx, 0); err != nil {
			return err
		}
	}
	for i, part := range m.to {
		if !m.inPlace || i >= m.before {
			if err := part.mark(ctx, m.layout, m.id, m.targetRole()); err != nil {
				return err
			}
		}
	}
	for i, part := range m.from[:m.before] {
		who, err := redisconn.Client(part.conn).Eval(ctx, fence, []string{part.conn.Partition.State()}, redisconn.LayoutField, m.layout, migrationField, m.id, roleField, m.role(), redisconn.DataField, redisconn.LayoutData).Text()
		if err != nil {
			return fmt.Errorf("fence partition %d: %w", i, redisconn.Unread(err))
		}
		if who != "" {
			return errors.Join(fmt.Errorf("%w: %s has registered just now", ErrBusy, who), m.unfence(ctx, i))
		}
	}
	return nil
}

// fence is a script, so that no worker can register in between.
const fence = `local workers = redis.call('HKEYS', string.sub(KEYS[1], 1, -6) .. 'workers')
if workers[1] then return workers[1] end
redis.call('HSET', KEYS[1], unpack(ARGV))
return ''`

// unfence opens the first partitions again.
func (m *Migration) unfence(ctx context.Context, fenced int) error {
	if m.fenced {
		return nil // An earlier run may have moved something: only its end opens them.
	}
	for _, part := range m.from[:fenced] {
		if err := redisconn.Client(part.conn).HSet(ctx, part.conn.Partition.State(), redisconn.LayoutField, m.before).Err(); err != nil {
			return fmt.Errorf("open partition again: %w", redisconn.Unread(err))
		}
	}
	return nil
}

// targetRole returns that of the partitions of to.
func (m *Migration) targetRole() string {
	if m.inPlace {
		return roleInPlace
	}
	return roleTarget
}

func (p *partition) mark(ctx context.Context, layout, id, role string) error {
	err := redisconn.Client(p.conn).HSet(ctx, p.conn.Partition.State(), redisconn.LayoutField, layout, migrationField, id, roleField, role, redisconn.DataField, redisconn.DataVersion).Err()
	if err != nil {
		return fmt.Errorf("mark %s: %w", p.conn.Partition.State(), redisconn.Unread(err))
	}
	return nil
}

// quiet waits for whoever would not notice, and takes back what dead workers hold meanwhile.
func (m *Migration) quiet(ctx context.Context) error {
	began := time.Now()
	tick := time.NewTicker(quietEvery)
	defer tick.Stop()
	for most := 0; ; {
		busy, err := m.busy(ctx)
		if err != nil || len(busy) == 0 {
			return err
		}
		most = max(most, len(busy))
		m.observe("wait for "+busy[0], int64(most-len(busy)), int64(most))
		if time.Since(began) >= m.config.Wait {
			const told = 5
			more := ""
			if len(busy) > told {
				more = fmt.Sprintf(" and %d more", len(busy)-told)
			}
			return fmt.Errorf("%w: %s%s; stop them first", ErrBusy, strings.Join(busy[:min(told, len(busy))], ", "), more)
		}
		if err := m.reclaimDead(ctx); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// migrateOwner is the name under which a migration runs timers, migrateLease for how long at a time.
const (
	migrateOwner = "headgate-migrate"
	migrateLease = 200 * time.Millisecond
)

// reclaimDead runs the timers where no scheduler does, so that dead workers give back what they hold.
func (m *Migration) reclaimDead(ctx context.Context) error {
	for _, part := range m.running {
		if _, err := part.Promote(ctx, migrateOwner, migrateLease); err != nil {
			return err
		}
	}
	return nil
}

// busy names who works on the deployment, each once.
func (m *Migration) busy(ctx context.Context) ([]string, error) {
	all := map[string]bool{}
	for i, part := range m.from[:m.before] {
		if err := part.addBusy(ctx, all); err != nil {
			return nil, fmt.Errorf("partition %d: %w", i, err)
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// addBusy adds those of a partition.
func (p *partition) addBusy(ctx context.Context, to map[string]bool) error {
	schedulers, err := p.Schedulers(ctx)
	if err != nil {
		return err
	}
	for _, one := range schedulers {
		if one.Name != migrateOwner {
			to["scheduler "+one.Name] = true
		}
	}
	now, err := p.Time(ctx)
	if err != nil {
		return err
	}
	limiters, err := redisconn.Client(p.conn).ZRangeByScore(ctx, p.conn.Partition.Base()+"limiters", &redis.ZRangeBy{
		Min: "(" + strconv.FormatInt(now.UnixMicro(), 10), Max: "+inf",
	}).Result()
	if err != nil {
		return fmt.Errorf("read limiters: %w", redisconn.Unread(err))
	}
	for _, name := range limiters {
		to["limiter "+name] = true
	}
	workers, err := redisconn.Client(p.conn).HKeys(ctx, p.conn.Partition.Workers()).Result()
	if err != nil {
		return fmt.Errorf("read workers: %w", redisconn.Unread(err))
	}
	for _, name := range workers {
		to["worker "+name] = true
	}
	return nil
}
