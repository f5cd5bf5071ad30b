package asynqbridge

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
)

// Headers of a task that say what the options of the same name say. Options win over ctx, ctx over headers.
const (
	HeaderTenant   = "headgate-tenant"
	HeaderPriority = "headgate-priority"
	HeaderCost     = "headgate-cost"
)

// option is one that asynq itself passes over.
type option[V any] struct {
	name  string
	value V
}

// ownOption is the type of all options of this package; asynq's begin at 0.
const ownOption asynq.OptionType = -1

func (o option[V]) String() string         { return fmt.Sprintf("%s(%v)", o.name, o.value) }
func (o option[V]) Type() asynq.OptionType { return ownOption }
func (o option[V]) Value() any             { return o.value }

type (
	tenantOption   struct{ option[string] }
	priorityOption struct{ option[admission.Priority] }
	costOption     struct{ option[admission.Tokens] }
)

// Tenant returns an option that names the customer on whose behalf a task runs. As an option of Enqueue it counts; as
// one of asynq.NewTask nobody but asynq sees it: use HeaderTenant there.
func Tenant(name string) asynq.Option { return tenantOption{option[string]{"Tenant", name}} }

// Priority returns an option that names a task's class, one of its queue's; headgate.Medium without it. As Tenant it is
// for Enqueue.
func Priority(class admission.Priority) asynq.Option {
	return priorityOption{option[admission.Priority]{"Priority", class}}
}

// Cost returns an option that says what a task takes from each bucket, 1 to headgate.MaxCost tokens; 1 without it. As
// Tenant it is for Enqueue.
func Cost(tokens admission.Tokens) asynq.Option {
	return costOption{option[admission.Tokens]{"Cost", tokens}}
}

type tenantKey struct{}

// WithTenant returns a ctx that names the tenant of what is enqueued with it.
func WithTenant(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, tenantKey{}, name)
}

// claim is what a task says of itself to Headgate.
type claim struct {
	tenant string
	class  admission.Priority
	cost   admission.Tokens
}

// claimOf reads headers, ctx and options, the last of which wins.
func claimOf(ctx context.Context, task *asynq.Task, options []asynq.Option) (claim, error) {
	headers := task.Headers()
	c := claim{tenant: headers[HeaderTenant], class: admission.Priority(headers[HeaderPriority]), cost: 1}
	if text, ok := headers[HeaderCost]; ok {
		cost, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			cost = 0
		}
		c.cost = admission.Tokens(cost)
	}
	if name, ok := ctx.Value(tenantKey{}).(string); ok {
		c.tenant = name
	}
	for _, o := range options {
		switch own := o.(type) {
		case tenantOption:
			c.tenant = own.value
		case priorityOption:
			c.class = own.value
		case costOption:
			c.cost = own.value
		}
	}
	if c.class == "" {
		c.class = admission.Medium
	}
	if err := admission.ValidateTenant(c.tenant); err != nil {
		return c, err
	}
	if c.cost < 1 || c.cost > admission.MaxCost {
		return c, &admission.FieldError{Field: "cost", Value: strconv.FormatInt(int64(c.cost), 10), Allowed: "1 to 1000000 tokens"}
	}
	return c, nil
}
