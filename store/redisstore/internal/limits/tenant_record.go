package limits

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// recordSlack is for how long a tenant's buckets are kept beyond twice what the slowest takes to fill: one may owe a burst.
const recordSlack = 2 * time.Second

// PutRecord changes the record of a tenant, as store.Buckets.PutRecord.
func (s *Limits) PutRecord(ctx context.Context, e store.RecordEdit) (version int64, err error) {
	if err := e.Validate(); err != nil {
		return 0, err
	}
	action := store.AuditTenantRecord
	if len(e.Text) == 0 {
		action = store.AuditTenantRecordGone
	}
	bounded := ""
	if e.Bounded {
		bounded = "1"
	}
	full := (2*e.LongestFill + recordSlack).Milliseconds()
	args := []any{s.conn.Now, e.Policy, e.Tenant, e.Expected, e.Text, full, e.Changes, codec.InterventionText(e.By.Named(), action), bounded}
	if dispatches := codec.DispatchText(store.RecordDispatchOf(e.Text)); dispatches != "" {
		args = append(args, dispatches)
	}
	reply, err := s.conn.Run(ctx, "tenant_record", args...)
	if err != nil {
		return 0, err
	}
	if err := codec.Stale(reply); err != nil {
		return 0, err
	}
	if len(reply) == 2 {
		version, err = strconv.ParseInt(reply[1], 10, 64)
		switch {
		case err != nil:
		case reply[0] == "conflict":
			return version, &store.RecordConflictError{Tenant: e.Tenant, Expected: e.Expected, InForce: version}
		default:
			return version, nil
		}
	}
	return 0, fmt.Errorf("tenant_record: reply %q: %w", reply, redisconn.ErrUnknownReply)
}

// Records returns those of tenants, in order.
func (s *Limits) Records(ctx context.Context, tenants ...string) ([]store.TenantRecord, error) {
	stored, err := redisconn.Client(s.conn).HMGet(ctx, s.conn.Partition.Records(), tenants...).Result()
	if err != nil {
		return nil, fmt.Errorf("read records of tenants: %w", redisconn.Unread(err))
	}
	all := make([]store.TenantRecord, len(tenants))
	for i, tenant := range tenants {
		if all[i], err = codec.ParseRecord(tenant, redisconn.TextAt(stored, i)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// scanRecords is how many fields a call looks at, and scanCalls how many calls make a page at most: of a rare prefix it may be empty.
const (
	scanRecords = 256
	scanCalls   = 64
)

// RecordsPage returns some records of all.
func (s *Limits) RecordsPage(ctx context.Context, q store.RecordsQuery) (page store.RecordsPage, err error) {
	limit, err := q.Least()
	if err != nil {
		return page, err
	}
	cursor := uint64(0)
	if q.Cursor != "" {
		if cursor, err = strconv.ParseUint(q.Cursor, 10, 64); err != nil || cursor == 0 {
			return page, store.ErrRecordsCursor
		}
	}
	for call := 0; call < scanCalls && len(page.Records) < limit; call++ {
		var found []string
		if found, cursor, err = redisconn.Client(s.conn).HScan(ctx, s.conn.Partition.Records(), cursor, "", scanRecords).Result(); err != nil {
			return page, fmt.Errorf("read records of tenants: %w", redisconn.Unread(err))
		}
		for i := 0; i+1 < len(found); i += 2 {
			if !strings.HasPrefix(found[i], q.Prefix) {
				continue
			}
			r, err := codec.ParseRecord(found[i], found[i+1])
			if err != nil {
				return page, err
			}
			page.Records = append(page.Records, r)
		}
		if cursor == 0 {
			return page, nil
		}
	}
	page.Next = strconv.FormatUint(cursor, 10)
	return page, nil
}

// CountRecords returns how many tenants have a record.
func (s *Limits) CountRecords(ctx context.Context) (int64, error) {
	n, err := redisconn.Client(s.conn).HLen(ctx, s.conn.Partition.Records()).Result()
	if err != nil {
		return 0, fmt.Errorf("count records of tenants: %w", redisconn.Unread(err))
	}
	return n, nil
}

// recordTiers is the field of the state that counts records by what they name, as fragments/weight.lua has it.
const recordTiers = "rt"

// RecordTiers returns how many records name each tier.
func (s *Limits) RecordTiers(ctx context.Context) (map[string]int64, error) {
	text, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.State(), recordTiers).Result()
	if err != nil && !redisconn.IsNil(err) {
		return nil, fmt.Errorf("count tiers of records of tenants: %w", redisconn.Unread(err))
	}
	tiers := map[string]int64{}
	for one := range strings.SplitSeq(text, ";") {
		tier, n, _ := strings.Cut(one, "=")
		if tier == "" {
			continue
		}
		if tiers[tier], err = strconv.ParseInt(n, 10, 64); err != nil {
			return nil, fmt.Errorf("count tiers of records of tenants: %q: %w", text, redisconn.ErrUnknownReply)
		}
	}
	return tiers, nil
}
