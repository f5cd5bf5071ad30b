package fleet

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Classes knows of the policy what a worker needs: the names of classes, since a record holds only their places in the queue's order,
// the least backoffs, and the limits that a cost goes by which a handler tells.
type Classes struct {
	policy atomic.Pointer[policy.Compiled]
}

// NewClasses knows the names of the built-in policy.
func NewClasses() (*Classes, error) {
	compiled, err := policy.Default().Prepare()
	c := &Classes{}
	c.policy.Store(compiled)
	return c, err
}

// Renew reads what an answer of the store says is stale: the records that it brings, or the policy.
func (c *Classes) Renew(ctx context.Context, of store.Partition, answer error) error {
	if learned, err := store.Learn(answer, c.policy.Load()); learned || err != nil {
		return err
	}
	return c.Read(ctx, of)
}

// Read reads the policy that the store holds. One that cannot be read leaves the names as they were.
func (c *Classes) Read(ctx context.Context, store store.Partition) error {
	text, err := store.Policy(ctx)
	if err != nil {
		return err
	}
	compiled, err := policy.PrepareStored(text)
	if err != nil {
		return fmt.Errorf("read policy: %w", err)
	}
	c.policy.Store(compiled)
	return nil
}

// Name returns the name of a queue's class; empty if this worker has not heard of it yet.
func (c *Classes) Name(queue string, class int) admission.Priority {
	name, _ := c.policy.Load().ClassAt(queue, class)
	return name
}

// Spent returns what the end of a job of a type says that it has cost, with the limits that this goes by; class is that of the job by its place in its
// queue.
func (c *Classes) Spent(f *store.Finish, class int, jobType string) *store.Spent {
	now := c.policy.Load()
	name, _ := now.ClassAt(f.Queue, class)
	way, ofType, record := now.WayOfType(f.Key.Tenant, f.Queue, name, jobType)
	limits := [admission.Levels]admission.Limit(way)
	return &store.Spent{
		Cost: f.Spent.Cost, Class: name, Limits: &limits, Version: now.Version(), Usage: now.UsageTenants(), Record: record,
		TypeLimit: store.TypeLimitOf(jobType, ofType),
	}
}

// LeastBackoff returns the least that a job's own header may give it to wait.
func (c *Classes) LeastBackoff(queue string) time.Duration {
	_, least := c.policy.Load().RetriesOf(queue)
	return least
}
