package work

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/worker"
)

// TestTheSummaryCountsEachOutcome that a job may have.
func TestTheSummaryCountsEachOutcome(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	j := newJournal(zerolog.New(&said).Level(zerolog.InfoLevel), &logs.Logs{})
	all := []worker.Outcome{worker.Completed, worker.Retried, worker.Dead, worker.Expired, worker.Released, worker.Cancelled, worker.Lost}
	for _, outcome := range all {
		j.finished(worker.Event{Outcome: outcome})
	}
	said.Reset()
	j.summary(scheduler.Stats{})
	for _, outcome := range all {
		if !strings.Contains(said.String(), `"`+string(outcome)+`":1,`) {
			t.Errorf("no %s in %s", outcome, said.String())
		}
	}
}
