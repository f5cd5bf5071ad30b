package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/sqldb"
	"github.com/headgate/headgate/store"
)

// What a producer sends in one call of Redis; see store.MaxBatchJobs and store.MaxBatchBytes. Within one call time stands still, and by that
// a refusal also refuses what asks for the same after it.
const (
	callJobs  = 64
	callBytes = 256 << 10
)

// reasonDoubt is that of a row that was sent so long ago that its id may be forgotten; reasonInvalid of one that is no job.
const (
	reasonDoubt   = "doubt"
	reasonInvalid = "invalid"
)

// row is one that was claimed.
type row struct {
	seq    int64
	job    admission.Job
	broken error // the job cannot be read
	// sent is how long ago it was sent first; negative for never.
	sent time.Duration
	fate fate
	// reason and wait are of a row that is refused or dead.
	reason string
	wait   time.Duration
}

// fate is what becomes of a row.
type fate int

const (
	unsent  fate = iota // it was not sent: as it was before
	entered             // it is deleted
	refused             // it waits
	dead                // it goes to the dead rows
	unknown             // it was sent, and no answer came: it stays marked
)

// The rows of tenants that wait are left out. Which rows are claimed is by their being there: numbers are given before transactions commit.
const claimRows = `SELECT seq, id, tenant, job, {age sent} FROM headgate_outbox
	WHERE tenant NOT IN (SELECT tenant FROM headgate_outbox WHERE not_before > {now})
	ORDER BY seq LIMIT `

const (
	refuseRow = `UPDATE {table} SET sent = NULL, attempts = attempts + 1, reason = ?, not_before = {later} WHERE seq = ?`
	buryRow   = `INSERT INTO headgate_outbox_dead (seq, id, tenant, job, created, attempts, reason)
	SELECT seq, id, tenant, job, created, attempts + 1, ? FROM headgate_outbox WHERE seq = ?`
)

// mostReason is how many characters of a reason are kept.
const mostReason = 1000

// move claims rows, sends them and settles what became of them. n is how many left the outbox or wait; the error is that of the database,
// or of a Redis that is away.
func (r *Relay) move(ctx context.Context, conn *sql.Conn) (n int, err error) {
	rows, err := r.claim(ctx, conn)
	if err != nil {
		return 0, fmt.Errorf("claim rows of the outbox: %w", err)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	sendErr := r.condemn(ctx, rows)
	if sendErr == nil {
		sendErr = r.send(ctx, rows)
	}
	// What was sent is settled also when ctx has ended.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.patience)
	defer cancel()
	if err := r.settle(settling, conn, rows); err != nil {
		return 0, errors.Join(sendErr, fmt.Errorf("settle rows of the outbox: %w", err))
	}
	for i := range rows {
		if f := rows[i].fate; f == entered || f == refused || f == dead {
			n++
		}
	}
	return n, sendErr
}

func (r *Relay) claim(ctx context.Context, conn *sql.Conn) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	if err := r.keep(ctx, conn); err != nil {
		return nil, err
	}
	all, err := r.read(ctx, conn)
	if err != nil {
		return nil, err
	}
	var fresh []int64
	for i := range all {
		if all[i].sent < 0 {
			fresh = append(fresh, all[i].seq)
		}
	}
	if len(fresh) == 0 {
		return all, nil
	}
	// No other relay works, so nobody has claimed a row since it was read.
	_, err = conn.ExecContext(ctx, fmt.Sprintf(r.sql.sent, r.sql.dialect.Now(), list(fresh)))
	return all, err
}

func (r *Relay) read(ctx context.Context, conn *sql.Conn) (all []row, err error) {
	rows, err := conn.QueryContext(ctx, r.claimRows)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one row
		var id, tenant, text string
		var sent sql.NullInt64
		if err := rows.Scan(&one.seq, &id, &tenant, &text, &sent); err != nil {
			return nil, err
		}
		one.job, one.broken = readJob(text)
		one.job.ID, one.job.Tenant = id, tenant
		one.sent = -1
		if sent.Valid {
			one.sent = max(0, time.Duration(sent.Int64)*time.Microsecond) // The clock may have been set back.
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// condemn finds the rows that must not be sent: those that are no job, and those whose id may be forgotten when they arrive.
func (r *Relay) condemn(ctx context.Context, rows []row) error {
	window := time.Duration(-1)
	for i := range rows {
		one := &rows[i]
		if one.broken != nil {
			one.fate, one.reason = dead, reasonInvalid
			continue
		}
		if one.sent < 0 {
			continue
		}
		if window < 0 {
			var err error
			if window, err = r.config.Window(ctx); err != nil {
				return fmt.Errorf("read the dedup window: %w", err)
			}
		}
		// The rows before it in its batch, each call of them up to a time-out late, and the answer.
		if one.sent+2*r.config.Timeout >= window {
			one.fate, one.reason = dead, reasonDoubt
		}
	}
	return nil
}

// asked is what verdicts of one call hang on, beside time and the tenant.
type asked struct {
	queue, downstream, jobType string
	priority                   admission.Priority
	cost                       admission.Tokens
}

// send sends the rows that are neither dead nor held back, call by call in their order. Its error says that Redis gave no answer.
func (r *Relay) send(ctx context.Context, rows []row) error {
	held := map[string]bool{}
	began := time.Now()
	for i := 0; i < len(rows); {
		call := make([]*row, 0, callJobs)
		first := map[string]asked{}
		bytes := 0
		for ; i < len(rows) && len(call) < callJobs; i++ {
			one := &rows[i]
			if one.fate != unsent || held[one.job.Tenant] {
				continue
			}
			wants := asked{one.job.Queue, one.job.Downstream, one.job.Type, one.job.Priority, one.job.Cost}
			had, there := first[one.job.Tenant]
			if there && had != wants || len(call) > 0 && bytes+len(one.job.Payload) > callBytes {
				break // It goes with the next call.
			}
			first[one.job.Tenant] = wants
			call, bytes = append(call, one), bytes+len(one.job.Payload)
		}
		if len(call) == 0 {
			continue
		}
		// What was sent before must arrive while its id is remembered, so slow calls end the batch.
		if time.Since(began) > r.config.Timeout {
			return nil
		}
		if err := r.call(ctx, call, held); err != nil {
			return err
		}
	}
	return nil
}

// call sends rows and notes what became of them.
func (r *Relay) call(ctx context.Context, call []*row, held map[string]bool) (err error) {
	jobs := make([]admission.Job, len(call))
	for i, one := range call {
		jobs[i] = one.job
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Nothing was sent.
	}
	results, failure := r.to.EnqueueBatch(ctx, jobs) // What failed is in the results.
	if len(results) != len(jobs) {
		for _, one := range call {
			one.fate = unknown
		}
		return errors.Join(fmt.Errorf("the Batcher answers on %d of %d jobs", len(results), len(jobs)), failure)
	}
	for i, one := range call {
		result := &results[i]
		one.fate = fateOf(result)
		switch one.fate {
		case entered:
			if result.Verdict.Decision == admission.Duplicate {
				r.duplicates.Add(1)
			} else {
				r.admitted.Add(1)
			}
		case dead:
			one.reason = deadReason(result)
		case refused:
			if held[one.job.Tenant] {
				one.fate = unsent // The first refusal of a tenant says when; the others were as certain.
				one.sent = -1
				continue
			}
			no, _ := errors.AsType[*admission.RefusedError](result.Err)
			held[one.job.Tenant] = true
			one.reason, one.wait = string(no.Verdict.Reason), max(no.Verdict.RetryAfter, leastBackoff)
			r.refused.Add(1)
		case unsent, unknown:
			held[one.job.Tenant], err = true, result.Err
		}
	}
	return err
}

func fateOf(result *admission.EnqueueResult) fate {
	if result.Err == nil {
		return entered
	}
	if no, ok := errors.AsType[*admission.RefusedError](result.Err); ok {
		// The job that holds a unique key is the one asked for: no use in waiting.
		if no.Verdict.Permanent() || no.Verdict.Reason == admission.ReasonUnique {
			return dead
		}
		return refused
	}
	if _, ok := errors.AsType[*admission.FieldError](result.Err); ok {
		return dead
	}
	certain := errors.Is(result.Err, admission.ErrUnavailable) || store.IsOutdated(result.Err)
	if certain && !errors.Is(result.Err, admission.ErrOutcomeUnknown) {
		return unsent
	}
	return unknown
}

func deadReason(result *admission.EnqueueResult) string {
	if no, ok := errors.AsType[*admission.RefusedError](result.Err); ok {
		return string(no.Verdict.Reason)
	}
	why := []rune(reasonInvalid + ": " + result.Err.Error())
	return string(why[:min(len(why), mostReason)])
}

// settle writes down what became of the rows, in one transaction.
func (r *Relay) settle(ctx context.Context, conn *sql.Conn, rows []row) error {
	died := uint64(0)
	err := sqldb.Transact(ctx, conn, func() (err error) {
		if err := r.keep(ctx, conn); err != nil {
			return err
		}
		var gone, kept []int64
		for i := range rows {
			switch one := &rows[i]; one.fate {
			case entered:
				gone = append(gone, one.seq)
			case unsent:
				if one.sent < 0 { // Otherwise it was sent before, and what became of that is still not known.
					kept = append(kept, one.seq)
				}
			case refused:
				_, err = conn.ExecContext(ctx, r.refuseRow, one.reason, one.wait.Microseconds(), one.seq)
			case dead:
				died++
				gone = append(gone, one.seq)
				_, err = conn.ExecContext(ctx, r.buryRow, one.reason, one.seq)
			case unknown:
			}
			if err != nil {
				return err
			}
		}
		if len(gone) > 0 {
			if _, err := conn.ExecContext(ctx, fmt.Sprintf(r.sql.drop, list(gone))); err != nil {
				return err
			}
		}
		if len(kept) > 0 {
			_, err = conn.ExecContext(ctx, fmt.Sprintf(r.sql.sent, "NULL", list(kept)))
		}
		return err
	})
	if err == nil {
		r.dead.Add(died)
	}
	return err
}
