package asynqbridge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
)

// maxRedrive is the largest number of tasks that a call of Redrive looks at, redrivePage how many of them it reads at a time.
const (
	maxRedrive  = 10_000
	redrivePage = 100
)

// Redrive runs archived tasks of a queue again, up to most of them, 1 to 10000, and returns how many. Each passes the token
// buckets first, as at its first time; asynq's own ways to run it do not. Its tenant is that of the header HeaderTenant,
// else of the id, where Fair has made it. At the first refusal it stops: the error is a *headgate.RefusedError that says
// when to go on. A task of no tenant is passed over, and the error says how many were; so is one that no wait helps, too costly
// or of a class that there is not, of which the error names the first.
func (c *Client) Redrive(ctx context.Context, queue string, most int) (run int, err error) {
	if most < 1 || most > maxRedrive {
		return 0, &admission.FieldError{Field: "most", Value: strconv.Itoa(most), Allowed: "1 to 10000 tasks"}
	}
	if err := admission.ValidateName("queue", queue, true); err != nil {
		return 0, err
	}
	inspector := asynq.NewInspectorFromRedisClient(c.redis)
	tasks, err := archived(inspector, queue, most)
	if err != nil {
		return 0, fmt.Errorf("redrive queue %s: %w", queue, err)
	}
	passed, hopeless := 0, error(nil)
	for _, task := range tasks {
		claim, err := claimOf(withTenantOf(ctx, task), asynq.NewTaskWithHeaders(task.Type, nil, task.Headers), nil)
		if err != nil {
			passed++
			continue
		}
		switch err = c.redrive(ctx, inspector, task, claim); {
		case errors.Is(err, asynq.ErrTaskNotFound): // Somebody else was quicker.
		case errors.Is(err, admission.ErrTooCostly) || errors.Is(err, admission.ErrInvalid):
			if hopeless == nil {
				hopeless = fmt.Errorf("redrive task %s of queue %s: %w", task.ID, queue, err)
			}
		case err != nil:
			return run, fmt.Errorf("redrive queue %s: %w", queue, err)
		default:
			run++
		}
	}
	if passed > 0 {
		hopeless = errors.Join(hopeless, &admission.FieldError{Field: "tenant", Value: fmt.Sprintf("none of %d tasks", passed), Allowed: "a header " + HeaderTenant + " and others that Enqueue takes"})
	}
	return run, hopeless
}

// archived returns up to most archived tasks of a queue.
func archived(inspector *asynq.Inspector, queue string, most int) (tasks []*asynq.TaskInfo, err error) {
	for page := 1; len(tasks) < most; page++ {
		found, err := inspector.ListArchivedTasks(queue, asynq.Page(page), asynq.PageSize(redrivePage))
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, found...)
		if len(found) < redrivePage {
			break
		}
	}
	return tasks[:min(len(tasks), most)], nil
}

// withTenantOf names the tenant of a task, as far as it is known.
func withTenantOf(ctx context.Context, task *asynq.TaskInfo) context.Context {
	tenant := task.Headers[HeaderTenant]
	if before, _, ok := strings.Cut(task.ID, ":"); ok && tenant == "" {
		tenant = before
	}
	return WithTenant(ctx, tenant)
}

// redrive runs one task again. A task that is no longer there gets its tokens back.
func (c *Client) redrive(ctx context.Context, inspector *asynq.Inspector, task *asynq.TaskInfo, own claim) error {
	receipt, err := c.take(ctx, own, task.Queue, task.Type)
	if err != nil {
		return err
	}
	err = inspector.RunTask(task.Queue, task.ID)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		return c.refund(ctx, receipt, attempt{}, err)
	}
	return fmt.Errorf("%w: %w", err, ErrNotRefunded)
}
