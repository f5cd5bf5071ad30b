package migrate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// usageFields is how many fields of a day are written or deleted at a time.
const usageFields = 1000

// eachUsage calls do for each day of which usage may be kept, with its fields in a partition.
func eachUsage(ctx context.Context, of *partition, do func(key string, day int64, fields map[string]string) error) error {
	now, err := of.conn.Time(ctx)
	if err != nil {
		return fmt.Errorf("read usage: %w", err)
	}
	for day := store.DayOf(now) - store.UsageDays; day <= store.DayOf(now); day++ {
		key := of.conn.Partition.Usage(day)
		fields, err := of.conn.WholeHash(ctx, key, "")
		if err == nil && len(fields) > 0 {
			err = do(key, day, fields)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyUsage takes over what tenants that move have used. What a partition that is to go has counted of all others goes with it, under its
// number, so that it is there once however often it is copied. Nobody else counts meanwhile.
func (m *Migration) copyUsage(ctx context.Context, from int, part *partition) error {
	if err := m.copyTime(ctx, part, usedFrom, func(since, there int64) bool { return since < there }); err != nil {
		return err
	}
	stays := m.inPlace && from < len(m.to)
	rest := m.to[0]
	if from < len(m.to) {
		rest = m.to[from]
	}
	return eachUsage(ctx, part, func(_ string, day int64, fields map[string]string) error {
		moved := map[*partition][]any{}
		for field, value := range fields {
			tenant, _, _ := strings.Cut(field, ":")
			switch {
			case strings.HasPrefix(tenant, store.UsageRest):
				if !stays {
					moved[rest] = append(moved[rest], store.UsageRest+strconv.Itoa(from)+strings.TrimPrefix(field, store.UsageRest), value)
				}
			case tenant != "" && m.moves(from, field):
				moved[m.home(field)] = append(moved[m.home(field)], field, value)
			}
		}
		for to, some := range moved {
			if err := to.setUsage(ctx, day, some); err != nil {
				return err
			}
		}
		return nil
	})
}

// usedFrom is the field of the state that says since when usage is kept.
const usedFrom = "us"

// copyResultsUntil has all partitions know for how long there are results, whose keys may be anywhere by now.
func (m *Migration) copyResultsUntil(ctx context.Context, _ int, part *partition) error {
	return m.copyTime(ctx, part, "ru", func(until, there int64) bool { return until > there })
}

// copyTime has all partitions have the time that a field of this one's state says, unless theirs goes before.
func (m *Migration) copyTime(ctx context.Context, part *partition, field string, before func(at, there int64) bool) error {
	at, err := redisconn.Client(part.conn).HGet(ctx, part.conn.Partition.State(), field).Int64()
	if redisconn.IsNil(err) {
		return nil
	}
	for _, to := range m.to {
		if err != nil {
			break
		}
		there, readErr := redisconn.Client(to.conn).HGet(ctx, to.conn.Partition.State(), field).Int64()
		switch {
		case readErr != nil && !redisconn.IsNil(readErr):
			err = readErr
		case readErr != nil || before(at, there):
			err = redisconn.Client(to.conn).HSet(ctx, to.conn.Partition.State(), field, at).Err()
		}
	}
	if err != nil {
		return fmt.Errorf("carry the time in %s of the state: %w", field, redisconn.Unread(err))
	}
	return nil
}

// setUsage writes fields of a day, and how many tenants it has with them.
func (p *partition) setUsage(ctx context.Context, day int64, fields []any) error {
	key, client := p.conn.Partition.Usage(day), redisconn.Client(p.conn)
	var err error
	for at := 0; at < len(fields); at += 2 * usageFields {
		err = errors.Join(err, client.HSet(ctx, key, fields[at:min(len(fields), at+2*usageFields)]...).Err())
	}
	all, readErr := p.conn.WholeHash(ctx, key, "")
	if err = errors.Join(err, readErr); err != nil {
		return fmt.Errorf("write usage: %w", redisconn.Unread(err))
	}
	tenants := 0
	for field := range all {
		if strings.HasSuffix(field, ":") && field != ":" {
			tenants++
		}
	}
	ends := time.Unix((day+store.UsageDays+1)*24*60*60, 0)
	if err := errors.Join(client.HSet(ctx, key, ":", tenants).Err(), client.ExpireAt(ctx, key, ends).Err()); err != nil {
		return fmt.Errorf("write usage: %w", redisconn.Unread(err))
	}
	return nil
}

// removeUsage takes what moved tenants have used out of a partition that stays in use.
func (m *Migration) removeUsage(ctx context.Context, from int) error {
	part := m.from[from]
	return eachUsage(ctx, part, func(key string, day int64, fields map[string]string) error {
		var gone []string
		for field := range fields {
			if tenant, _, _ := strings.Cut(field, ":"); tenant != "" && !strings.HasPrefix(tenant, store.UsageRest) && m.moves(from, field) {
				gone = append(gone, field)
			}
		}
		for at := 0; at < len(gone); at += usageFields {
			if err := redisconn.Client(part.conn).HDel(ctx, key, gone[at:min(len(gone), at+usageFields)]...).Err(); err != nil {
				return fmt.Errorf("delete usage: %w", redisconn.Unread(err))
			}
		}
		return part.setUsage(ctx, day, nil) // Also where nothing is left to delete: a migration may have died before this.
	})
}
