package producer

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
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

// A queue's level that Redis has told is good for heardLife: so long its jobs are shed without a call. Then one asks again, and the others are shed for
// as long once more, unless it is answered.
const heardLife = time.Second

// heard is what Redis has told of the queues that are pressed, by queue, as *pressed. Its zero value is ready; several goroutines may use it.
type heard struct{ queues sync.Map }

// pressed is one that is.
type pressed struct {
	pressure admission.Pressure
	at       time.Time
	asking   atomic.Bool
}

// note keeps what the answers on jobs have told of queues.
func (h *heard) note(jobs []store.Candidate, verdicts []admission.Verdict, now time.Time) {
	for i := range verdicts {
		told, queue := verdicts[i].Pressure, jobs[i].Job.Queue
		if told.Level == 0 || i > 0 && queue == jobs[i-1].Job.Queue {
			continue
		}
		if told.Level > admission.PressureNone {
			h.queues.Store(queue, &pressed{pressure: told, at: now})
		} else if _, was := h.queues.Load(queue); was {
			h.queues.Delete(queue)
		}
	}
}

// pressure returns that of a queue from which a job may be shed without a call, the zero one where Redis is to be asked.
func (h *heard) pressure(queue string, now time.Time) admission.Pressure {
	found, ok := h.queues.Load(queue)
	if !ok {
		return admission.Pressure{}
	}
	q, _ := found.(*pressed)
	if old := now.Sub(q.at); old > 2*heardLife || old > heardLife && q.asking.CompareAndSwap(false, true) {
		return admission.Pressure{}
	}
	return q.pressure
}

// shed returns the refusal of a job whose queue is pressed so much, by what Redis told a moment ago, that Redis would shed it too. It is for jobs of which
// it is certain that they are not in: those have another answer. Who is over its share only Redis knows.
func (p *Producer) shed(job *admission.Job) (admission.Verdict, bool) {
	snapshot := p.limits.snapshot.Load()
	if snapshot == nil {
		return admission.Verdict{}, false
	}
	from, tier := snapshot.ShedAnyway(job.Tenant, job.Queue, job.Priority)
	if from == 0 || from == policy.NeverShed { // Most jobs: nothing is looked up, and none of them is the one that asks.
		return admission.Verdict{}, false
	}
	told := p.of(job.Tenant).heard.pressure(job.Queue, time.Now())
	if told.Level < from {
		return admission.Verdict{}, false
	}
	return spread(admission.Verdict{ID: job.ID, Decision: admission.Refused, Reason: admission.ReasonShed, Detail: tier, Pressure: told, RetryAfter: told.RetryAfter, Local: true}), true
}
