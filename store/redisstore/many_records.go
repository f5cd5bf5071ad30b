package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/store"
)

// PutRecord implements Deployment: a tenant's record is where the tenant is.
func (d *many) PutRecord(ctx context.Context, e store.RecordEdit) (int64, error) {
	return d.of(e.Tenant).PutRecord(ctx, e)
}

// Records implements Deployment.
func (d *many) Records(ctx context.Context, tenants ...string) ([]store.TenantRecord, error) {
	of := make(map[*Partition][]int, len(d.parts))
	for i, tenant := range tenants {
		part := d.of(tenant)
		of[part] = append(of[part], i)
	}
	all := make([]store.TenantRecord, len(tenants))
	err := d.each(func(_ int, part *Partition) error {
		places := of[part]
		if len(places) == 0 {
			return nil
		}
		names := make([]string, len(places))
		for k, i := range places {
			names[k] = tenants[i]
		}
		found, err := part.Records(ctx, names...)
		for k := range found {
			all[places[k]] = found[k]
		}
		return err
	})
	return all, err
}

// RecordsPage implements Deployment: it goes through the partitions, one after the other. A cursor is the partition's number, and where it has one
// a minus and its own.
func (d *many) RecordsPage(ctx context.Context, q store.RecordsQuery) (page store.RecordsPage, err error) {
	at := 0
	if q.Cursor != "" {
		number, rest, _ := strings.Cut(q.Cursor, "-")
		if at, err = strconv.Atoi(number); err != nil || at < 0 || at >= len(d.parts) || rest == "" && at == 0 {
			return page, store.ErrRecordsCursor
		}
		q.Cursor = rest
	}
	if page, err = d.parts[at].RecordsPage(ctx, q); err != nil {
		return page, err
	}
	switch {
	case page.Next != "":
		page.Next = fmt.Sprintf("%d-%s", at, page.Next)
	case at+1 < len(d.parts):
		page.Next = strconv.Itoa(at + 1)
	}
	return page, nil
}

// CountRecords implements Deployment.
func (d *many) CountRecords(ctx context.Context) (int64, error) {
	return sum(d, func(part *Partition) (int64, error) { return part.CountRecords(ctx) })
}

// RecordTiers implements Deployment.
func (d *many) RecordTiers(ctx context.Context) (map[string]int64, error) {
	found := make([]map[string]int64, len(d.parts))
	err := d.each(func(i int, part *Partition) (err error) {
		found[i], err = part.RecordTiers(ctx)
		return err
	})
	tiers := map[string]int64{}
	for _, of := range found {
		for tier, n := range of {
			tiers[tier] += n
		}
	}
	return tiers, err
}
