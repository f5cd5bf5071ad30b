package work

import (
	"errors"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/cmd/headgate/internal/deliver"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/worker"
)

// journal logs how jobs ended and counts them. Its methods may be called from several goroutines.
type journal struct {
	logger zerolog.Logger
	logs   *logs.Logs
	counts map[worker.Outcome]*atomic.Int64 // not changed after newJournal
}

// outcomes are in the order of the summary.
var outcomes = []worker.Outcome{worker.Completed, worker.Retried, worker.Dead, worker.Expired, worker.Released, worker.Cancelled, worker.Lost}

func newJournal(logger zerolog.Logger, all *logs.Logs) *journal {
	j := &journal{logger: logger, logs: all, counts: map[worker.Outcome]*atomic.Int64{}}
	for _, outcome := range outcomes {
		j.counts[outcome] = &atomic.Int64{}
	}
	return j
}

// finished logs one job. Of its error only what holds nothing of the payload is logged: that of a delivery says so.
func (j *journal) finished(e worker.Event) {
	if count := j.counts[e.Outcome]; count != nil {
		count.Add(1)
	}
	level := zerolog.WarnLevel
	switch e.Outcome {
	case worker.Completed:
		level = zerolog.DebugLevel
	case worker.Cancelled:
		level = zerolog.InfoLevel
	case worker.Released:
		level = zerolog.InfoLevel
		if e.Reason == worker.ReasonUnknown || e.Reason == worker.ReasonBreaker {
			level = zerolog.DebugLevel // As often as jobs wait for somebody else.
		}
	case worker.Retried, worker.Dead:
		if e.Err != nil {
			level = zerolog.DebugLevel // The worker says so itself, a line a cause.
		}
	case worker.Expired, worker.Lost:
	}
	entry := j.logger.WithLevel(level).Str("job", e.Key.ID).Str("tenant", e.Key.Tenant).Str("queue", e.Queue).Str("type", e.Type).
		Int("attempt", e.Attempt).Str("outcome", string(e.Outcome)).Dur("run_ms", e.RunTime)
	if e.Downstream != "" {
		entry.Str("downstream", e.Downstream)
	}
	if e.Reason != "" {
		entry.Str("reason", e.Reason)
	}
	if failure, ok := errors.AsType[*deliver.FailureError](e.Err); ok {
		entry.Str("error", failure.Brief())
	}
	entry.Msg("job ended")
}

// summary logs the counts, and those of transitions of circuit breakers where somebody was told.
func (j *journal) summary(stats scheduler.Stats) {
	entry := j.logger.Info()
	for _, outcome := range outcomes {
		entry.Int64(string(outcome), j.counts[outcome].Load())
	}
	if dropped := j.logs.Dropped(); dropped > 0 {
		entry.Int64("log_lines_dropped", dropped)
	}
	if stats != (scheduler.Stats{}) {
		entry.Uint64("transitions_told", stats.TransitionsTold).Uint64("transitions_refused", stats.TransitionsRefused).
			Uint64("transitions_given_up", stats.TransitionsGivenUp)
	}
	entry.Msg("worker stopped")
}
