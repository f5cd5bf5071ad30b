package looking

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// stepWaiting goes on in the lanes, by queue, class and tenant.
func (l *lister) stepWaiting(ctx context.Context, n int) error {
	l.looked++ // A step that lists nothing is work too.
	queue, config, ok, err := l.waitingQueue(ctx)
	if err != nil || !ok {
		return err
	}
	if l.at.Class >= len(config.classes) {
		l.at.Span, l.at.Class = queue+"\x00", 0
		return nil
	}
	cq := strconv.Itoa(l.at.Class) + ":" + queue
	if l.at.Tenant == "" {
		return l.nextTenants(ctx, cq, n)
	}
	if l.at.Lane == "" {
		return l.nextLane(ctx, cq)
	}
	members, err := l.store.after(ctx, l.store.laneKey(cq, l.at.Tenant, l.at.Lane), l.at.Set, n)
	if err != nil {
		return err
	}
	rows, err := l.store.waitingRows(ctx, l.at.Tenant, members)
	if err != nil {
		return err
	}
	if len(members) < n {
		l.at.Lane, l.at.Set = "", store.SetMark{}
	} else {
		m := members[n-1]
		l.at.Set = store.SetMark{At: m.at, Key: []byte(m.name)}
	}
	return l.keep(ctx, rows)
}

// waitingQueue returns the queue that the cursor is in, or the next one by name; ok is false at the end.
func (l *lister) waitingQueue(ctx context.Context) (queue string, config queueConfig, ok bool, err error) {
	if l.spans == nil {
		l.spans = []string{l.query.Queue}
		if l.query.Queue == "" {
			if l.spans, err = l.store.queueNames(ctx); err != nil {
				return "", queueConfig{}, false, err
			}
		}
	}
	at, found := slices.BinarySearch(l.spans, l.at.Span)
	if at == len(l.spans) {
		l.end = true
		return "", queueConfig{}, false, nil
	}
	if !found {
		l.at = store.ListCursor{Of: l.at.Of, Span: l.spans[at]}
	}
	config, err = l.config(ctx, l.at.Span)
	return l.at.Span, config, err == nil, err
}

// nextTenants lists the tenants of a class that follow the cursor, as many at a time as fit, up to the first of which more than that is to be read: the
// cursor goes into that one, or to the next class after the last.
func (l *lister) nextTenants(ctx context.Context, cq string, n int) error {
	if l.query.Tenant != "" {
		l.at.Tenant = l.query.Tenant
		return nil
	}
	if l.at.Tenants.Begun && l.at.Tenants.Scan == 0 && len(l.at.Tenants.Rest) == 0 {
		l.leaveClass()
		return nil
	}
	found, next, end, err := l.store.fields(ctx, l.store.conn.Partition.Base()+"ten:"+cq, l.at.Tenants, tenantBatch)
	if err != nil {
		return err
	}
	rows, done, err := l.store.wholeTenants(ctx, cq, found, n)
	if err != nil {
		return err
	}
	l.looked += done
	switch {
	case done < len(found):
		l.at.Tenant, l.at.Tenants = found[done].name, backTo(next, found, done)
	case end:
		l.leaveClass()
	default:
		l.at.Tenants = next
	}
	return l.keep(ctx, rows)
}

func (l *lister) leaveClass() { l.at.Tenants, l.at.Class = store.HashMark{}, l.at.Class+1 }

// tenantBatch is how many tenants are looked at together.
const tenantBatch = 32

// wholeTenants reads the jobs of the first tenants of a class that have a single lane, together, as long as they are n jobs at the most; done is how many.
func (s *Looking) wholeTenants(ctx context.Context, cq string, tenants []field, n int) (rows []store.Listed, done int, err error) {
	lanes := make([]string, 0, len(tenants))
	for _, t := range tenants {
		own, others, err := laneNamed(t.name, t.value)
		if err != nil {
			return nil, 0, err
		}
		if others {
			break
		}
		lanes = append(lanes, s.laneKey(cq, t.name, own))
	}
	if len(lanes) == 0 {
		return nil, 0, nil
	}
	pipe, each := redisconn.Client(s.conn).Pipeline(), n/len(lanes)+1
	pages := make([]*redis.ZSliceCmd, len(lanes))
	for i, lane := range lanes {
		pages[i] = pipe.ZRangeWithScores(ctx, lane, 0, int64(each)) // One more than that, to see whether it is all.
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, fmt.Errorf("list lanes of %s: %w", cq, redisconn.Unread(err))
	}
	var members []member
	for ; done < len(pages) && len(pages[done].Val()) <= min(each, n-len(members)); done++ {
		for _, z := range pages[done].Val() {
			name, _ := z.Member.(string)
			members = append(members, member{jobOf(tenants[done].name, name), int64(z.Score)})
		}
	}
	rows, err = s.waitingJobs(ctx, members)
	return rows, done, err
}

func (s *Looking) laneKey(cq, tenant, lane string) string {
	return s.conn.Partition.Base() + "lane:" + cq + ":" + tenant + ":" + lane
}

// nextLane moves the cursor to the next lane of a tenant, or behind the tenant after the last. A tenant may have any number of them,
// so they are walked as the fields of a hash are; the one that ten:CQ names beside them comes first.
func (l *lister) nextLane(ctx context.Context, cq string) error {
	if !l.at.Lanes.Begun {
		l.at.Lanes.Begun = true
		value, err := redisconn.Client(l.store.conn).HGet(ctx, l.store.conn.Partition.Base()+"ten:"+cq, l.at.Tenant).Result()
		switch {
		case redisconn.IsNil(err) || err == nil && len(value) <= tenantHeader:
			l.leaveTenant()
			return nil
		case err != nil:
			return fmt.Errorf("read tenant %s: %w", l.at.Tenant, redisconn.Unread(err))
		}
		own, others, err := laneNamed(l.at.Tenant, value)
		if err != nil {
			return err
		}
		if !others {
			l.at.Lanes.Scan = lanesEnd
		}
		if l.at.Lane = own; own != "" {
			return nil
		}
	}
	return l.otherLane(ctx, cq)
}

// lanesEnd is a cursor that stands for the end: ZSCAN begins and ends with 0.
const lanesEnd = ^uint64(0)

// otherLane moves the cursor to the next of a tenant's lanes in lanes:CQ:TENANT: few go by name, many by ZSCAN.
func (l *lister) otherLane(ctx context.Context, cq string) error {
	key, at := l.store.conn.Partition.Base()+"lanes:"+cq+":"+l.at.Tenant, &l.at.Lanes
	for len(at.Rest) == 0 {
		if at.Scan == lanesEnd {
			l.leaveTenant()
			return nil
		}
		if at.Scan == 0 {
			few, err := redisconn.Client(l.store.conn).ZRange(ctx, key, 0, SmallHash).Result()
			if err != nil {
				return fmt.Errorf("read lanes of %s: %w", l.at.Tenant, redisconn.Unread(err))
			}
			if len(few) <= SmallHash {
				few = slices.DeleteFunc(few, func(name string) bool { return name <= string(at.After) })
				if len(few) == 0 {
					at.Scan = lanesEnd
					continue
				}
				l.at.Lane = slices.Min(few)
				at.After = []byte(l.at.Lane)
				return nil
			}
		}
		pairs, next, err := redisconn.Client(l.store.conn).ZScan(ctx, key, at.Scan, "", laneBatch).Result()
		if err != nil {
			return fmt.Errorf("read lanes of %s: %w", l.at.Tenant, redisconn.Unread(err))
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			at.Rest = append(at.Rest, []byte(pairs[i]))
		}
		if at.Scan = next; next == 0 {
			at.Scan = lanesEnd
		}
	}
	l.at.Lane, at.Rest = string(at.Rest[0]), at.Rest[1:]
	return nil
}

// laneBatch is about how many lanes ZSCAN names at a time: those that are not listed yet stand in the cursor of the page.
const laneBatch = 4

// leaveTenant moves the cursor behind the tenant.
func (l *lister) leaveTenant() {
	l.at.Tenant, l.at.Lane, l.at.Lanes, l.at.Set = "", "", store.HashMark{}, store.SetMark{}
	if l.query.Tenant != "" {
		l.at.Class++
	}
}

// laneNamed reads what ten:CQ says of a tenant's lanes: the only one, "+" and the only open one beside others, or "*" for others.
func laneNamed(tenant, value string) (own string, others bool, err error) {
	if len(value) < tenantHeader {
		return "", false, fmt.Errorf("read tenant %s: %w", tenant, redisconn.ErrUnknownReply)
	}
	own, others = strings.CutPrefix(value[tenantHeader:], "+")
	if own == "*" {
		return "", true, nil
	}
	return own, others, nil
}

// LanesIn names the lanes of a tenant in a class, some of them where there are more than most.
func (s *Looking) LanesIn(ctx context.Context, cq, tenant, value string, most int) (lanes []string, partial bool, err error) {
	own, others, err := laneNamed(tenant, value)
	if err != nil {
		return nil, false, err
	}
	if others {
		lanes, err = redisconn.Client(s.conn).ZRange(ctx, s.conn.Partition.Base()+"lanes:"+cq+":"+tenant, 0, int64(most)).Result()
		if err != nil {
			return nil, false, fmt.Errorf("read lanes of %s: %w", tenant, redisconn.Unread(err))
		}
	}
	if own != "" {
		lanes = append(lanes, own)
	}
	return lanes, len(lanes) > most, nil
}

// tenantHeader is the length of the mode and the entry in a value of ten:CQ, memberHeader that of seq and cost in a
// member of a lane.
const (
	tenantHeader = 9
	memberHeader = 12
)

// jobOf is the key of the job that a member of a tenant's lane stands for.
func jobOf(tenant, member string) string {
	return tenant + ":" + member[min(memberHeader, len(member)):]
}

// waitingRows reads the jobs of a tenant's lane; those that have left it are left out.
func (s *Looking) waitingRows(ctx context.Context, tenant string, members []member) ([]store.Listed, error) {
	jobs := make([]member, len(members))
	for i, m := range members {
		jobs[i] = member{jobOf(tenant, m.name), m.at}
	}
	return s.waitingJobs(ctx, jobs)
}

// waitingJobs reads waiting jobs by their keys; those that have left are left out.
func (s *Looking) waitingJobs(ctx context.Context, members []member) ([]store.Listed, error) {
	if len(members) == 0 {
		return nil, nil
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	rows, err := s.records(ctx, names)
	if err != nil {
		return nil, err
	}
	kept := rows[:0]
	for i, row := range rows {
		if row.Place = admission.PlaceWaiting; row.Key.Tenant != "" {
			row.At = time.UnixMicro(members[i].at)
			kept = append(kept, row)
		}
	}
	return kept, nil
}
