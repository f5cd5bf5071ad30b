package producer

import (
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate"
)

// refusalsEvery is how often a refusal for the same reason is logged.
const refusalsEvery = time.Second

// refusals logs one refusal a second for each reason, with how many there were of that reason since the line before. Its
// zero value is ready; several goroutines may use it.
type refusals struct {
	mu struct {
		sync.Mutex

		by map[headgate.Reason]*refusal
	}
}

// refusal is what was refused for one reason since it was last logged.
type refusal struct {
	count int64
	next  time.Time
}

// note counts an answer if it is a refusal, and logs it if one of its reason is due.
func (r *refusals) note(logger zerolog.Logger, job *headgate.Job, err error) {
	if err == nil || logger.GetLevel() > zerolog.InfoLevel {
		return
	}
	refused, ok := errors.AsType[*headgate.RefusedError](err)
	if !ok {
		return
	}
	v := &refused.Verdict
	count, due := r.count(v.Reason, time.Now())
	if !due {
		return
	}
	line := logger.Info().Str("tenant", job.Tenant).Str("queue", job.Queue).Str("job", job.ID).Str("type", job.Type).
		Str("reason", string(v.Reason)).Int64("refused", count)
	if v.Scope != "" {
		line.Str("scope", string(v.Scope))
	}
	if v.RetryAfter > 0 {
		line.Dur("retry_after_ms", v.RetryAfter)
	}
	line.Msg("job refused")
}

// count returns how many of a reason there are with this one, and whether they are to be logged.
func (r *refusals) count(reason headgate.Reason, now time.Time) (count int64, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.by == nil {
		r.mu.by = map[headgate.Reason]*refusal{}
	}
	of := r.mu.by[reason]
	if of == nil {
		of = &refusal{}
		r.mu.by[reason] = of
	}
	of.count++
	if now.Before(of.next) {
		return 0, false
	}
	count, of.count, of.next = of.count, 0, now.Add(refusalsEvery)
	return count, true
}
