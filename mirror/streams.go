package mirror

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/store"
)

// copyAudit copies entries of a partition's audit. Those of the policy are in each partition, and are copied of the first.
func (s *session) copyAudit(ctx context.Context, i int, part store.Partition) (more bool, err error) {
	key := placeKey{Audit, i}
	was := s.places[key]
	of, err := part.AuditAfter(ctx, was.position, portion)
	if err != nil {
		return false, &redisError{err}
	}
	rows := of.Entries[:0:0]
	for _, e := range of.Entries {
		if i == 0 || e.Action != store.AuditPolicy {
			rows = append(rows, e)
		}
	}
	gone, err := s.merged(ctx, i, part, rows)
	if err != nil {
		return false, err
	}
	at, more := next(was, of.Position, len(of.Entries), of.Gone, of.Kept)
	return more, s.commit(ctx, key, at, gapOf(key, was, of.Gone), len(rows), func(ctx context.Context) error {
		drop := s.dialect.Text(`DELETE FROM headgate_audit WHERE part = ? AND id = ?`)
		for _, id := range gone {
			if _, err := s.conn.ExecContext(ctx, drop, i, id); err != nil {
				return err
			}
		}
		put, err := s.conn.PrepareContext(ctx, insert(s.dialect, "headgate_audit", false, 2, "part", "id", "at", "action", "name", "jobs", "downstream", "lasts_us",
			"from_version", "to_version", "restored", "author", "reason", "changes", "act"))
		if err != nil {
			return err
		}
		defer put.Close()
		for r := range rows {
			e := &rows[r]
			_, err := put.ExecContext(ctx, i, e.ID, s.when(e.At), text(e.Action), text(e.Name), e.Jobs, text(e.Downstream), e.For.Microseconds(), e.From, e.To,
				e.Restored, text(e.Author), text(e.Reason), text(string(e.Changes)), text(e.Act))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// merged returns the rows in the place of which entries have come: of an act of several calls Redis has one entry, that of the last, and takes
// away that of the call before.
func (s *session) merged(ctx context.Context, i int, part store.Partition, entries []store.AuditRecord) (gone []string, err error) {
	ask := s.dialect.Text(`SELECT id FROM headgate_audit WHERE part = ? AND act = ? AND action = ? AND name = ? AND author = ? AND id >= ?`)
	for e := range entries {
		of := &entries[e]
		if of.Act == "" {
			continue
		}
		ids, err := s.ids(ctx, ask, i, text(of.Act), text(of.Action), text(of.Name), text(of.Author), strconv.FormatInt(of.At.Add(-store.ActLasts-time.Minute).UnixMilli(), 10))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			there, err := part.AuditAfter(ctx, before(id), 1)
			if err != nil {
				return nil, &redisError{err}
			}
			if len(there.Entries) > 0 && there.Entries[0].ID != id {
				gone = append(gone, id)
			}
		}
	}
	return gone, nil
}

func (s *session) ids(ctx context.Context, ask string, args ...any) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	rows, err := s.conn.QueryContext(ctx, ask, args...)
	if err != nil {
		return nil, &databaseError{fmt.Errorf("read the audit of the mirror: %w", err)}
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, &databaseError{err}
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, &databaseError{err}
	}
	return ids, nil
}

// before is the greatest id of a stream that is less than one, MILLISECONDS-N.
func before(id string) string {
	ms, n, _ := strings.Cut(id, "-")
	if count, err := strconv.ParseUint(n, 10, 64); err == nil && count > 0 {
		return ms + "-" + strconv.FormatUint(count-1, 10)
	}
	at, _ := strconv.ParseUint(ms, 10, 64)
	return strconv.FormatUint(at-1, 10) + "-18446744073709551615"
}

// copyTransitions copies transitions of a partition's breakers.
func (s *session) copyTransitions(ctx context.Context, i int, part store.Partition) (more bool, err error) {
	key := placeKey{Transitions, i}
	was := s.places[key]
	of, err := part.TransitionsAfter(ctx, was.position, portion)
	if err != nil {
		return false, &redisError{err}
	}
	at, more := next(was, of.Position, len(of.Entries), of.Gone, of.Kept)
	return more, s.commit(ctx, key, at, gapOf(key, was, of.Gone), len(of.Entries), func(ctx context.Context) error {
		put, err := s.conn.PrepareContext(ctx, insert(s.dialect, "headgate_transitions", false, 2, "part", "id", "at", "downstream", "from_state", "to_state", "period",
			"cause", "reason", "workers", "callers", "ends"))
		if err != nil {
			return err
		}
		defer put.Close()
		for r := range of.Entries {
			e := &of.Entries[r]
			_, err := put.ExecContext(ctx, i, e.ID, s.when(e.At), text(e.Downstream), e.From.String(), e.To.String(), int64(e.Period), //nolint:gosec // It is a count.
				text(e.Cause), text(e.Reason), e.Workers, e.Callers, s.when(e.Until))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// copyAnomalies copies anomalies, which the first partition has.
func (s *session) copyAnomalies(ctx context.Context) (more bool, err error) {
	key := placeKey{Anomalies, 0}
	was := s.places[key]
	of, err := s.from.AnomaliesAfter(ctx, was.position, portion)
	if err != nil {
		return false, &redisError{err}
	}
	at, more := next(was, of.Position, len(of.Entries), of.Gone, of.Kept)
	return more, s.commit(ctx, key, at, gapOf(key, was, of.Gone), len(of.Entries), func(ctx context.Context) error {
		put, err := s.conn.PrepareContext(ctx, insert(s.dialect, "headgate_anomalies", false, 1, "id", "at", "kind", "of_what", "name", "minute", "rate", "usual", "deviation", "score"))
		if err != nil {
			return err
		}
		defer put.Close()
		for r := range of.Entries {
			e := &of.Entries[r]
			_, err := put.ExecContext(ctx, e.ID, s.when(e.At), text(e.Kind), text(e.Of), text(e.Name), s.when(e.Minute), e.Rate, e.Usual, e.Deviation, e.Score)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// next is the place behind n entries, of a stream that so many had left and that kept so many: where those were the last it is known how many
// there were in all.
func next(was place, position string, n int, gone, kept int64) (at place, more bool) {
	at = place{position: position, ordinal: max(was.ordinal, gone) + int64(n)}
	if more = n == portion; !more {
		at.ordinal = gone + kept
	}
	return at, more
}

// copyPolicies copies the versions of the policy that are kept, one in a transaction: they may be large.
func (s *session) copyPolicies(ctx context.Context) (more bool, err error) {
	key := placeKey{Policies, 0}
	was := s.places[key]
	force, err := s.from.PolicyInForce(ctx)
	if err != nil {
		return false, &redisError{err}
	}
	if force < was.ordinal {
		back := Gap{Source: Policies, After: was.position, Lost: was.ordinal - force, Reason: GapBack}
		was = place{position: strconv.FormatInt(force, 10), ordinal: force}
		return true, s.commit(ctx, key, was, &back, 0, nil)
	}
	if force == was.ordinal {
		return false, s.commit(ctx, key, was, nil, 0, nil)
	}
	versions, err := s.from.PolicyVersions(ctx)
	if err != nil {
		return false, &redisError{err}
	}
	for i := len(versions) - 1; i >= 0; i-- {
		v := &versions[i]
		if v.To <= was.ordinal {
			continue
		}
		document, err := s.from.PolicyVersion(ctx, v.To)
		if errors.Is(err, store.ErrUnknownVersion) {
			continue // It has gone since; the next one tells of it.
		}
		if err != nil {
			return false, &redisError{err}
		}
		at := place{position: strconv.FormatInt(v.To, 10), ordinal: v.To}
		err = s.commit(ctx, key, at, gapOf(key, was, v.To-1), 1, func(ctx context.Context) error {
			_, err := s.conn.ExecContext(ctx, insert(s.dialect, "headgate_policy_versions", true, 1, "version", "at", "author", "reason", "restored", "document"),
				v.To, s.when(v.At), text(v.Author), text(v.Reason), v.Restored, text(string(document)))
			return err
		})
		if err != nil {
			return false, err
		}
		was = s.places[key]
	}
	return false, nil
}
