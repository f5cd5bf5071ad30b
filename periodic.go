package headgate

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/producer"
)

// Missed says what becomes of the ticks of a periodic job that no process was there for, or that were refused for too long. A tick is
// missed when it is 10 s late.
type Missed = producer.Missed

// The ways with missed ticks.
const (
	// MissedSkip forgets them.
	MissedSkip = producer.MissedSkip
	// MissedOnce enqueues the latest of them, for all.
	MissedOnce = producer.MissedOnce
	// MissedAll enqueues each, the latest 100 of them, in order.
	MissedAll = producer.MissedAll
)

// PeriodicJob is a job that is enqueued over and over. It is a plain value.
type PeriodicJob struct {
	// Name is 1-100 bytes of [A-Za-z0-9._:@/-], and no two in the deployment have the same. The job of a tick has the ID NAME@SECONDS, the
	// tick in seconds since 1970.
	Name string
	// Spec is five fields of cron, "@hourly" and its like, or "@every 90s", which means the multiples of that time since 1970. It is in UTC
	// unless "CRON_TZ=Europe/Berlin " stands before it.
	Spec string
	// Job is what is enqueued. Its ID, Deadline, RunAt, Delay and Unique are the tick's, and must be zero.
	Job Job
	// Missed says what becomes of missed ticks; empty means MissedSkip.
	Missed Missed
}

// RunPeriodic enqueues 1 to 1000 jobs over and over until ctx ends, and then returns nil. Any number of processes may run the same ones:
// each tick is enqueued once. What cannot be enqueued is logged and tried again until the tick is missed. The error names all that is
// wrong with the jobs, before anything is sent.
func (c *Client) RunPeriodic(ctx context.Context, jobs ...PeriodicJob) error {
	inner, bad := make([]producer.PeriodicJob, len(jobs)), []error(nil)
	for i, job := range jobs {
		template, err := job.Job.translated()
		if err != nil {
			bad = append(bad, fmt.Errorf("Jobs[%d].Job: %w", i, err))
		}
		inner[i] = producer.PeriodicJob{Name: job.Name, Spec: job.Spec, Job: template, Missed: job.Missed}
	}
	periodic, err := producer.NewPeriodic(c.producer, producer.PeriodicConfig{Logger: c.log, Jobs: inner})
	if err := errors.Join(append(bad, err)...); err != nil {
		return err
	}
	return periodic.Run(ctx)
}
