package producer

import (
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/tally"
)

// refusals logs one refusal a second for each reason, with how many there were of that reason since the line before. Its
// zero value is ready; several goroutines may use it.
type refusals struct{ sampler tally.Sampler }

// note counts an answer if it is a refusal, and logs it if one of its reason is due.
func (r *refusals) note(logger zerolog.Logger, job *admission.Job, err error) {
	if err == nil || logger.GetLevel() > zerolog.InfoLevel {
		return
	}
	refused, ok := errors.AsType[*admission.RefusedError](err)
	if !ok {
		return
	}
	v := &refused.Verdict
	count, due := r.sampler.Count(v.Reason, time.Now())
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
