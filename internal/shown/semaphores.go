package shown

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// SemaphorePage is how many semaphores a page has where nobody says how many.
const SemaphorePage = 50

// Semaphore is a limit of what is done at a time outside of jobs.
type Semaphore struct {
	Name string `json:"name"`
	// Limit is that of the policy in force, Held are permits.
	Limit   int `json:"limit"`
	Held    int `json:"held"`
	Waiting int `json:"waiting"`
	// Oldest is since when the first in line waits, absent where nobody does.
	Oldest *time.Time `json:"oldest,omitempty"`
}

// Semaphores are a page of them, by name.
type Semaphores struct {
	Semaphores []Semaphore `json:"semaphores"`
	// Cursor is that of the next page, empty at the end.
	Cursor string `json:"cursor"`
}

// ReadSemaphore returns what one holds; nothing, where nobody uses it. The policy learns the record of its tenant.
func ReadSemaphore(ctx context.Context, s store.Deployment, inForce *policy.Compiled, name string) (Semaphore, error) {
	if err := learnTenantsOf(ctx, s, inForce, name); err != nil {
		return Semaphore{}, err
	}
	return readSemaphore(ctx, s, inForce, name)
}

// learnTenantsOf has the policy learn the records of those whose semaphores they are, in one read.
func learnTenantsOf(ctx context.Context, s store.Deployment, inForce *policy.Compiled, names ...string) error {
	var tenants []string
	for _, name := range names {
		if tenant, _, bound := strings.Cut(name, ":"); bound && admission.ValidateTenant(tenant) == nil && !slices.Contains(tenants, tenant) {
			tenants = append(tenants, tenant)
		}
	}
	if len(tenants) == 0 || !inForce.HasRecords() {
		return nil
	}
	records, err := s.Records(ctx, tenants...)
	for i := range records {
		err = errors.Join(err, inForce.Learn(records[i].Tenant, records[i].Version, records[i].Text))
	}
	return err
}

// readSemaphore is ReadSemaphore by a policy that has learnt the record.
func readSemaphore(ctx context.Context, s store.Deployment, inForce *policy.Compiled, name string) (Semaphore, error) {
	state, err := s.Semaphore(ctx, name)
	v := Semaphore{Name: name, Limit: inForce.SemaphoreMax(name), Held: state.Held, Waiting: state.Waiting}
	if err != nil || state.Waiting == 0 {
		return v, err
	}
	now, err := s.Time(ctx)
	v.Oldest = Stamp(now.Add(-state.Oldest).UTC())
	return v, err
}

// ReadSemaphores returns up to most semaphores in use whose names are after the cursor, of one tenant, or of all where that is empty.
func ReadSemaphores(ctx context.Context, s store.Deployment, inForce *policy.Compiled, tenant, cursor string, most int) (Semaphores, error) {
	page := Semaphores{Semaphores: []Semaphore{}}
	names, err := s.SemaphoreNames(ctx)
	if err != nil {
		return page, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return name <= cursor && cursor != "" || tenant != "" && !strings.HasPrefix(name, tenant+":")
	})
	if len(names) > most {
		names = names[:most]
		page.Cursor = names[most-1]
	}
	if err := learnTenantsOf(ctx, s, inForce, names...); err != nil {
		return page, err
	}
	for _, name := range names {
		v, err := readSemaphore(ctx, s, inForce, name)
		if err != nil {
			return page, err
		}
		page.Semaphores = append(page.Semaphores, v)
	}
	return page, nil
}

// ReadInForce returns the policy in force.
func ReadInForce(ctx context.Context, s store.Deployment) (*policy.Compiled, error) {
	text, err := s.Policy(ctx)
	if err != nil {
		return nil, err
	}
	return policy.PrepareStored(text)
}
