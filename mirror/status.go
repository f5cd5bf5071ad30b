package mirror

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/sqldb"
	"github.com/headgate/headgate/outbox"
)

// SourceStatus is what a database has of a source.
type SourceStatus struct {
	Source string
	// Rows are those of its table.
	Rows int64
	// Began says that a mirror has copied it; Lag is how long ago it was noted that all was there, by the clock of the database: up to 10 s more
	// than it is.
	Began bool
	Lag   time.Duration
	// Gaps are how often something had gone before it was copied, Lost how much.
	Gaps, Lost int64
}

// StatusOf returns what a database has, in the order of Sources.
func StatusOf(ctx context.Context, d outbox.Dialect, db *sql.DB) (all []SourceStatus, err error) {
	if err := sqldb.Dialect(d).Validate(); err != nil {
		return nil, err
	}
	of := map[string]string{Audit: "headgate_audit", Policies: "headgate_policy_versions", Usage: "headgate_usage", Transitions: "headgate_transitions", Anomalies: "headgate_anomalies"}
	for _, source := range Sources {
		one := SourceStatus{Source: source}
		var parts, oldest int64
		err := db.QueryRowContext(ctx, sqldb.Dialect(d).Text(`SELECT (SELECT count(*) FROM `+of[source]+`),
			(SELECT count(*) FROM headgate_mirror_gaps WHERE source = ?), (SELECT coalesce(sum(lost), 0) FROM headgate_mirror_gaps WHERE source = ?),
			count(*), coalesce({age min(complete)}, 0) FROM headgate_mirror_place WHERE source = ?`), source, source, source).
			Scan(&one.Rows, &one.Gaps, &one.Lost, &parts, &oldest)
		if err != nil {
			return nil, fmt.Errorf("look at the mirror: %w", err)
		}
		one.Began, one.Lag = parts > 0, max(0, time.Duration(oldest)*time.Microsecond)
		all = append(all, one)
	}
	return all, nil
}
