package redisstore_test

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// walkTypes are the types of jobs. Each has a limit of its own, or none.
var walkTypes = []string{"t", "u:v"}

// typedLimits are limits by type of all tenants and those that some have of their own, where the zero one says nothing, and how far they are cut by limits of
// a tenant.
type typedLimits struct {
	limits [2]admission.Limit
	own    [3][2]admission.Limit
	floors [3][2]int
}

// drawOwn draws limits by type that a tenant has of its own: others, none, or what all have.
func (w *walk) drawOwn() (own [2]admission.Limit) {
	for i := range own {
		if w.number("a type of its own", 0, 1) == 1 {
			own[i] = w.drawLimit()
		}
	}
	return own
}

// ofType is the limit of jobs of a type, nil for none: that of the tenant's record, its own in the policy, or that of all.
func (w *walk) ofType(tenant, jobType string) *admission.Limit {
	at := slices.Index(walkTypes, jobType)
	limit := w.typed.limits[at]
	if own := w.typed.own[max(0, slices.Index(walkTenants, tenant))%len(w.typed.own)][at]; own != (admission.Limit{}) {
		limit = own
	}
	if own := w.owned[tenant].types[at]; own != (admission.Limit{}) {
		limit = own
	}
	if limit.Disabled || limit.Tokens == 0 {
		return nil
	}
	if _, own := w.owned[tenant]; !own { // As its other limits there: those of records have none here.
		floor := w.typed.floors[max(0, slices.Index(walkTenants, tenant))%len(w.limits)]
		limit = limit.WithFloor(floor[0], floor[1])
	}
	return &limit
}

// ofJobs has questions that name a class ask for the type of a job, too.
func (w *walk) ofJobs(questions []store.Question) {
	for i := range questions {
		if q := &questions[i]; q.Class != "" && !strings.HasPrefix(string(q.Class), admission.TypeMark) {
			jobType := pick(w, "type", walkTypes)
			q.TypeLimit = store.TypeLimitOf(jobType, w.ofType(q.Tenant, jobType))
		}
	}
}
